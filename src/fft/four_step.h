/* The transform of a split axis that stays split: the axis is a matrix of n1 rows and n2 columns,
 *
 *     x[j1 n2 + j2], y[k1 + n1 k2],  n = n1 n2.
 *
 * 1. fold: every rank gets columns of all rows; then a transform of length n1.
 * 2. turn: element (k1, j2) is multiplied by exp(sign 2 pi i k1 j2 / n) and transposed to (j2, k1).
 * 3. exchange: every rank gets columns of the transposed matrix; then a transform of length n2.
 * 4. unfold: (k2, k1) is the result in order.
 *
 * Each of the three moves (fold, exchange, unfold) takes V (1 - 1/P) of a rank's V bytes. All other axes go
 * along.
 * Source: Bailey, J. Supercomputing 4(1), 1990, after Gentleman and Sande, AFIPS 29, 1966. */
#ifndef PLAIT_FFT_FOUR_STEP_H
#define PLAIT_FFT_FOUR_STEP_H

#include "fft/stages.h"

/* n1 for an axis of n split into n_parts, n1 <= n2; 0 if the other way is as good. In the other way the split
 * goes to an axis of n_taker (0: there is no such axis, and every rank gathers the axis). */
int64_t plait_four_step_rows(int64_t n, int n_parts, int64_t n_taker);

/* Adds the stages for axis t, from *layout to `to`. *layout becomes `to`. */
void plait_four_step_path(plait_fft_path_t *path, plait_layout_t *layout, int t,
                          int64_t n1, const plait_layout_t *to);

/* The move of a fold or unfold stage. */
plait_status_t plait_four_step_move(plait_fft_t *f, const plait_layout_t *from,
                                    int src_slot, const plait_fft_stage_t *stage);

/* The kernel of a turn stage. */
plait_status_t plait_four_step_turn(plait_fft_t *f, const plait_layout_t *from,
                                    int src_slot, const plait_fft_stage_t *stage);

#endif
