/* Blocks of an array along its first axis, one for each rank. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/hash.h"
#include "coll/coll.h"

#include <string.h>

static bool is_result(const plait_blocks_spec_t *s, const plait_array_t *array)
{
    return array == &s->problem->rets[0];
}

static const char *name_of(const plait_blocks_spec_t *s, const plait_array_t *array)
{
    return is_result(s, array) ? "result" : "operand";
}

static plait_status_t check_counts(const plait_blocks_spec_t *s, int64_t *n_rows_p)
{
    plait_status_t status = PLAIT_OK;
    int rank = s->problem->rank;
    int64_t n_rows = 0;

    PLAIT_CHECK(s->n_counts == s->problem->n_ranks, PLAIT_ERR_INVALID,
                "%s: counts has %lld entries, expected %d, one for each rank", s->op,
                (long long)s->n_counts, s->problem->n_ranks);
    for (int r = 0; r < s->problem->n_ranks; r++) {
        PLAIT_CHECK(s->counts[r] >= 0, PLAIT_ERR_INVALID,
                    "%s: counts[%d] is %lld, expected 0 or more", s->op, r,
                    (long long)s->counts[r]);
        PLAIT_CHECK(plait_add(n_rows, s->counts[r], &n_rows), PLAIT_ERR_OVERFLOW,
                    "%s: the counts sum to more than 2^63", s->op);
    }
    PLAIT_CHECK(s->part->ndim > 0 && s->part->dims[0] == s->counts[rank],
                PLAIT_ERR_INVALID,
                "%s: %s of rank %d has shape %s, expected %lld rows by its count",
                s->op, name_of(s, s->part), rank, plait_coll_shape(s->part).text,
                (long long)s->counts[rank]);
    *n_rows_p = n_rows;
done:
    return status;
}

/* The joined array has the part's shape with a longer first axis, or with one more axis in front. */
static plait_status_t check_joined(const plait_blocks_spec_t *s, int64_t n_rows)
{
    plait_status_t status = PLAIT_OK;
    const plait_array_t *joined = s->joined;
    const plait_array_t *part = s->part;
    int skip = (s->n_counts > 0) ? 1 : 0; /* axes of the part that are replaced */
    bool has_rows = joined->ndim > 0 && joined->dims[0] == n_rows;

    PLAIT_CHECK(has_rows || s->n_counts > 0, PLAIT_ERR_INVALID,
                "%s: %s must have shape (nproc, ...), got %s with nproc %d", s->op,
                name_of(s, joined), plait_coll_shape(joined).text, s->problem->n_ranks);
    PLAIT_CHECK(has_rows, PLAIT_ERR_INVALID,
                "%s: %s has shape %s, expected %lld rows, the sum of the counts", s->op,
                name_of(s, joined), plait_coll_shape(joined).text, (long long)n_rows);
    PLAIT_CHECK(joined->ndim == part->ndim + 1 - skip &&
                    (joined->ndim == 1 ||
                     memcmp(joined->dims + 1, part->dims + skip,
                            (size_t)(joined->ndim - 1) * sizeof(int64_t)) == 0),
                PLAIT_ERR_INVALID,
                "%s: operand has shape %s, result %s; behind the first axis of the %s "
                "they must be equal",
                s->op, plait_coll_shape(&s->problem->args[0]).text,
                plait_coll_shape(&s->problem->rets[0]).text, name_of(s, joined));
done:
    return status;
}

/* Bytes of one row, or of a whole block if all blocks are equal. */
static plait_status_t row_bytes(const plait_blocks_spec_t *s, int64_t *n_bytes_p)
{
    plait_array_t row = *s->part;
    int64_t n = 0;

    if (s->n_counts > 0) {
        row.ndim--;
        row.dims++;
    }
    return plait_array_size(&row, &n, n_bytes_p);
}

plait_status_t plait_blocks_create(const plait_blocks_spec_t *spec,
                                   plait_blocks_t *blocks)
{
    plait_status_t status = PLAIT_OK;
    int n_ranks = spec->problem->n_ranks;
    int64_t n_rows = n_ranks;
    int64_t bytes = 0;

    *blocks = (plait_blocks_t){.n_ranks = n_ranks};
    PLAIT_TRY(plait_coll_same_dtype(spec->op, &spec->problem->args[0],
                                    &spec->problem->rets[0]));
    if (spec->n_counts > 0) {
        PLAIT_TRY(check_counts(spec, &n_rows));
    }
    if (spec->joined != NULL) {
        PLAIT_TRY(check_joined(spec, n_rows));
    }
    PLAIT_TRY(row_bytes(spec, &bytes));
    blocks->start = plait_alloc(n_ranks + 1, sizeof(*blocks->start));
    PLAIT_CHECK(blocks->start != NULL, PLAIT_ERR_NO_MEMORY, "%s: no memory for a plan",
                spec->op);
    for (int r = 0; r < n_ranks; r++) {
        int64_t count = (spec->n_counts > 0) ? spec->counts[r] : 1;
        int64_t size = 0;
        PLAIT_CHECK(plait_mul(count, bytes, &size) &&
                        plait_add(blocks->start[r], size, &blocks->start[r + 1]),
                    PLAIT_ERR_OVERFLOW, "%s: the blocks have more than 2^63 bytes",
                    spec->op);
    }
done:
    return status;
}

void plait_blocks_clear(plait_blocks_t *blocks)
{
    plait_free(blocks->start);
    *blocks = (plait_blocks_t){0};
}

void plait_blocks_agree(plait_plan_t *plan, const plait_blocks_t *blocks)
{
    size_t n_bytes = ((size_t)blocks->n_ranks + 1) * sizeof(*blocks->start);

    plait_plan_agree(plan, plait_hash_bytes(PLAIT_HASH_SEED, blocks->start, n_bytes));
}
