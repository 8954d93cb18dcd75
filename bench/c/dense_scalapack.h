/* ScaLAPACK on MPI's ranks: any grid of them, any block. */
#ifndef BENCH_DENSE_SCALAPACK_H
#define BENCH_DENSE_SCALAPACK_H

#include "dense_scratch.h"
#include "dense_sides.h"

enum { SCALAPACK_DESC = 9 };

typedef struct {
    const dense_op_t *op;
    int n, context, desc[SCALAPACK_DESC];
    matrix_t operand, work; /* works on a copy */
    matrix_t vectors;       /* of syevd */
    dense_scratch_t scratch;
} dense_scalapack_t;

/* Collective over MPI's world, which has grid[0] * grid[1] ranks. */
void dense_scalapack_create(dense_scalapack_t *d, const char *op, int64_t n,
                            const int grid[2], int64_t block);
void dense_scalapack_destroy(dense_scalapack_t *d);

/* For bench_case_t. */
void dense_scalapack_prepare(void *state);
void dense_scalapack_run(void *state);

double dense_scalapack_residual(team_t *team, const dense_scalapack_t *d);

extern const dense_kind_t dense_of_scalapack;

#endif
