/* Results in natural order without a last exchange: where peers' memory can be written, the pass before that
 * exchange writes its rows to their final places. */
#ifndef PLAIT_FFT_PUT_H
#define PLAIT_FFT_PUT_H

#include "fft/pass.h"
#include "fft/stages.h"

/* Removes a last stage that only moves, if the stage before it can put its results: an exchange that is a pass
 * of its own. This pass then reads a buffer that is not the result, and not the operand, which may share the
 * result's memory. */
void plait_fft_put_merge(plait_fft_t *f);

/* Sets the targets of this stage's pass, which replace this rank's own target. */
plait_status_t plait_fft_put_targets(const plait_fft_t *f,
                                     const plait_fft_stage_t *stage,
                                     plait_pass_t *pass);

#endif
