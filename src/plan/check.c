#include "plan/check.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "device/box.h"

#include <string.h>

/* A rank's buffers, and what it published at the last two fences, in turn. */
enum { N_SHADOWS = PLAIT_SLOT_PUBLISHED + 2 };

/* Phases are counted from 1; phase p begins when the fence before it is over, and ends with the
 * arrival at the p-th fence: what is done between an arrival and its fence is in the phase
 * before for what it may see, and in the phase after for whoever may see it. */
typedef struct {
    int written; /* phase, at its end, of the last write; 0: never            */
    int put;     /* the same of the last write by a peer                      */
    int read;    /* the same of the last read by a peer                       */
    int own;     /* the same of the last read by the owner                    */
    int moved;   /* step that moved it here, from 1; 0: a kernel or reduction */
    bool used;   /* somebody has read it since                                */
} byte_t;

typedef struct {
    int64_t n_bytes;
    byte_t *bytes;
} shadow_t;

typedef struct {
    plait_plan_t *const *plans;
    int n_ranks;
    int alias;
    shadow_t (*slots)[N_SHADOWS]; /* by rank */
    /* what is being looked at */
    int rank, step;
    int phase; /* that has begun */
    int ends;  /* that has not ended: phase, or the next one after an arrival */
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

/* Moves fill operands and results once, work again and again; a result that was read meanwhile
 * has served as work. */
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

/* To a peer's memory: nobody else may be at the byte in the same phase. */
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

/* Calls for each row of a box, on its source or destination side. */
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
            fault(c, why, peer, slot, at + i);
        }
        *(is_own ? &bytes[i].own : &bytes[i].read) = ends;
        bytes[i].used = true;
    }
}

/* A message that goes out while the move it belongs to is under way. */
static void send_fn(check_t *c, int peer, int slot, int64_t at, int64_t n, write_t how)
{
    const byte_t *bytes = c->slots[peer][slot].bytes + at;

    read_fn(c, peer, slot, at, n, how);
    for (int64_t i = 0; i < n; i++) {
        if (bytes[i].moved == c->step + 1) {
            fault(c, "sends what the same move has overwritten", peer, slot, at + i);
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
            fault(c, why, c->rank, slot, at + i);
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
            fault(c, why, peer, slot, at + i);
        }
        bytes[i].moved = 0;
        bytes[i].put = c->ends;
        bytes[i].written = c->ends;
        bytes[i].used = false;
    }
}

static void each_row(check_t *c, int peer, int slot, int64_t offset,
                     const plait_box_copy_t *box, bool is_dst, row_fn_t fn, write_t how)
{
    int64_t n_rows = (box->row_bytes > 0) ? plait_box_bytes(box) / box->row_bytes : 0;
    int real_slot = slot_of(c, c->plans[peer], slot);
    int64_t n_bytes = c->slots[peer][real_slot].n_bytes;
    plait_box_walk_t walk = {0};

    for (int64_t row = 0; row < n_rows && c->status == PLAIT_OK; row++) {
        const int64_t at = offset + (is_dst ? walk.dst : walk.src);
        if (at < 0 || at + box->row_bytes > n_bytes) {
            fault(c, "goes beyond the buffer", peer, slot, at);
            break;
        }
        fn(c, peer, real_slot, at, box->row_bytes, how);
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

/* In the executor's order: own blocks (or all, with direct access), then round by round.
 * What a round receives may be there before it sends. */
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

    if (fn == put_fn && !c->plans[c->rank]->can_write) {
        fault(c, "writes to a peer", owner, slot, offset);
    }
    each_row(c, owner, slot, offset, box, false, fn, WRITE_AGAIN);
}

static void check_native(check_t *c, const plait_native_step_t *n)
{
    const plait_plan_t *plan = c->plans[c->rank];

    bool takes_template = n->native == PLAIT_NATIVE_SENDRECV &&
                          n->source == PLAIT_NO_RANK && n->template_slot >= 0;

    if (n->src_slot >= 0) {
        const plait_box_copy_t all = {.row_bytes = plan->slot_bytes[n->src_slot]};
        each_row(c, c->rank, n->src_slot, 0, &all, false, read_fn, WRITE_AGAIN);
    }
    if (takes_template) {
        const plait_box_copy_t all = {.row_bytes = plan->slot_bytes[n->template_slot]};
        each_row(c, c->rank, n->template_slot, 0, &all, false, read_fn, WRITE_AGAIN);
    }
    if (n->dst_slot >= 0) {
        const plait_box_copy_t all = {.row_bytes = plan->slot_bytes[n->dst_slot]};
        each_row(c, c->rank, n->dst_slot, 0, &all, true, write_fn, WRITE_AGAIN);
    }
}

static void check_step(check_t *c, const plait_step_t *step)
{
    if (step->kind == PLAIT_STEP_MOVE) {
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

/* The bytes are as they are in the phase that the fence ends. */
static void check_publish(check_t *c, const plait_publish_t *publish)
{
    const plait_box_copy_t box = {.row_bytes = publish->n_bytes};
    shadow_t *shadow = &c->slots[c->rank][PLAIT_SLOT_PUBLISHED + c->phase % 2];

    if ((publish->slot >= 0) != (nth_fence(c->plans[0], c->phase - 1)->slot >= 0)) {
        fault(c, "publishes at a fence where rank 0 does not, or the reverse", 0, 0, 0);
    } else if (publish->slot >= 0) {
        each_row(c, c->rank, publish->slot, publish->offset, &box, false, read_fn,
                 WRITE_AGAIN);
        memset(shadow->bytes, 0, (size_t)shadow->n_bytes * sizeof(*shadow->bytes));
        for (int64_t at = 0; at < publish->n_bytes; at++) {
            shadow->bytes[at].written = c->phase;
        }
    }
}

static bool is_bound(const plait_step_t *step)
{
    return step->kind == PLAIT_STEP_FENCE || step->kind == PLAIT_STEP_ARRIVE;
}

/* Runs one rank's steps up to its next arrival or fence; returns the index of that. */
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

/* Whether two plans arrive and meet alike. */
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
            for (int64_t at = 0; at < shadow->n_bytes && c->status == PLAIT_OK; at++) {
                if (shadow->bytes[at].written == 0) {
                    fault(c, "misses a byte of the result", c->rank, slot, at);
                }
            }
        }
    }
}

