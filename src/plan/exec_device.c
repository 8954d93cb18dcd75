/* Steps on arrays that are on a device: the plans are the same, and each step's work is enqueued on a stream.
 * A rank that has failed goes on with its messages only, since its peers wait for them. The peers learn of the
 * failure at the fence behind the last step. */
#include "base/clock.h"
#include "base/status.h"
#include "base/tree.h"
#include "kernel/reduce.h"
#include "plan/exec_steps.h"
#include "plan/tiles.h"
#include "transport/device_vigil.h"

#include <string.h>

/* Pieces that one call reduces. */
enum { MAX_PIECES = 32 };

static int64_t memory_bytes(const plait_plan_t *plan)
{
    int64_t n_bytes = plait_device_padded(plan->scratch_bytes);

    for (int s = plan->n_args + plan->n_rets; s < plait_plan_n_slots(plan); s++) {
        n_bytes += plait_device_padded(plan->slot_bytes[s]);
    }
    return n_bytes;
}

static void set_slots(plait_exec_t *exec, char *memory)
{
    const plait_plan_t *plan = exec->plan;

    for (int s = plan->n_args + plan->n_rets; s < plait_plan_n_slots(plan); s++) {
        exec->slot[s] = memory;
        memory += plait_device_padded(plan->slot_bytes[s]);
    }
    exec->scratch = memory;
}

static plait_status_t take_work(const plait_exec_t *exec, int64_t n_bytes,
                                void **memory_p)
{
    const plait_device_run_t *run = exec->device;

    return (exec->lender != NULL)
               ? exec->lender->take(exec->lender, n_bytes, memory_p)
               : run->device->table->take(run->device, run->stream, n_bytes, memory_p);
}

static void give_work(const plait_exec_t *exec, void *memory)
{
    const plait_device_run_t *run = exec->device;

    if (exec->lender != NULL) {
        exec->lender->give(exec->lender, memory, memory_bytes(exec->plan));
    } else {
        run->device->table->give(run->device, run->stream, memory);
    }
}

plait_status_t plait_exec_device_begin(plait_exec_t *exec, plait_device_run_t *run,
                                       const plait_exec_arrays_t *arrays,
                                       void **memory_p)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = exec->plan->device;
    int64_t n_bytes = memory_bytes(exec->plan);

    *run = (plait_device_run_t){.device = device,
                                .stream = arrays->stream,
                                .session = &exec->session,
                                .link = &plait_link_staged,
                                .reach = exec->plan->reach};
    exec->device = run;
    exec->lender = arrays->lender;
    PLAIT_TRY(device->table->enter(device));
    run->is_inside = true;
    if (n_bytes > 0) {
        PLAIT_TRY(take_work(exec, n_bytes, memory_p));
        set_slots(exec, *memory_p);
    }
done:
    return plait_device_failed(run, status);
}

/* A started operation has its own stream. It takes a link made for that (device_link.h), or is staged, even if
 * another link was asked for by name. */
plait_status_t plait_exec_device_find_way(plait_exec_t *exec)
{
    plait_device_run_t *run = exec->device;
    const plait_plan_t *plan = exec->plan;
    plait_status_t status = PLAIT_OK;
    const bool may_copy =
        plan->reach == PLAIT_REACH_ANY || plan->reach == PLAIT_REACH_NODE;
    const bool is_free = !exec->is_beside || may_copy;

    if (plan->is_collective && plan->n_ranks > 1 && is_free) {
        status = plait_device_find_way(
            run, exec->is_beside ? PLAIT_REACH_BESIDE : plan->reach,
            plan->needs_agreement);
        exec->is_joint = status != PLAIT_OK && !run->is_lost;
    }
    return status;
}

void plait_exec_device_end(plait_exec_t *exec, void *memory)
{
    plait_device_run_t *run = exec->device;

    if (memory != NULL) {
        give_work(exec, memory);
    }
    if (run->is_inside) {
        run->device->table->leave(run->device);
    }
}

/* The failure of the run, with its text. */
static plait_status_t say_failure(const plait_device_run_t *run)
{
    return (run->failure == PLAIT_OK) ? PLAIT_OK
                                      : plait_fail(run->failure, "%s", run->why);
}

plait_status_t plait_exec_device_wait(plait_exec_t *exec)
{
    plait_device_run_t *run = exec->device;
    plait_status_t status = run->failure;

    PLAIT_TRY(status);
    PLAIT_TRY(plait_vigil_note(run));
    PLAIT_TRY(plait_device_wait(run));
done:
    (void)plait_device_failed(run, status);
    return say_failure(run); /* the error text may have changed since */
}

