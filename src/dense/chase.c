#include "dense/chase.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/fan.h"
#include "dense/scalar.h"
#include "dense/whole.h"

#include <inttypes.h>
#include <string.h>

enum { WIDTH = PLAIT_BAND_WIDTH };

/* Sweeps that go down one behind the other. */
enum { SWEEPS = PLAIT_CHASE_SWEEPS };

/* Operations of a step. */
enum { OPERATIONS = 2000000000 };

/* Elements between columns of the band, seen as a matrix: element (i, j) is at i + j LD. */
enum { LD = PLAIT_BAND_LD - 1 };

typedef struct {
    plait_dtype_t dtype;
    int64_t n, item;
    char *band;
    char *work;                   /* room for a reflector */
    const plait_bulge_t *kernels; /* NULL: BLAS */
    bool is_kept; /* reflectors of all steps are kept, or the last one of each sweep */
    int64_t n_taus; /* of a sweep */
    char *v, *tau;  /* of a group of sweeps */
} chase_t;

static int64_t line(int64_t n_bytes)
{
    return (n_bytes + 63) / 64 * 64;
}

static char *at(const chase_t *c, int64_t i, int64_t j)
{
    return c->band + (i + j * LD) * c->item;
}

/* Makes the reflector that leaves only the first of m elements at x, puts it at v, and zeroes the other
 * elements. */
static void reflect(const chase_t *c, int64_t m, char *x, char *v, char *tau)
{
    memcpy(v, x, (size_t)(m * c->item));
    memset(x, 0, (size_t)(m * c->item));
    plait_blas_larfg(c->dtype, m, v, v + plait_min(1, m - 1) * c->item, 1, tau);
    memcpy(x, v, (size_t)c->item);
    plait_scalar_put(c->dtype, v, 0, 1);
}

/* H^H A H of the m rows and columns from `row` on, H = 1 - tau v v^H. */
static void turn_diagonal(const chase_t *c, int64_t row, int64_t m, const char *v,
                          double complex tau)
{
    double complex number; /* room for a number of any dtype */

    plait_blas_hemv(c->dtype, 'L', m, 1, at(c, row, row), LD, v, 1, 0, c->work, 1);
    plait_blas_gemv(c->dtype, 'C', m, 1, 1, v, m, c->work, 1, 0, &number, 1);
    const double inner = creal(plait_scalar_get(c->dtype, &number, 0));
    for (int64_t i = 0; i < m; i++) {
        plait_scalar_put(
            c->dtype, c->work, i,
            tau * (plait_scalar_get(c->dtype, c->work, i) -
                   conj(tau) / 2 * inner * plait_scalar_get(c->dtype, v, i)));
    }
    plait_blas_her2k(c->dtype, 'L', 'N', m, 1, -1, v, m, c->work, m, 1, at(c, row, row),
                     LD);
}

/* Scales `work`. */
static void scale(const chase_t *c, int64_t n, double complex factor)
{
    for (int64_t i = 0; i < n; i++) {
        plait_scalar_put(c->dtype, c->work, i,
                         factor * plait_scalar_get(c->dtype, c->work, i));
    }
}

/* A H of m x n elements. */
static void turn_right(const chase_t *c, int64_t m, int64_t n, char *a, const char *v,
                       double complex tau)
{
    plait_blas_gemv(c->dtype, 'N', m, n, 1, a, LD, v, 1, 0, c->work, 1);
    scale(c, m, tau);
    plait_blas_ger(c->dtype, m, n, -1, c->work, 1, v, 1, a, LD);
}

/* H^H A of m x n elements. */
static void turn_left(const chase_t *c, int64_t m, int64_t n, char *a, const char *v,
                      double complex tau)
{
    plait_blas_gemv(c->dtype, 'C', m, n, 1, a, LD, v, 1, 0, c->work, 1);
    scale(c, n, tau);
    plait_blas_ger(c->dtype, m, n, -1, v, 1, c->work, 1, a, LD);
}

/* The reflector of step k of sweep i of the group, which is sweep s of the matrix; tau_at: its factor. */
static char *v_at(const chase_t *c, int64_t s, int64_t i, int64_t k)
{
    return c->v + (c->is_kept ? i * c->n + s + 1 + k * WIDTH : i * WIDTH) * c->item;
}

static char *tau_at(const chase_t *c, int64_t i, int64_t k)
{
    return c->tau + (c->is_kept ? i * c->n_taus + k : i) * c->item;
}

