/* The plans of all ranks of operations on global arrays fit together, as in test_plans.c: movement between
 * layouts, transforms, ghost cells. Their costs are as expected. */
#include "fft/params.h"
#include "ghosts.h"
#include "halo/params.h"
#include "plans.h"
#include "redist/blocks.h"
#include "redist/params.h"

static void name_pair(problem_t *p, const char *op, const pair_t *pair)
{
    char from[64];
    char to[64];

    plait_layout_print(&pair->from, from, sizeof(from));
    plait_layout_print(&pair->to, to, sizeof(to));
    (void)snprintf(p->text, sizeof(p->text), "%s %s -> %s", op, from, to);
}

static void check_redist(const pair_t *pair, int n_ranks)
{
    problem_t p = {.op = &plait_op_redistribute,
                   .dtype = PLAIT_S16,
                   .shape = pair_shape,
                   .context = pair};
    plait_redistribute_params_t params = {0};

    params.n_from = plait_layout_pack(&pair->from, params.from);
    params.n_to = plait_layout_pack(&pair->to, params.to);
    memcpy(p.params, &params, sizeof(params));
    name_pair(&p, "redistribute", pair);
    check_problem(&p, n_ranks);
    if (pair->from.ndim > 1) {
        pair_t turned = {.from = plait_layout_turned(&pair->from), .to = pair->to};
        p.context = &turned;
        params.n_from = plait_layout_pack(&turned.from, params.from);
        params.turn = 1;
        memcpy(p.params, &params, sizeof(params));
        name_pair(&p, "redistribute turned", &turned);
        check_problem(&p, n_ranks);
    }
}

static void check_fft(const pair_t *pair, int n_axes, int n_ranks)
{
    problem_t p = {
        .op = &plait_op_fft, .dtype = PLAIT_C64, .shape = pair_shape, .context = pair};
    plait_fft_params_t params = {.sign = -1, .scale = 1.0, .n_axes = n_axes};

    params.n_from = plait_layout_pack(&pair->from, params.from);
    params.n_to = plait_layout_pack(&pair->to, params.to);
    for (int i = 0; i < n_axes; i++) {
        params.axes[i] = pair->from.ndim - n_axes + i;
    }
    memcpy(p.params, &params, sizeof(params));
    name_pair(&p, "fft", pair);
    check_problem(&p, n_ranks);
}

/* Real numbers on one side; the last axis is halved, or the first transformed axis. */
static void check_real_fft(const pair_t *complex, int n_axes, int variant, int n_ranks)
{
    pair_t pair = *complex;
    bool to_complex = variant % 2 == 0;
    problem_t p = {.op = &plait_op_fft,
                   .dtype = to_complex ? PLAIT_F32 : PLAIT_C64,
                   .is_other = true,
                   .ret_dtype = to_complex ? PLAIT_C64 : PLAIT_F32,
                   .shape = pair_shape,
                   .context = &pair};
    plait_fft_params_t params = {.sign = -1, .scale = 1.0, .n_axes = n_axes};
    plait_layout_t *half = to_complex ? &pair.to : &pair.from;
    int last = pair.from.ndim - 1;

    for (int i = 0; i < n_axes; i++) {
        params.axes[i] = (variant < 2) ? last - n_axes + 1 + i : last - i;
    }
    half->shape[params.axes[n_axes - 1]] = half->shape[params.axes[n_axes - 1]] / 2 + 1;
    params.n_from = plait_layout_pack(&pair.from, params.from);
    params.n_to = plait_layout_pack(&pair.to, params.to);
    memcpy(p.params, &params, sizeof(params));
    name_pair(&p, to_complex ? "fft of real" : "fft to real", &pair);
    check_problem(&p, n_ranks);
}

static int power(int base, int exponent)
{
    return (exponent == 0) ? 1 : base * power(base, exponent - 1);
}

/* ---------------------------------------------------------------- ghosts */