/* Waits until the stream is empty; not for ever, since it may wait for an event of a device that is gone. */
static plait_status_t await_stream(const plait_device_run_t *run)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = run->device->table;
    plait_event_t *over = NULL;

    PLAIT_TRY(table->event_create(run->device, &over));
    PLAIT_TRY(table->event_record(run->device, over, run->stream));
    PLAIT_TRY(plait_device_await(run->device, over, "a failed operation",
                                 plait_clock_ns() + PLAIT_DEVICE_DRAIN_NS));
done:
    if (over != NULL) {
        table->event_destroy(run->device, over);
    }
    return status;
}

void plait_exec_device_drain(plait_exec_t *exec, plait_status_t own)
{
    const plait_device_run_t *run = exec->device;
    const bool ends_by_itself =
        run->is_inside && run->state != NULL && run->link->abandon == NULL;
    char why[sizeof(run->why)];

    (void)snprintf(why, sizeof(why), "%s", plait_error_text());
    if (ends_by_itself) {
        (void)await_stream(run);
    }
    if (own != PLAIT_OK) {
        (void)plait_fail(own, "%s", why);
    }
}

plait_status_t plait_exec_device_verdict(const plait_exec_t *exec)
{
    plait_device_run_t *run = exec->device;

    if (run->failure == PLAIT_OK) {
        (void)plait_device_failed(run, plait_vigil_note(run));
    }
    return say_failure(run);
}

/* ------------------------------------------------------------------ reductions */

static plait_status_t copy(plait_exec_t *exec, char *dst, const char *src,
                           int64_t n_bytes)
{
    const plait_device_run_t *run = exec->device;
    const plait_device_box_t box = {.kind = PLAIT_DEVICE_COPY,
                                    .src = src,
                                    .dst = dst,
                                    .box = {.row_bytes = n_bytes}};

    return (n_bytes == 0 || src == dst)
               ? PLAIT_OK
               : run->device->table->boxes(run->device, run->stream, PLAIT_U8, 1, &box);
}

/* One piece: the result is the operand, but of a logical reduction still 0 or 1. */
static plait_status_t reduce_alone(plait_exec_t *exec, const plait_reduce_step_t *r,
                                   char *dst, const char *piece)
{
    const plait_device_run_t *run = exec->device;
    const void *const twice[] = {piece, piece};

    return plait_reduce_is_logical(r->op)
               ? run->device->table->reduce(run->device, run->stream, PLAIT_LOR,
                                            r->dtype, r->n, 2, twice, dst)
               : copy(exec, dst, piece, r->n * plait_dtype_bytes(r->dtype));
}

/* Peers' pieces have been brought here before: a plan on a device has no direct access. */
static plait_status_t reduce(plait_exec_t *exec, const plait_reduce_step_t *r)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_run_t *run = exec->device;
    const plait_device_table_t *table = run->device->table;
    const char *src = exec->slot[r->src_slot] + r->src_offset;
    char *dst = exec->slot[r->dst_slot] + r->dst_offset;
    const void *pieces[MAX_PIECES];
    int q = 0;

    if (r->n_pieces == 1) {
        status = reduce_alone(exec, r, dst, src);
        goto done;
    }
    do {
        int n = 0;
        if (q > 0) {
            pieces[n++] = dst; /* the sum of the pieces before */
        }
        while (n < MAX_PIECES && q < r->n_pieces) {
            pieces[n++] = src + q * r->piece_stride;
            q++;
        }
        PLAIT_TRY(table->reduce(run->device, run->stream, r->op, r->dtype, r->n, n,
                                pieces, dst));
    } while (q < r->n_pieces);
done:
    return status;
}

/* ------------------------------------------------------------------ whole arrays */

plait_status_t plait_exec_copy(plait_exec_t *exec, int dst_slot, int src_slot,
                               int64_t n_bytes)
{
    char *dst = exec->slot[dst_slot];
    const char *src = exec->slot[src_slot];

    if (exec->device != NULL) {
        return (exec->device->failure != PLAIT_OK)
                   ? exec->device->failure
                   : plait_device_failed(exec->device, copy(exec, dst, src, n_bytes));
    }
    if (dst != src && n_bytes > 0) {
        memcpy(dst, src, (size_t)n_bytes);
    }
    return PLAIT_OK;
}

