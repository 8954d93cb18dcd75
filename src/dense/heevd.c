/* Eigenvalues and eigenvectors of a dealt Hermitian matrix: the reduction to tridiagonal form (hetrd.c), the
 * tridiagonal problem (tridiagonal.c), and its vectors back (back.c). A single rank leaves the problem to
 * LAPACK. So do several ranks with a small matrix: one of them collects all of it (whole.h). On devices the
 * device's library does it, on all devices at once (heevd_joint.c, heevd_grid.c) or on one. */
#include "base/checked.h"
#include "base/status.h"
#include "dense/back.h"
#include "dense/band.h"
#include "dense/chase.h"
#include "dense/heevd_joint.h"
#include "dense/hetrd.h"
#include "dense/params.h"
#include "dense/scalar.h"
#include "dense/tridiagonal.h"
#include "dense/whole.h"
#include "kernel/blas.h"
#include "plan/op.h"
#include "plan/tiles.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const plait_attr_t heevd_attrs[] = {
    PLAIT_ATTR(plait_heevd_params_t, n),
    PLAIT_ATTR(plait_heevd_params_t, block),
    PLAIT_ATTR(plait_heevd_params_t, first),
    PLAIT_ATTR(plait_heevd_params_t, vectors),
    PLAIT_ATTR_END,
};

enum { ARG_A = 0, RET_W = 0, RET_V = 1, RET_INFO = 2 };

/* Largest n that one rank solves: two ranks (threads of an EPYC, OpenBLAS) are as fast as one of them alone
 * there. For a single rank: largest n for which 32 bits hold 1 + 6 n + 2 n^2, the workspace that LAPACK's heevd
 * wants. */
enum { WHOLE = 256, WHOLE_ALONE = 32764 };

/* LAPACK makes all eigenvectors. If at most this part (1 / SMALL_PART) is wanted, LAPACK takes at least as long
 * as the steps that make only these, also on one rank (n from 300 to 2000, one thread and two). */
enum { SMALL_PART = 4 };

/* On devices one device has the whole matrix, of any size, unless the devices work as one: the reduction has no
 * kernels for devices. */
static bool is_whole(const plait_heevd_params_t *p, const plait_plan_t *plan)
{
    const bool is_short = plait_blas_int_bytes() == 4;
    const bool is_small_part = p->vectors > 0 && p->vectors <= p->n / SMALL_PART;
    const int64_t most = (plan->n_ranks > 1 || is_small_part) ? WHOLE
                         : is_short                           ? WHOLE_ALONE
                                                              : INT64_MAX;

    return plan->device != NULL || plait_dense_is_whole(p->n, p->n, p->n <= most);
}

static int64_t first_of(const plait_heevd_slots_t *q)
{
    return q->first + plait_min(q->v.n, q->rank * q->v.block);
}

static int64_t n_columns_of(const plait_heevd_slots_t *q)
{
    return plait_dealt_owned(&q->v, q->rank);
}

static int64_t n_stored_of(const plait_heevd_slots_t *q)
{
    return plait_dealt_stored(&q->v);
}

/* ---- The whole matrix on one rank ------------------------------------------------------------------ */

typedef struct {
    plait_heevd_slots_t q;
    int whole, work; /* slots */
    plait_blas_work_t
        sizes; /* sizes of LAPACK's workspaces, which follow each other in `work` */
} whole_t;

static int64_t work_bytes(const whole_t *p)
{
    const int64_t item = plait_dealt_item(&p->q.a);

    return p->sizes.n_ints * 8 + p->sizes.n * item + p->sizes.n_real * item;
}

/* Copies the part that will be read; returns whether all of it is finite. */
static bool take_lower(const whole_t *p, const char *from, char *to)
{
    const int64_t n = p->q.a.n, item = plait_dealt_item(&p->q.a);
    bool is_finite = true;

    for (int64_t j = 0; j < n && is_finite; j++) {
        char *column = to + (j * n + j) * item;
        (void)memmove(column, from + (j * n + j) * item, (size_t)((n - j) * item));
        plait_scalar_put(p->q.a.dtype, column, 0,
                         creal(plait_scalar_get(p->q.a.dtype, column, 0)));
        is_finite =
            isfinite(plait_blas_lange(p->q.a.dtype, 'M', n - j, 1, column, n, NULL));
    }
    return is_finite;
}

static int64_t call_heevd(const whole_t *p, plait_exec_t *exec, char *a)
{
    plait_blas_work_t work = p->sizes;
    const int64_t n = p->q.a.n, item = plait_dealt_item(&p->q.a);

    work.ints = exec->slot[p->work];
    work.work = exec->slot[p->work] + work.n_ints * 8;
    work.real = (char *)work.work + work.n * item;
    return plait_blas_heevd(p->q.a.dtype, p->q.has_vectors ? 'V' : 'N', 'L', n, a, n,
                            exec->slot[p->q.w], &work);
}

