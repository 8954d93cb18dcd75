/* The operation fft, and the checks of its arguments: transforms along any axes of an array in any layout, of
 * complex numbers or between real and complex ones. Source: own. */
#include "base/status.h"
#include "base/text.h"
#include "fft/device.h"
#include "fft/pass.h"
#include "fft/stages.h"
#include "plan/op.h"
#include "redist/params.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const plait_attr_t fft_attrs[] = {
    PLAIT_ATTR_ARRAY(plait_fft_params_t, from),
    PLAIT_ATTR_ARRAY(plait_fft_params_t, to),
    PLAIT_ATTR_ARRAY(plait_fft_params_t, axes),
    PLAIT_ATTR(plait_fft_params_t, sign),
    PLAIT_ATTR_FLOAT(plait_fft_params_t, scale),
    PLAIT_ATTR_FLOAT(plait_fft_params_t, weight),
    PLAIT_ATTR_ARRAY(plait_fft_params_t, waves),
    PLAIT_ATTR_FLOAT(plait_fft_params_t, edge_in),
    PLAIT_ATTR_FLOAT(plait_fft_params_t, edge_out),
    PLAIT_ATTR_END,
};

static bool is_real(plait_dtype_t dtype)
{
    return dtype == PLAIT_F32 || dtype == PLAIT_F64;
}

static plait_status_t check_wave(const plait_fft_t *f, const plait_problem_t *problem)
{
    plait_status_t status = PLAIT_OK;
    const plait_fft_params_t *p = f->p;
    plait_dtype_t from = problem->args[0].dtype;
    plait_dtype_t to = problem->rets[0].dtype;

    PLAIT_CHECK(p->n_waves == p->n_axes, PLAIT_ERR_INVALID,
                "fft: %lld waves for %lld axes", (long long)p->n_waves,
                (long long)p->n_axes);
    for (int64_t i = 0; i < p->n_waves; i++) {
        PLAIT_CHECK(p->waves[i] >= 1 && p->waves[i] <= 8, PLAIT_ERR_INVALID,
                    "fft: wave %lld is %lld, expected 1 to 8", (long long)i,
                    (long long)p->waves[i]);
    }
    PLAIT_CHECK(
        is_real(from) && from == to, PLAIT_ERR_INVALID,
        "fft: operand is %s, result is %s; for cosines or sines expected float32 "
        "or float64 for both",
        plait_dtype_name(from), plait_dtype_name(to));
    PLAIT_CHECK(isfinite(p->edge_in) && isfinite(p->edge_out), PLAIT_ERR_INVALID,
                "fft: edges are %g and %g, expected finite numbers", p->edge_in,
                p->edge_out);
    PLAIT_CHECK(
        problem->caps.device == NULL, PLAIT_ERR_UNSUPPORTED,
        "fft: there are no transforms by cosines or sines of arrays in a device's "
        "memory; use Fourier transforms");
done:
    return status;
}

/* One side may have real numbers of the other side's precision. */
static plait_status_t check_dtypes(const plait_problem_t *problem)
{
    plait_status_t status = PLAIT_OK;
    plait_dtype_t from = problem->args[0].dtype;
    plait_dtype_t to = problem->rets[0].dtype;
    bool is_single = from == PLAIT_F32 || from == PLAIT_C64;
    bool is_known = is_single || from == PLAIT_F64 || from == PLAIT_C128;
    bool from_real = is_real(from);
    plait_dtype_t complex = is_single ? PLAIT_C64 : PLAIT_C128;
    plait_dtype_t real = is_single ? PLAIT_F32 : PLAIT_F64;

    PLAIT_CHECK(is_known, PLAIT_ERR_INVALID,
                "fft: operand is %s, expected complex64 or complex128, or for a real "
                "transform float32 or float64",
                plait_dtype_name(from));
    PLAIT_CHECK(to == complex || (to == real && !from_real), PLAIT_ERR_INVALID,
                "fft: operand is %s, result is %s, expected %s%s%s",
                plait_dtype_name(from), plait_dtype_name(to), plait_dtype_name(complex),
                from_real ? "" : " or ", from_real ? "" : plait_dtype_name(real));
done:
    return status;
}

/* Shapes are equal, except along the last given axis of a real transform: n and n / 2 + 1. */
static plait_status_t check_shapes(const plait_fft_t *f)
{
    plait_status_t status = PLAIT_OK;
    int half = (int)f->p->axes[f->p->n_axes - 1];

    for (int a = 0; a < f->from.ndim; a++) {
        int64_t from = f->from.shape[a];
        int64_t to = f->to.shape[a];
        if (a == half && f->is_from_real) {
            from = from / 2 + 1;
        } else if (a == half && f->is_to_real) {
            to = to / 2 + 1;
        }
        PLAIT_CHECK(from == to, PLAIT_ERR_INVALID,
                    "fft: length %lld along axis %d of the operand does not match "
                    "length %lld of the result%s",
                    (long long)f->from.shape[a], a, (long long)f->to.shape[a],
                    (a == half && (f->is_from_real || f->is_to_real))
                        ? "; expected n real numbers and n / 2 + 1 complex ones"
                        : "");
    }
    PLAIT_CHECK(f->to.shape[half] > 0, PLAIT_ERR_INVALID, "fft: axis %d has length 0",
                half);
done:
    return status;
}