typedef struct {
    plait_layout_t cells;
    int64_t before[MAX_NDIM], after[MAX_NDIM];
    plait_boundary_t boundary[MAX_NDIM];
    bool is_bare, is_reduce;
} ghosts_t;

static void ghosts_shape(const void *context, int rank, bool is_ret, int *ndim_p,
                         int64_t dims[])
{
    const ghosts_t *g = context;

    *ndim_p = g->cells.ndim;
    plait_layout_stored_shape(&g->cells, rank, dims);
    for (int a = 0; a < g->cells.ndim && !(g->is_bare && is_ret == g->is_reduce); a++) {
        dims[a] += g->before[a] + g->after[a];
    }
}

static int owner_of(const plait_layout_t *cells, int replica, const int64_t cell[])
{
    int n_ranks = plait_layout_n_ranks(cells);

    for (int r = 0; r < n_ranks; r++) {
        bool owns = plait_layout_replica(cells, r) == replica;
        for (int a = 0; a < cells->ndim; a++) {
            plait_interval_t i = plait_layout_interval(cells, r, a, 0, NULL);
            owns = owns && cell[a] >= i.lo && cell[a] < i.hi;
        }
        if (owns) {
            return r;
        }
    }
    abort();
}

/* n[r]: places in the rank's padded array that are copies of rank r's cells. */
static void count_copies(const ghosts_t *g, int rank, int64_t n[])
{
    int64_t shape[MAX_NDIM];
    int64_t n_places = 1;
    bool has_cells = true;

    memset(n, 0, MAX_P * sizeof(*n));
    plait_layout_local_shape(&g->cells, rank, shape);
    for (int a = 0; a < g->cells.ndim; a++) {
        has_cells = has_cells && shape[a] > 0;
        shape[a] += g->before[a] + g->after[a];
        n_places *= shape[a];
    }
    for (int64_t i = 0; has_cells && i < n_places; i++) {
        int64_t cell[MAX_NDIM];
        int64_t rest = i;
        bool is_copy = true;
        for (int a = g->cells.ndim - 1; a >= 0; a--) {
            plait_interval_t own = plait_layout_interval(&g->cells, rank, a, 0, NULL);
            cell[a] = ghost_cell(g->boundary[a], g->cells.shape[a],
                                 own.lo - g->before[a] + rest % shape[a]);
            rest /= shape[a];
            is_copy = is_copy && cell[a] >= 0;
        }
        if (is_copy) {
            n[owner_of(&g->cells, plait_layout_replica(&g->cells, rank), cell)]++;
        }
    }
}

static int64_t n_packed; /* plans whose short rows are packed before they are read */

/* One message from each neighbour, with its part of the ghosts, in one round between two fences. */
static void judge_ghosts(const void *context, int n_ranks, plait_plan_t *const plans[],
                         const char *text)
{
    const ghosts_t *g = context;
    int64_t copies[MAX_P][MAX_P];

    for (int r = 0; r < n_ranks; r++) {
        count_copies(g, r, copies[r]);
    }
    for (int r = 0; r < n_ranks; r++) {
        plait_plan_cost_t cost = plait_plan_cost(plans[r]);
        int64_t n_neighbours = 0;
        int64_t n_items = 0;
        int64_t n_given = 0;
        int n_fences = 0;
        int n_rounds = 0;
        for (int q = 0; q < n_ranks; q++) {
            int64_t n = g->is_reduce ? copies[q][r] : copies[r][q];
            n_neighbours += q != r && n > 0;
            n_items += (q != r) ? n : 0;
            n_given += (q == r) ? 0 : g->is_reduce ? copies[r][q] : copies[q][r];
        }
        n_packed += cost.work_bytes > 0;
        bool may_pack = plans[r]->direct == PLAIT_DIRECT_READ;
        int64_t most_packed = may_pack ? n_given * plait_dtype_bytes(PLAIT_F32) : 0;
        for (int i = 0; i < plans[r]->n_steps; i++) {
            const plait_step_t *step = &plans[r]->steps[i];
            bool is_remote = false;
            n_fences += step->kind == PLAIT_STEP_FENCE;
            for (int64_t k = 0; step->kind == PLAIT_STEP_MOVE && k < step->u.move.n_in;
                 k++) {
                is_remote = is_remote || step->u.move.in[k].peer != r;
            }
            n_rounds += is_remote;
        }
        CHECK(cost.n_messages == n_neighbours &&
                  cost.message_bytes == n_items * plait_dtype_bytes(PLAIT_F32),
              "%s rank %d of %d: %lld messages of %lld bytes, it has %lld neighbours "
              "with %lld cells",
              text, r, n_ranks, (long long)cost.n_messages,
              (long long)cost.message_bytes, (long long)n_neighbours,
              (long long)n_items);
        CHECK(n_fences == ((plans[r]->direct == PLAIT_DIRECT_NONE) ? 0 : 2) &&
                  n_rounds == (n_neighbours > 0) && cost.work_bytes <= most_packed,
              "%s rank %d of %d: %d fences, %d rounds", text, r, n_ranks, n_fences,
              n_rounds);
    }
}

