#include "plan/plan.h"
#include "transport/device_link.h"

#include <inttypes.h>

static const char *const direct_names[] = {
    [PLAIT_DIRECT_NONE] = "messages",
    [PLAIT_DIRECT_READ] = "one-copy reads",
    [PLAIT_DIRECT_POINTER] = "shared addresses",
};

static const char *const native_names[] = {
    [PLAIT_NATIVE_ALLREDUCE] = "allreduce",
    [PLAIT_NATIVE_BCAST] = "bcast",
    [PLAIT_NATIVE_BARRIER] = "barrier",
    [PLAIT_NATIVE_SENDRECV] = "sendrecv",
};

static plait_partner_text_t text_of(int number, const char *any)
{
    plait_partner_text_t text;

    if (number == PLAIT_ANY || number == PLAIT_NO_RANK) {
        (void)snprintf(text.text, sizeof(text.text), "%s",
                       (number == PLAIT_ANY) ? any : "PROC_NULL");
    } else {
        (void)snprintf(text.text, sizeof(text.text), "%d", number);
    }
    return text;
}

plait_partner_text_t plait_rank_text(int rank)
{
    return text_of(rank, "ANY_SOURCE");
}

plait_partner_text_t plait_tag_text(int tag)
{
    return text_of(tag, "ANY_TAG");
}

static void print_slot(const plait_plan_t *plan, int slot, FILE *file)
{
    if (slot == PLAIT_SLOT_PUBLISHED) {
        (void)fprintf(file, "what is published");
    } else if (slot < plan->n_args) {
        (void)fprintf(file, "operand %d", slot);
    } else if (slot < plan->n_args + plan->n_rets) {
        (void)fprintf(file, "result %d", slot - plan->n_args);
    } else {
        (void)fprintf(file, "work %d", slot - plan->n_args - plan->n_rets);
    }
}

static void print_move(const plait_plan_t *plan, const plait_move_t *move, FILE *file)
{
    int64_t n_own = 0, n_remote = 0, n_add = 0, n_zero = 0;
    int64_t own_bytes = 0, remote_bytes = 0, out_bytes = 0;

    for (int64_t i = 0; i < move->n_in; i++) {
        const plait_block_t *b = &move->in[i];
        bool is_own = b->peer == plan->rank;
        n_zero += b->kind == PLAIT_BLOCK_ZERO;
        n_add += b->kind == PLAIT_BLOCK_ADD;
        n_own += is_own;
        n_remote += !is_own;
        *(is_own ? &own_bytes : &remote_bytes) += plait_box_bytes(&b->box);
    }
    for (int64_t i = 0; i < move->n_out; i++) {
        out_bytes += plait_box_bytes(&move->out[i].box);
    }
    (void)fprintf(file, "move    ");
    if (move->n_in > 0) {
        print_slot(plan, move->in[0].dst_slot, file);
        (void)fprintf(file,
                      " <- %" PRId64 " own boxes (%" PRId64 " bytes), %" PRId64
                      " from peers (%" PRId64 " bytes)",
                      n_own, own_bytes, n_remote, remote_bytes);
    }
    if (n_add + n_zero > 0) {
        (void)fprintf(file, ", %" PRId64 " added, %" PRId64 " zeroed", n_add, n_zero);
    }
    if (move->n_out > 0) {
        (void)fprintf(file, "; sends %" PRId64 " boxes (%" PRId64 " bytes)",
                      move->n_out, out_bytes);
    }
}

static void print_reduce(const plait_plan_t *plan, const plait_reduce_step_t *r,
                         FILE *file)
{
    (void)fprintf(file, "reduce  ");
    print_slot(plan, r->dst_slot, file);
    (void)fprintf(file, " <- %s of %d ", plait_reduce_name(r->op), r->n_pieces);
    if (r->is_local) {
        (void)fprintf(file, "local pieces of ");
    } else {
        (void)fprintf(file, "ranks' pieces from rank %d on of ", r->first);
    }
    print_slot(plan, r->src_slot, file);
    (void)fprintf(file, ", %" PRId64 " %s each (%" PRId64 " bytes)", r->n,
                  plait_dtype_name(r->dtype), r->n * plait_dtype_bytes(r->dtype));
}

static void print_native(const plait_native_step_t *n, FILE *file)
{
    (void)fprintf(file, "native  %s", native_names[n->native]);
    if (n->native == PLAIT_NATIVE_SENDRECV) {
        if (n->src_slot >= 0) {
            (void)fprintf(
                file, ", to %s tag %s (%" PRId64 " bytes%s)",
                plait_rank_text(n->dest).text, plait_tag_text(n->send_tag).text,
                n->n * plait_dtype_bytes(n->dtype), n->is_buffered ? ", copied" : "");
        }
        if (n->dst_slot >= 0) {
            (void)fprintf(file, ", from %s tag %s (%" PRId64 " bytes)",
                          plait_rank_text(n->source).text,
                          plait_tag_text(n->recv_tag).text,
                          n->n_recv * plait_dtype_bytes(n->recv_dtype));
        }
    } else if (n->native != PLAIT_NATIVE_BARRIER) {
        (void)fprintf(file, " %" PRId64 " %s (%" PRId64 " bytes)", n->n,
                      plait_dtype_name(n->dtype), n->n * plait_dtype_bytes(n->dtype));
    }
}

