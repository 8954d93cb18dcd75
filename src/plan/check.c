#include "plan/check.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "device/box.h"
#include "plan/check_messages.h"

#include <string.h>

/* A rank's buffers, and the bytes that it published at the last two fences, in turn. */
enum { N_SHADOWS = PLAIT_SLOT_PUBLISHED + 2 };

/* Phases are counted from 1. Phase p begins when the fence before it is over, and ends with the arrival at the
 * p-th fence. A step between an arrival and its fence counts as in the earlier phase for what the step may see,
 * and as in the later phase for who may see its effects. */
typedef struct {
    int written; /* phase, at its end, of the last write; 0: never            */
    int put;     /* the same for the last write by a peer                     */
    int read;    /* the same for the last read by a peer                      */
    int own;     /* the same for the last read by the owner                   */
    int moved;   /* step that moved it here, from 1; 0: a kernel or reduction */
    bool used;   /* read since then                                           */
} byte_t;

/* Of all bytes that the plan treats alike, only one is checked: the first of each unit. */
typedef struct {
    int64_t n_bytes;
    byte_t *bytes; /* one for each unit */
} shadow_t;

typedef struct {
    plait_plan_t *const *plans;
    int n_ranks;
    int alias;
    int64_t unit;                 /* bytes; divides all lengths and offsets */
    shadow_t (*slots)[N_SHADOWS]; /* by rank; NULL: the unit is still being found */
    /* what is being checked */
    int rank, step;
    int phase; /* the phase that has begun */
    int ends;  /* that has not ended: `phase`, or the next after an arrival */
    plait_status_t status;
} check_t;

static int slot_of(const check_t *c, const plait_plan_t *plan, int slot)
{
    if (slot == PLAIT_SLOT_PUBLISHED) {
        return slot + (c->phase - 1) % 2; /* by the fence before this phase */
    }
    return (slot == plait_slot_ret(plan, 0) && c->alias >= 0) ? c->alias : slot;
}

static void fault(check_t *c, const char *what, int peer, int slot, int64_t at)
{
    if (c->status == PLAIT_OK) {
        c->status = plait_fail(
            PLAIT_ERR_INTERNAL,
            "%s, rank %d of %d, step %d, phase %d: %s, rank %d slot %d byte %lld",
            c->plans[c->rank]->title, c->rank, c->n_ranks, c->step + 1, c->phase, what,
            peer, slot, (long long)at);
    }
}

/* Why a byte may not be read in this phase; NULL: it may. */
static const char *not_readable(const byte_t *b, bool is_own, bool is_published,
                                int phase)
{
    const char *why = NULL;

    if (b->written == 0) {
        why = "reads what nobody has written";
    } else if (is_published && b->written != phase - 1) {
        why = "reads what was published at an earlier fence";
    } else if (b->put >= phase) {
        why = "reads what a peer of the owner writes in the same phase";
    } else if (!is_own && b->written >= phase) {
        why = "reads what its owner writes in the same phase";
    }
    return why;
}

typedef enum { WRITE_ONCE, WRITE_ADD, WRITE_AGAIN } write_t;

/* Moves fill results once; they may fill work again and again, and a result, too, if it was read in between and
 * so has served as work. */
static const char *not_writable(const byte_t *b, bool is_work, write_t how, int phase,
                                int step)
{
    const char *why = NULL;

    if (b->read >= phase) {
        why = "overwrites what a peer reads in the same phase";
    } else if (b->put >= phase) {
        why = "writes what a peer writes in the same phase";
    } else if (how == WRITE_ONCE && b->moved > 0 &&
               ((!is_work && !b->used) || b->moved == step)) {
        why = "writes twice";
    } else if (how == WRITE_ADD && b->written == 0) {
        why = "adds to what nobody has written";
    }
    return why;
}