/* Step k with m rows. */
static void step_by_blas(const chase_t *c, int64_t s, int64_t i, int64_t k, int64_t m)
{
    const int64_t row = s + 1 + k * WIDTH;
    char *v = v_at(c, s, i, k), *tau = tau_at(c, i, k);

    if (k > 0) {
        turn_right(c, m, WIDTH, at(c, row, row - WIDTH), v_at(c, s, i, k - 1),
                   plait_scalar_get(c->dtype, tau_at(c, i, k - 1), 0));
        reflect(c, m, at(c, row, row - WIDTH), v, tau);
        turn_left(c, m, WIDTH - 1, at(c, row, row - WIDTH + 1), v,
                  plait_scalar_get(c->dtype, tau, 0));
    } else {
        reflect(c, m, at(c, row, s), v, tau);
    }
    turn_diagonal(c, row, m, v, plait_scalar_get(c->dtype, tau, 0));
}

/* A step with all WIDTH rows. */
static void step_by_kernels(const chase_t *c, int64_t s, int64_t i, int64_t k)
{
    const int64_t row = s + 1 + k * WIDTH;
    char *v = v_at(c, s, i, k), *tau = tau_at(c, i, k);
    char *block = at(c, row, row - WIDTH);
    double before[WIDTH]; /* of either precision: v may take its place */

    memcpy(before, v_at(c, s, i, k - 1), (size_t)(WIDTH * c->item));
    c->kernels->right(block, LD, before, tau_at(c, i, k - 1), c->work);
    reflect(c, WIDTH, block, v, tau);
    c->kernels->left(block, LD, c->work, before, v, tau);
    c->kernels->both(at(c, row, row), LD, v, tau, c->work);
}

/* Step k, which exists: it acts on rows from s + 1 + k WIDTH on. */
static void step(const chase_t *c, int64_t s, int64_t i, int64_t k)
{
    const int64_t m = plait_min(WIDTH, c->n - s - 1 - k * WIDTH);

    if (k > 0 && m == WIDTH && c->kernels != NULL) {
        step_by_kernels(c, s, i, k);
    } else {
        step_by_blas(c, s, i, k, m);
    }
}

/* Runs a group of sweeps. */
static void sweep(const chase_t *c, int64_t first, int64_t n_sweeps)
{
    const int64_t n_steps = (c->n - first - 1 + WIDTH - 1) / WIDTH;

    for (int64_t time = 0; time < n_steps + 2 * (n_sweeps - 1); time++) {
        for (int64_t i = 0; i < n_sweeps; i++) {
            const int64_t s = first + i, k = time - 2 * i;
            if (k >= 0 && s + 1 + k * WIDTH < c->n) {
                step(c, s, i, k);
            }
        }
    }
}

/* ---- Groups ------------------------------------------------------------------------------------------- */

int64_t plait_chase_n_steps(const plait_hetrd_t *h)
{
    return (plait_max(0, h->a.n - 1) + WIDTH - 1) / WIDTH;
}

int64_t plait_chase_tau(const plait_hetrd_t *h)
{
    return line(SWEEPS * h->a.n * plait_hetrd_item(h));
}

int64_t plait_chase_group_bytes(const plait_hetrd_t *h)
{
    return plait_chase_tau(h) +
           line(SWEEPS * plait_chase_n_steps(h) * plait_hetrd_item(h));
}

int64_t plait_chase_n_groups(const plait_hetrd_t *h)
{
    return (plait_max(0, h->a.n - 1) + SWEEPS - 1) / SWEEPS;
}

int64_t plait_chase_bytes(const plait_hetrd_t *h)
{
    const int64_t n_ranks = h->a.n_ranks;

    return (plait_chase_n_groups(h) + n_ranks - 1) / n_ranks *
           plait_chase_group_bytes(h);
}

plait_chase_group_t plait_chase_group(const plait_hetrd_t *h, int64_t g)
{
    const int64_t n = h->a.n, n_ranks = h->a.n_ranks;

    return (plait_chase_group_t){.first = g * SWEEPS,
                                 .n_sweeps = plait_min(SWEEPS, n - 1 - g * SWEEPS),
                                 .row = g * SWEEPS + 1,
                                 .owner = (int)(g % n_ranks),
                                 .at = g / n_ranks * plait_chase_group_bytes(h)};
}