static void print_step(const plait_plan_t *plan, const plait_step_t *step, FILE *file)
{
    switch (step->kind) {
    case PLAIT_STEP_FENCE:
        (void)fprintf(file, "fence");
        if (step->u.fence.slot >= 0) {
            (void)fprintf(file, "   publishes %" PRId64 " bytes of ",
                          step->u.fence.n_bytes);
            print_slot(plan, step->u.fence.slot, file);
        }
        break;
    case PLAIT_STEP_ARRIVE:
        (void)fprintf(file, "arrive");
        break;
    case PLAIT_STEP_MOVE:
        print_move(plan, &step->u.move, file);
        break;
    case PLAIT_STEP_REDUCE:
        print_reduce(plan, &step->u.reduce, file);
        break;
    case PLAIT_STEP_KERNEL:
        (void)fprintf(file, "kernel  %s: ", step->u.kernel.kernel->name);
        step->u.kernel.kernel->print(step->u.kernel.params, file);
        (void)fprintf(file, "%s",
                      step->u.kernel.kernel->is_blocking ? ", blocking" : "");
        break;
    case PLAIT_STEP_NATIVE:
        print_native(&step->u.native, file);
        break;
    case PLAIT_STEP_KIND_COUNT:
        break;
    }
}

void plait_plan_print(const plait_plan_t *plan, FILE *file)
{
    plait_plan_cost_t cost = plait_plan_cost(plan);
    char where[64] = "";

    if (plan == NULL) {
        (void)fprintf(file, "no plan\n");
        return;
    }
    if (plan->device != NULL) {
        (void)snprintf(where, sizeof(where), " on a %s device",
                       plan->device->table->name);
    }
    (void)fprintf(file,
                  "%s, rank %d of %d by %s%s: %" PRId64 " messages, %" PRId64
                  " bytes, work %" PRId64 " bytes%s, scratch %" PRId64 " bytes\n",
                  plan->title, plan->rank, plan->n_ranks, direct_names[plan->direct],
                  where, cost.n_messages, cost.message_bytes, cost.work_bytes,
                  (plan->shows_work && cost.work_bytes > 0) ? " mapped by peers" : "",
                  cost.scratch_bytes);
    for (int i = 0; i < plan->n_steps; i++) {
        (void)fprintf(file, "%4d  ", i + 1);
        print_step(plan, &plan->steps[i], file);
        (void)fprintf(file, "\n");
    }
}

/* A kernel's reads from peers, and its writes to them, count as its messages. */
typedef struct {
    const plait_plan_t *plan;
    plait_plan_cost_t *cost;
} count_t;

static void count_touch(void *context, bool is_write, int peer, int slot,
                        int64_t offset, const plait_box_copy_t *box)
{
    count_t *count = context;

    (void)is_write;
    (void)slot;
    (void)offset;
    if (peer != count->plan->rank && peer != PLAIT_ANY) {
        count->cost->n_messages++;
        count->cost->message_bytes += plait_box_bytes(box);
    }
}

static void count_native(const plait_native_step_t *n, int n_ranks,
                         plait_plan_cost_t *cost)
{
    bool is_message = n_ranks > 1 && n->native != PLAIT_NATIVE_BARRIER;

    if (n->native == PLAIT_NATIVE_SENDRECV) {
        is_message = n->source != PLAIT_NO_RANK;
    }
    cost->n_messages += is_message;
    cost->message_bytes +=
        is_message ? n->n_recv * plait_dtype_bytes(n->recv_dtype) : 0;
}

/* Everything that a move takes from one rank counts as one message. */
static void count_move(const plait_plan_t *plan, const plait_move_t *move,
                       plait_plan_cost_t *cost)
{
    for (int64_t i = 0; i < move->n_in; i++) {
        const plait_block_t *block = &move->in[i];
        int64_t n_bytes = plait_box_bytes(&block->box);
        bool is_first = block->peer != plan->rank && n_bytes > 0;

        cost->message_bytes += (block->peer != plan->rank) ? n_bytes : 0;
        for (int64_t j = 0; j < i && is_first; j++) {
            is_first = move->in[j].peer != block->peer ||
                       plait_box_bytes(&move->in[j].box) == 0;
        }
        cost->n_messages += is_first;
    }
}

plait_plan_cost_t plait_plan_cost(const plait_plan_t *plan)
{
    plait_plan_cost_t cost = {0};
    count_t count = {.plan = plan, .cost = &cost};

    if (plan == NULL) {
        return cost;
    }
    cost.scratch_bytes = plan->scratch_bytes;
    for (int s = plan->n_args + plan->n_rets; s < plait_plan_n_slots(plan); s++) {
        cost.work_bytes += plan->slot_bytes[s];
    }
    for (int i = 0; i < plan->n_steps; i++) {
        const plait_step_t *step = &plan->steps[i];
        if (step->kind == PLAIT_STEP_MOVE) {
            count_move(plan, &step->u.move, &cost);
        } else if (step->kind == PLAIT_STEP_REDUCE && !step->u.reduce.is_local) {
            const plait_reduce_step_t *r = &step->u.reduce;
            bool has_own =
                plan->rank >= r->first && plan->rank < r->first + r->n_pieces;
            int n_remote = r->n_pieces - has_own;
            cost.n_messages += n_remote;
            cost.message_bytes += n_remote * r->n * plait_dtype_bytes(r->dtype);
        } else if (step->kind == PLAIT_STEP_KERNEL) {
            step->u.kernel.kernel->touch(step->u.kernel.params, count_touch, &count);
        } else if (step->kind == PLAIT_STEP_NATIVE) {
            count_native(&step->u.native, plan->n_ranks, &cost);
        } else if (step->kind == PLAIT_STEP_FENCE) {
            cost.n_fences++;
        }
    }
    return cost;
}