/* Writes to a peer's memory: no other rank may use the byte in the same phase. */
static const char *not_puttable(const byte_t *b, int phase)
{
    const char *why = NULL;

    if (b->written >= phase) {
        why = "writes what is written in the same phase";
    } else if (b->read >= phase || b->own >= phase) {
        why = "overwrites what is read in the same phase";
    }
    return why;
}

/* Calls for each row of a box, on its source or destination side: units [at, at + n). */
typedef void (*row_fn_t)(check_t *c, int peer, int slot, int64_t at, int64_t n,
                         write_t how);

static void read_fn(check_t *c, int peer, int slot, int64_t at, int64_t n, write_t how)
{
    byte_t *bytes = c->slots[peer][slot].bytes + at;
    const bool is_own = peer == c->rank;
    const bool is_published = slot >= PLAIT_SLOT_PUBLISHED;
    const int phase = c->phase, ends = c->ends;

    (void)how;
    for (int64_t i = 0; i < n; i++) {
        const char *why = not_readable(&bytes[i], is_own, is_published, phase);
        if (why != NULL) {
            fault(c, why, peer, slot, (at + i) * c->unit);
        }
        *(is_own ? &bytes[i].own : &bytes[i].read) = ends;
        bytes[i].used = true;
    }
}

/* A message that goes out while its move is under way. */
static void send_fn(check_t *c, int peer, int slot, int64_t at, int64_t n, write_t how)
{
    const byte_t *bytes = c->slots[peer][slot].bytes + at;

    read_fn(c, peer, slot, at, n, how);
    for (int64_t i = 0; i < n; i++) {
        if (bytes[i].moved == c->step + 1) {
            fault(c, "sends what the same move has overwritten", peer, slot,
                  (at + i) * c->unit);
        }
    }
}

static void write_fn(check_t *c, int peer, int slot, int64_t at, int64_t n, write_t how)
{
    const plait_plan_t *plan = c->plans[c->rank];
    byte_t *bytes = c->slots[c->rank][slot].bytes + at;
    const bool is_work = slot >= plan->n_args + plan->n_rets;
    const int phase = c->phase, step = c->step + 1;
    const byte_t now = {.written = c->ends, .moved = (how == WRITE_AGAIN) ? 0 : step};

    (void)peer;
    for (int64_t i = 0; i < n; i++) {
        const char *why = not_writable(&bytes[i], is_work, how, phase, step);
        if (why != NULL) {
            fault(c, why, c->rank, slot, (at + i) * c->unit);
        }
        bytes[i].moved = now.moved;
        bytes[i].written = now.written;
        bytes[i].used = false;
    }
}

static void put_fn(check_t *c, int peer, int slot, int64_t at, int64_t n, write_t how)
{
    byte_t *bytes = c->slots[peer][slot].bytes + at;

    (void)how;
    for (int64_t i = 0; i < n; i++) {
        const char *why = not_puttable(&bytes[i], c->phase);
        if (why != NULL) {
            fault(c, why, peer, slot, (at + i) * c->unit);
        }
        bytes[i].moved = 0;
        bytes[i].put = c->ends;
        bytes[i].written = c->ends;
        bytes[i].used = false;
    }
}

/* From now on the unit divides n_bytes as well. */
static void divide(check_t *c, int64_t n_bytes)
{
    int64_t rest = (n_bytes < 0) ? -n_bytes : n_bytes;

    while (rest > 0) { /* Euclid */
        const int64_t divisor = rest;
        rest = c->unit % divisor;
        c->unit = divisor;
    }
}

static void divide_box(check_t *c, int64_t offset, const plait_box_copy_t *box,
                       bool is_dst)
{
    divide(c, offset);
    divide(c, box->row_bytes);
    for (int d = 0; d < box->n_dims; d++) {
        divide(c, is_dst ? box->dst_stride[d] : box->src_stride[d]);
    }
}