static plait_status_t check(const plait_fft_t *f, const plait_problem_t *problem)
{
    plait_status_t status = PLAIT_OK;
    const plait_fft_params_t *p = f->p;
    unsigned seen = 0;

    PLAIT_TRY(f->is_wave ? check_wave(f, problem) : check_dtypes(problem));
    PLAIT_CHECK(f->from.ndim == f->to.ndim && f->from.grid_ndim == f->to.grid_ndim &&
                    memcmp(f->from.grid, f->to.grid,
                           (size_t)f->from.grid_ndim * sizeof(int)) == 0,
                PLAIT_ERR_INVALID,
                "fft: the two layouts differ in the number of axes or in the grid");
    PLAIT_CHECK(p->n_axes >= 1, PLAIT_ERR_INVALID, "fft: no axes to transform");
    for (int64_t i = 0; i < p->n_axes; i++) {
        PLAIT_CHECK(p->axes[i] >= 0 && p->axes[i] < f->from.ndim, PLAIT_ERR_INVALID,
                    "fft: axis is %lld, but the array has %d axes",
                    (long long)p->axes[i], f->from.ndim);
        PLAIT_CHECK((seen & (1U << p->axes[i])) == 0, PLAIT_ERR_INVALID,
                    "fft: axis %lld is named twice", (long long)p->axes[i]);
        PLAIT_CHECK(f->from.shape[p->axes[i]] > 0, PLAIT_ERR_INVALID,
                    "fft: axis %lld has length 0", (long long)p->axes[i]);
        seen |= 1U << p->axes[i];
    }
    PLAIT_TRY(check_shapes(f));
    PLAIT_CHECK(p->sign == -1 || p->sign == 1, PLAIT_ERR_INVALID,
                "fft: sign is %lld, expected -1 or 1", (long long)p->sign);
    PLAIT_CHECK(isfinite(p->scale) && isfinite(p->weight), PLAIT_ERR_INVALID,
                "fft: scale is %g, weight %g, expected finite numbers", p->scale,
                p->weight);
    PLAIT_TRY(plait_layout_fits(&f->from, problem, &problem->args[0], "fft operand"));
    PLAIT_TRY(plait_layout_fits(&f->to, problem, &problem->rets[0], "fft result"));
done:
    return status;
}

static void agree(const plait_fft_t *f)
{
    uint64_t scale = 0;

    plait_layout_agree(f->plan, &f->from);
    plait_layout_agree(f->plan, &f->to);
    for (int64_t i = 0; i < f->p->n_axes; i++) {
        plait_plan_agree(f->plan, (uint64_t)f->p->axes[i]);
    }
    memcpy(&scale, &f->p->scale, sizeof(scale));
    plait_plan_agree(f->plan, scale);
    memcpy(&scale, &f->p->weight, sizeof(scale));
    plait_plan_agree(f->plan, scale);
    memcpy(&scale, &f->p->edge_in, sizeof(scale));
    plait_plan_agree(f->plan, scale);
    memcpy(&scale, &f->p->edge_out, sizeof(scale));
    plait_plan_agree(f->plan, scale);
    for (int64_t i = 0; i < f->p->n_waves; i++) {
        plait_plan_agree(f->plan, (uint64_t)f->p->waves[i]);
    }
    plait_plan_agree(f->plan, (uint64_t)f->is_to_real);
    plait_plan_agree(f->plan, (uint64_t)f->p->sign);
    plait_plan_agree(f->plan, f->dtype);
}

static plait_fft_half_t half_of(const plait_fft_t *f)
{
    int axis = (int)f->p->axes[f->p->n_axes - 1];
    bool is_fused = f->may_fuse;

    if (!f->is_from_real && !f->is_to_real) {
        return (plait_fft_half_t){.axis = -1};
    }
    for (int a = 0; a < f->from.ndim; a++) {
        is_fused = is_fused && f->from.axis[a].split != PLAIT_SPLIT_CYCLIC &&
                   f->to.axis[a].split != PLAIT_SPLIT_CYCLIC;
    }
    return (plait_fft_half_t){.axis = axis,
                              .n = f->is_from_real ? f->from.shape[axis]
                                                   : f->to.shape[axis],
                              .to_complex = f->is_from_real,
                              .is_fused = is_fused};
}

/* How a split axis is transformed if no other axis takes its split. Comes first in the title, which may be
 * cut. */
