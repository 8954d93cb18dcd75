#include "redist/put.h"

#include "base/alloc.h"
#include "base/status.h"
#include "plan/exec.h"

#include <inttypes.h>
#include <string.h>

typedef struct {
    int64_t n;
    plait_block_t *blocks;
} put_t;

bool plait_redist_is_put(const plait_block_t *block)
{
    const int64_t source = plait_box_run(&block->box, true);

    return source < PLAIT_LONG_ROW && source < plait_box_run(&block->box, false);
}

static plait_status_t put_run(const void *params, plait_exec_t *exec)
{
    plait_status_t status = PLAIT_OK;
    const put_t *put = params;

    for (int64_t i = 0; i < put->n; i++) {
        PLAIT_TRY(plait_exec_put(exec, &put->blocks[i]));
    }
done:
    return status;
}

static void put_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const put_t *put = params;

    for (int64_t i = 0; i < put->n; i++) {
        const plait_block_t *b = &put->blocks[i];
        touch(context, false, PLAIT_ANY, b->src_slot, b->src_offset, &b->box);
    }
    for (int64_t i = 0; i < put->n; i++) {
        const plait_block_t *b = &put->blocks[i];
        plait_box_copy_t box = b->box;
        memcpy(box.src_stride, b->box.dst_stride, sizeof(box.src_stride));
        touch(context, true, b->peer, b->dst_slot, b->dst_offset, &box);
    }
}

static void put_print(const void *params, FILE *file)
{
    const put_t *put = params;
    int64_t n_bytes = 0;

    for (int64_t i = 0; i < put->n; i++) {
        n_bytes += plait_box_bytes(&put->blocks[i].box);
    }
    (void)fprintf(file, "%" PRId64 " blocks (%" PRId64 " bytes), put to peers", put->n,
                  n_bytes);
}

static void put_destroy(void *params)
{
    put_t *put = params;

    plait_free(put->blocks);
    plait_free(put);
}

static const plait_kernel_t put_kernel = {.name = "put",
                                          .run = put_run,
                                          .touch = put_touch,
                                          .print = put_print,
                                          .destroy = put_destroy};

plait_status_t plait_redist_put(plait_plan_t *plan, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    put_t *put = NULL;

    if (plan->direct == PLAIT_DIRECT_READ && move->n_out > 0) {
        put = plait_alloc(1, sizeof(*put));
        PLAIT_CHECK(put != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a step");
        *put = (put_t){.n = move->n_out, .blocks = move->out};
        move->out = NULL;
        move->n_out = 0;
        move->room_out = 0;
        for (int64_t i = 0; i < put->n; i++) {
            plait_plan_need_passage(plan, &put->blocks[i].box);
        }
        PLAIT_TRY(plait_plan_kernel(plan, &put_kernel, put));
    }
done:
    return status;
}
