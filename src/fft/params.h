/* Parameters of the fft operation. */
#ifndef PLAIT_FFT_PARAMS_H
#define PLAIT_FFT_PARAMS_H

#include "plait/layout.h"

typedef struct {
    int64_t n_from, n_to, n_axes, n_waves;
    int64_t from[PLAIT_LAYOUT_WORDS]; /* plait_layout_pack */
    int64_t to[PLAIT_LAYOUT_WORDS];
    int64_t axes[PLAIT_MAX_NDIM]; /* array axes to transform */
    int64_t sign;                 /* -1 forward, +1 inverse  */
    double scale;                 /* of the result           */
    /* Real numbers to complex numbers or back, along the last of axes: the weight of all elements along it
     * except 0 and n / 2, see kernel/rfft.h. 0: as in NumPy, 1 and 2. */
    double weight;
    /* Real numbers to real numbers, along each of axes: the type, plus 4 for sines, see plait_wave_t. No
     * entries: other transforms. */
    int64_t waves[PLAIT_MAX_NDIM];
    double edge_in, edge_out;
} plait_fft_params_t;

#endif
