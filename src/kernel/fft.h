/* One-dimensional transforms of many columns or rows at once, of complex numbers or by cosines and sines.
 *
 * y[k] = scale * sum_j x[j] exp(sign * 2 pi i j k / n). The lanes of a vector are columns, so a transform
 * across the slow axis of an array needs no gather and no transpose. Each kernel has one source, which is
 * compiled for each instruction set. The widest set that the processor has is chosen at run time
 * (PLAIT_ISA=sse2|avx2|avx512 lowers it). */
#ifndef PLAIT_KERNEL_FFT_H
#define PLAIT_KERNEL_FFT_H

#include "plait/dtype.h"
#include "plait/fft.h"

#include <stdbool.h>
#include <stdint.h>

/* Immutable once created; any number of threads may use a transform at once. */
typedef struct plait_fft1 plait_fft1_t;

typedef enum {
    PLAIT_FFT_STORE = 0,
    PLAIT_FFT_STREAM =
        1 /* results leave past the cache; finish with plait_host_stream_fence */
} plait_fft_store_t;

/* n >= 1; dtype C64 or C128; sign -1 (forward) or +1. No trial runs: microseconds. */
plait_status_t plait_fft1_create(int64_t n, plait_dtype_t dtype, int sign, double scale,
                                 plait_fft1_t **fft_p);
/* dtype F32 or F64. Rows and columns are passed as for complex numbers. */
plait_status_t plait_fft1_create_wave(int64_t n, plait_dtype_t dtype,
                                      const plait_wave_t *wave, double scale,
                                      plait_fft1_t **fft_p);

void plait_fft1_destroy(plait_fft1_t **fft_p);

/* Scratch that a running transform needs, at a 64-byte boundary. */
int64_t plait_fft1_scratch_bytes(const plait_fft1_t *fft);

/* Column c (0 <= c < n_columns): element j is read at in[j] + in_offset + c * itemsize, result k is written at
 * out[k] + out_offset + c * itemsize. in and out have n entries. May be in place (out[k] == in[k] for all k);
 * otherwise in and out do not overlap. Elements need only the alignment of a real number. */
void plait_fft1_columns(const plait_fft1_t *fft, int64_t n_columns,
                        const char *const in[], int64_t in_offset, char *const out[],
                        int64_t out_offset, void *scratch, plait_fft_store_t store);

/* Row r: n contiguous elements at in + r * in_stride to n contiguous elements at
 * out + r * out_stride; strides in bytes. May be in place. */
void plait_fft1_rows(const plait_fft1_t *fft, int64_t n_rows, const char *in,
                     int64_t in_stride, char *out, int64_t out_stride, void *scratch,
                     plait_fft_store_t store);

/* Name of the instruction set in use: "sse2", "avx2", "avx512" ("generic" without SSE2). */
PLAIT_EXPORT const char *plait_fft1_isa(void);

#endif
