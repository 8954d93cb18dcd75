/* One-dimensional transforms between n real numbers and n / 2 + 1 complex ones, of many columns
 * or rows at once.
 *
 * To complex: y[k] = scale * w[k] * sum_j x[j] exp(sign 2 pi i j k / n), 0 <= k <= n / 2.
 * To real:    x[j] = scale * Re sum_k w[k] y[k] exp(sign 2 pi i j k / n), where only the real
 *             part of y[0] counts, and of y[n / 2] where n is even.
 * w is 1 for k = 0 and n / 2, and `weight` elsewhere. So (-1, weight 1) and (+1, weight 2) are NumPy's rfft
 * and irfft. The transpose of either has the other one's direction, with its own sign and weight. */
#ifndef PLAIT_KERNEL_RFFT_H
#define PLAIT_KERNEL_RFFT_H

#include "kernel/fft.h"

#include <stdbool.h>

/* Immutable once created; any number of threads may use a transform at once. */
typedef struct plait_rfft1 plait_rfft1_t;

/* n >= 1; dtype of the real side: F32 or F64; sign -1 or +1; weight > 0. */
plait_status_t plait_rfft1_create(int64_t n, plait_dtype_t dtype, bool to_complex,
                                  int sign, double weight, double scale,
                                  plait_rfft1_t **fft_p);
void plait_rfft1_destroy(plait_rfft1_t **fft_p);

/* The direction of a transform. */
bool plait_rfft1_to_complex(const plait_rfft1_t *fft);

/* Scratch that a running transform needs, at a 64-byte boundary. */
int64_t plait_rfft1_scratch_bytes(const plait_rfft1_t *fft);

/* Column c: element j is at in[j] + in_offset + c * itemsize, result k goes to out[k] + out_offset + c *
 * itemsize, each with the itemsize of its side. Not in place. */
void plait_rfft1_columns(const plait_rfft1_t *fft, int64_t n_columns,
                         const char *const in[], int64_t in_offset, char *const out[],
                         int64_t out_offset, void *scratch);

/* Row r: contiguous elements are at in + r * in_stride, results at out + r * out_stride; strides in bytes. Not
 * in place. */
void plait_rfft1_rows(const plait_rfft1_t *fft, int64_t n_rows, const char *in,
                      int64_t in_stride, char *out, int64_t out_stride, void *scratch);

#endif
