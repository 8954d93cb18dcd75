#include "base/number.h"

#include <stdatomic.h>

static _Atomic int64_t next_number = 1;

int64_t plait_number_take(void)
{
    return atomic_fetch_add(&next_number, 1);
}

bool plait_number_claim(int64_t number)
{
    int64_t next = atomic_load(&next_number);
    bool is_taken = false;

    while (next <= number && !is_taken) {
        is_taken = atomic_compare_exchange_weak(&next_number, &next, number + 1);
    }
    return is_taken;
}

int64_t plait_number_next(void)
{
    return atomic_load(&next_number);
}