static void each_row(check_t *c, int peer, int slot, int64_t offset,
                     const plait_box_copy_t *box, bool is_dst, row_fn_t fn, write_t how)
{
    int64_t n_rows = (box->row_bytes > 0) ? plait_box_bytes(box) / box->row_bytes : 0;
    int real_slot = slot_of(c, c->plans[peer], slot);
    plait_box_walk_t walk = {0};

    if (c->slots == NULL) {
        divide_box(c, offset, box, is_dst);
        return;
    }
    const int64_t n_bytes = c->slots[peer][real_slot].n_bytes;
    for (int64_t row = 0; row < n_rows && c->status == PLAIT_OK; row++) {
        const int64_t at = offset + (is_dst ? walk.dst : walk.src);
        if (at < 0 || at + box->row_bytes > n_bytes) {
            fault(c, "goes beyond the buffer", peer, slot, at);
            break;
        }
        fn(c, peer, real_slot, at / c->unit, box->row_bytes / c->unit, how);
        (void)plait_box_next(box, box->n_dims, &walk);
    }
}

static void check_in(check_t *c, const plait_block_t *b)
{
    bool is_zero = b->kind == PLAIT_BLOCK_ZERO;
    bool is_remote_message = c->plans[c->rank]->direct == PLAIT_DIRECT_NONE &&
                             b->peer != c->rank && b->src_slot != PLAIT_SLOT_PUBLISHED;
    const plait_plan_t *plan = c->plans[c->rank];
    bool is_in_place = b->peer == c->rank && !is_zero &&
                       slot_of(c, plan, b->src_slot) == slot_of(c, plan, b->dst_slot) &&
                       b->src_offset == b->dst_offset;

    if (is_in_place && b->kind == PLAIT_BLOCK_COPY) {
        return; /* nothing moves */
    }
    if (!is_zero && !is_remote_message) {
        each_row(c, b->peer, b->src_slot, b->src_offset, &b->box, false, read_fn,
                 WRITE_ONCE);
    }
    each_row(c, c->rank, b->dst_slot, b->dst_offset, &b->box, true, write_fn,
             (b->kind == PLAIT_BLOCK_ADD) ? WRITE_ADD : WRITE_ONCE);
}

/* Everything that leaves is read before anything comes. */
static void check_move_in_place(check_t *c, const plait_move_t *move)
{
    for (int64_t i = 0; i < move->n_in; i++) {
        const plait_block_t *b = &move->in[i];
        if (b->peer == c->rank) {
            each_row(c, c->rank, b->src_slot, b->src_offset, &b->box, false, read_fn,
                     WRITE_ONCE);
        }
    }
    for (int64_t i = 0; i < move->n_out; i++) {
        const plait_block_t *b = &move->out[i];
        each_row(c, c->rank, b->src_slot, b->src_offset, &b->box, false, read_fn,
                 WRITE_ONCE);
    }
    for (int64_t i = 0; i < move->n_in; i++) {
        const plait_block_t *b = &move->in[i];
        each_row(c, c->rank, b->dst_slot, b->dst_offset, &b->box, true, write_fn,
                 WRITE_ONCE);
    }
}

/* In the executor's order: own blocks (or all, with direct access), then round by round. In a round, messages
 * may arrive before this rank sends. */
static void check_move(check_t *c, const plait_move_t *move)
{
    bool is_direct = c->plans[c->rank]->direct != PLAIT_DIRECT_NONE;

    for (int64_t i = 0; i < move->n_in; i++) {
        if (is_direct || move->in[i].peer == c->rank) {
            check_in(c, &move->in[i]);
        }
    }
    for (int round = 1; round < c->n_ranks && !is_direct; round++) {
        int to = (c->rank + round) % c->n_ranks;
        int from = (c->rank - round + c->n_ranks) % c->n_ranks;
        for (int64_t i = 0; i < move->n_in; i++) {
            if (move->in[i].peer == from) {
                check_in(c, &move->in[i]);
            }
        }
        for (int64_t i = 0; i < move->n_out; i++) {
            const plait_block_t *b = &move->out[i];
            if (b->peer == to) {
                each_row(c, c->rank, b->src_slot, b->src_offset, &b->box, false,
                         send_fn, WRITE_ONCE);
            }
        }
    }
}

