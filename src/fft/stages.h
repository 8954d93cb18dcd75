/* Turns the stages of a transform's path into steps of a plan: places of intermediate results, passes over
 * memory, moves. */
#ifndef PLAIT_FFT_STAGES_H
#define PLAIT_FFT_STAGES_H

#include "fft/params.h"
#include "fft/path.h"
#include "plait/fft.h"
#include "plan/plan.h"

typedef struct {
    const plait_fft_params_t *p;
    plait_plan_t *plan;
    plait_dtype_t dtype;     /* of the complex numbers, or of all numbers */
    int64_t item_bytes;      /* of such a number; half as many of a real one */
    plait_layout_t from, to; /* as given */
    bool is_from_real, is_to_real;
    bool is_wave;  /* cosines and sines of real numbers: dtype is theirs */
    bool may_fuse; /* a kernel may read peers' memory */
    plait_fft_path_t path;
    bool pads_work; /* see strides_of */
    int n_left;     /* transforms not yet created: the last one gets the scale */
} plait_fft_t;

/* Adds the steps of f->path, which has been found, to f->plan. */
plait_status_t plait_fft_add_stages(plait_fft_t *f);

#endif
