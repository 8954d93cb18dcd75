/* LAPACK in one process, by as many threads as asked for. */
#ifndef BENCH_DENSE_LAPACK_H
#define BENCH_DENSE_LAPACK_H

#include "check_dense.h"
#include "dense_scratch.h"

typedef struct {
    const dense_op_t *op;
    int n, n_threads;
    matrix_t operand, work; /* works on a copy */
    dense_scratch_t scratch;
} dense_lapack_t;

/* One process makes and runs it. */
void dense_lapack_create(dense_lapack_t *d, const char *op, int64_t n);
void dense_lapack_destroy(dense_lapack_t *d);

/* For bench_case_t. */
void dense_lapack_prepare(void *state);
void dense_lapack_run(void *state);

double dense_lapack_residual(const dense_lapack_t *d);

/* OpenBLAS's, in this process. */
void openblas_set_num_threads(int n);

#endif
