#include "dense/tridiagonal.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "dense/scalar.h"
#include "device/pool.h"
#include "kernel/blas.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static plait_status_t solve(const plait_tridiagonal_t *t, plait_exec_t *exec,
                            int64_t *info_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_hetrd_t *h = &t->h;
    const plait_dtype_t dtype = h->a.dtype, real = plait_real_of(dtype);
    const int64_t n = h->a.n, item = plait_dtype_bytes(dtype),
                  size = plait_dtype_bytes(real);
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    char *panel = exec->slot[h->panel];
    plait_blas_work_t work = {.n = -1};
    void *memory = NULL, *z_memory = NULL;
    const char compz = t->has_vectors ? 'I' : 'N';
    char *w = exec->slot[t->w], *e = panel + room.e;
    char *v = exec->slot[t->v];

    memcpy(w, panel + room.d, (size_t)(n * size));
    (void)plait_blas_stedc(real, compz, n, w, e, NULL, n, &work);
    PLAIT_TRY(plait_pool_take(work.n * size + work.n_ints * 8, &memory));
    work.ints = memory;
    work.work = (char *)memory + work.n_ints * 8;
    PLAIT_TRY(plait_pool_take(t->has_vectors ? n * n * size : size, &z_memory));
    *info_p = plait_blas_stedc(real, compz, n, w, e, z_memory, n, &work);
    for (int64_t c = 0; c < t->n_columns && t->has_vectors; c++) {
        for (int64_t r = 0; r < n; r++) {
            plait_scalar_put(dtype, v, c * n + r,
                             plait_scalar_get(real, z_memory, (t->first + c) * n + r));
        }
    }
    (void)item;
done:
    plait_pool_give(memory);
    plait_pool_give(z_memory);
    return status;
}

static plait_status_t solve_run(const void *params, plait_exec_t *exec)
{
    plait_status_t status = PLAIT_OK;
    const plait_tridiagonal_t *t = params;
    const plait_hetrd_t *h = &t->h;
    const plait_dtype_t dtype = h->a.dtype, real = plait_real_of(dtype);
    const int64_t n = h->a.n, item = plait_dtype_bytes(dtype);
    plait_hetrd_state_t *state = plait_hetrd_state(h, exec);
    char *v = exec->slot[t->v];
    int64_t info = n + 1;

    if (!plait_hetrd_has_failed(h, exec)) {
        plait_blas_enter();
        status = solve(t, exec, &info);
        plait_blas_leave();
        PLAIT_TRY(status);
    }
    if (info != 0) {
        state->norm = (double)NAN;
    }
    for (int64_t i = 0; i < n; i++) {
        double w = creal(plait_scalar_get(real, exec->slot[t->w], i));
        plait_scalar_put(real, exec->slot[t->w], i,
                         (info != 0) ? (double)NAN : w / state->scale);
    }
    if (t->has_vectors) {
        for (int64_t i = 0; i < n * t->n_columns && info != 0; i++) {
            plait_scalar_put(dtype, v, i, (double)NAN);
        }
        memset(v + n * t->n_columns * item, 0,
               (size_t)(n * (t->n_stored - t->n_columns) * item));
    }
    *(int32_t *)(void *)exec->slot[t->info] = (int32_t)info;
done:
    return status;
}

static void solve_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_tridiagonal_t *t = params;
    const plait_hetrd_t *h = &t->h;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const int64_t n = h->a.n, real = plait_dtype_bytes(plait_real_of(h->a.dtype));
    const plait_box_copy_t line = {.row_bytes = n * real};
    const plait_box_copy_t vectors = {.row_bytes =
                                          n * t->n_stored * plait_dealt_item(&h->a)};
    const plait_box_copy_t info = {.row_bytes = sizeof(int32_t)};

    touch(context, false, h->rank, h->panel, room.d, &line);
    touch(context, false, h->rank, h->panel, room.e, &line);
    touch(context, true, h->rank, t->w, 0, &line);
    touch(context, true, h->rank, t->info, 0, &info);
    if (t->has_vectors) {
        touch(context, true, h->rank, t->v, 0, &vectors);
    }
}

static void solve_print(const void *params, FILE *file)
{
    const plait_tridiagonal_t *t = params;

    (void)fprintf(file, "%" PRId64 " eigenvalues, %" PRId64 " vectors", t->h.a.n,
                  t->has_vectors ? t->n_columns : 0);
}

static const plait_kernel_t solve_kernel = {.name = "tridiagonal",
                                            .run = solve_run,
                                            .touch = solve_touch,
                                            .print = solve_print};

plait_status_t plait_tridiagonal_add(plait_plan_t *plan, const plait_tridiagonal_t *t)
{
    plait_status_t status = PLAIT_OK;
    plait_tridiagonal_t *params = plait_alloc(1, sizeof(*params));

    PLAIT_CHECK(params != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    *params = *t;
    PLAIT_TRY(plait_plan_kernel(plan, &solve_kernel, params));
done:
    return status;
}