static void check_reduce(check_t *c, const plait_reduce_step_t *r)
{
    const plait_box_copy_t box = {.row_bytes = r->n * plait_dtype_bytes(r->dtype)};

    for (int q = 0; q < r->n_pieces; q++) {
        each_row(c, r->is_local ? c->rank : r->first + q, r->src_slot,
                 r->src_offset + (r->is_local ? q * r->piece_stride : 0), &box, false,
                 read_fn, WRITE_AGAIN);
    }
    each_row(c, c->rank, r->dst_slot, r->dst_offset, &box, true, write_fn, WRITE_AGAIN);
}

static void touch(void *context, bool is_write, int peer, int slot, int64_t offset,
                  const plait_box_copy_t *box)
{
    check_t *c = context;
    const int owner = (peer == PLAIT_ANY) ? c->rank : peer;
    row_fn_t fn = !is_write ? read_fn : (owner == c->rank) ? write_fn : put_fn;

    if (fn == put_fn && !c->plans[c->rank]->can_write && c->slots != NULL) {
        fault(c, "writes to a peer", owner, slot, offset);
    }
    each_row(c, owner, slot, offset, box, false, fn, WRITE_AGAIN);
}

/* What a native step reads or writes in a slot, if it uses the slot: all of it, or the elements that it
 * reduces. */
static void each_native(check_t *c, const plait_native_step_t *n, int slot,
                        int64_t offset, bool is_write)
{
    const bool is_part = n->native == PLAIT_NATIVE_ALLREDUCE;

    if (slot >= 0) {
        const plait_box_copy_t box = {
            .row_bytes = is_part ? n->n * plait_dtype_bytes(n->dtype)
                                 : c->plans[c->rank]->slot_bytes[slot]};
        each_row(c, c->rank, slot, offset, &box, is_write,
                 is_write ? write_fn : read_fn, WRITE_AGAIN);
    }
}

static void check_native(check_t *c, const plait_native_step_t *n)
{
    each_native(c, n, n->src_slot, n->src_offset, false);
    if (n->native == PLAIT_NATIVE_SENDRECV && n->source == PLAIT_NO_RANK) {
        each_native(c, n, n->template_slot, 0, false);
    }
    each_native(c, n, n->dst_slot, n->dst_offset, true);
}

static void check_step(check_t *c, const plait_step_t *step)
{
    if (step->kind == PLAIT_STEP_MOVE && step->u.move.is_in_place) {
        check_move_in_place(c, &step->u.move);
    } else if (step->kind == PLAIT_STEP_MOVE) {
        check_move(c, &step->u.move);
    } else if (step->kind == PLAIT_STEP_REDUCE) {
        check_reduce(c, &step->u.reduce);
    } else if (step->kind == PLAIT_STEP_KERNEL) {
        step->u.kernel.kernel->touch(step->u.kernel.params, touch, c);
    } else if (step->kind == PLAIT_STEP_NATIVE) {
        check_native(c, &step->u.native);
    }
}

static const plait_publish_t *nth_fence(const plait_plan_t *plan, int n)
{
    int i = 0;

    for (; plan->steps[i].kind != PLAIT_STEP_FENCE || n-- > 0; i++) {
    }
    return &plan->steps[i].u.fence;
}

/* Publishes the bytes as they are in the phase that the fence ends. */
static void check_publish(check_t *c, const plait_publish_t *publish)
{
    const plait_box_copy_t box = {.row_bytes = publish->n_bytes};
    shadow_t *shadow = &c->slots[c->rank][PLAIT_SLOT_PUBLISHED + c->phase % 2];

    if ((publish->slot >= 0) != (nth_fence(c->plans[0], c->phase - 1)->slot >= 0)) {
        fault(c, "publishes at a fence where rank 0 does not, or the reverse", 0, 0, 0);
    } else if (publish->slot >= 0) {
        each_row(c, c->rank, publish->slot, publish->offset, &box, false, read_fn,
                 WRITE_AGAIN);
        memset(shadow->bytes, 0,
               (size_t)(shadow->n_bytes / c->unit) * sizeof(*shadow->bytes));
        for (int64_t at = 0; at < publish->n_bytes / c->unit; at++) {
            shadow->bytes[at].written = c->phase;
        }
    }
}