void plait_chase_blocks(const plait_hetrd_t *h, const plait_chase_group_t *g,
                        const plait_block_t *place,
                        plait_block_t blocks[PLAIT_CHASE_BLOCKS])
{
    const int64_t item = plait_hetrd_item(h), n = h->a.n;
    const int64_t offsets[] = {g->row * item, plait_chase_tau(h)};
    const plait_box_copy_t boxes[] = {
        plait_columns_box(n - g->row, g->n_sweeps, n, item),
        plait_columns_box(plait_chase_n_steps(h) * g->n_sweeps, 1, 1, item)};

    for (int i = 0; i < PLAIT_CHASE_BLOCKS; i++) {
        blocks[i] = *place;
        blocks[i].src_offset += offsets[i];
        blocks[i].dst_offset += offsets[i];
        blocks[i].box = boxes[i];
        plait_box_simplify(&blocks[i].box);
    }
}

/* ---- The step ----------------------------------------------------------------------------------------- */

/* Sweeps [first, end): one group whose reflectors are kept in a slot, or any number whose reflectors are not
 * kept. */
typedef struct {
    plait_band_t b;
    int64_t first, end;
    int slot; /* -1: nowhere */
    int64_t at;
} sweeps_t;

/* Bytes of reflectors that are not kept, and of `work`. */
static int64_t scratch_bytes(int64_t item)
{
    return line(SWEEPS * WIDTH * item) + line(SWEEPS * item) + line(WIDTH * item);
}

static chase_t chase_of(const sweeps_t *p, const plait_exec_t *exec)
{
    const plait_hetrd_t *h = &p->b.h;
    const int64_t item = plait_hetrd_item(h);
    chase_t c = {.dtype = h->a.dtype,
                 .n = h->a.n,
                 .item = item,
                 .band = plait_hetrd_panel(h, exec, p->b.band),
                 .work = exec->scratch,
                 .kernels = plait_bulge(h->a.dtype),
                 .is_kept = p->slot >= 0,
                 .n_taus = plait_chase_n_steps(h)};

    c.v = c.is_kept ? exec->slot[p->slot] + p->at : c.work + line(WIDTH * item);
    c.tau = c.v + (c.is_kept ? plait_chase_tau(h) : line(SWEEPS * WIDTH * item));
    return c;
}

/* Copies d and e out of the band. */
static void finish(const chase_t *c, const plait_hetrd_t *h, const plait_exec_t *exec)
{
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const plait_dtype_t real = plait_real_of(c->dtype);

    for (int64_t j = 0; j < c->n; j++) {
        const char *column = at(c, j, j);
        plait_scalar_put(real, plait_hetrd_panel(h, exec, room.d), j,
                         plait_scalar_get(c->dtype, column, 0));
        plait_scalar_put(real, plait_hetrd_panel(h, exec, room.e), j,
                         (j + 1 < c->n) ? plait_scalar_get(c->dtype, column, 1) : 0);
    }
}

static bool is_last(const sweeps_t *p)
{
    return p->end >= p->b.h.a.n - 1;
}

static plait_status_t chase_run(const void *params, plait_exec_t *exec)
{
    const sweeps_t *p = params;

    if (!plait_hetrd_has_failed(&p->b.h, exec)) {
        const chase_t c = chase_of(p, exec);
        for (int64_t s = p->first; s < p->end; s += SWEEPS) {
            sweep(&c, s, plait_min(SWEEPS, p->end - s));
        }
        if (is_last(p)) {
            finish(&c, &p->b.h, exec);
        }
    }
    return PLAIT_OK;
}

static void chase_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const sweeps_t *p = params;
    const plait_hetrd_t *h = &p->b.h;
    const plait_hetrd_touch_t t = {touch, context, h};
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const int64_t real = plait_dtype_bytes(plait_real_of(h->a.dtype));
    const plait_box_copy_t group = {.row_bytes = plait_chase_group_bytes(h)};

    plait_hetrd_touch_bytes(&t, false, p->b.band, plait_band_only(h));
    plait_hetrd_touch_bytes(&t, true, p->b.band, plait_band_only(h));
    if (p->slot >= 0) {
        touch(context, true, h->rank, p->slot, p->at, &group);
    }
    if (is_last(p)) {
        plait_hetrd_touch_bytes(&t, true, room.d, h->a.n * real);
        plait_hetrd_touch_bytes(&t, true, room.e, h->a.n * real);
    }
}

static void chase_print(const void *params, FILE *file)
{
    const sweeps_t *p = params;

    (void)fprintf(file, "from %d diagonals to one, sweeps %" PRId64 " to %" PRId64,
                  (int)WIDTH, p->first, p->end - 1);
}

static const plait_kernel_t chase_kernel = {
    .name = "chase", .run = chase_run, .touch = chase_touch, .print = chase_print};

