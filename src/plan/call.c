#include "plan/call.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"

#include <string.h>

/* Words behind the struct: parameters, lists, dims. */
static int64_t count_words(const plait_call_t *call)
{
    const plait_op_t *op = call->op;
    const int64_t *list = NULL;
    int64_t n = (int64_t)(op->params_size / sizeof(int64_t));

    for (const plait_attr_t *a = op->attrs; a->name != NULL; a++) {
        n += plait_attr_list(a, call->params, &list);
    }
    for (int i = 0; i < op->n_args; i++) {
        n += call->args[i].ndim;
    }
    for (int i = 0; i < op->n_rets; i++) {
        n += call->rets[i].ndim;
    }
    return n;
}

static int64_t *put(int64_t *at, const int64_t *words, int64_t n)
{
    if (n > 0) {
        memcpy(at, words, (size_t)n * sizeof(*at));
    }
    return at + n;
}

static int64_t *copy_lists(const plait_call_t *call, char *params, int64_t *at)
{
    for (const plait_attr_t *a = call->op->attrs; a->name != NULL; a++) {
        const int64_t *list = NULL;
        int64_t n = plait_attr_list(a, call->params, &list);
        if (n > 0) {
            memcpy(params + a->offset, &at, sizeof(at));
            at = put(at, list, n);
        }
    }
    return at;
}

static int64_t *copy_dims(plait_array_t arrays[], int n, int64_t *at)
{
    for (int i = 0; i < n; i++) {
        int64_t *dims = at;
        at = put(at, arrays[i].dims, arrays[i].ndim);
        arrays[i].dims = dims;
    }
    return at;
}

plait_status_t plait_call_copy(const plait_call_t *call, plait_call_t **copy_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_op_t *op = call->op;
    int64_t n_bytes =
        (int64_t)sizeof(*call) + count_words(call) * (int64_t)sizeof(int64_t);
    plait_call_t *copy = plait_alloc(n_bytes, 1);

    PLAIT_CHECK(copy != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a call of %lld bytes",
                (long long)n_bytes);
    *copy = *call;
    int64_t *at = (int64_t *)(void *)(copy + 1);
    char *params = (char *)at;
    copy->params = params;
    at = put(at, call->params, (int64_t)(op->params_size / sizeof(int64_t)));
    at = copy_lists(call, params, at);
    at = copy_dims(copy->args, op->n_args, at);
    (void)copy_dims(copy->rets, op->n_rets, at);
    *copy_p = copy;
done:
    return status;
}

static bool add_bytes(const plait_array_t arrays[], int n, int64_t *sum_p)
{
    bool is_known = true;

    for (int i = 0; i < n; i++) {
        int64_t n_items = 0;
        int64_t n_bytes = 0;
        is_known = is_known &&
                   plait_array_size(&arrays[i], &n_items, &n_bytes) == PLAIT_OK &&
                   plait_add(*sum_p, n_bytes, sum_p);
    }
    return is_known;
}

int64_t plait_call_bytes(const plait_call_t *call)
{
    int64_t sum = 0;
    bool is_known = add_bytes(call->args, call->op->n_args, &sum) &&
                    add_bytes(call->rets, call->op->n_rets, &sum);

    return is_known ? sum : 0;
}