static bool is_bound(const plait_step_t *step)
{
    return step->kind == PLAIT_STEP_FENCE || step->kind == PLAIT_STEP_ARRIVE;
}

/* Runs one rank's steps up to its next arrival or fence; returns the index of that step. */
static int run_phase(check_t *c, int rank, int step)
{
    const plait_plan_t *plan = c->plans[rank];

    for (; step < plan->n_steps && !is_bound(&plan->steps[step]); step++) {
        c->rank = rank;
        c->step = step;
        check_step(c, &plan->steps[step]);
    }
    if (step < plan->n_steps) {
        c->rank = rank;
        c->step = step;
        if (plan->steps[step].kind == PLAIT_STEP_FENCE) {
            check_publish(c, &plan->steps[step].u.fence);
        }
    }
    return step;
}

/* The first arrival or fence from a step on; n_steps: there is none. */
static int next_bound(const plait_plan_t *plan, int step)
{
    while (step < plan->n_steps && !is_bound(&plan->steps[step])) {
        step++;
    }
    return step;
}

/* Whether two plans arrive and meet in the same way. */
static bool meets_alike(const plait_plan_t *a, const plait_plan_t *b)
{
    int i = next_bound(a, 0);
    int k = next_bound(b, 0);

    while (i < a->n_steps && k < b->n_steps && a->steps[i].kind == b->steps[k].kind) {
        i = next_bound(a, i + 1);
        k = next_bound(b, k + 1);
    }
    return i == a->n_steps && k == b->n_steps;
}

static bool agrees(const plait_plan_t *a, const plait_plan_t *b)
{
    return a->agree == b->agree &&
           (a->agree_some == 0 || b->agree_some == 0 || a->agree_some == b->agree_some);
}

static plait_status_t run_phases(check_t *c)
{
    plait_status_t status = PLAIT_OK;
    const plait_plan_t *first = c->plans[0];
    int *next = plait_alloc(c->n_ranks, sizeof(*next));
    bool has_fences = next_bound(first, 0) < first->n_steps;
    bool is_more = true;

    PLAIT_CHECK(next != NULL, PLAIT_ERR_NO_MEMORY, "no memory for the check");
    for (int r = 0; r < c->n_ranks; r++) {
        PLAIT_CHECK(meets_alike(c->plans[r], first) &&
                        (agrees(c->plans[r], first) || !has_fences),
                    PLAIT_ERR_INTERNAL,
                    "%s: ranks 0 and %d differ in fences or agreement", first->title,
                    r);
    }
    c->phase = 1;
    c->ends = 1;
    while (is_more) {
        for (int r = 0; r < c->n_ranks; r++) {
            next[r] = run_phase(c, r, next[r]);
        }
        is_more = next[0] < first->n_steps;
        if (is_more && first->steps[next[0]].kind == PLAIT_STEP_ARRIVE) {
            PLAIT_CHECK(c->ends == c->phase, PLAIT_ERR_INTERNAL,
                        "%s: step %d arrives at a fence twice", first->title,
                        next[0] + 1);
            c->ends = c->phase + 1;
        } else {
            c->phase++;
            c->ends = c->phase;
        }
        for (int r = 0; r < c->n_ranks; r++) {
            next[r]++;
        }
    }
    status = c->status;
done:
    plait_free(next);
    return status;
}

