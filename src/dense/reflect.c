#include "dense/reflect.h"

#include "base/checked.h"
#include "base/status.h"
#include "kernel/range.h"

#include <math.h>

plait_status_t plait_reflect_tau_fits(const plait_dealt_t *d,
                                      const plait_array_t *array, const char *what)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n = plait_min(d->m, d->n);

    PLAIT_CHECK(array->dtype == d->dtype && array->ndim == 1 && array->dims[0] == n,
                PLAIT_ERR_INVALID,
                "%s: the factors of the reflectors are %s; expected %lld of %s", what,
                plait_dtype_name(array->dtype), (long long)n,
                plait_dtype_name(d->dtype));
done:
    return status;
}

void plait_reflect_factor(plait_dtype_t dtype, int64_t m, int64_t n, void *a,
                          int64_t ld, void *tau, plait_blas_work_t *work)
{
    const int64_t column = ld * plait_dtype_bytes(dtype);
    double largest = 0, factor = 1;

    for (int64_t j = 0; j < n; j++) {
        largest = fmax(largest, plait_range_largest(dtype, m, (char *)a + j * column));
    }
    factor = plait_range_factor(dtype, largest);
    for (int64_t j = 0; j < n && factor != 1; j++) {
        plait_range_multiply(dtype, m, (char *)a + j * column, factor);
    }
    (void)plait_blas_geqrf(dtype, m, n, a, ld, tau, work);
    for (int64_t j = 0; j < n && factor != 1; j++) {
        plait_range_multiply(dtype, plait_min(j + 1, m), (char *)a + j * column,
                             1 / factor);
    }
}

static int64_t triangle_bytes(plait_dtype_t dtype, int64_t n)
{
    return (n * n * plait_dtype_bytes(dtype) + 63) / 64 * 64;
}

int64_t plait_reflect_scratch(plait_dtype_t dtype, int64_t n, int64_t n_columns)
{
    return triangle_bytes(dtype, n) + n * n_columns * plait_dtype_bytes(dtype);
}

/* Source: Schreiber, Van Loan, "A storage-efficient WY representation for products of
 * Householder transformations", SIAM J. Sci. Stat. Comput. 10(1), 1989. */
void plait_reflect_run(const plait_reflect_t *r, const plait_exec_t *exec)
{
    const char *v = plait_panel_address(exec, &r->panel);
    char *t = exec->scratch;
    char *work = exec->scratch + triangle_bytes(r->dtype, r->n);

    if (r->n > 0 && r->n_columns > 0) {
        plait_blas_larft(r->dtype, r->panel.n_rows, r->n, v, r->panel.ld,
                         exec->slot[r->tau_slot] + r->tau_offset, t, r->n);
        plait_blas_larfb(r->dtype, 'L', r->is_adjoint ? 'C' : 'N', r->panel.n_rows,
                         r->n_columns, r->n, v, r->panel.ld, t, r->n,
                         exec->slot[r->slot] + r->offset, r->ld, work);
    }
}

plait_status_t plait_reflect_tiles(const plait_reflect_t *r, const plait_tiles_t *tiles)
{
    const plait_tile_t tile = {.call = {.op = PLAIT_TILE_ORMQR,
                                        .dtype = r->dtype,
                                        .trans = r->is_adjoint ? 'C' : 'N',
                                        .m = r->panel.n_rows,
                                        .n = r->n_columns,
                                        .k = r->n,
                                        .lda = r->panel.ld,
                                        .ldc = r->ld},
                               .a = {.slot = r->panel.slot, .offset = r->panel.offset},
                               .c = {.slot = r->slot, .offset = r->offset},
                               .extra = {.slot = r->tau_slot, .offset = r->tau_offset}};

    return (r->n > 0) ? plait_tile_add(tiles, &tile) : PLAIT_OK;
}

void plait_reflect_touch(const plait_reflect_t *r, int rank, plait_touch_fn_t touch,
                         void *context)
{
    const int64_t item = plait_dtype_bytes(r->dtype);
    const plait_box_copy_t tau = {.row_bytes = r->n * item};
    const plait_box_copy_t v = plait_panel_box(&r->panel, item);
    const plait_box_copy_t box =
        plait_columns_box(r->panel.n_rows, r->n_columns, r->ld, item);

    if (r->n > 0 && r->n_columns > 0) {
        touch(context, false, r->panel.peer, r->panel.slot, r->panel.offset, &v);
        touch(context, false, rank, r->tau_slot, r->tau_offset, &tau);
        touch(context, false, rank, r->slot, r->offset, &box);
        touch(context, true, rank, r->slot, r->offset, &box);
    }
}