static void describe_path(const plait_fft_t *f, char *text, size_t n_bytes)
{
    int axis = f->path.gathered;

    text[0] = '\0';
    for (int i = 0; i < f->path.n_stages; i++) {
        const plait_fft_stage_t *stage = &f->path.stages[i];
        size_t at = strlen(text);
        if (stage->view == PLAIT_FFT_FOLD) {
            (void)snprintf(text + at, n_bytes - at, ", axis %d as %lld x %lld",
                           stage->folded, (long long)stage->layout.shape[stage->folded],
                           (long long)stage->layout.shape[stage->folded + 1]);
        }
    }
    size_t used = strlen(text);
    if (axis >= 0 && axis == f->path.half.axis) {
        (void)snprintf(text + used, n_bytes - used,
                       ", every rank gathers axis %d (halved)", axis);
    } else if (axis >= 0 && f->path.is_on_device) {
        (void)snprintf(text + used, n_bytes - used,
                       ", every rank gathers axis %d (on a device)", axis);
    } else if (axis >= 0) {
        (void)snprintf(text + used, n_bytes - used,
                       ", every rank gathers axis %d (no fit factors of %lld)", axis,
                       (long long)f->from.shape[axis]);
    }
}

static void find_path(plait_fft_t *f, bool is_on_device)
{
    unsigned axes = 0;
    const plait_fft_half_t half = half_of(f);

    for (int64_t i = 0; i < f->p->n_axes; i++) {
        axes |= 1U << f->p->axes[i];
    }
    f->path.is_on_device = is_on_device;
    f->path.is_undivided = f->is_wave;
    plait_fft_path_find(&f->from, &f->to, axes, &half,
                        plait_pass_max_plane(f->item_bytes), &f->path);
    if (is_on_device) {
        plait_fft_device_merge(&f->path);
    }
    f->n_left = (int)f->p->n_axes + f->path.n_four_step;
}

/* What else may differ between ranks' calls: axes if not all are given, and a factor. */
static void describe_rest(const plait_fft_t *f, char *text, size_t room)
{
    text[0] = '\0';
    for (int64_t i = 0; i < f->p->n_axes && f->p->n_axes < f->from.ndim; i++) {
        plait_text_append(text, room, "%s %lld", (i == 0) ? ", along" : "",
                          (long long)f->p->axes[i]);
    }
    if (f->p->scale != 1.0) {
        plait_text_append(text, room, ", times %.3g", f->p->scale);
    }
    if (text[0] != '\0') {
        plait_text_append(text, room, ",");
    }
}

/* The direction, or the wave of each axis, as many as fit. */
static void describe_kind(const plait_fft_t *f, char *text, size_t room)
{
    text[0] = '\0';
    for (int64_t i = 0; i < f->p->n_waves; i++) {
        const int wave = (int)f->p->waves[i];
        plait_text_append(text, room, "%s%s %d", (i == 0) ? "" : ", ",
                          (wave > 4) ? "sine" : "cosine", (wave > 4) ? wave - 4 : wave);
    }
    if (!f->is_wave) {
        plait_text_append(text, room, "%s", (f->p->sign < 0) ? "forward" : "inverse");
    }
}

static plait_status_t fft_plan(const void *params, const plait_problem_t *problem,
                               plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    plait_dtype_t from_dtype = problem->args[0].dtype;
    plait_fft_t f = {.p = params, .dtype = problem->rets[0].dtype};
    char from_text[72];
    char to_text[72];
    char path_text[80];
    char rest_text[48];
    char kind_text[40];

    f.is_wave = f.p->n_waves > 0;
    f.is_from_real = is_real(from_dtype) && !f.is_wave;
    f.is_to_real = is_real(f.dtype) && !f.is_wave;
    f.dtype = f.is_to_real ? from_dtype : f.dtype;
    f.item_bytes = plait_dtype_bytes(f.dtype);
    PLAIT_TRY(plait_layout_unpack(f.p->from, f.p->n_from, &f.from));
    PLAIT_TRY(plait_layout_unpack(f.p->to, f.p->n_to, &f.to));
    PLAIT_TRY(check(&f, problem));
    f.may_fuse =
        problem->caps.direct != PLAIT_DIRECT_NONE &&
        plait_choices_value(problem->choices, PLAIT_CONFIG_TRANSPOSE_EXCHANGE) !=
            PLAIT_EXCHANGE_SEPARATE;
    find_path(&f, problem->caps.device != NULL);
    describe_path(&f, path_text, sizeof(path_text));
    describe_rest(&f, rest_text, sizeof(rest_text));
    describe_kind(&f, kind_text, sizeof(kind_text));
    plait_layout_print(&f.from, from_text, sizeof(from_text));
    plait_layout_print(&f.to, to_text, sizeof(to_text));
    PLAIT_TRY(plait_plan_create(problem, &f.plan, "fft %s%s %s%s%s %s -> %s",
                                plait_dtype_name(from_dtype),
                                f.is_to_real ? " to real" : "", kind_text, path_text,
                                rest_text, from_text, to_text));
    agree(&f);
    PLAIT_TRY(plait_fft_add_stages(&f));
    *plan_p = f.plan;
    f.plan = NULL;
done:
    plait_plan_destroy(&f.plan);
    return status;
}

const plait_op_t plait_op_fft = {
    .name = "fft",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_fft_params_t),
    .attrs = fft_attrs,
    .adjoint = "fft",
    .alias = 0,
    .family = PLAIT_FAMILY_FFT,
    .model = "mesh",
    .doc = "Fourier transform along axes of a distributed array.",
    .plan = fft_plan,
};
