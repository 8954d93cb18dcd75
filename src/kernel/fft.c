#include "kernel/fft.h"

#include "base/alloc.h"
#include "base/status.h"
#include "kernel/fft_plan.h"

enum { MAX_LOG2_POINTS = 40 };

static const plait_fft_kernels_t *kernels_of(plait_dtype_t dtype)
{
    const plait_fft_kernels_t *kernels = plait_fft_kernels_generic;

#if defined(__x86_64__) && !defined(PLAIT_GENERIC_KERNELS)
    switch (plait_cpu_level()) {
    case PLAIT_CPU_AVX512:
        kernels = plait_fft_kernels_avx512;
        break;
    case PLAIT_CPU_AVX2:
        kernels = plait_fft_kernels_avx2;
        break;
    case PLAIT_CPU_GENERIC:
        break;
    }
#endif
    return &kernels[dtype == PLAIT_C128 || dtype == PLAIT_F64];
}

plait_status_t plait_fft_check(const plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;
    const long long n = fft->n;
    const bool is_wave = fft->wave.type != 0;
    const bool is_real = fft->dtype == PLAIT_F32 || fft->dtype == PLAIT_F64;
    const bool is_complex = fft->dtype == PLAIT_C64 || fft->dtype == PLAIT_C128;

    PLAIT_CHECK(n >= 1, PLAIT_ERR_INVALID, "a transform of %lld points", n);
    PLAIT_CHECK(n <= (int64_t)1 << MAX_LOG2_POINTS, PLAIT_ERR_OVERFLOW,
                "a transform of %lld points, at most 2^%d are possible", n,
                MAX_LOG2_POINTS);
    PLAIT_CHECK(is_wave ? is_real : is_complex, PLAIT_ERR_INVALID,
                "no transform %sof %s", is_wave ? "by waves " : "",
                plait_dtype_name(fft->dtype));
    PLAIT_CHECK(fft->wave.type >= 0 && fft->wave.type <= 4, PLAIT_ERR_INVALID,
                "a transform by waves of type %d, expected 1 to 4", fft->wave.type);
    PLAIT_CHECK(fft->wave.type != 1 || fft->wave.is_sine || n >= 2, PLAIT_ERR_INVALID,
                "a transform by cosines of type 1 of %lld points, expected 2 or more",
                n);
    PLAIT_CHECK(fft->sign == -1 || fft->sign == 1, PLAIT_ERR_INVALID,
                "sign of a transform must be -1 or 1, got %d", fft->sign);
done:
    return status;
}

plait_status_t plait_fft_make(plait_fft1_t *fft)
{
    double cost = 0;

    fft->itemsize = plait_dtype_bytes(fft->dtype);
    fft->kernels = kernels_of(fft->dtype);
    fft->method = (fft->wave.type != 0) ? &plait_fft_wave
                                        : plait_fft_choose_method(fft->n, &cost);
    return fft->method->create(fft);
}

void plait_fft_unmake(plait_fft1_t *fft)
{
    if (fft->method != NULL) {
        fft->method->destroy(fft);
    }
    plait_free(fft);
}

int64_t plait_fft1_scratch_bytes(const plait_fft1_t *fft)
{
    return fft->scratch_bytes;
}

void plait_fft1_columns(const plait_fft1_t *fft, int64_t n_columns,
                        const char *const in[], int64_t in_offset, char *const out[],
                        int64_t out_offset, void *scratch, plait_fft_store_t store)
{
    const plait_fft_columns_t job = {n_columns, in, in_offset, out, out_offset, store};

    fft->method->columns(fft, &job, scratch);
}

void plait_fft1_rows(const plait_fft1_t *fft, int64_t n_rows, const char *in,
                     int64_t in_stride, char *out, int64_t out_stride, void *scratch,
                     plait_fft_store_t store)
{
    const plait_fft_rows_t job = {n_rows, in, in_stride, out, out_stride, store};

    if (n_rows > 0) {
        fft->method->rows(fft, &job, scratch);
    }
}

const char *plait_fft1_isa(void)
{
    return plait_cpu_isa();
}

void plait_fft_set(plait_dtype_t dtype, void *table, int64_t i, const double w[2])
{
    if (dtype == PLAIT_C128) {
        ((double *)table)[2 * i] = w[0];
        ((double *)table)[2 * i + 1] = w[1];
    } else {
        ((float *)table)[2 * i] = (float)w[0];
        ((float *)table)[2 * i + 1] = (float)w[1];
    }
}

void plait_fft_powers(const plait_fft1_t *fft, const plait_roots_t *roots, int64_t k,
                      int64_t count, double *row, void *table)
{
    plait_roots_powers(roots, k, count, row);
    for (int64_t j = 0; j < count; j++) {
        row[2 * j + 1] *= -fft->sign;
        plait_fft_set(fft->dtype, table, j, row + 2 * j);
    }
}