/* Brings d and e of T from the rank that has them to all ranks. */
static plait_status_t add_diagonals(plait_plan_t *plan, const plait_hetrd_t *h)
{
    plait_status_t status = PLAIT_OK;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const plait_group_t everyone = {.stride = 1, .n = plan->n_ranks};
    const int64_t n_bytes = h->a.n * plait_dtype_bytes(plait_real_of(h->a.dtype));
    plait_move_t move = {0};

    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_dealt_share(PLAIT_WHOLE_ROOT, h->panel, room.d, n_bytes, &move));
    PLAIT_TRY(plait_dealt_share(PLAIT_WHOLE_ROOT, h->panel, room.e, n_bytes, &move));
    PLAIT_TRY(plait_fan_out(plan, &everyone, false, &move));
done:
    plait_move_clear(&move);
    return status;
}

/* Sweeps of a step: whole groups that take some tenths of a second, which is how long other ranks wait in a
 * fence. */
static int64_t n_sweeps_of(const plait_band_t *b)
{
    const double each = 6.0 * WIDTH * (double)b->h.a.n; /* operations */

    return plait_max(1, (int64_t)(OPERATIONS / (each * SWEEPS))) * SWEEPS;
}

/* Adds sweeps whose reflectors are not kept. */
static plait_status_t add_sweeps(plait_plan_t *plan, const plait_band_t *b)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n = plait_max(0, b->h.a.n - 1), n_each = n_sweeps_of(b);

    for (int64_t first = 0; first == 0 || first < n; first += n_each) {
        const sweeps_t step = {
            .b = *b, .first = first, .end = plait_min(n, first + n_each), .slot = -1};
        if (first > 0) {
            PLAIT_TRY(plait_plan_fence(plan));
        }
        if (plan->rank == PLAIT_WHOLE_ROOT) {
            PLAIT_TRY(plait_plan_kernel_copy(plan, &chase_kernel, &step, sizeof(step)));
        }
    }
done:
    return status;
}

/* Where group i waits until it leaves: there are two places behind the band, and groups that leave alternate
 * between them. */
static int64_t leaving_at(const plait_band_t *b, int64_t i)
{
    const int64_t n_left = i - i / b->h.a.n_ranks - 1;

    return b->band + plait_band_only(&b->h) +
           n_left % 2 * plait_chase_group_bytes(&b->h);
}

static plait_status_t add_group(plait_plan_t *plan, const plait_band_t *b, int64_t i)
{
    plait_status_t status = PLAIT_OK;
    const plait_hetrd_t *h = &b->h;
    const plait_chase_group_t g = plait_chase_group(h, i);
    const bool stays = g.owner == PLAIT_WHOLE_ROOT;
    const sweeps_t step = {.b = *b,
                           .first = g.first,
                           .end = g.first + g.n_sweeps,
                           .slot = stays ? h->copy : h->panel,
                           .at = stays ? b->sweeps + g.at : leaving_at(b, i)};
    const plait_block_t place = {.kind = PLAIT_BLOCK_COPY,
                                 .src_slot = h->panel,
                                 .src_offset = leaving_at(b, i),
                                 .dst_slot = h->copy,
                                 .dst_offset = b->sweeps + g.at};
    plait_block_t blocks[PLAIT_CHASE_BLOCKS];
    plait_move_t move = {0};

    if (plan->rank == PLAIT_WHOLE_ROOT) {
        PLAIT_TRY(plait_plan_kernel_copy(plan, &chase_kernel, &step, sizeof(step)));
    }
    if (!stays) {
        PLAIT_TRY(plait_plan_fence(plan));
        plait_chase_blocks(h, &g, &place, blocks);
        for (int k = 0; k < PLAIT_CHASE_BLOCKS; k++) {
            PLAIT_TRY(plait_dealt_between(plan, PLAIT_WHOLE_ROOT, g.owner, &blocks[k],
                                          &move));
        }
        PLAIT_TRY(plait_plan_move(plan, &move));
    }
done:
    plait_move_clear(&move);
    return status;
}

plait_status_t plait_chase_add(plait_plan_t *plan, const plait_band_t *b)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n_groups = plait_chase_n_groups(&b->h);

    plait_plan_need_scratch(plan, scratch_bytes(plait_hetrd_item(&b->h)));
    if (b->has_vectors && n_groups > 0) {
        for (int64_t i = 0; i < n_groups; i++) {
            PLAIT_TRY(add_group(plan, b, i));
        }
    } else {
        PLAIT_TRY(add_sweeps(plan, b));
    }
    PLAIT_TRY(add_diagonals(plan, &b->h));
done:
    return status;
}