static void check_results(check_t *c)
{
    for (c->rank = 0; c->rank < c->n_ranks; c->rank++) {
        const plait_plan_t *plan = c->plans[c->rank];
        for (int i = 0; i < plan->n_rets; i++) {
            int slot = slot_of(c, plan, plait_slot_ret(plan, i));
            const shadow_t *shadow = &c->slots[c->rank][slot];
            const int64_t n = shadow->n_bytes / c->unit;
            for (int64_t at = 0; at < n && c->status == PLAIT_OK; at++) {
                if (shadow->bytes[at].written == 0) {
                    fault(c, "misses a byte of the result", c->rank, slot,
                          at * c->unit);
                }
            }
        }
    }
}

static int64_t published_bytes(const plait_plan_t *plan)
{
    int64_t n_bytes = 0;

    for (int i = 0; i < plan->n_steps; i++) {
        const plait_step_t *step = &plan->steps[i];
        n_bytes = (step->kind == PLAIT_STEP_FENCE && step->u.fence.n_bytes > n_bytes)
                      ? step->u.fence.n_bytes
                      : n_bytes;
    }
    return n_bytes;
}

/* Plans move elements, so the unit is mostly one element. */
static void find_unit(check_t *c)
{
    c->unit = 0;
    c->phase = 1;
    for (c->rank = 0; c->rank < c->n_ranks; c->rank++) {
        const plait_plan_t *plan = c->plans[c->rank];
        for (int s = 0; s < plait_plan_n_slots(plan); s++) {
            divide(c, plan->slot_bytes[s]);
        }
        for (int i = 0; i < plan->n_steps; i++) {
            if (plan->steps[i].kind == PLAIT_STEP_FENCE) {
                divide(c, plan->steps[i].u.fence.offset);
                divide(c, plan->steps[i].u.fence.n_bytes);
            } else {
                check_step(c, &plan->steps[i]);
            }
        }
    }
    c->unit = plait_max(c->unit, 1);
}

static plait_status_t make_shadows(check_t *c)
{
    plait_status_t status = PLAIT_OK;

    c->slots = plait_alloc(c->n_ranks, sizeof(*c->slots));
    PLAIT_CHECK(c->slots != NULL, PLAIT_ERR_NO_MEMORY, "no memory for the check");
    for (int r = 0; r < c->n_ranks; r++) {
        const plait_plan_t *plan = c->plans[r];
        for (int s = 0; s < N_SHADOWS; s++) {
            shadow_t *shadow = &c->slots[r][s];
            int64_t n_bytes = 0;
            if (s >= PLAIT_SLOT_PUBLISHED) {
                n_bytes = published_bytes(plan);
            } else if (s < plait_plan_n_slots(plan)) {
                n_bytes = plan->slot_bytes[s];
            }
            shadow->bytes = plait_alloc(n_bytes / c->unit, sizeof(byte_t));
            PLAIT_CHECK(shadow->bytes != NULL, PLAIT_ERR_NO_MEMORY,
                        "no memory for the check");
            shadow->n_bytes = n_bytes;
            /* operands are written before the first phase; 0 means never, so use -1 */
            for (int64_t at = 0; s < plan->n_args && at < n_bytes / c->unit; at++) {
                shadow->bytes[at].written = -1;
            }
        }
    }
done:
    return status;
}

plait_status_t plait_plans_check(plait_plan_t *const plans[], int n_ranks,
                                 const plait_check_t *options)
{
    plait_status_t status = PLAIT_OK;
    check_t c = {.plans = plans, .n_ranks = n_ranks, .alias = options->alias};

    find_unit(&c);
    PLAIT_TRY(make_shadows(&c));
    PLAIT_TRY(run_phases(&c));
    check_results(&c);
    PLAIT_TRY(c.status);
    PLAIT_TRY(plait_plans_check_messages(plans, n_ranks));
done:
    for (int r = 0; r < n_ranks && c.slots != NULL; r++) {
        for (int s = 0; s < N_SHADOWS; s++) {
            plait_free(c.slots[r][s].bytes);
        }
    }
    plait_free(c.slots);
    return status;
}