static plait_status_t whole_run(const void *params, plait_exec_t *exec)
{
    const whole_t *p = params;
    const plait_heevd_slots_t *q = &p->q;
    const int64_t n = q->a.n;
    const plait_dtype_t dtype = q->a.dtype;
    char *a = exec->slot[p->whole];
    const char *from = (q->a.n_ranks == 1) ? exec->slot[q->src] : a;
    int64_t info = n + 1;

    if (n == 0) {
        info = 0;
    } else if (take_lower(p, from, a)) {
        info = call_heevd(p, exec, a);
    }
    for (int64_t i = 0; i < n && info != 0; i++) {
        plait_scalar_put(plait_real_of(dtype), exec->slot[q->w], i, (double)NAN);
    }
    for (int64_t i = 0; i < n * n && info != 0; i++) {
        plait_scalar_put(dtype, a, i, (double)NAN);
    }
    *(int32_t *)(void *)exec->slot[q->info] = (int32_t)info;
    return PLAIT_OK;
}

/* Brings the matrix to slot `whole`. If it is not finite, the solver gets zeros instead. */
static plait_status_t whole_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const whole_t *p = params;
    const plait_heevd_slots_t *q = &p->q;
    const int64_t n = q->a.n;
    plait_tile_t t = {.call = {.dtype = q->a.dtype,
                               .diag = 'R',
                               .m = n,
                               .n = n,
                               .k = n,
                               .lda = n,
                               .ldc = n},
                      .a = {.slot = (q->a.n_ranks == 1) ? q->src : p->whole},
                      .c = {.slot = p->whole},
                      .extra = {.slot = q->w},
                      .info = {.slot = q->info}};

    PLAIT_TRY(plait_tile_zero(tiles, t.info, sizeof(int32_t)));
    t.call.op = PLAIT_TILE_TRIM;
    PLAIT_TRY(plait_tile_add(tiles, &t));
    t.call.op = PLAIT_TILE_SCREEN;
    t.call.k = n + 1;
    PLAIT_TRY(plait_tile_add(tiles, &t));
    t.call.op = PLAIT_TILE_HEEVD;
    t.call.k = q->has_vectors;
    PLAIT_TRY(plait_tile_add(tiles, &t));
    t.call.op = PLAIT_TILE_SPOIL;
    t.call.row = -n; /* all of it */
    PLAIT_TRY(plait_tile_add(tiles, &t));
    t.call.dtype = plait_real_of(q->a.dtype);
    t.call.n = plait_min(n, 1);
    t.c = t.extra;
    PLAIT_TRY(plait_tile_add(tiles, &t));
done:
    return status;
}

static void whole_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const whole_t *p = params;
    const plait_heevd_slots_t *q = &p->q;
    const int64_t n = q->a.n, item = plait_dealt_item(&q->a);
    const int src = (q->a.n_ranks == 1) ? q->src : p->whole;
    const plait_box_copy_t all = {.row_bytes = n * n * item};
    const plait_box_copy_t work = {.row_bytes = work_bytes(p)};
    const plait_box_copy_t w = {.row_bytes =
                                    n * plait_dtype_bytes(plait_real_of(q->a.dtype))};
    const plait_box_copy_t info = {.row_bytes = sizeof(int32_t)};

    for (int64_t j = 0; j < n; j++) {
        const plait_box_copy_t column = {.row_bytes = (n - j) * item};
        touch(context, false, q->rank, src, (j * n + j) * item, &column);
    }
    touch(context, true, q->rank, p->whole, 0, &all);
    touch(context, true, q->rank, p->work, 0, &work);
    touch(context, true, q->rank, q->w, 0, &w);
    touch(context, true, q->rank, q->info, 0, &info);
}

static void whole_print(const void *params, FILE *file)
{
    const whole_t *p = params;

    (void)fprintf(file, "LAPACK's, all of %" PRId64 " x %" PRId64, p->q.a.n, p->q.a.n);
}

static const plait_kernel_t whole_kernel = {.name = "heevd",
                                            .run = whole_run,
                                            .tiles = whole_tiles,
                                            .touch = whole_touch,
                                            .print = whole_print};

/* LAPACK's heevd on the matrix in slot `whole`, which on a single rank comes from the operand. */
static plait_status_t add_alone(plait_plan_t *plan, const plait_heevd_slots_t *q,
                                int whole)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n = q->a.n;
    const bool wants_work = n > 0 && plan->device == NULL;
    whole_t step = {.q = *q, .whole = whole, .sizes = {.n = wants_work ? -1 : 0}};

    if (wants_work) {
        (void)plait_blas_heevd(q->a.dtype, q->has_vectors ? 'V' : 'N', 'L', n, NULL, n,
                               NULL, &step.sizes);
    }
    PLAIT_TRY(plait_plan_add_work(plan, work_bytes(&step), &step.work));
    PLAIT_TRY(plait_plan_kernel_copy(plan, &whole_kernel, &step, sizeof(step)));
