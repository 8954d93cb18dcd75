#include "base/alloc.h"

#include "base/checked.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20 };

static _Atomic int64_t n_live;
static _Thread_local int64_t tally;

void *plait_alloc(int64_t n, int64_t size)
{
    int64_t n_bytes = 0;
    void *p = NULL;

    if (plait_mul(n, size, &n_bytes)) {
        p = calloc(1, (n_bytes > 0) ? (size_t)n_bytes : 1);
    }
    if (p != NULL) {
        atomic_fetch_add_explicit(&n_live, 1, memory_order_relaxed);
        tally += (int64_t)malloc_usable_size(p);
    }
    return p;
}

void *plait_alloc_aligned(int64_t n_bytes)
{
    size_t align = (n_bytes >= HUGE_PAGE) ? HUGE_PAGE : LINE;
    int64_t padded = 0;
    void *p = NULL;

    /* 0 bytes take one line, so that every block has its own address. */
    if ((n_bytes >= 0) &&
        plait_add(plait_max(n_bytes, 1), (int64_t)align - 1, &padded)) {
        padded -= padded % (int64_t)align;
        p = aligned_alloc(align, (size_t)padded);
    }
    if (p != NULL) {
        if (align == HUGE_PAGE) {
            (void)madvise(p, (size_t)padded, MADV_HUGEPAGE); /* a hint */
        }
        atomic_fetch_add_explicit(&n_live, 1, memory_order_relaxed);
        tally += (int64_t)malloc_usable_size(p);
    }
    return p;
}

void plait_free(void *p)
{
    if (p != NULL) {
        atomic_fetch_sub_explicit(&n_live, 1, memory_order_release);
        tally -= (int64_t)malloc_usable_size(p);
    }
    free(p);
}

int64_t plait_alloc_tally(void)
{
    return tally;
}

void plait_alloc_share(int64_t n_bytes)
{
    tally += n_bytes;
}

int64_t plait_alloc_balance(void)
{
    return atomic_load_explicit(&n_live, memory_order_acquire);
}