static void check_ghosts(ghosts_t *g, int n_ranks)
{
    problem_t p = {
        .dtype = PLAIT_F32, .shape = ghosts_shape, .judge = judge_ghosts, .context = g};
    plait_halo_params_t params = {.bare = g->is_bare};
    char layout[64];
    int ndim = g->cells.ndim;
    int n = 0;

    params.n_layout = plait_layout_pack(&g->cells, params.layout);
    params.n_before = params.n_after = params.n_boundary = ndim;
    for (int a = 0; a < ndim; a++) {
        params.before[a] = g->before[a];
        params.after[a] = g->after[a];
        params.boundary[a] = g->boundary[a];
    }
    memcpy(p.params, &params, sizeof(params));
    plait_layout_print(&g->cells, layout, sizeof(layout));
    for (int is_reduce = 0; is_reduce < 2; is_reduce++) {
        g->is_reduce = is_reduce != 0;
        p.op = g->is_reduce ? &plait_op_halo_reduce : &plait_op_halo_exchange;
        n = snprintf(p.text, sizeof(p.text), "%s%s %s", p.op->name,
                     g->is_bare ? " bare" : "", layout);
        for (int a = 0; a < ndim; a++) {
            n += snprintf(p.text + n, sizeof(p.text) - (size_t)n, " %d:%d+%d",
                          (int)g->boundary[a], (int)g->before[a], (int)g->after[a]);
        }
        check_problem(&p, n_ranks);
    }
}

/* Stores parts as JAX does, equally large; with is_roomy one element larger than needed. */
static void store_equal(plait_layout_t *layout, bool is_roomy)
{
    int64_t local[MAX_NDIM];

    plait_layout_local_shape(layout, 0, local);
    for (int a = 0; a < layout->ndim; a++) {
        layout->stored[a] = local[a] + is_roomy;
        if (layout->axis[a].split == PLAIT_SPLIT_CEIL) {
            layout->axis[a].block = layout->stored[a];
        }
    }
}

/* Every boundary on every axis, with widths from 0 to beyond the axis, different on both sides. */
static void check_halo(const plait_layout_t *cells, int seed, int n_ranks)
{
    static const int64_t widths[] = {0, 1, 2, 3, 1, 7, 2};
    int64_t most = (cells->ndim > 2) ? 3 : 7;
    int step = (n_ranks > 6) ? 3 : 1; /* of large teams some, in turns */

    for (int s = seed % step; s < 4; s += step) {
        ghosts_t g = {.cells = *cells, .is_bare = (seed + s) % 2 == 0};
        for (int a = 0; a < cells->ndim; a++) {
            int64_t before = widths[(seed + 3 * a + s) % 7];
            int64_t after = widths[(2 * seed + a + 3 * s) % 7];
            g.before[a] = (before < most) ? before : most;
            g.after[a] = (after < most) ? after : most;
            g.boundary[a] = (plait_boundary_t)((seed / 4 + a + s) % 4);
        }
        if (cells->axis[0].split != PLAIT_SPLIT_EVEN && s >= 2) {
            store_equal(&g.cells, s == 3);
        }
        check_ghosts(&g, n_ranks);
    }
}

