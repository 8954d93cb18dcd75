#include "plan/launch.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/trace.h"
#include "base/tree.h"
#include "base/wait.h"
#include "plan/ask_grid.h"
#include "plan/exec.h"
#include "plan/kept.h"
#include "plan/observe.h"
#include "transport/process_grid.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* A plan that does not begin with a fence would move data, or wait, before ranks know that they all do the
 * same. */
static bool needs_agreement(const plait_plan_t *plan)
{
    bool communicates = false;

    for (int i = 0; i < plan->n_steps && !communicates; i++) {
        plait_step_kind_t kind = plan->steps[i].kind;
        if (kind == PLAIT_STEP_FENCE) {
            break;
        }
        communicates = kind == PLAIT_STEP_NATIVE ||
                       (kind == PLAIT_STEP_MOVE && plan->direct == PLAIT_DIRECT_NONE);
    }
    return communicates && plan->is_collective && plan->n_ranks > 1;
}

/* Inserts after the first word, so that ranks see the difference even in titles that are cut. */
static void insert_in_title(plait_plan_t *plan, const char *words)
{
    char title[sizeof(plan->title)];
    const int n_first = (int)strcspn(plan->title, " ([");
    const int n_rest = (int)sizeof(title) - n_first - (int)strlen(words) - 4;

    (void)snprintf(title, sizeof(title), "%.*s (%s)%.*s", n_first, plan->title, words,
                   n_rest, plan->title + n_first);
    memcpy(plan->title, title, sizeof(title));
}

static void title_choices(plait_plan_t *plan, plait_choices_t choices)
{
    char words[sizeof(plan->title) / 2];

    if (choices != 0) {
        plait_choices_print(choices, words, sizeof(words));
        insert_in_title(plan, words);
    }
}

/* Names the arrays that are joined in one; the title has their length. */
static void title_trees(plait_plan_t *plan)
{
    const uint32_t sent = plait_tree_sent(plan->trees);
    const uint32_t received = plait_tree_received(plan->trees);
    char out[PLAIT_TREE_TEXT_BYTES];
    char in[PLAIT_TREE_TEXT_BYTES];
    char words[2 * PLAIT_TREE_TEXT_BYTES + 4];

    plait_tree_print(sent, out);
    plait_tree_print(received, in);
    if (sent != 0 && received != 0 && sent != received) {
        (void)snprintf(words, sizeof(words), "%s -> %s", out, in);
        insert_in_title(plan, words);
    } else if (plan->trees != 0) {
        insert_in_title(plan, (sent != 0) ? out : in);
    }
}

/* Devices' memory is reached by messages alone, and a fence takes no bytes of it along. */
static void lower_to_device(plait_caps_t *caps)
{
    caps->direct = PLAIT_DIRECT_NONE;
    caps->publish_bytes = -1;
    caps->has_native = false;
}

static plait_status_t check_kernels(const plait_plan_t *plan, const char *name)
{
    plait_status_t status = PLAIT_OK;

    for (int i = 0; i < plan->n_steps; i++) {
        const plait_step_t *step = &plan->steps[i];
        PLAIT_CHECK(step->kind != PLAIT_STEP_KERNEL ||
                        step->u.kernel.kernel->run_device != NULL ||
                        step->u.kernel.kernel->tiles != NULL,
                    PLAIT_ERR_INTERNAL, "%s: %s has no kernel for a device", name,
                    step->u.kernel.kernel->name);
    }
done:
    return status;
}

