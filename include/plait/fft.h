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

/* Real transforms halve the last of the named axes: n real numbers there become n / 2 + 1 complex ones. */
typedef enum {
    PLAIT_FFT_COMPLEX = 0,
    PLAIT_FFT_REAL_TO_COMPLEX,
    PLAIT_FFT_COMPLEX_TO_REAL, /* ignores imaginary parts at 0 and n / 2 of that axis */
    PLAIT_FFT_REAL_TO_REAL     /* cosines or sines, n real numbers along every axis */
} plait_fft_kind_t;

/* A transform of n real numbers by cosines or sines:
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
 * At an edge j the operand counts half, times `edge_in`. At an edge k the result is multiplied by
 * `edge_out`. With both 1 these are the unscaled transforms of FFTW and SciPy. The transpose is
 *
 *   of cosine 1      cosine 1, with edge_in = 2 edge_out and edge_out = edge_in / 2
 *   of type 2        type 3, with that edge_in
 *   of type 3        type 2, with that edge_out
 *   of the others    the same transform
 *
 * Source: Britanak, Yip and Rao, Discrete Cosine and Sine Transforms (2007), 2.4. */
typedef struct {
    int type; /* 1 to 4; 0: none, for a transform by exponentials */
    bool is_sine;
    double edge_in, edge_out;
} plait_wave_t;

/* A transform: of what, and how. */
typedef struct {
    plait_dtype_t
        dtype; /* PLAIT_C64 or PLAIT_C128; real numbers have the same precision */
    /* Layouts of operand and result: same grid and same shape, except that the spectrum of real numbers has
     * n / 2 + 1 elements along its halved axis. */
    const plait_layout_t *from, *to;
    int n_axes;
    const int *axes; /* array axes, each once; any order */
    int sign;        /* -1: exp(-2 pi i jk/n), the forward transform; +1 */
    double scale;    /* every element of the result is multiplied by it */
    plait_fft_kind_t kind;
    /* Real transforms: factor of the complex numbers other than 0 and n / 2 along the halved axis. 0: as in
     * NumPy, 1 on the way to complex numbers, and 2 on the way back, where each of them stands for two. */
    double weight;
    /* PLAIT_FFT_REAL_TO_REAL: one for each of axes, all with the same edges; an edge of 0 stands for 1.
     * Other kinds: NULL. */
    const plait_wave_t *waves;
} plait_fft_problem_t;

/** Plans y[k] = scale * sum_j x[j] exp(sign 2 pi i j k / n) along some axes: between complex numbers, from
 *  real to complex numbers or back; or sums of cosines or sines of real numbers.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the plan has one operand, this rank's part of `from`, and one result, its part of `to`. They may
 *  be the same memory if both have the same dtype and shape. Any lengths are legal, for transformed axes
 *  from 1 on; parts may be uneven or empty.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: INVALID (dtype, kind, wave, sign, axes, an axis of length 0, layouts that do not fit each other
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