static void check_layouts(int ndim, const int64_t shape[], int grid_ndim,
                          const int grid[], int n_ranks)
{
    int n_codes = power(grid_ndim + 1, ndim);

    for (int f = 0; f < n_codes; f++) {
        for (int t = 0; t < n_codes; t++) {
            pair_t pair = {0};
            if (layout_of(f, ndim, shape, grid_ndim, grid,
                          (f % 2) ? PLAIT_SPLIT_CEIL : PLAIT_SPLIT_EVEN, &pair.from) &&
                layout_of(t, ndim, shape, grid_ndim, grid, PLAIT_SPLIT_EVEN,
                          &pair.to)) {
                check_redist(&pair, n_ranks);
                check_fft(&pair, 1 + (f + t) % ndim, n_ranks);
                check_real_fft(&pair, 1 + (f + t) % ndim, (f + 2 * t) % 4, n_ranks);
            }
        }
        plait_layout_t cells;
        for (int split = PLAIT_SPLIT_EVEN; split <= PLAIT_SPLIT_CEIL; split++) {
            if (layout_of(f, ndim, shape, grid_ndim, grid, (plait_split_t)split,
                          &cells)) {
                check_halo(&cells, 5 * f + split, n_ranks);
            }
        }
    }
}

/* A rank with part V of an axis of 4 P^2 sends and receives V (1 - 1 / P) three times. */
static void judge_volume(const void *context, int n_ranks, plait_plan_t *const plans[],
                         const char *text)
{
    const int64_t n_local = 4 * (int64_t)n_ranks;
    const int64_t n_bytes = plait_dtype_bytes(PLAIT_C64) * n_local;

    (void)context;
    for (int r = 0; r < n_ranks; r++) {
        plait_plan_cost_t cost = plait_plan_cost(plans[r]);
        CHECK(cost.message_bytes == 3 * (n_bytes - n_bytes / n_ranks),
              "%s P %d rank %d: %lld bytes", text, n_ranks, r,
              (long long)cost.message_bytes);
        CHECK(n_ranks == 1 || strstr(plans[r]->title, ", axis 0 as ") != NULL, "%s",
              plans[r]->title);
        CHECK(cost.n_messages == 3 * (n_ranks - 1), "%s P %d rank %d: %lld messages",
              text, n_ranks, r, (long long)cost.n_messages);
        CHECK(cost.work_bytes <= n_bytes, "%s P %d rank %d: %lld bytes of work", text,
              n_ranks, r, (long long)cost.work_bytes);
    }
}

/* Without useful factors the whole axis goes to all ranks; the title says so. */
static void judge_gathered(const void *context, int n_ranks,
                           plait_plan_t *const plans[], const char *text)
{
    (void)context;
    for (int r = 0; r < n_ranks; r++) {
        CHECK(n_ranks == 1 || strstr(plans[r]->title, "gathers axis 0") != NULL,
              "%s: %s", text, plans[r]->title);
    }
}

static void check_volume(int n_ranks, bool is_prime)
{
    const int64_t shape[] = {is_prime ? 997 : 4 * (int64_t)n_ranks * n_ranks};
    const int grid[] = {n_ranks};
    pair_t pair = {0};
    problem_t p = {.op = &plait_op_fft,
                   .dtype = PLAIT_C64,
                   .shape = pair_shape,
                   .judge = is_prime ? judge_gathered : judge_volume,
                   .context = &pair};
    plait_fft_params_t params = {.sign = -1, .scale = 1.0, .n_axes = 1};

    (void)layout_of(1, 1, shape, 1, grid, PLAIT_SPLIT_CEIL, &pair.from);
    pair.to = pair.from;
    params.n_from = plait_layout_pack(&pair.from, params.from);
    params.n_to = plait_layout_pack(&pair.to, params.to);
    memcpy(p.params, &params, sizeof(params));
    name_pair(&p, "fft", &pair);
    check_problem(&p, n_ranks);
}

