/* Every rank gives every rank a block: a transposition of ranks and blocks. */
#include "base/checked.h"
#include "base/hash.h"
#include "coll/coll.h"

#include <string.h>

static const plait_attr_t alltoall_attrs[] = {
    PLAIT_ATTR_LIST(plait_alltoall_params_t, counts),
    PLAIT_ATTR_END,
};

typedef struct {
    int n_ranks;
    int64_t row_bytes;     /* of a whole block if all blocks are equal */
    const int64_t *counts; /* NULL: one row from each rank to each */
} table_t;

static int64_t count_of(const table_t *t, int from, int to)
{
    return (t->counts != NULL) ? t->counts[(int64_t)from * t->n_ranks + to] : 1;
}

/* The operand of `from` has its blocks in the order of their receivers, the result of `to` in the order of
 * their senders. */
static plait_piece_t piece_of(const void *context, int from, int to)
{
    const table_t *t = context;
    int64_t src_row = 0;
    int64_t dst_row = 0;

    for (int q = 0; q < to; q++) {
        src_row += count_of(t, from, q);
    }
    for (int q = 0; q < from; q++) {
        dst_row += count_of(t, q, to);
    }
    return (plait_piece_t){.src_offset = src_row * t->row_bytes,
                           .dst_offset = dst_row * t->row_bytes,
                           .n_bytes = count_of(t, from, to) * t->row_bytes};
}

/* Checks that an array has as many rows as the counts say: those that this rank sends, or those that it
 * receives. */
static plait_status_t check_rows(const table_t *t, const plait_problem_t *problem,
                                 bool is_sent)
{
    plait_status_t status = PLAIT_OK;
    const plait_array_t *array = is_sent ? &problem->args[0] : &problem->rets[0];
    int64_t n_rows = 0;

    for (int q = 0; q < t->n_ranks; q++) {
        n_rows +=
            is_sent ? count_of(t, problem->rank, q) : count_of(t, q, problem->rank);
    }
    PLAIT_CHECK(
        array->ndim > 0 && array->dims[0] == n_rows, PLAIT_ERR_INVALID,
        "alltoall: %s of rank %d has shape %s, expected %lld rows by the counts",
        is_sent ? "operand" : "result", problem->rank, plait_coll_shape(array).text,
        (long long)n_rows);
done:
    return status;
}

/* *n_rows_p is zero before, and the number of rows of all ranks after. */
static plait_status_t check_counts(const plait_alltoall_params_t *p,
                                   const plait_problem_t *problem, int64_t *n_rows_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_array_t *x = &problem->args[0];
    const plait_array_t *y = &problem->rets[0];
    int n = problem->n_ranks;
    const table_t table = {.n_ranks = n, .counts = p->counts};

    PLAIT_CHECK(p->n_counts == (int64_t)n * n, PLAIT_ERR_INVALID,
                "alltoall: counts has %lld entries, expected %d x %d",
                (long long)p->n_counts, n, n);
    for (int64_t i = 0; i < p->n_counts; i++) {
        PLAIT_CHECK(p->counts[i] >= 0, PLAIT_ERR_INVALID,
                    "alltoall: counts[%d][%d] is %lld, expected 0 or more",
                    (int)(i / n), (int)(i % n), (long long)p->counts[i]);
        PLAIT_CHECK(plait_add(*n_rows_p, p->counts[i], n_rows_p), PLAIT_ERR_OVERFLOW,
                    "alltoall: the counts sum to more than 2^63");
    }
    PLAIT_TRY(check_rows(&table, problem, true));
    PLAIT_TRY(check_rows(&table, problem, false));
    PLAIT_CHECK(x->ndim == y->ndim &&
                    memcmp(x->dims + 1, y->dims + 1,
                           (size_t)(x->ndim - 1) * sizeof(int64_t)) == 0,
                PLAIT_ERR_INVALID,
                "alltoall: operand has shape %s, result %s; behind the first axis they "
                "must be equal",
                plait_coll_shape(x).text, plait_coll_shape(y).text);
done:
    return status;
}

static plait_status_t check(const plait_alltoall_params_t *p,
                            const plait_problem_t *problem, int64_t *n_rows_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_array_t *x = &problem->args[0];

    PLAIT_TRY(plait_coll_same_dtype("alltoall", x, &problem->rets[0]));
    if (p->n_counts > 0) {
        PLAIT_TRY(check_counts(p, problem, n_rows_p));
    } else {
        PLAIT_CHECK(x->ndim > 0 && x->dims[0] == problem->n_ranks, PLAIT_ERR_INVALID,
                    "alltoall: operand must have shape (nproc, ...), got %s with nproc "
                    "%d",
                    plait_coll_shape(x).text, problem->n_ranks);
        PLAIT_TRY(plait_coll_same("alltoall", x, &problem->rets[0]));
    }
done:
    return status;
}

static plait_status_t alltoall_plan(const void *params, const plait_problem_t *problem,
                                    plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_alltoall_params_t *p = params;
    const plait_array_t *x = &problem->args[0];
    table_t table = {.n_ranks = problem->n_ranks,
                     .counts = (p->n_counts > 0) ? p->counts : NULL};
    plait_plan_t *plan = NULL;
    plait_array_t row = *x;
    int64_t n = 0;
    int64_t n_rows = 0;
    int64_t n_bytes = 0;

    PLAIT_TRY(check(p, problem, &n_rows));
    row.ndim--;
    row.dims++;
    PLAIT_TRY(plait_array_size(&row, &n, &table.row_bytes));
    /* offsets of all ranks' blocks must fit, even of blocks that this rank neither sends nor receives */
    PLAIT_CHECK(plait_mul(n_rows, table.row_bytes, &n_bytes), PLAIT_ERR_OVERFLOW,
                "alltoall: by the counts there are more than 2^63 bytes");
    PLAIT_TRY(plait_plan_create(problem, &plan, "alltoall(%s%s%s)",
                                plait_dtype_name(x->dtype), plait_coll_shape(x).text,
                                plait_coll_counts(p->n_counts, p->counts).text));
    plait_plan_agree(plan, plait_hash_bytes(PLAIT_HASH_SEED, p->counts,
                                            (size_t)p->n_counts * sizeof(int64_t)));
    plait_plan_agree(plan, (uint64_t)table.row_bytes);
    plait_plan_agree(plan, x->dtype);
    PLAIT_TRY(plait_coll_exchange(plan, problem, piece_of, &table));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_alltoall = {
    .name = "alltoall",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_alltoall_params_t),
    .attrs = alltoall_attrs,
    .adjoint = "alltoall",
    .alias = -1,
    .model = "rank",
    .doc = "Block r of every rank to rank r, in rank order.",
    .line = "MPI_Alltoall ({items} items)",
    .plan = alltoall_plan,
};
