/* From vectors of the tridiagonal matrix to vectors of the band it was made of (chase.h). Each rank works on
 * its own columns. A few groups of reflectors at a time go to all ranks; nothing else is exchanged.
 *
 * The rows that step k of a group changes are changed only by steps k - 1 and k + 1 of this group and by
 * steps k and k + 1 of the group before. So the groups that a rank has go down the rows one behind the
 * other. */
#include "base/checked.h"
#include "base/status.h"
#include "dense/chase.h"
#include "dense/fan.h"
#include "dense/scalar.h"

#include <inttypes.h>
#include <string.h>

enum { WIDTH = PLAIT_BAND_WIDTH, SWEEPS = PLAIT_CHASE_SWEEPS };

/* Rows of a step's V, at most. */
enum { HEIGHT = WIDTH + SWEEPS - 1 };

/* Groups that are applied together. */
enum { GROUPS = PLAIT_CHASE_GROUPS };

typedef struct {
    plait_chase_back_t c;
    int64_t first, n_groups;
} step_t;

/* Matrices of a step: V, V T, V^H V (which becomes T), and the product of V^H and the vectors. */
typedef struct {
    int64_t row, n_rows, n; /* n: reflectors */
    char *v, *vt, *t, *product;
    const char *tau; /* n_taus apart */
    int64_t n_taus;
} block_t;

static int64_t scratch_bytes(const plait_chase_back_t *c)
{
    return SWEEPS * (2 * HEIGHT + SWEEPS + c->n_columns) * plait_hetrd_item(&c->b.h);
}

/* Byte offset of the i-th group that is in the work slot. */
static int64_t place_of(const step_t *s, int64_t i)
{
    return i * plait_chase_group_bytes(&s->c.b.h);
}

/* Step k of a group: reflector i begins i rows below the first reflector. */
static block_t block_at(const step_t *s, const plait_chase_group_t *g, int64_t k,
                        const char *group, const plait_exec_t *exec)
{
    const plait_hetrd_t *h = &s->c.b.h;
    const int64_t n = h->a.n, item = plait_hetrd_item(h);
    block_t b = {.row = g->row + k * WIDTH,
                 .v = exec->scratch,
                 .tau = group + plait_chase_tau(h) + k * item,
                 .n_taus = plait_chase_n_steps(h)};

    b.n = plait_min(g->n_sweeps, n - b.row);
    b.n_rows = plait_min(WIDTH + b.n - 1, n - b.row);
    b.vt = b.v + SWEEPS * HEIGHT * item;
    b.t = b.vt + SWEEPS * HEIGHT * item;
    b.product = b.t + SWEEPS * SWEEPS * item;
    memset(b.v, 0, (size_t)(b.n * b.n_rows * item));
    for (int64_t i = 0; i < b.n; i++) {
        memcpy(b.v + (i * b.n_rows + i) * item, group + (i * n + b.row + i) * item,
               (size_t)(plait_min(WIDTH, n - b.row - i) * item));
    }
    return b;
}

/* Replaces V^H V by T. Like LAPACK's larft, whose BLAS calls for each reflector take longer than this. */
static void make_t(plait_dtype_t dtype, const block_t *b)
{
    double complex t[SWEEPS][SWEEPS]; /* columns */

    for (int64_t i = 0; i < b->n; i++) {
        const double complex tau = plait_scalar_get(dtype, b->tau, i * b->n_taus);
        for (int64_t j = 0; j < i; j++) {
            t[i][j] = 0;
        }
        for (int64_t l = 0; l < i; l++) {
            const double complex x = -tau * plait_scalar_get(dtype, b->t, i * b->n + l);
            for (int64_t j = 0; j <= l; j++) {
                t[i][j] += t[l][j] * x;
            }
        }
        t[i][i] = tau;
    }
    for (int64_t i = 0; i < b->n; i++) {
        for (int64_t j = 0; j < b->n; j++) {
            plait_scalar_put(dtype, b->t, i * b->n + j, (j <= i) ? t[i][j] : 0);
        }
    }
}

static void apply(const step_t *s, const block_t *b, const plait_exec_t *exec)
{
    const plait_dtype_t dtype = s->c.b.h.a.dtype;
    const int64_t ld = s->c.b.h.a.n, n_columns = s->c.n_columns, n = b->n,
                  m = b->n_rows;
    char *z = exec->slot[s->c.z] + b->row * plait_hetrd_item(&s->c.b.h);

    plait_blas_gemm(dtype, 'C', 'N', n, n, m, 1, b->v, m, b->v, m, 0, b->t, n);
    make_t(dtype, b);
    plait_blas_gemm(dtype, 'N', 'N', m, n, n, 1, b->v, m, b->t, n, 0, b->vt, m);
    plait_blas_gemm(dtype, 'C', 'N', n, n_columns, m, 1, b->v, m, z, ld, 0, b->product,
                    n);
    plait_blas_gemm(dtype, 'N', 'N', m, n_columns, n, -1, b->vt, m, b->product, n, 1, z,
                    ld);
}

