/* Complex Fourier transforms of distributed arrays. */
#ifndef PLAIT_FFT_H
#define PLAIT_FFT_H

#include "plait/comm.h"
#include "plait/dtype.h"
#include "plait/layout.h"
#include "plait/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What to transform and how. */
typedef struct {
    plait_dtype_t dtype;             /* PLAIT_C64 or PLAIT_C128 */
    const plait_layout_t *from, *to; /* of operand and result: same shape, same grid */
    int n_axes;
    const int *axes; /* array axes, each once; any order */
    int sign;        /* -1: exp(-2 pi i jk/n), the forward transform; +1 */
    double scale;    /* every element of the result is multiplied by it */
} plait_fft_problem_t;

/** Plans y[k] = scale * sum_j x[j] exp(sign 2 pi i j k / n) along some axes.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the plan's one operand is this rank's part of `from`, its one result that of
 *  `to`; they may be the same memory. Any lengths, uneven and empty parts.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: INVALID (dtype, axes, layouts that do not fit each other or comm), NO_MEMORY.
 *  Source: slab and pencil decomposition; see docs/architecture.md. */
PLAIT_EXPORT plait_status_t plait_fft_plan(const plait_comm_t *comm,
                                           const plait_fft_problem_t *problem,
                                           plait_plan_t **plan_p);

#ifdef __cplusplus
}
#endif
#endif
