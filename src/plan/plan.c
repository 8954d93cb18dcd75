#include "plan/plan.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/hash.h"
#include "device/box.h"
#include "plan/tiles.h"

#include <stdarg.h>
#include <string.h>

plait_status_t plait_array_size(const plait_array_t *array, int64_t *n_p,
                                int64_t *n_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t n = 1;
    int64_t n_bytes = 0;

    PLAIT_CHECK(plait_dtype_bytes(array->dtype) > 0, PLAIT_ERR_INVALID,
                "dtype code %d is unknown", (int)array->dtype);
    for (int d = 0; d < array->ndim; d++) {
        PLAIT_CHECK(array->dims[d] >= 0, PLAIT_ERR_INVALID, "dimension %d is %lld", d,
                    (long long)array->dims[d]);
        PLAIT_CHECK(plait_mul(n, array->dims[d], &n), PLAIT_ERR_OVERFLOW,
                    "the array has more than 2^63 elements");
    }
    PLAIT_CHECK(plait_mul(n, plait_dtype_bytes(array->dtype), &n_bytes),
                PLAIT_ERR_OVERFLOW, "the array has more than 2^63 bytes");
    *n_p = n;
    *n_bytes_p = n_bytes;
done:
    return status;
}

static plait_status_t set_slots(plait_plan_t *plan, const plait_problem_t *problem)
{
    plait_status_t status = PLAIT_OK;
    int64_t n = 0;

    for (int i = 0; i < problem->n_args; i++) {
        PLAIT_TRY(plait_array_size(&problem->args[i], &n,
                                   &plan->slot_bytes[plait_slot_arg(plan, i)]));
    }
    for (int i = 0; i < problem->n_rets; i++) {
        PLAIT_TRY(plait_array_size(&problem->rets[i], &n,
                                   &plan->slot_bytes[plait_slot_ret(plan, i)]));
    }
done:
    return status;
}

