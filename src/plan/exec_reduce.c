/* Reductions over ranks' pieces, in rank order: the bits are the same whichever rank computes them. */
#include "base/checked.h"
#include "kernel/reduce.h"
#include "plan/exec_steps.h"

#include <string.h>

/* Makes bytes [at, at + n_bytes) of piece q readable here; with one-copy reads they come to `to`. */
static plait_status_t piece_of(plait_exec_t *exec, const plait_reduce_step_t *r, int q,
                               int64_t at, int64_t n_bytes, char *to,
                               const char **piece_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_plan_t *plan = exec->plan;
    int rank = r->is_local ? plan->rank : r->first + q;
    int64_t offset = r->src_offset + at + (r->is_local ? q * r->piece_stride : 0);

    if (rank == plan->rank || plait_exec_reaches(exec, rank, r->src_slot)) {
        *piece_p = plait_exec_peer(exec, rank, r->src_slot) + offset;
    } else {
        const plait_box_copy_t box = {.row_bytes = n_bytes};
        PLAIT_TRY(plait_exec_read_box(exec, rank, r->src_slot, offset, &box, to));
        *piece_p = to;
    }
done:
    return status;
}

/* One piece: the result is the operand, but of a logical reduction still 0 or 1. */
static void reduce_alone(const plait_reduce_step_t *r, int64_t n, void *dst,
                         const char *piece)
{
    if (plait_reduce_is_logical(r->op)) {
        plait_reduce_find(PLAIT_LOR, r->dtype)(n, dst, piece, piece);
    } else if (dst != piece) {
        memcpy(dst, piece, (size_t)(n * plait_dtype_bytes(r->dtype)));
    }
}

/* Whether own pieces lie where the result is written. */
static bool is_in_place(const plait_exec_t *exec, const plait_reduce_step_t *r)
{
    const uintptr_t src = (uintptr_t)(exec->slot[r->src_slot] + r->src_offset);
    const uintptr_t dst = (uintptr_t)(exec->slot[r->dst_slot] + r->dst_offset);
    const int64_t n_dst = r->n * plait_dtype_bytes(r->dtype);
    const int64_t n_src =
        n_dst + (r->is_local ? (r->n_pieces - 1) * r->piece_stride : 0);

    return src < dst + (uintptr_t)n_dst && dst < src + (uintptr_t)n_src;
}

/* Blocks of half a chunk. The sum is kept in its place, and the first piece that is read comes there; the
 * others come to the scratch. Where an own piece lies in that place, it is read as soon as it is due and
 * never after the result was written, because the sum of the ranks before it is kept in the scratch. */
plait_status_t plait_exec_reduce(plait_exec_t *exec, const plait_reduce_step_t *r)
{
    plait_status_t status = PLAIT_OK;
    plait_reduce_fn_t fn = plait_reduce_find(r->op, r->dtype);
    int64_t item = plait_dtype_bytes(r->dtype);
    int64_t n_block = PLAIT_READ_CHUNK / 2 / item;
    /* published bytes are not in the operand's memory; a rank alone has no other pieces */
    bool is_apart = r->src_slot != PLAIT_SLOT_PUBLISHED && exec->plan->n_ranks > 1 &&
                    is_in_place(exec, r);

    for (int64_t at = 0; at < r->n; at += n_block) {
        int64_t n = plait_min(n_block, r->n - at);
        char *dst = exec->slot[r->dst_slot] + r->dst_offset + at * item;
        char *sum = is_apart ? exec->scratch + PLAIT_READ_CHUNK / 2 : dst;
        const char *piece = NULL;

        if (r->n_pieces == 0) {
            plait_reduce_fill(r->op, r->dtype, n, dst);
            continue;
        }
        PLAIT_TRY(piece_of(exec, r, 0, at * item, n * item, sum, &piece));
        if (r->n_pieces == 1) {
            reduce_alone(r, n, dst, piece);
            continue;
        }
        const char *before = piece;
        for (int q = 1; q < r->n_pieces; q++) {
            char *to = (before == sum) ? exec->scratch : sum;
            PLAIT_TRY(piece_of(exec, r, q, at * item, n * item, to, &piece));
            fn(n, (q == r->n_pieces - 1) ? dst : sum, before, piece);
            before = sum;
        }
    }
done:
    return status;
}
