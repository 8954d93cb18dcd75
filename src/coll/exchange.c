/* A message out and a message in, whose partners and tags are read at run time. The sender of a message from
 * any source is known only then. The derivative of such a transfer goes the same way as the transfer, its
 * adjoint goes back. */
#include "base/status.h"
#include "coll/coll.h"
#include "plan/exec.h"
#include "transport/matched.h"

static const plait_attr_t exchange_attrs[] = {
    PLAIT_ATTR(plait_exchange_params_t, status),
    PLAIT_ATTR_END,
};

enum { X, TEMPLATE, TO, FROM }; /* operands */
enum { Y, MATCHED };            /* results */
enum { PEER, TAG, PAIR_WORDS }; /* of TO, FROM and MATCHED */

typedef struct {
    int64_t status_id;
    plait_dtype_t dtype, recv_dtype;
    int64_t n_bytes, n_recv_bytes;
    int rank, ret_slot; /* slot of result 0, for the checker */
} exchange_t;

static plait_half_t half_of(const int32_t words[], char *data, int64_t n_bytes,
                            plait_dtype_t dtype)
{
    return (plait_half_t){.peer = words[PEER],
                          .tag = words[TAG],
                          .data = data,
                          .n_bytes = n_bytes,
                          .dtype = dtype};
}

static plait_status_t check_half(const plait_half_t *half, int n_ranks, bool is_recv)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(plait_coll_check_peer("exchange", is_recv ? "source" : "dest", half->peer,
                                    n_ranks, is_recv));
    if (half->peer != PLAIT_NO_RANK) {
        PLAIT_TRY(plait_coll_check_tag("exchange", "tag", half->tag, is_recv));
    }
done:
    return status;
}

static plait_status_t exchange_run(const void *params, plait_exec_t *exec)
{
    plait_status_t status = PLAIT_OK;
    const exchange_t *p = params;
    const plait_plan_t *plan = exec->plan;
    const int y = plait_slot_ret(plan, Y);
    plait_matched_t matched = {.source = PLAIT_NO_RANK, .tag = PLAIT_ANY};
    int32_t to[PAIR_WORDS];
    int32_t from[PAIR_WORDS];

    PLAIT_TRY(plait_exec_load(exec, to, plait_slot_arg(plan, TO), sizeof(to)));
    PLAIT_TRY(plait_exec_load(exec, from, plait_slot_arg(plan, FROM), sizeof(from)));
    plait_half_t send =
        half_of(to, exec->slot[plait_slot_arg(plan, X)], p->n_bytes, p->dtype);
    plait_half_t recv = half_of(from, exec->slot[y], p->n_recv_bytes, p->recv_dtype);
    PLAIT_TRY(check_half(&send, plan->n_ranks, false));
    PLAIT_TRY(check_half(&recv, plan->n_ranks, true));
    bool has_source = recv.peer != PLAIT_NO_RANK;
    bool is_buffered =
        !has_source && send.peer != PLAIT_NO_RANK && p->n_bytes <= PLAIT_SEND_BYTES;
    if (!has_source) {
        /* only the device can fail here; plait_exec_sendrecv then tells the partner */
        (void)plait_exec_copy(exec, y, plait_slot_arg(plan, TEMPLATE), p->n_recv_bytes);
    }
    PLAIT_TRY(plait_exec_sendrecv(exec, is_buffered, &send, &recv, &matched));
    if (p->status_id != 0) {
        plait_matched_report(p->status_id, &matched);
    }
    const int32_t words[PAIR_WORDS] = {[PEER] =
                                           has_source ? matched.source : PLAIT_NO_RANK,
                                       [TAG] = has_source ? matched.tag : PLAIT_ANY};
    PLAIT_TRY(
        plait_exec_store(exec, plait_slot_ret(plan, MATCHED), words, sizeof(words)));
done:
    return status;
}

static void exchange_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const exchange_t *p = params;
    const plait_box_copy_t pair = {.row_bytes = PAIR_WORDS * (int64_t)sizeof(int32_t)};
    const plait_box_copy_t sent = {.row_bytes = p->n_bytes};
    const plait_box_copy_t received = {.row_bytes = p->n_recv_bytes};

    touch(context, false, p->rank, X, 0, &sent);
    touch(context, false, p->rank, TEMPLATE, 0, &received);
    touch(context, false, p->rank, TO, 0, &pair);
    touch(context, false, p->rank, FROM, 0, &pair);
    touch(context, true, p->rank, p->ret_slot + Y, 0, &received);
    touch(context, true, p->rank, p->ret_slot + MATCHED, 0, &pair);
}

static void exchange_print(const void *params, FILE *file)
{
    const exchange_t *p = params;

    (void)fprintf(file, "%lld bytes out, %lld bytes in, partners known when it runs",
                  (long long)p->n_bytes, (long long)p->n_recv_bytes);
}

static const plait_kernel_t exchange_kernel = {
    .name = "exchange",
    .run = exchange_run,
    .run_device = exchange_run,
    .touch = exchange_touch,
    .print = exchange_print,
};

static plait_status_t check_pair(const char *name, const plait_array_t *pair)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(
        pair->dtype == PLAIT_S32 && pair->ndim == 1 && pair->dims[0] == PAIR_WORDS,
        PLAIT_ERR_INVALID, "exchange: %s is %s of shape %s, expected int32 (2,)", name,
        plait_dtype_name(pair->dtype), plait_coll_shape(pair).text);
done:
    return status;
}

static plait_status_t exchange_plan(const void *params, const plait_problem_t *problem,
                                    plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_exchange_params_t *p = params;
    const plait_array_t *x = &problem->args[X];
    const plait_array_t *y = &problem->rets[Y];
    plait_plan_t *plan = NULL;
    exchange_t exchange = {
        .status_id = p->status, .dtype = x->dtype, .recv_dtype = y->dtype};
    int64_t n = 0;
    int64_t n_recv = 0;

    PLAIT_TRY(plait_coll_same("exchange", &problem->args[TEMPLATE], y));
    PLAIT_TRY(check_pair("to", &problem->args[TO]));
    PLAIT_TRY(check_pair("from", &problem->args[FROM]));
    PLAIT_TRY(check_pair("matched", &problem->rets[MATCHED]));
    PLAIT_TRY(plait_array_size(x, &n, &exchange.n_bytes));
    PLAIT_TRY(plait_array_size(y, &n_recv, &exchange.n_recv_bytes));
    PLAIT_TRY(plait_plan_create(problem, &plan, "exchange(%s[%lld], %s[%lld])",
                                plait_dtype_name(x->dtype), (long long)n,
                                plait_dtype_name(y->dtype), (long long)n_recv));
    exchange.rank = problem->rank;
    exchange.ret_slot = plait_slot_ret(plan, 0);
    PLAIT_TRY(
        plait_plan_kernel_copy(plan, &exchange_kernel, &exchange, sizeof(exchange)));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_exchange = {
    .name = "exchange",
    .n_args = 4,
    .n_rets = 2,
    .params_size = sizeof(plait_exchange_params_t),
    .attrs = exchange_attrs,
    .adjoint = "exchange",
    .alias = -1,
    .is_matched = 1,
    .model = "rank",
    .doc = "Send an array and receive another, partners and tags given as arrays.",
    .line = "MPI_Sendrecv ({items} items out, {result} items in)",
    .plan = exchange_plan,
};
