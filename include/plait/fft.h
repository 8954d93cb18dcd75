/* Fourier transforms of distributed arrays. */
#ifndef PLAIT_FFT_H
#define PLAIT_FFT_H

#include "plait/comm.h"
#include "plait/dtype.h"
#include "plait/layout.h"
#include "plait/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Real transforms halve the last axis named: n real numbers there are n / 2 + 1 complex ones. */
typedef enum {
    PLAIT_FFT_COMPLEX = 0,
    PLAIT_FFT_REAL_TO_COMPLEX,
    PLAIT_FFT_COMPLEX_TO_REAL /* imaginary parts at 0 and n / 2 of that axis are ignored */
} plait_fft_kind_t;

/* What to transform and how. */
typedef struct {
    plait_dtype_t
        dtype; /* PLAIT_C64 or PLAIT_C128; its precision is that of real numbers */
    const plait_layout_t *from, *to; /* of operand and result: same shape, same grid */
    int n_axes;
    const int *axes; /* array axes, each once; any order */
    int sign;        /* -1: exp(-2 pi i jk/n), the forward transform; +1 */
    double scale;    /* every element of the result is multiplied by it */
    plait_fft_kind_t kind;
    /* Real transforms: of complex numbers other than 0 and n / 2 along the halved axis; 0: as in
     * numpy's, 1 on the way to them and 2 on the way back, since there they stand for two. */
    double weight;
} plait_fft_problem_t;

/** Plans y[k] = scale * sum_j x[j] exp(sign 2 pi i j k / n) along some axes, of complex
 *  numbers, or from or to real ones.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the plan's one operand is this rank's part of `from`, its one result that of
 *  `to`; they may be the same memory where both are complex and have
 *  the same shape. Any lengths, of the transformed axes from 1 on; uneven and empty parts.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: INVALID (dtype, kind, sign, axes, one of length 0, layouts that do not fit each other
 *  or comm, a scale or weight that is not finite, NULL), COMM (comm is NULL), OVERFLOW (sizes),
 *  UNSUPPORTED (a backend chosen by plait_config_set), NO_MEMORY.
 *  Source: slab, pencil and four-step algorithms; see docs/architecture.md. */
PLAIT_EXPORT plait_status_t plait_fft_plan(const plait_comm_t *comm,
                                           const plait_fft_problem_t *problem,
                                           plait_plan_t **plan_p);

#ifdef __cplusplus
}
#endif
#endif