done:
    return status;
}

static plait_status_t add_whole(plait_plan_t *plan, const plait_heevd_slots_t *q)
{
    plait_status_t status = PLAIT_OK;
    const int shared[] = {q->w, q->info};
    const bool has_all = q->v.n == q->a.n;
    int whole = q->vectors;

    if (plan->n_ranks > 1 || !has_all) {
        PLAIT_TRY(plait_whole_slot(plan, &q->a, &whole));
    }
    if (plan->n_ranks == 1) {
        PLAIT_TRY(add_alone(plan, q, whole));
        if (q->has_vectors && !has_all) {
            PLAIT_TRY(plait_whole_deal(plan, &q->v, false, whole, q->first, q->vectors,
                                       0, NULL));
        }
    } else {
        plait_plan_agree(plan, 1);
        PLAIT_TRY(plait_plan_fence(plan));
        PLAIT_TRY(plait_whole_collect(plan, &q->a, true, q->src, whole));
        if (plan->rank == PLAIT_WHOLE_ROOT) {
            PLAIT_TRY(add_alone(plan, q, whole));
        }
        PLAIT_TRY(plait_plan_fence(plan));
        PLAIT_TRY(plait_whole_deal(plan, &q->v, false, whole, q->first, q->vectors, 2,
                                   shared));
        PLAIT_TRY(plait_plan_fence(plan));
    }
done:
    return status;
}

/* ---- Dealt ------------------------------------------------------------------------------------------ */

/* From vectors of T to vectors of A, in one stage or in two. */
static plait_status_t add_back(plait_plan_t *plan, const plait_band_t *b, int z,
                               int64_t n_columns)
{
    plait_status_t status = PLAIT_OK;
    const bool has_two = b->h.width > 1;
    plait_back_t first = {.h = b->h, .z = z, .n_columns = n_columns};
    plait_chase_back_t second = {.b = *b, .z = z, .n_columns = n_columns};

    PLAIT_TRY(plait_plan_add_work(
        plan,
        plait_max(plait_back_bytes(&b->h),
                  has_two ? PLAIT_CHASE_GROUPS * plait_chase_group_bytes(&b->h) : 0),
        &first.reflectors));
    second.reflectors = first.reflectors;
    if (has_two) {
        PLAIT_TRY(plait_chase_back_add(plan, &second));
    }
    PLAIT_TRY(plait_back_add(plan, &first));
done:
    return status;
}

static plait_status_t add_stages(plait_plan_t *plan, const plait_problem_t *problem,
                                 const plait_heevd_slots_t *q)
{
    plait_status_t status = PLAIT_OK;
    const bool has_messages = plan->direct == PLAIT_DIRECT_NONE;
    plait_tridiagonal_t t = {
        .h = {.a = q->a,
              .rank = q->rank,
              .width = 1,
              .n_pieces = has_messages ? plan->n_ranks : 1,
              .is_native = has_messages &&
                           plait_caps_reduce(&problem->caps, PLAIT_SUM, q->a.dtype),
              .src = q->src},
        .w = q->w,
        .v = q->vectors,
        .info = q->info,
        .has_vectors = q->has_vectors,
        .first = first_of(q),
        .n_columns = n_columns_of(q),
        .n_stored = n_stored_of(q)};
    plait_band_t b = {.has_vectors = q->has_vectors,
                      .sweeps = plait_dealt_bytes(&q->a)};
    int64_t copy_bytes = b.sweeps, panel_bytes = 0;

    if (plait_band_is_cheaper(&t.h, q->v.n)) {
        t.h.width = PLAIT_BAND_WIDTH;
        copy_bytes += q->has_vectors ? plait_chase_bytes(&t.h) : 0;
        panel_bytes = plait_band_bytes(&t.h, q->has_vectors);
    }
    b.band = plait_hetrd_room(&t.h).n_bytes;
    PLAIT_TRY(plait_plan_add_work(plan, copy_bytes, &t.h.copy));
    PLAIT_TRY(plait_plan_add_work(plan, b.band + panel_bytes, &t.h.panel));
    PLAIT_TRY(plait_plan_add_work(plan, plait_tridiagonal_bytes(&t), &t.tree));
    b.h = t.h;
    PLAIT_TRY((t.h.width > 1) ? plait_band_add(plan, &b) : plait_hetrd_add(plan, &t.h));
    PLAIT_TRY(plait_tridiagonal_add(plan, &t));
    if (q->has_vectors) {
        PLAIT_TRY(add_back(plan, &b, q->vectors, n_columns_of(q)));
    }
    PLAIT_TRY(plait_plan_fence(plan));
done:
    return status;
}