static plait_status_t back_run(const void *params, plait_exec_t *exec)
{
    const step_t *s = params;
    const plait_hetrd_t *h = &s->c.b.h;
    const int64_t n_steps = plait_chase_n_steps(h);

    if (!plait_hetrd_has_failed(h, exec) && s->c.n_columns > 0) {
        for (int64_t k = 0; k < n_steps; k++) {
            for (int64_t i = s->n_groups - 1; i >= 0; i--) {
                const plait_chase_group_t g = plait_chase_group(h, s->first + i);
                const char *group = exec->slot[s->c.reflectors] + place_of(s, i);
                if (g.row + k * WIDTH < h->a.n) {
                    const block_t b = block_at(s, &g, k, group, exec);
                    apply(s, &b, exec);
                }
            }
        }
    }
    return PLAIT_OK;
}

static void back_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const step_t *s = params;
    const plait_hetrd_t *h = &s->c.b.h;
    const plait_hetrd_touch_t t = {touch, context, h};
    const int64_t n = h->a.n, item = plait_hetrd_item(h);

    for (int64_t i = 0; i < s->n_groups && s->c.n_columns > 0; i++) {
        const plait_chase_group_t g = plait_chase_group(h, s->first + i);
        const int64_t at = place_of(s, i);
        plait_hetrd_touch_columns(&t, false, s->c.reflectors, at + g.row * item,
                                  n - g.row, g.n_sweeps, n);
        plait_hetrd_touch_columns(&t, false, s->c.reflectors, at + plait_chase_tau(h),
                                  plait_chase_n_steps(h) * g.n_sweeps, 1, 1);
        plait_hetrd_touch_columns(&t, false, s->c.z, g.row * item, n - g.row,
                                  s->c.n_columns, n);
        plait_hetrd_touch_columns(&t, true, s->c.z, g.row * item, n - g.row,
                                  s->c.n_columns, n);
    }
}

static void back_print(const void *params, FILE *file)
{
    const step_t *s = params;
    const plait_chase_group_t g =
        plait_chase_group(&s->c.b.h, s->first + s->n_groups - 1);

    (void)fprintf(file, "sweeps %" PRId64 " to %" PRId64 " on %" PRId64 " vectors",
                  s->first * SWEEPS, g.first + g.n_sweeps - 1, s->c.n_columns);
}

static const plait_kernel_t back_kernel = {
    .name = "unchase", .run = back_run, .touch = back_touch, .print = back_print};

/* Brings one group to all ranks. */
static plait_status_t add_blocks(const step_t *s, int64_t i, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    const plait_hetrd_t *h = &s->c.b.h;
    const plait_chase_group_t g = plait_chase_group(h, s->first + i);
    const plait_block_t place = {.peer = g.owner,
                                 .kind = PLAIT_BLOCK_COPY,
                                 .src_slot = h->copy,
                                 .src_offset = s->c.b.sweeps + g.at,
                                 .dst_slot = s->c.reflectors,
                                 .dst_offset = place_of(s, i)};
    plait_block_t blocks[PLAIT_CHASE_BLOCKS];

    plait_chase_blocks(h, &g, &place, blocks);
    for (int k = 0; k < PLAIT_CHASE_BLOCKS; k++) {
        PLAIT_TRY(plait_move_add_in(move, &blocks[k]));
    }
done:
    return status;
}

static plait_status_t add_groups(plait_plan_t *plan, const step_t *s)
{
    plait_status_t status = PLAIT_OK;
    const plait_group_t everyone = {.stride = 1, .n = plan->n_ranks};
    plait_move_t move = {0};

    for (int64_t i = 0; i < s->n_groups; i++) {
        PLAIT_TRY(add_blocks(s, i, &move));
    }
    PLAIT_TRY(plait_fan_out(plan, &everyone, true, &move));
    PLAIT_TRY(plait_plan_kernel_copy(plan, &back_kernel, s, sizeof(*s)));
done:
    plait_move_clear(&move);
    return status;
}

plait_status_t plait_chase_back_add(plait_plan_t *plan, const plait_chase_back_t *c)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n_groups = plait_chase_n_groups(&c->b.h);

    plait_plan_need_scratch(plan, scratch_bytes(c));
    PLAIT_TRY(plait_plan_fence(plan));
    for (int64_t first = (n_groups - 1) / GROUPS * GROUPS; first >= 0 && n_groups > 0;
         first -= GROUPS) {
        const step_t step = {
            .c = *c, .first = first, .n_groups = plait_min(GROUPS, n_groups - first)};
        PLAIT_TRY(add_groups(plan, &step));
    }
done:
    return status;
}