plait_status_t plait_exec_load(plait_exec_t *exec, void *words, int src_slot,
                               int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_device_run_t *run = exec->device;
    void *host = NULL;

    if (run == NULL) {
        memcpy(words, exec->slot[src_slot], (size_t)n_bytes);
        goto done;
    }
    const plait_device_table_t *table = run->device->table;
    PLAIT_TRY(table->host_take(run->device, n_bytes, &host));
    PLAIT_TRY(
        table->to_host(run->device, run->stream, host, exec->slot[src_slot], n_bytes));
    PLAIT_TRY(table->stream_wait(run->device, run->stream));
    memcpy(words, host, (size_t)n_bytes);
done:
    if (status != PLAIT_OK) {
        run->is_lost = true; /* these words say which ranks wait for this rank */
    }
    if (host != NULL) {
        run->device->table->host_give(run->device, host);
    }
    return status;
}

plait_status_t plait_exec_store(plait_exec_t *exec, int dst_slot, const void *words,
                                int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_run_t *run = exec->device;
    void *host = NULL;

    if (run == NULL) {
        memcpy(exec->slot[dst_slot], words, (size_t)n_bytes);
        goto done;
    }
    const plait_device_table_t *table = run->device->table;
    PLAIT_TRY(table->host_take(run->device, n_bytes, &host));
    memcpy(host, words, (size_t)n_bytes);
    PLAIT_TRY(table->to_device(run->device, run->stream, exec->slot[dst_slot], host,
                               n_bytes));
    PLAIT_TRY(plait_vigil_note(run));
    PLAIT_TRY(table->stream_wait(run->device, run->stream));
done:
    if (host != NULL) {
        run->device->table->host_give(run->device, host);
    }
    return status;
}

static plait_status_t sendrecv(plait_exec_t *exec, bool is_buffered,
                               const plait_half_t *send, const plait_half_t *recv,
                               plait_matched_t *matched_p)
{
    plait_session_t *session = &exec->session;
    const plait_transport_t *transport = session->end->transport;

    if (exec->device != NULL) {
        return plait_device_sendrecv(exec->device, is_buffered, send, recv, matched_p);
    }
    return is_buffered ? transport->send(session, send)
                       : transport->sendrecv(session, send, recv, matched_p);
}

plait_status_t plait_exec_sendrecv(plait_exec_t *exec, bool is_buffered,
                                   const plait_half_t *send, const plait_half_t *recv,
                                   plait_matched_t *matched_p)
{
    plait_status_t status = PLAIT_OK;
    plait_half_t out = *send;
    plait_half_t in = *recv;

    out.tree = plait_tree_sent(exec->plan->trees);
    in.tree = plait_tree_received(exec->plan->trees);
    status = sendrecv(exec, is_buffered, &out, &in, matched_p);
    if (status == PLAIT_ERR_MISMATCH && exec->plan->trees != 0) {
        plait_error_prefix("%s: ",
                           exec->plan->title); /* says which arrays are joined */
    }
    return status;
}

/* ------------------------------------------------------------------ steps */

/* A step that is computation, alone or with all ranks. */
static plait_status_t compute(plait_exec_t *exec, const plait_step_t *step)
{
    plait_status_t status = PLAIT_OK;

    if (step->kind == PLAIT_STEP_REDUCE) {
        status = reduce(exec, &step->u.reduce);
    } else if (step->kind == PLAIT_STEP_KERNEL) {
        const plait_kernel_t *kernel = step->u.kernel.kernel;
        status = (kernel->tiles != NULL)
                     ? plait_tiles_run(exec, kernel, step->u.kernel.params)
                     : kernel->run_device(step->u.kernel.params, exec);
    }
    return plait_device_failed(exec->device, status);
}

static bool is_met_by_all(const plait_step_t *step)
{
    return step->kind == PLAIT_STEP_KERNEL && step->u.kernel.kernel->is_blocking;
}

plait_status_t plait_exec_device_step(plait_exec_t *exec, const plait_step_t *step)
{
    if (step->kind == PLAIT_STEP_MOVE) {
        return plait_exec_device_move(exec, &step->u.move);
    }
    if (step->kind == PLAIT_STEP_NATIVE) {
        return plait_device_failed(exec->device,
                                   plait_exec_native(exec, &step->u.native));
    }
    return (exec->device->failure == PLAIT_OK || is_met_by_all(step))
               ? compute(exec, step)
               : exec->device->failure;
}
