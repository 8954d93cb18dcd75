/* More than 2^31 elements: offsets and sizes in the plans of three ranks, without memory; and
 * arrays of 2 GiB on two threads where the machine has room for them. */
#include "coll/coll.h"
#include "device/pool.h"
#include "large_cases.h"
#include "ops/list.h"
#include "plan/launch.h"
#include "team.h"

enum { P = 3 };

static const plait_caps_t all_caps[] = {
    {.direct = PLAIT_DIRECT_POINTER, .publish_bytes = PLAIT_PUBLISH_BYTES},
    {.direct = PLAIT_DIRECT_READ, .publish_bytes = -1},
    {.direct = PLAIT_DIRECT_NONE, .publish_bytes = -1},
};

/* Elements of operand and result in units of n, on the root and on other ranks. */
typedef struct {
    const plait_op_t *op;
    int arg, ret, root_arg, root_ret;
} shape_t;

static const shape_t shapes[] = {
    {&plait_op_allgather, 1, P, 1, P},      {&plait_op_allreduce, 1, 1, 1, 1},
    {&plait_op_alltoall, P, P, P, P},       {&plait_op_bcast, 1, 1, 1, 1},
    {&plait_op_gather, 1, 1, 1, P},         {&plait_op_reduce, 1, 1, 1, 1},
    {&plait_op_reduce_scatter, P, 1, P, 1}, {&plait_op_scan, 1, 1, 1, 1},
    {&plait_op_scatter, 1, 1, P, 1},
};

static plait_status_t plan_of(const shape_t *s, const plait_caps_t *caps, int rank,
                              int64_t n, plait_plan_t **plan_p)
{
    /* all params start with the reduction or the root, 0; gather: others get x back */
    const plait_gather_params_t gather = {.elsewhere = 1};
    const unsigned char zeros[PLAIT_MAX_PARAMS_BYTES] = {0};
    const void *params =
        (s->op == &plait_op_gather) ? (const void *)&gather : (const void *)zeros;
    plait_endpoint_t end = {.rank = rank, .size = P, .caps = *caps};
    int n_arg = (rank == 0) ? s->root_arg : s->arg;
    int n_ret = (rank == 0) ? s->root_ret : s->ret;
    const int64_t dims[2][2] = {{n_arg, n}, {n_ret, n}};
    const plait_array_t arg = {
        .dtype = PLAIT_U8, .ndim = (n_arg > 1) ? 2 : 1, .dims = dims[0] + (n_arg == 1)};
    const plait_array_t ret = {
        .dtype = PLAIT_U8, .ndim = (n_ret > 1) ? 2 : 1, .dims = dims[1] + (n_ret == 1)};

    return plait_op_plan(s->op, params, &end, &arg, &ret, plan_p);
}

static bool is_inside(plait_plan_t *const plans[], int rank, int slot, int64_t offset,
                      int64_t n_bytes)
{
    return slot == PLAIT_SLOT_PUBLISHED ||
           (offset >= 0 && n_bytes >= 0 &&
            offset <= plans[rank]->slot_bytes[slot] - n_bytes);
}

/* Every piece of a plan lies in the arrays of the ranks concerned. */
static bool steps_are_inside(plait_plan_t *const plans[], int rank)
{
    const plait_plan_t *plan = plans[rank];
    bool are = true;

    for (int i = 0; i < plan->n_steps; i++) {
        const plait_step_t *step = &plan->steps[i];
        for (int64_t b = 0; step->kind == PLAIT_STEP_MOVE && b < step->u.move.n_in;
             b++) {
            const plait_block_t *block = &step->u.move.in[b];
            int64_t n = plait_box_bytes(&block->box);
            are = are && is_inside(plans, rank, block->dst_slot, block->dst_offset, n);
            are = are && (block->kind == PLAIT_BLOCK_ZERO ||
                          is_inside(plans, block->peer, block->src_slot,
                                    block->src_offset, n));
        }
        for (int64_t b = 0; step->kind == PLAIT_STEP_MOVE && b < step->u.move.n_out;
             b++) {
            const plait_block_t *block = &step->u.move.out[b];
            are = are && is_inside(plans, rank, block->src_slot, block->src_offset,
                                   plait_box_bytes(&block->box));
        }
        if (step->kind == PLAIT_STEP_REDUCE) {
            const plait_reduce_step_t *r = &step->u.reduce;
            are = are && is_inside(plans, rank, r->dst_slot, r->dst_offset, r->n);
        }
    }
    return are;
}

static void check_plans(int64_t n)
{
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        for (size_t c = 0; c < sizeof(all_caps) / sizeof(all_caps[0]); c++) {
            const char *name = shapes[s].op->name;
            plait_plan_t *plans[P] = {NULL};
            int64_t n_bytes = 0;
            bool are_made = true;
            for (int r = 0; r < P; r++) {
                are_made =
                    plan_of(&shapes[s], &all_caps[c], r, n, &plans[r]) == PLAIT_OK &&
                    are_made;
            }
            CHECK(are_made, "%s n %lld caps %zu", name, (long long)n, c);
            for (int r = 0; r < P && are_made; r++) {
                CHECK(steps_are_inside(plans, r), "%s n %lld caps %zu rank %d", name,
                      (long long)n, c, r);
                n_bytes += plait_plan_cost(plans[r]).message_bytes;
            }
            CHECK(!are_made || n_bytes >= (P - 1) * n,
                  "%s n %lld caps %zu moves %lld bytes", name, (long long)n, c,
                  (long long)n_bytes);
            for (int r = 0; r < P; r++) {
                plait_plan_destroy(&plans[r]);
            }
        }
    }
}