/* Axes whose split no other axis takes, or only an axis that is too short: lengths with and without useful
 * factors, parts of any size, and parts dealt out in turn. */
static void check_lone_axes(int n_ranks)
{
    const int64_t p = n_ranks;
    const int64_t lines[] = {p * p, p * (p + 1), p * p + 1, 3 * p * p, 97, 60, 3};
    const int grid[] = {n_ranks};

    for (size_t s = 0; s < sizeof(lines) / sizeof(lines[0]); s++) {
        check_layouts(1, &lines[s], 1, grid, n_ranks);
    }
    for (int t = 0; t < 3; t++) {
        int64_t shape[] = {2, 2, 2};
        shape[t] = p * (p + 2);
        for (int split = PLAIT_SPLIT_EVEN; split <= PLAIT_SPLIT_CYCLIC; split++) {
            pair_t pair = {0};
            (void)layout_of(power(2, t), 3, shape, 1, grid, (plait_split_t)split,
                            &pair.from);
            (void)layout_of(power(2, t), 3, shape, 1, grid, PLAIT_SPLIT_CEIL, &pair.to);
            check_fft(&pair, 3, n_ranks);
            pair_t back = {.from = pair.to, .to = pair.from};
            check_fft(&back, 3, n_ranks);
        }
    }
    for (int a = 2; a <= n_ranks / 2; a++) {
        const int both[] = {a, n_ranks / a};
        const int64_t shape[] = {a * (a + 1), (p / a) * (p / a + 2)};
        pair_t pair = {0};
        if (n_ranks % a == 0 &&
            layout_of(1 + 3 * 2, 2, shape, 2, both, PLAIT_SPLIT_EVEN, &pair.from)) {
            pair.to = pair.from;
            check_fft(&pair, 2, n_ranks);
        }
    }
    check_volume(n_ranks, false);
    check_volume(n_ranks, true);
}

static void check_cyclic(int n_ranks)
{
    const int64_t shape[] = {11, 7};
    const int grid[] = {n_ranks};
    pair_t pair = {0};

    (void)layout_of(1, 2, shape, 1, grid, PLAIT_SPLIT_EVEN, &pair.from);
    pair.to = pair.from;
    pair.to.axis[0].split = PLAIT_SPLIT_CYCLIC;
    for (int64_t block = 1; block <= 4; block++) {
        pair.to.axis[0].block = block;
        check_redist(&pair, n_ranks);
        pair_t back = {.from = pair.to, .to = pair.from};
        check_redist(&back, n_ranks);
    }
}

int main(void)
{
    static const int64_t small[][3] = {{5, 4, 3}, {3, 1, 2}, {0, 2, 3}};
    plait_device_t *device = check_device_create(0);

    all_caps[N_CAPS - 1].device = device;
    for (int n_ranks = 1; n_ranks <= MAX_P; n_ranks++) {
        const int line[] = {n_ranks};
        if (is_quick() && n_ranks > 4 && n_ranks != 7) {
            continue;
        }
        for (int s = 0; s < 2; s++) {
            check_layouts(3, small[s], 1, line, n_ranks);
        }
        check_layouts(2, small[0], 1, line, n_ranks);
        check_layouts(1, small[0], 1, line, n_ranks);
        for (int a = 2; a <= n_ranks / 2; a++) {
            const int grid[] = {a, n_ranks / a};
            if (n_ranks % a == 0 && (n_ranks <= 8 || a == 2)) {
                check_layouts(3, small[0], 2, grid, n_ranks);
            }
        }
        check_cyclic(n_ranks);
        check_lone_axes(n_ranks);
    }
    CHECK(n_packed > 0, "no plan packs short rows");
    CHECK(check_device_destroy(&device) == 0, "device");
    return report("test_plans_mesh");
}