plait_status_t plait_plan_create(const plait_problem_t *problem, plait_plan_t **plan_p,
                                 const char *format, ...)
{
    plait_status_t status = PLAIT_OK;
    plait_plan_t *plan = plait_alloc(1, sizeof(*plan));
    va_list args;

    PLAIT_CHECK(plan != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    va_start(args, format);
    (void)vsnprintf(plan->title, sizeof(plan->title), format, args);
    va_end(args);
    plan->rank = problem->rank;
    plan->n_ranks = problem->n_ranks;
    plan->direct = problem->caps.direct;
    plan->can_write = problem->caps.can_write && plan->direct != PLAIT_DIRECT_NONE;
    plan->publish_bytes = problem->caps.publish_bytes;
    plan->has_native = problem->caps.has_native;
    plan->device = problem->caps.device;
    plan->reach = problem->caps.reach;
    plan->trees = problem->trees;
    plan->n_threads = (int)plait_max(1, problem->caps.n_threads);
    plan->is_collective = true;
    plan->agree = PLAIT_HASH_SEED;
    plan->n_args = problem->n_args;
    plan->n_rets = problem->n_rets;
    PLAIT_CHECK(problem->n_args + problem->n_rets <= PLAIT_MAX_SLOTS,
                PLAIT_ERR_INTERNAL, "%d operands and %d results", problem->n_args,
                problem->n_rets);
    PLAIT_TRY(set_slots(plan, problem));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

static void step_clear(plait_step_t *step)
{
    if (step->kind == PLAIT_STEP_MOVE) {
        plait_move_clear(&step->u.move);
    } else if (step->kind == PLAIT_STEP_KERNEL) {
        const plait_kernel_t *kernel = step->u.kernel.kernel;
        if (kernel->destroy != NULL) {
            kernel->destroy(step->u.kernel.params);
        } else {
            plait_free(step->u.kernel.params);
        }
    }
}

void plait_plan_destroy(plait_plan_t **plan_p)
{
    plait_plan_t *plan = (plan_p != NULL) ? *plan_p : NULL;

    if (plan != NULL) {
        for (int i = 0; i < plan->n_steps; i++) {
            step_clear(&plan->steps[i]);
        }
        plait_free(plan->steps);
        plait_free(plan);
        *plan_p = NULL;
    }
}

plait_status_t plait_plan_add_work(plait_plan_t *plan, int64_t n_bytes, int *slot_p)
{
    plait_status_t status = PLAIT_OK;
    int slot = plait_plan_n_slots(plan);

    PLAIT_CHECK(slot < PLAIT_MAX_SLOTS, PLAIT_ERR_INTERNAL, "%s: more than %d buffers",
                plan->title, PLAIT_MAX_SLOTS);
    plan->slot_bytes[slot] = n_bytes;
    plan->n_work++;
    *slot_p = slot;
done:
    return status;
}

void plait_plan_show_work(plait_plan_t *plan)
{
    plan->shows_work = plan->direct == PLAIT_DIRECT_READ && plan->can_write;
}

void plait_plan_need_scratch(plait_plan_t *plan, int64_t n_bytes)
{
    plan->scratch_bytes = plait_max(plan->scratch_bytes, n_bytes);
}

void plait_plan_agree(plait_plan_t *plan, uint64_t value)
{
    plan->agree = plait_hash_word(plan->agree, value);
}

void plait_plan_agree_some(plait_plan_t *plan, uint64_t value)
{
    plan->agree_some = plait_hash_word(plan->agree_some, value) | 1; /* 0 means none */
}

/* Doubles an array if it is full. */
static plait_status_t grow(void **items_p, int64_t n, int64_t *room_p, int64_t size)
{
    plait_status_t status = PLAIT_OK;

    if (n == *room_p) {
        int64_t room = plait_max(8, 2 * n);
        void *items = plait_alloc(room, size);
        PLAIT_CHECK(items != NULL, PLAIT_ERR_NO_MEMORY,
                    "no memory for %lld plan entries", (long long)room);
        if (n > 0) {
            memcpy(items, *items_p, (size_t)(n * size));
        }
        plait_free(*items_p);
        *items_p = items;
        *room_p = room;
    }
done:
    return status;
}

static plait_status_t add_block(plait_block_t **blocks_p, int64_t *n_p, int64_t *room_p,
                                const plait_block_t *block)
{
    plait_status_t status = PLAIT_OK;
    void *items = *blocks_p;

    PLAIT_TRY(grow(&items, *n_p, room_p, sizeof(*block)));
    *blocks_p = items;
    (*blocks_p)[*n_p] = *block;
    *n_p += 1;
done:
    return status;
}

plait_status_t plait_move_add_in(plait_move_t *move, const plait_block_t *block)
{
    return add_block(&move->in, &move->n_in, &move->room_in, block);
}

plait_status_t plait_move_add_out(plait_move_t *move, const plait_block_t *block)
{
    return add_block(&move->out, &move->n_out, &move->room_out, block);
}

void plait_move_clear(plait_move_t *move)
{
    plait_free(move->in);
    plait_free(move->out);
    *move = (plait_move_t){0};
}

static plait_status_t add_step(plait_plan_t *plan, const plait_step_t *step)
{
    plait_status_t status = PLAIT_OK;
    void *items = plan->steps;
    int64_t room = plan->room_steps;

    PLAIT_TRY(grow(&items, plan->n_steps, &room, sizeof(*step)));
    plan->steps = items;
    plan->room_steps = (int)room;
    plan->steps[plan->n_steps++] = *step;
done:
    return status;
}

plait_status_t plait_plan_publish(plait_plan_t *plan, int slot, int64_t offset,
                                  int64_t n_bytes)
{
    const plait_step_t step = {.kind = PLAIT_STEP_FENCE,
                               .u.fence = {slot, offset, n_bytes}};

    return add_step(plan, &step);
}

plait_status_t plait_plan_meet(plait_plan_t *plan)
{
    return plait_plan_publish(plan, -1, 0, 0);
}

plait_status_t plait_plan_fence(plait_plan_t *plan)
{
    return (plan->direct == PLAIT_DIRECT_NONE) ? PLAIT_OK : plait_plan_meet(plan);
}

plait_status_t plait_plan_arrive(plait_plan_t *plan)
{
    const plait_step_t step = {.kind = PLAIT_STEP_ARRIVE};

    plan->has_arrivals = true;
    return (plan->direct == PLAIT_DIRECT_NONE) ? PLAIT_OK : add_step(plan, &step);
}

const plait_block_t *plait_move_whole(const plait_block_t blocks[], int64_t n, int peer,
                                      bool is_out)
{
    const plait_block_t *whole = NULL;
    int n_found = 0;

    for (int64_t i = 0; i < n && n_found < 2; i++) {
        if (blocks[i].peer == peer && plait_box_bytes(&blocks[i].box) > 0) {
            whole = &blocks[i];
            n_found++;
        }
    }
    return (n_found == 1 &&
            (is_out ? plait_box_is_dense(&whole->box, whole->box.src_stride)
                    : whole->kind == PLAIT_BLOCK_COPY &&
                          plait_box_is_dense(&whole->box, whole->box.dst_stride)))
               ? whole
               : NULL;
}

const plait_block_t *plait_move_place(const plait_move_t *move, int peer, bool is_out)
{
    const bool waits = move->is_in_place && is_out == move->lifts;
    const plait_block_t *blocks = is_out ? move->out : move->in;

    return waits ? NULL
                 : plait_move_whole(blocks, is_out ? move->n_out : move->n_in, peer,
                                    is_out);
}

int64_t plait_move_bytes(const plait_move_t *move, int peer, bool is_out)
{
    const plait_block_t *blocks = is_out ? move->out : move->in;
    const int64_t n = is_out ? move->n_out : move->n_in;
    int64_t n_bytes = 0;

    for (int64_t i = 0; i < n; i++) {
        n_bytes += (blocks[i].peer == peer) ? plait_box_bytes(&blocks[i].box) : 0;
    }
    return n_bytes;
}

/* Bytes that a message needs in a staging buffer. */
static int64_t staged_bytes(const plait_move_t *move, int peer, bool is_out)
{
    return (plait_move_place(move, peer, is_out) == NULL)
               ? plait_move_bytes(move, peer, is_out)
               : 0;
}

/* Pairwise messages go through two staging buffers, each as large as the largest message (exec_move.c). */
static int64_t pairwise_bytes(const plait_plan_t *plan, const plait_move_t *move)
{
    int64_t largest = 0;

    for (int peer = 0; peer < plan->n_ranks; peer++) {
        if (peer != plan->rank) {
            largest = plait_max(largest, plait_max(staged_bytes(move, peer, false),
                                                   staged_bytes(move, peer, true)));
        }
    }
    return 2 * (largest + 64);
}

/* All messages of a move are packed at once, and unpacked at once (exec_device_move.c). */
static int64_t device_bytes(const plait_plan_t *plan, const plait_move_t *move)
{
    int64_t n_bytes = 0;

    for (int peer = 0; peer < plan->n_ranks; peer++) {
        if (peer != plan->rank) {
            n_bytes += plait_device_padded(staged_bytes(move, peer, false)) +
                       plait_device_padded(staged_bytes(move, peer, true));
        } else if (move->is_in_place) {
            n_bytes += plait_device_padded(plait_move_bytes(move, peer, false));
        }
    }
    return n_bytes;
}

/* A move in place takes the way that needs less scratch. */
static int64_t staging_bytes(const plait_plan_t *plan, plait_move_t *move)
{
    plait_move_t lifting = *move;

    if (plan->device == NULL) {
        return pairwise_bytes(plan, move);
    }
    lifting.lifts = true;
    move->lifts =
        move->is_in_place && device_bytes(plan, &lifting) <= device_bytes(plan, move);
    return device_bytes(plan, move);
}

void plait_plan_need_passage(plait_plan_t *plan, const plait_box_copy_t *box)
{
    const int64_t n_bytes = plait_box_bytes(box);
    const bool is_turned = plait_box_turn_axis(box) >= 0;
    const int64_t most = is_turned ? PLAIT_TURN_SCRATCH : PLAIT_READ_CHUNK;

    plait_plan_need_scratch(plan, plait_min(most, n_bytes + n_bytes / 64));
}

plait_status_t plait_plan_move(plait_plan_t *plan, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    plait_step_t step = {.kind = PLAIT_STEP_MOVE, .u.move = *move};

    *move = (plait_move_t){0};
    for (int64_t i = 0; i < step.u.move.n_in; i++) {
        step.u.move.in_bytes += plait_box_bytes(&step.u.move.in[i].box);
    }
    if (step.u.move.n_in == 0 &&
        (step.u.move.is_published || plan->direct != PLAIT_DIRECT_NONE)) {
        goto done; /* an empty rank takes part in fences only */
    }
    if (step.u.move.is_published) {
        /* copied from where it is */
    } else if (plan->direct == PLAIT_DIRECT_NONE) {
        plait_plan_need_scratch(plan, staging_bytes(plan, &step.u.move));
    } else if (plan->direct == PLAIT_DIRECT_READ) {
        for (int64_t i = 0; i < step.u.move.n_in; i++) {
            if (step.u.move.in[i].peer != plan->rank) {
                plait_plan_need_passage(plan, &step.u.move.in[i].box);
            }
        }
    }
    PLAIT_TRY(add_step(plan, &step));
    step.u.move = (plait_move_t){0};
done:
    plait_move_clear(&step.u.move);
    return status;
}

plait_status_t plait_plan_reduce(plait_plan_t *plan, const plait_reduce_step_t *reduce)
{
    const plait_step_t step = {.kind = PLAIT_STEP_REDUCE, .u.reduce = *reduce};

    if (reduce->src_slot != PLAIT_SLOT_PUBLISHED && plan->n_ranks > 1) {
        plait_plan_need_scratch(plan, PLAIT_READ_CHUNK);
    }
    return (reduce->n == 0) ? PLAIT_OK : add_step(plan, &step);
}

plait_status_t plait_plan_native(plait_plan_t *plan, const plait_native_step_t *native)
{
    const plait_step_t step = {.kind = PLAIT_STEP_NATIVE, .u.native = *native};

    return add_step(plan, &step);
}

plait_status_t plait_plan_kernel(plait_plan_t *plan, const plait_kernel_t *kernel,
                                 void *params)
{
    plait_step_t step = {.kind = PLAIT_STEP_KERNEL,
                         .u.kernel = {.kernel = kernel, .params = params}};
    plait_status_t status = (plan->device != NULL && kernel->tiles != NULL)
                                ? plait_tiles_plan(plan, kernel, params)
                                : PLAIT_OK;

    if (status == PLAIT_OK) {
        status = add_step(plan, &step);
    }
    if (status != PLAIT_OK) {
        step_clear(&step);
    }
    return status;
}

plait_status_t plait_plan_kernel_copy(plait_plan_t *plan, const plait_kernel_t *kernel,
                                      const void *params, size_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    void *copy = plait_alloc(1, (int64_t)n_bytes);

    PLAIT_CHECK(copy != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a step");
    memcpy(copy, params, n_bytes);
    PLAIT_TRY(plait_plan_kernel(plan, kernel, copy));
done:
    return status;
}
