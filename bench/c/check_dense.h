/* How far the results of dense operations are from right. */
#ifndef BENCH_CHECK_DENSE_H
#define BENCH_CHECK_DENSE_H

#include "matrix.h"
#include "rounds.h"

/* What an operation has made of the operand; both in any layout. */
typedef struct {
    const matrix_t *operand, *result; /* operand: of potri the factor */
    const double *values;             /* eigenvalues */
    const int32_t *pivots;            /* rows that were exchanged, counted from 0 */
} dense_result_t;

typedef enum {
    DENSE_POTRF,
    DENSE_POTRI,
    DENSE_GETRF,
    DENSE_GEQRF,
    DENSE_SYEVD,
    DENSE_N_OPS
} dense_index_t;

typedef struct {
    dense_index_t index;
    const char *name;
    matrix_kind_t kind; /* of the operand; of what potri inverts */
    /* ||y - z|| / ||y||, y and z being what operand and result make of a vector; of the size of
     * rounding if the result is right. Collective over the team. */
    double (*residual)(team_t *team, const dense_result_t *r);
} dense_op_t;

/* potrf, potri (lower triangle of the inverse from the factor), getrf, geqrf, syevd. */
const dense_op_t *dense_op(const char *name);

/* A team of this process alone. */
team_t team_alone(void);

#endif
