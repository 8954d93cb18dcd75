/* The copy of the matrix that a reduction works on (hetrd.h), scaled where its norm asks for that. */
#include "dense/hetrd_memory.h"
#include "dense/scalar.h"
#include "kernel/range.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static plait_status_t copy_run(const void *params, plait_exec_t *exec)
{
    const plait_hetrd_t *h = params;
    const int64_t n = h->a.n, item = plait_hetrd_item(h);
    const plait_dtype_t dtype = h->a.dtype;
    double *norm =
        (double *)(void *)plait_hetrd_panel(h, exec, plait_hetrd_room(h).norms);

    norm += plait_hetrd_own_piece(h);
    *norm = 0;
    for (int64_t l = 0; l < plait_hetrd_n_owned(h); l++) {
        const int64_t j = plait_hetrd_column(h, l);
        char *column = plait_hetrd_at(h, exec, l, 0);
        const char *from = exec->slot[h->src] + l * n * item;
        memset(column, 0, (size_t)(j * item));
        memcpy(column + j * item, from + j * item, (size_t)((n - j) * item));
        plait_scalar_put(dtype, column, j, creal(plait_scalar_get(dtype, column, j)));
        double largest =
            plait_blas_lange(dtype, 'M', n - j, 1, column + j * item, n, NULL);
        *norm = (largest > *norm || isnan(largest)) ? largest : *norm;
        if (isnan(*norm)) {
            break; /* the rest is not computed with */
        }
    }
    return PLAIT_OK;
}

static void copy_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_hetrd_t *h = params;
    const plait_hetrd_touch_t t = {touch, context, h};
    const int64_t n = h->a.n, item = plait_hetrd_item(h);

    for (int64_t l = 0; l < plait_hetrd_n_owned(h); l++) {
        const int64_t j = plait_hetrd_column(h, l);
        plait_hetrd_touch_columns(&t, false, h->src, (l * n + j) * item, n - j, 1, n);
    }
    plait_hetrd_touch_columns(&t, true, h->copy, 0, n, plait_hetrd_n_owned(h), n);
    plait_hetrd_touch_bytes(&t, true,
                            plait_hetrd_room(h).norms +
                                plait_hetrd_own_piece(h) * (int64_t)sizeof(double),
                            sizeof(double));
}

static void copy_print(const void *params, FILE *file)
{
    const plait_hetrd_t *h = params;

    (void)fprintf(file, "%" PRId64 " columns, and their largest element",
                  plait_hetrd_n_owned(h));
}

const plait_kernel_t plait_hetrd_copy_kernel = {
    .name = "copy", .run = copy_run, .touch = copy_touch, .print = copy_print};

static plait_status_t scale_run(const void *params, plait_exec_t *exec)
{
    const plait_hetrd_t *h = params;
    const int64_t n = h->a.n;
    plait_hetrd_state_t *state = plait_hetrd_state(h, exec);

    state->scale = plait_range_factor(h->a.dtype, state->norm);
    if (state->scale != 1 && !plait_hetrd_has_failed(h, exec)) {
        for (int64_t l = 0; l < plait_hetrd_n_owned(h); l++) {
            const int64_t j = plait_hetrd_column(h, l);
            plait_range_multiply(h->a.dtype, n - j, plait_hetrd_at(h, exec, l, j),
                                 state->scale);
        }
    }
    return PLAIT_OK;
}

static void scale_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_hetrd_t *h = params;
    const plait_hetrd_touch_t t = {touch, context, h};
    const int64_t state = plait_hetrd_room(h).state;

    plait_hetrd_touch_bytes(&t, false, state, sizeof(double));
    plait_hetrd_touch_trailing(&t, false, 0);
    plait_hetrd_touch_trailing(&t, true, 0);
    plait_hetrd_touch_bytes(&t, true, state, sizeof(plait_hetrd_state_t));
}

static void scale_print(const void *params, FILE *file)
{
    (void)params;
    (void)fprintf(file, "where squares would overflow or vanish");
}

const plait_kernel_t plait_hetrd_scale_kernel = {
    .name = "scale", .run = scale_run, .touch = scale_touch, .print = scale_print};
