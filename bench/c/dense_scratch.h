/* Memory that LAPACK and ScaLAPACK want beside a matrix. */
#ifndef BENCH_DENSE_SCRATCH_H
#define BENCH_DENSE_SCRATCH_H

#include <stdint.h>

typedef struct {
    double *side, *work; /* eigenvalues, or factors of reflectors */
    int *pivots, *ints;
    int n_work, n_ints;
} dense_scratch_t;

/* n_side: numbers of each array beside the matrix. */
void dense_scratch_create(dense_scratch_t *s, int64_t n_side);
void dense_scratch_destroy(dense_scratch_t *s);

/* Work as much as `run` says when n_work and n_ints are -1, and n_more numbers. */
void dense_scratch_ask(dense_scratch_t *s, void (*run)(void *state), void *state,
                       int64_t n_more);

#endif