/* Impossible sizes give an error, whatever is computed from them. */
static void check_overflow(void)
{
    const int64_t n = INT64_MAX / 2;

    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        plait_plan_t *plan = NULL;
        plait_status_t status = plan_of(&shapes[s], &all_caps[0], 0, n, &plan);
        bool is_counted = shapes[s].root_arg == P || shapes[s].root_ret == P;
        CHECK(is_counted ? status == PLAIT_ERR_OVERFLOW : status != PLAIT_ERR_INTERNAL,
              "%s: status %d", shapes[s].op->name, (int)status);
        plait_plan_destroy(&plan);
    }
}

static plait_status_t plan_route(int64_t n_out, const int64_t edge[PLAIT_EDGE_WORDS],
                                 plait_plan_t **plan_p)
{
    const plait_route_params_t params = {
        .edges = edge, .n_edges = PLAIT_EDGE_WORDS, .n_in = 1, .n_out = n_out};
    plait_endpoint_t end = {.rank = 1, .size = P, .caps = all_caps[0]};
    const int64_t n_in = 1;
    const plait_array_t arg = {.dtype = PLAIT_U8, .ndim = 1, .dims = &n_in};
    const plait_array_t ret = {.dtype = PLAIT_U8, .ndim = 1, .dims = &n_out};

    return plait_op_plan(&plait_op_route, &params, &end, &arg, &ret, plan_p);
}

/* A plan's memory depends on its edges, not on the blocks of its result. */
static void check_routes(void)
{
    const int64_t n = INT64_MAX;
    const int64_t ends[] = {0, 1, INT64_C(1) << 31, n - 1};
    const int64_t far_edge[PLAIT_EDGE_WORDS] = {
        [PLAIT_EDGE_SOURCE_BLOCK] = INT64_MAX, [PLAIT_EDGE_DEST] = 1};
    plait_plan_t *plan = NULL;

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        const int64_t edge[PLAIT_EDGE_WORDS] = {
            [PLAIT_EDGE_DEST] = 1, [PLAIT_EDGE_DEST_BLOCK] = ends[i]};
        int64_t n_bytes = 0;
        int64_t n_blocks = 0;
        plait_status_t status = plan_route(n, edge, &plan);
        CHECK(status == PLAIT_OK, "route to block %lld", (long long)ends[i]);
        for (int s = 0; status == PLAIT_OK && s < plan->n_steps; s++) {
            const plait_step_t *step = &plan->steps[s];
            for (int64_t b = 0; step->kind == PLAIT_STEP_MOVE && b < step->u.move.n_in;
                 b++) {
                n_bytes += plait_box_bytes(&step->u.move.in[b].box);
                n_blocks++;
            }
        }
        CHECK(n_bytes == n && n_blocks <= 3, "route to block %lld: %lld bytes in %lld",
              (long long)ends[i], (long long)n_bytes, (long long)n_blocks);
        plait_plan_destroy(&plan);
    }
    CHECK(plan_route(4, far_edge, &plan) == PLAIT_ERR_OVERFLOW, "a block beyond all");
    plait_plan_destroy(&plan);
}

static plait_status_t plan_uneven(int64_t among_others, int64_t row)
{
    int64_t counts[P * P] = {0};
    const int64_t dims[] = {0, row};
    plait_endpoint_t end = {.rank = 0, .size = P, .caps = all_caps[0]};
    const plait_alltoall_params_t params = {.n_counts = (int64_t)P * P,
                                            .counts = counts};
    const plait_array_t x = {.dtype = PLAIT_U8, .ndim = 2, .dims = dims};
    plait_plan_t *plan = NULL;

    counts[1 * P + 1] = among_others;
    counts[1 * P + 2] = among_others;
    plait_status_t status =
        plait_op_plan(&plait_op_alltoall, &params, &end, &x, &x, &plan);
    plait_plan_destroy(&plan);
    return status;
}

/* Counts between other ranks matter, too: a rank's blocks come after them. */
static void check_counts_of_others(void)
{
    CHECK(plan_uneven(INT64_MAX / 2, 1) == PLAIT_OK, "all of it");
    CHECK(plan_uneven(INT64_MAX / 2 + 1, 1) == PLAIT_ERR_OVERFLOW, "rows");
    CHECK(plan_uneven(INT64_MAX / 4, 3) == PLAIT_ERR_OVERFLOW, "bytes");
}

/* The memory of both ranks, allocated once: new pages take most of the time. */
typedef struct {
    unsigned char *x[2];
    int step;
} large_t;

static void large_rank(plait_comm_t *comm, void *context)
{
    const large_t *t = context;

    large_some(comm, t->x[plait_comm_rank(comm)], 0, t->step);
}

static void check_large(void)
{
    large_t t = {.x = {plait_alloc_aligned(LARGE_N), plait_alloc_aligned(LARGE_N)}};

    CHECK(t.x[0] != NULL && t.x[1] != NULL, "no memory");
    if (t.x[0] != NULL && t.x[1] != NULL) {
        t.step = 1;
        team_run(2, PLAIT_DIRECT_POINTER, large_rank, &t);
        t.step = 2; /* all of them: mpi_large.c */
        team_run(2, PLAIT_DIRECT_NONE, large_rank, &t);
    }
    plait_free(t.x[0]);
    plait_free(t.x[1]);
}

int main(void)
{
    bool has_room = large_fits() && !is_quick();

    check_plans((INT64_C(1) << 31) + 5);
    check_plans((INT64_C(1) << 40) + 1);
    check_overflow();
    check_routes();
    check_counts_of_others();
    if (has_room) {
        check_large();
    } else if (!is_quick()) {
        printf("less than 7 GiB are free: no arrays of 2 GiB\n");
    }
    (void)plait_pool_trim();
    int code = report("test_large");
    return (code == 0 && !has_room && !is_quick()) ? SKIPPED : code;
}
