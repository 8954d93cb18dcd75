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
    PLAIT_FFT_COMPLEX_TO_REAL, /* imaginary parts at 0 and n / 2 of that axis are ignored */
    PLAIT_FFT_REAL_TO_REAL /* by cosines or sines, n real numbers along every axis */
} plait_fft_kind_t;

/* Of n real numbers by cosines or sines:
 *
 * y[k] = scale * sum_j 2 x[j] f(j, k), 0 <= k < n, with f, and its edges:
 *
 *   cosine 1: cos pi j k / (n - 1)              j, k = 0 and n - 1; n >= 2
 *   cosine 2: cos pi (j + 1/2) k / n            k = 0
 *   cosine 3: cos pi j (k + 1/2) / n            j = 0
 *   cosine 4: cos pi (j + 1/2) (k + 1/2) / n
 *   sine 1:   sin pi (j + 1) (k + 1) / (n + 1)
 *   sine 2:   sin pi (j + 1/2) (k + 1) / n      k = n - 1
 *   sine 3:   sin pi (j + 1) (k + 1/2) / n      j = n - 1
 *   sine 4:   sin pi (j + 1/2) (k + 1/2) / n
 *
 * At an edge j the operand counts half, times `edge_in`; at an edge k the result is times `edge_out`.
 * With 1 and 1 these are the unscaled transforms of FFTW and SciPy. Of cosine 1 the transpose is itself
 * with edge_in = 2 edge_out and edge_out = edge_in / 2, of type 2 it is 3 with that edge_in, of 3 it is 2
 * with that edge_out; others are symmetric.
 * Source: Britanak, Yip and Rao, Discrete Cosine and Sine Transforms (2007), 2.4. */
typedef struct {
    int type; /* 1 to 4; 0: none, of a transform by exponentials */
    bool is_sine;
    double edge_in, edge_out;
} plait_wave_t;

/* What to transform and how. */
typedef struct {
    plait_dtype_t
        dtype; /* PLAIT_C64 or PLAIT_C128; its precision is that of real numbers */
    /* Of operand and result: same grid, same shape, but for the halved axis of the spectrum of real
     * numbers, which has n / 2 + 1 elements. */
    const plait_layout_t *from, *to;
    int n_axes;
    const int *axes; /* array axes, each once; any order */
    int sign;        /* -1: exp(-2 pi i jk/n), the forward transform; +1 */
    double scale;    /* every element of the result is multiplied by it */
    plait_fft_kind_t kind;
    /* Real transforms: of complex numbers other than 0 and n / 2 along the halved axis; 0: as in
     * numpy's, 1 on the way to them and 2 on the way back, since there they stand for two. */
    double weight;
    /* Of PLAIT_FFT_REAL_TO_REAL: one for each of axes, all with the same edges; of those 0
     * stands for 1. Else NULL. */
    const plait_wave_t *waves;
} plait_fft_problem_t;

/** Plans y[k] = scale * sum_j x[j] exp(sign 2 pi i j k / n) along some axes, of complex
 *  numbers, or from or to real ones, or sums of cosines or sines of real ones.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the plan's one operand is this rank's part of `from`, its one result that of
 *  `to`; they may be the same memory where both have the same dtype and
 *  shape. Any lengths, of the transformed axes from 1 on; uneven and empty parts.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: INVALID (dtype, kind, wave, sign, axes, one of length 0, layouts that do not fit each other
 *  or comm, a scale or weight that is not finite, NULL), COMM (comm is NULL), OVERFLOW (sizes),
 *  UNSUPPORTED (a backend chosen by plait_config_set; cosines and sines in a device's memory),
 *  NO_MEMORY.
 *  Source: slab, pencil and four-step algorithms; see docs/architecture.md. */
PLAIT_EXPORT plait_status_t plait_fft_plan(const plait_comm_t *comm,
                                           const plait_fft_problem_t *problem,
                                           plait_plan_t **plan_p);

#ifdef __cplusplus
}
#endif
#endif
