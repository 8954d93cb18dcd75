#include "dense/whole.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/scalar.h"

#include <math.h>
#include <stdatomic.h>

static _Atomic int64_t chosen_whole = -1;

void plait_dense_choose_whole(int64_t n)
{
    atomic_store(&chosen_whole, n);
}

bool plait_dense_is_whole(int64_t m, int64_t n, bool is_cheaper)
{
    const int64_t chosen = atomic_load(&chosen_whole);

    return (chosen >= 0) ? plait_max(m, n) <= chosen : is_cheaper;
}

bool plait_whole_is_cheaper(const plait_dealt_t *d, double n_flops)
{
    /* Measured with two processes on one EPYC, n from 16 to 1000 (OpenBLAS): LAPACK's operations per second in
     * double precision; bytes per second from another process's memory; additional seconds per panel, and for
     * one rank's call of LAPACK with the fences around it. */
    const double rate = (plait_real_of(d->dtype) == PLAIT_F32) ? 60e9 : 30e9;
    const double bandwidth = 4.4e9, panel_s = 8e-6, alone_s = 25e-6;
    const double n_bytes = (double)d->n * (double)plait_dealt_ld_bytes(d);
    const double extent = (double)plait_max(1, plait_min(d->m, d->n));
    const double n_panels = ceil(extent / (double)d->block);
    const double n_sharing = fmin(n_panels, (double)d->n_ranks);
    /* a panel's operations, which are not shared, at half the speed */
    const double serial = 2 * n_flops * fmin(1, (double)d->block / extent) / rate;
    const double alone = n_flops / rate + 2 * n_bytes / bandwidth + alone_s;
    const double dealt = n_flops / rate / n_sharing + serial + n_bytes / 2 / bandwidth +
                         n_panels * panel_s * log2((double)d->n_ranks);

    return d->n_ranks > 1 && alone < dealt;
}

static bool is_root(const plait_plan_t *plan)
{
    return plan->rank == PLAIT_WHOLE_ROOT;
}

plait_status_t plait_whole_slot(plait_plan_t *plan, const plait_dealt_t *d, int *slot_p)
{
    return plait_plan_add_work(plan, is_root(plan) ? d->n * plait_dealt_ld_bytes(d) : 0,
                               slot_p);
}

/* Rows of block k that any rank needs: in a lower matrix none above the block's first diagonal element. */
static plait_block_t block_of(const plait_dealt_t *d, int64_t k, bool is_lower,
                              int peer)
{
    const int64_t ld = plait_dealt_ld_bytes(d);
    const int64_t row = is_lower ? plait_min(plait_dealt_column(d, k), d->m) : 0;
    const int64_t whole_offset =
        plait_dealt_column(d, k) * ld + row * plait_dealt_item(d);

    return (plait_block_t){
        .peer = peer,
        .src_offset = plait_dealt_at(d, k, row),
        .dst_offset = whole_offset,
        .box = plait_columns_box(d->m - row, plait_dealt_width(d, k), d->m,
                                 plait_dealt_item(d)),
    };
}

plait_status_t plait_whole_collect(plait_plan_t *plan, const plait_dealt_t *d,
                                   bool is_lower, int slot, int whole_slot)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};

    for (int64_t k = 0; k < plait_dealt_n_blocks(d); k++) {
        const int owner = plait_dealt_owner(d, k);
        plait_block_t block = block_of(d, k, is_lower, owner);
        block.src_slot = slot;
        block.dst_slot = whole_slot;
        PLAIT_TRY(plait_dealt_between(plan, owner, PLAIT_WHOLE_ROOT, &block, &move));
    }
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

/* Zeroes n_rows rows of n_columns of this rank's columns. */
static plait_status_t add_zeros(const plait_plan_t *plan, const plait_dealt_t *d,
                                int slot, int64_t column, int64_t n_columns,
                                int64_t n_rows, plait_move_t *move)
{
    plait_block_t block = {
        .peer = plan->rank,
        .kind = PLAIT_BLOCK_ZERO,
        .src_slot = slot,
        .dst_slot = slot,
        .dst_offset = column * plait_dealt_ld_bytes(d),
        .box = plait_columns_box(n_rows, n_columns, d->m, plait_dealt_item(d))};

    plait_box_simplify(&block.box);
    return (plait_box_bytes(&block.box) > 0) ? plait_move_add_in(move, &block)
                                             : PLAIT_OK;
}

/* Zeroes what no other rank sends: rows above blocks, and what is behind this rank's columns. */
static plait_status_t add_own_zeros(const plait_plan_t *plan, const plait_dealt_t *d,
                                    bool is_lower, int slot, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    const int64_t owned = plait_dealt_owned(d, plan->rank);

    for (int64_t k = plan->rank; is_lower && k < plait_dealt_n_blocks(d);
         k += plan->n_ranks) {
        PLAIT_TRY(add_zeros(plan, d, slot, plait_dealt_local(d, k),
                            plait_dealt_width(d, k),
                            plait_min(plait_dealt_column(d, k), d->m), move));
    }
    PLAIT_TRY(
        add_zeros(plan, d, slot, owned, plait_dealt_stored(d) - owned, d->m, move));
done:
    return status;
}

plait_status_t plait_whole_share(const plait_plan_t *plan, int slot, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    const plait_block_t block = {.kind = PLAIT_BLOCK_COPY,
                                 .src_slot = slot,
                                 .dst_slot = slot,
                                 .box = {.row_bytes = plan->slot_bytes[slot]}};

    for (int r = 0; r < plan->n_ranks && block.box.row_bytes > 0; r++) {
        if (r != PLAIT_WHOLE_ROOT) {
            PLAIT_TRY(plait_dealt_between(plan, PLAIT_WHOLE_ROOT, r, &block, move));
        }
    }
done:
    return status;
}

plait_status_t plait_whole_deal(plait_plan_t *plan, const plait_dealt_t *d,
                                bool is_lower, int whole_slot, int64_t first, int slot,
                                int n_shared, const int shared_slots[])
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};

    for (int64_t k = 0; k < plait_dealt_n_blocks(d); k++) {
        const int owner = plait_dealt_owner(d, k);
        const plait_block_t there = block_of(d, k, is_lower, owner);
        plait_block_t back = there;
        back.src_slot = whole_slot;
        back.dst_slot = slot;
        back.src_offset = there.dst_offset + first * plait_dealt_ld_bytes(d);
        back.dst_offset = there.src_offset;
        PLAIT_TRY(plait_dealt_between(plan, PLAIT_WHOLE_ROOT, owner, &back, &move));
    }
    for (int i = 0; i < n_shared; i++) {
        PLAIT_TRY(plait_whole_share(plan, shared_slots[i], &move));
    }
    PLAIT_TRY(add_own_zeros(plan, d, is_lower, slot, &move));
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}
