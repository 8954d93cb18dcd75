/* The kernels of each instruction set that this processor has, one after the other. */
#ifndef PLAIT_TESTS_ISA_H
#define PLAIT_TESTS_ISA_H

#include "kernel/fft.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { N_ISAS = 4 };

/* Uses the l-th instruction set from now on; false: the processor lacks it. */
static inline bool isa_use(int l)
{
    static const char *const isa[N_ISAS] = {"generic", "sse2", "avx2", "avx512"};

    (void)setenv("PLAIT_ISA", isa[l], 1);
    return strcmp(plait_fft1_isa(), isa[l]) == 0;
}

/* Lengths of a transform: all up to one, some longer ones, and long ones. */
typedef struct {
    int64_t all;
    const int64_t *some, *longs;
    size_t n_some, n_longs;
} isa_lengths_t;

static inline void isa_test_each(const isa_lengths_t *of,
                                 void (*test)(int64_t n, bool is_long))
{
    for (int l = 0; l < N_ISAS; l++) {
        if (!isa_use(l)) {
            continue;
        }
        for (int64_t n = 1; n <= of->all; n++) {
            test(n, false);
        }
        for (size_t i = 0; i < of->n_some; i++) {
            test(of->some[i], false);
        }
        for (size_t i = 0; i < of->n_longs; i++) {
            test(of->longs[i], true);
        }
    }
}

#endif
