/* The problems that are measured, on any communicator of plait: one precision a program
 * (BENCH_C64: single), reused buffers. */
#ifndef BENCH_PROBLEMS_H
#define BENCH_PROBLEMS_H

#include "plait/fft.h"
#include "plait/plan.h"
#include "plait/redist.h"
#include "rounds.h"

#ifdef BENCH_C64
typedef float real_t;
#define BENCH_DTYPE PLAIT_C64
#define FFTW(_name) fftwf_##_name
#else
typedef double real_t;
#define BENCH_DTYPE PLAIT_C128
#define FFTW(_name) fftw_##_name
#endif

enum { BENCH_COMPLEX_BYTES = 2 * sizeof(real_t) };

/* An n^3 array, split over axis 0 before. */
typedef struct {
    plait_comm_t *comm;
    plait_plan_t *plan;
    int64_t n;
    int64_t in[3], out[3]; /* local shapes */
    int64_t n_real;        /* real numbers of this rank's operand */
    size_t n_bytes;        /* of the larger local part */
    real_t *x, *y;
    bool owns; /* x and y */
    double plan_s;
} problem_t;

/* op is one of
 *   fft          complex, split over axis 1 after: as the forward path ends
 *   fft_natural  complex, split as before
 *   rfft         of real numbers, split over axis 1 after
 *   redist       complex numbers from axis 0 to 1
 *   redist_02    complex numbers from axis 0 to 2
 * x is filled with pseudo-random numbers in [-0.5, 0.5). */
void problem_create(problem_t *p, plait_comm_t *comm, const char *op, int64_t n);

/* The same with the arrays of another problem, which must outlive it. */
void problem_create_beside(problem_t *p, const problem_t *other, const char *op);

/* Frees the plan, and the arrays unless they are another problem's. */
void problem_destroy(problem_t *p);

/* The k-th number of a fixed sequence. */
real_t problem_value(int64_t k);

/* For bench_case_t: state is the problem. */
void problem_run(void *state);
void problem_memcpy(void *state);

/* Bytes, planning time and the way to peers' memory, as members of a JSON object. */
void problem_facts(const problem_t *p, char *text, size_t n_text);

/* Seconds to make one plan of this shape, without data; the plan's cost. */
double problem_plan_time(plait_comm_t *comm, const char *op, const int64_t shape[3],
                         plait_plan_cost_t *cost_p, int64_t *local_bytes_p);

#endif