/* The k-th remote block of a list for this peer; NULL when there are no more. */
static const plait_block_t *next_block(const plait_block_t *blocks, int64_t n, int peer,
                                       int64_t *at_p)
{
    for (; *at_p < n; *at_p += 1) {
        if (blocks[*at_p].peer == peer) {
            *at_p += 1;
            return &blocks[*at_p - 1];
        }
    }
    return NULL;
}

/* A rank without blocks has no such step, so moves are counted by all of a plan's blocks. */
static const plait_move_t *nth_move(const plait_plan_t *plan, int n)
{
    for (int i = 0; i < plan->n_steps; i++) {
        if (plan->steps[i].kind == PLAIT_STEP_MOVE &&
            !plan->steps[i].u.move.is_published && n-- == 0) {
            return &plan->steps[i].u.move;
        }
    }
    return NULL;
}

static bool pair_fits(const plait_move_t *from, int to_rank, const plait_move_t *to,
                      int from_rank)
{
    int64_t at_out = 0;
    int64_t at_in = 0;
    bool fits = true;
    bool is_more = true;

    while (fits && is_more) {
        const plait_block_t *out = next_block(from->out, from->n_out, to_rank, &at_out);
        const plait_block_t *in = next_block(to->in, to->n_in, from_rank, &at_in);
        fits = (out == NULL) == (in == NULL) &&
               (out == NULL || plait_box_bytes(&out->box) == plait_box_bytes(&in->box));
        is_more = out != NULL;
    }
    return fits;
}

static plait_status_t check_messages(const check_t *c)
{
    static const plait_move_t nothing = {0};
    plait_status_t status = PLAIT_OK;
    bool is_more = c->plans[0]->direct == PLAIT_DIRECT_NONE;

    for (int n = 0; is_more; n++) {
        is_more = false;
        for (int a = 0; a < c->n_ranks; a++) {
            const plait_move_t *from = nth_move(c->plans[a], n);
            is_more = is_more || from != NULL;
            for (int b = 0; b < c->n_ranks; b++) {
                const plait_move_t *to = nth_move(c->plans[b], n);
                PLAIT_CHECK(
                    a == b || pair_fits((from != NULL) ? from : &nothing, b,
                                        (to != NULL) ? to : &nothing, a),
                    PLAIT_ERR_INTERNAL,
                    "%s: move %d, what rank %d sends is not what rank %d receives",
                    c->plans[0]->title, n + 1, a, b);
            }
        }
    }
done:
    return status;
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
            shadow->bytes = plait_alloc(n_bytes, sizeof(byte_t));
            PLAIT_CHECK(shadow->bytes != NULL, PLAIT_ERR_NO_MEMORY,
                        "no memory for the check");
            shadow->n_bytes = n_bytes;
            /* operands are there before the first phase; 0 means never, so use -1 */
            for (int64_t at = 0; s < plan->n_args && at < n_bytes; at++) {
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

    PLAIT_TRY(make_shadows(&c));
    PLAIT_TRY(run_phases(&c));
    check_results(&c);
    PLAIT_TRY(c.status);
    PLAIT_TRY(check_messages(&c));
done:
    for (int r = 0; r < n_ranks && c.slots != NULL; r++) {
        for (int s = 0; s < N_SHADOWS; s++) {
            plait_free(c.slots[r][s].bytes);
        }
    }
    plait_free(c.slots);
    return status;
}
