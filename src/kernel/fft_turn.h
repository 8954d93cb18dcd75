/* The step between the two transforms of a matrix that make up one long transform: every element is multiplied
 * by its root of unity and goes to its place in the transposed matrix. */
#ifndef PLAIT_KERNEL_FFT_TURN_H
#define PLAIT_KERNEL_FFT_TURN_H

#include "plait/dtype.h"
#include "plait/status.h"

#include <stdint.h>

/* Immutable once created; any number of threads may use a turn at once. */
typedef struct plait_turn plait_turn_t;

/* For a transform of n >= 1 elements; dtype C64 or C128; sign -1 or +1. Costs O(sqrt(n)). */
plait_status_t plait_turn_create(int64_t n, plait_dtype_t dtype, int sign,
                                 plait_turn_t **turn_p);
void plait_turn_destroy(plait_turn_t **turn_p);

/* Columns [first, first + n_columns) of a matrix of n_rows rows. Entries are n_inner contiguous elements:
 * out[c][r][i] = in[r][c][i] exp(sign 2 pi i r (first + c) / n). Not in place; (n_rows - 1) (first + n_columns
 * - 1) < n. */
void plait_turn_run(const plait_turn_t *turn, int64_t n_rows, int64_t first,
                    int64_t n_columns, int64_t n_inner, const void *in, void *out);

#endif