/* If only some ranks are on a device, the ranks do not cut messages alike. */
static plait_status_t plan_on_device(const plait_op_t *op, const void *params,
                                     plait_problem_t *problem, plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const char *name = problem->caps.device->table->name;
    plait_plan_t *plan = NULL;

    lower_to_device(&problem->caps);
    PLAIT_TRY(op->plan(params, problem, &plan));
    PLAIT_TRY(check_kernels(plan, op->name));
    plait_plan_agree(plan, plait_hash_bytes(PLAIT_HASH_SEED, name, strlen(name)));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

static plait_status_t make_plan(const plait_op_t *op, const void *params,
                                plait_problem_t *problem, const plait_endpoint_t *end,
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_choices_t choices = problem->choices;
    plait_plan_t *plan = NULL;

    PLAIT_TRY(plait_choices_apply(choices, end, &problem->caps));
    PLAIT_TRY((problem->caps.device != NULL)
                  ? plan_on_device(op, params, problem, &plan)
                  : op->plan(params, problem, &plan));
    plait_plan_agree(plan,
                     plait_hash_bytes(PLAIT_HASH_SEED, op->name, strlen(op->name)));
    plait_plan_agree(plan, choices);
    plait_plan_agree(plan, plan->trees);
    title_choices(plan, choices);
    title_trees(plan);
    plan->is_collective = !op->is_matched;
    plan->needs_agreement = needs_agreement(plan);
    plan->title_ref = plait_trace_text(plan->title);
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

static plait_problem_t problem_of(const plait_op_t *op, const plait_endpoint_t *end,
                                  const plait_array_t args[],
                                  const plait_array_t rets[])
{
    return (plait_problem_t){.n_ranks = end->size,
                             .rank = end->rank,
                             .caps = end->caps,
                             .n_args = op->n_args,
                             .n_rets = op->n_rets,
                             .args = args,
                             .rets = rets};
}

plait_status_t plait_op_plan(const plait_op_t *op, const void *params,
                             const plait_endpoint_t *end, const plait_array_t args[],
                             const plait_array_t rets[], plait_plan_t **plan_p)
{
    plait_problem_t problem = problem_of(op, end, args, rets);

    problem.choices = plait_choices_now(op->family);
    return make_plan(op, params, &problem, end, plan_p);
}

plait_status_t plait_op_plan_call(const plait_call_t *call, const plait_endpoint_t *end,
                                  plait_plan_t **plan_p)
{
    plait_problem_t problem = problem_of(call->op, end, call->args, call->rets);

    problem.choices = call->choices;
    problem.trees = call->trees;
    return make_plan(call->op, call->params, &problem, end, plan_p);
}

static _Atomic int64_t n_in_flight;
static atomic_bool is_closed;

/* Ranks that are processes with one device each may work as one: they find out together, once, before the first
 * plan that depends on it. */
static plait_status_t know_grid(const plait_call_t *call, plait_kept_t *kept)
{
    const plait_lanes_t all = {.is_collective = true};
    plait_endpoint_t *end = &call->comm->end;
    const bool asks = call->device != NULL && call->op->wants_grid != NULL &&
                      plait_device_is_of_process(end) &&
                      !plait_process_grid_is_known(end) &&
                      call->op->wants_grid(call->params, end->size, call->choices);

    if (asks) {
        plait_started_pass(plait_kept_queue(kept), &all);
    }
    return asks ? plait_grid_ask(call->comm, call->run, call->device, call->stream)
                : PLAIT_OK;
}

/* *kept_p stays NULL if there is nothing to communicate with. */
static plait_status_t open_kept(plait_comm_t *comm, plait_kept_t **kept_p)
{
    plait_status_t status = PLAIT_OK;
    plait_kept_t *kept = plait_kept_of(comm);

    PLAIT_CHECK(!atomic_load_explicit(&is_closed, memory_order_relaxed), PLAIT_ERR_COMM,
                "the process is ending, and plait cannot communicate any more");
    PLAIT_TRY(plait_comm_usable(comm));
    PLAIT_CHECK(kept != NULL, PLAIT_ERR_NO_MEMORY, "no memory for plans");
    *kept_p = kept;
done:
    return status;
}

/* For a call that this rank cannot plan, perhaps alone: the others learn of it where they would wait for this
 * rank. */
static plait_status_t refuse(const plait_call_t *call, plait_kept_t *kept,
                             plait_status_t status)
{
    const plait_lanes_t all = {.is_collective = true};
    const bool can_tell = kept != NULL || status == PLAIT_ERR_NO_MEMORY;

    if (kept != NULL && !call->op->is_matched) {
        plait_started_pass(plait_kept_queue(kept), &all);
    }
    if (can_tell && !call->op->is_matched) {
        status = plait_observe_refuse(call->op->name, call->comm, call->run, status);
    } else {
        plait_observe_failure(call->op->name, call->comm, status);
    }
    return status;
}

static plait_status_t launch(const plait_call_t *call, bool is_started)
{
    plait_status_t status = PLAIT_OK;
    plait_kept_t *kept = NULL;
    const plait_kept_plan_t *planned = NULL;
    bool is_told = false; /* all ranks know of the failure */
    const void *operands[PLAIT_MAX_ARRAYS];
    void *results[PLAIT_MAX_ARRAYS];
    const plait_exec_arrays_t arrays = {.args = operands,
                                        .rets = results,
                                        .stream = call->stream,
                                        .lender = call->lender,
                                        .matched = call->matched,
                                        .is_beside = is_started};

    PLAIT_TRY(open_kept(call->comm, &kept));
    if (!is_started) {
        status = know_grid(call, kept);
        is_told = status != PLAIT_OK;
        PLAIT_TRY(status);
    }
    PLAIT_TRY(plait_kept_get(kept, call, &planned));
    for (int i = 0; i < call->op->n_args; i++) {
        operands[i] = call->args[i].data;
    }
    for (int i = 0; i < call->op->n_rets; i++) {
        results[i] = call->rets[i].data;
    }
    if (!is_started) {
        plait_started_pass(plait_kept_queue(kept), &planned->lanes);
    }
    status = plait_observe_exec(planned->plan, &planned->about, call->comm, call->run,
                                is_started, &arrays);
done:
    if (planned != NULL) {
        plait_kept_give(kept);
    } else if (!is_told) {
        status = refuse(call, kept, status);
    }
    return status;
}

/* Puts the rank and the operation before an error's text. */
static void tell(const plait_comm_t *comm, const char *title)
{
    const int n_name = plait_error_name(title);

    plait_error_prefix("rank %d of communicator #%lld, %.*s%s", comm->end.rank,
                       (long long)comm->id, n_name, title, (n_name > 0) ? ": " : "");
}

static plait_status_t launch_counted(const plait_call_t *call, bool is_started)
{
    plait_op_hold();
    plait_status_t status = launch(call, is_started);
    plait_op_release();
    if (status != PLAIT_OK) {
        tell(call->comm, call->op->name);
    }
    return status;
}

plait_status_t plait_op_run(const plait_call_t *call)
{
    return launch_counted(call, false);
}

plait_status_t plait_op_run_started(const plait_call_t *call)
{
    return launch_counted(call, true);
}

void plait_op_tell(const plait_plan_t *plan, const plait_comm_t *comm)
{
    tell(comm, plan->title);
}

plait_status_t plait_op_run_plan(const plait_plan_t *plan, plait_comm_t *comm,
                                 const plait_exec_arrays_t *arrays)
{
    plait_status_t status = PLAIT_OK;
    const plait_lanes_t all = {.is_collective = true};
    plait_kept_t *kept = NULL;

    plait_op_hold();
    PLAIT_TRY(open_kept(comm, &kept));
    if (!arrays->is_beside) {
        plait_started_pass(plait_kept_queue(kept), &all);
    }
    PLAIT_TRY(plait_observe_exec(plan, NULL, comm, 0, arrays->is_beside, arrays));
done:
    plait_op_release();
    if (status != PLAIT_OK) {
        plait_op_tell(plan, comm);
    }
    return status;
}

plait_status_t plait_op_start(const plait_plan_t *plan, plait_comm_t *comm,
                              const void *const args[], void *const rets[],
                              int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    plait_kept_t *kept = NULL;

    PLAIT_TRY(open_kept(comm, &kept));
    PLAIT_TRY(plait_started_plan(plan, comm, plait_kept_queue(kept), args, rets, id_p));
done:
    return status;
}

plait_call_t plait_op_call(const plait_op_t *op, const void *params, plait_comm_t *comm,
                           const plait_array_t args[], const plait_array_t rets[])
{
    plait_call_t call = {.op = op,
                         .params = params,
                         .comm = comm,
                         .choices = plait_choices_now(op->family),
                         .device = comm->end.caps.device,
                         .stream = comm->stream};

    for (int i = 0; i < op->n_args; i++) {
        call.args[i] = args[i];
    }
    for (int i = 0; i < op->n_rets; i++) {
        call.rets[i] = rets[i];
    }
    return call;
}

plait_status_t plait_op_launch(const plait_op_t *op, const void *params,
                               plait_comm_t *comm, const plait_array_t args[],
                               const plait_array_t rets[])
{
    const plait_call_t call = plait_op_call(op, params, comm, args, rets);

    return plait_op_run(&call);
}

void plait_op_give_up(const plait_call_t *call, plait_status_t status)
{
    plait_observe_failure(call->op->name, call->comm, status);
    if (!call->op->is_matched && call->comm->end.size > 1) {
        plait_observe_give_up(call->comm, call->op->name);
    }
}

plait_status_t plait_op_queue(const plait_call_t *call, plait_started_queue_t **queue_p,
                              plait_lanes_t *lanes_p)
{
    plait_status_t status = PLAIT_OK;
    plait_kept_t *kept = NULL;
    const plait_kept_plan_t *planned = NULL;

    PLAIT_TRY(open_kept(call->comm, &kept));
    PLAIT_TRY(plait_kept_get(kept, call, &planned));
    *queue_p = plait_kept_queue(kept);
    *lanes_p = planned->lanes;
    plait_kept_give(kept);
done:
    if (status != PLAIT_OK) {
        if (kept != NULL) {
            plait_op_give_up(call, status);
        } else {
            plait_observe_failure(call->op->name, call->comm, status);
        }
        tell(call->comm, call->op->name);
    }
    return status;
}

void plait_op_hold(void)
{
    atomic_fetch_add(&n_in_flight, 1);
}

void plait_op_release(void)
{
    atomic_fetch_sub(&n_in_flight, 1);
}

int64_t plait_in_flight(void)
{
    return atomic_load(&n_in_flight);
}

int64_t plait_shutdown(int64_t limit_ns)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    int64_t start = plait_clock_ns();

    while (plait_in_flight() > 0 && plait_clock_ns() - start < limit_ns) {
        (void)nanosleep(&nap, NULL);
    }
    atomic_store(&is_closed, true);
    if (plait_in_flight() > 0) {
        plait_wait_stop();
    }
    return plait_in_flight();
}