/* ---- The operation ------------------------------------------------------------------------------------ */

static plait_status_t check_results(const plait_heevd_slots_t *q,
                                    const plait_problem_t *problem)
{
    plait_status_t status = PLAIT_OK;
    const plait_array_t *w = &problem->rets[RET_W], *v = &problem->rets[RET_V];
    const plait_array_t *info = &problem->rets[RET_INFO];

    PLAIT_CHECK(
        w->dtype == plait_real_of(q->a.dtype) && w->ndim == 1 && w->dims[0] == q->a.n,
        PLAIT_ERR_INVALID,
        "heevd: eigenvalues are %s with %d axes; expected %lld of the real dtype",
        plait_dtype_name(w->dtype), w->ndim, (long long)q->a.n);
    PLAIT_TRY(plait_dealt_fits(&q->v, v, "heevd: v"));
    PLAIT_CHECK(info->dtype == PLAIT_S32 && info->ndim == 1 && info->dims[0] == 1,
                PLAIT_ERR_INVALID, "heevd: info is %s with %d axes; expected int32[1]",
                plait_dtype_name(info->dtype), info->ndim);
done:
    return status;
}

/* Says nothing if all vectors are wanted. */
static const char *say_vectors(const plait_heevd_params_t *p, char *text, size_t n)
{
    text[0] = '\0';
    if (p->vectors == 0) {
        (void)snprintf(text, n, ", values alone");
    } else if (p->vectors < p->n) {
        (void)snprintf(text, n, ", vectors %" PRId64 " to %" PRId64, p->first,
                       p->first + p->vectors - 1);
    }
    return text;
}

static plait_status_t heevd_plan(const void *params, const plait_problem_t *problem,
                                 plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_heevd_params_t *p = params;
    plait_plan_t *plan = NULL;
    plait_joint_t joint;
    bool is_joint = false;
    plait_heevd_slots_t q = {.a = {.m = p->n,
                                   .n = p->n,
                                   .block = p->block,
                                   .n_ranks = problem->n_ranks,
                                   .dtype = problem->args[ARG_A].dtype},
                             .rank = problem->rank,
                             .first = p->first,
                             .has_vectors = p->vectors > 0};
    char vectors[80];

    PLAIT_TRY(plait_dense_require(problem));
    PLAIT_TRY(plait_dealt_fits(&q.a, &problem->args[ARG_A], "heevd: a"));
    PLAIT_CHECK(p->first >= 0 && p->vectors >= 0 && p->first <= p->n - p->vectors,
                PLAIT_ERR_INVALID,
                "heevd: %lld eigenvectors from %lld on; there are %lld",
                (long long)p->vectors, (long long)p->first, (long long)p->n);
    q.v = q.a;
    q.v.n = p->vectors;
    q.v.block = plait_max(1, (p->vectors + problem->n_ranks - 1) / problem->n_ranks);
    PLAIT_TRY(check_results(&q, problem));
    PLAIT_TRY(plait_heevd_joint_ask(problem, &q.a, q.has_vectors, &joint, &is_joint));
    PLAIT_TRY(plait_plan_create(problem, &plan, "heevd %s %lld%s, in blocks of %lld",
                                plait_dtype_name(q.a.dtype), (long long)p->n,
                                say_vectors(p, vectors, sizeof(vectors)),
                                (long long)p->block));
    q.src = plait_slot_arg(plan, ARG_A);
    q.w = plait_slot_ret(plan, RET_W);
    q.vectors = plait_slot_ret(plan, RET_V);
    q.info = plait_slot_ret(plan, RET_INFO);
    plan->uses_blas = plan->device == NULL;
    plait_dealt_agree(plan, &q.a);
    plait_plan_agree(plan, (uint64_t)p->first);
    plait_plan_agree(plan, (uint64_t)p->vectors);
    PLAIT_TRY(is_joint            ? plait_heevd_joint_add(plan, &q, &joint)
              : is_whole(p, plan) ? add_whole(plan, &q)
                                  : add_stages(plan, problem, &q));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

static bool wants_grid(const void *params, int n_ranks, plait_choices_t choices)
{
    const plait_heevd_params_t *p = params;

    return plait_heevd_wants_joint(p->n, n_ranks, choices);
}

const plait_op_t plait_op_heevd = {
    .name = "heevd",
    .n_args = 1,
    .n_rets = 3,
    .params_size = sizeof(plait_heevd_params_t),
    .attrs = heevd_attrs,
    .alias = -1,
    .family = PLAIT_FAMILY_DENSE,
    .model = "mesh",
    .wants_grid = wants_grid,
    .doc = "Eigenvalues and eigenvectors of a dealt Hermitian matrix.",
    .plan = heevd_plan,
};
