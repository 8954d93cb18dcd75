/* A distributed FFT with plain MPI: forward, compare one coefficient with the definition,
 * back, compare with the input.
 *
 *   mpicc fft_mpi.c $(pkg-config --cflags --libs plait) -lm -o fft_mpi
 *   mpiexec -n 2 ./fft_mpi
 *
 * Where plait is installed in a PREFIX that the system does not search: PKG_CONFIG_PATH is
 * PREFIX/lib/pkgconfig for the first line, LD_LIBRARY_PATH is PREFIX/lib for the second.
 */
#include <plait/coll.h>
#include <plait/fft.h>

#include <mpi.h>

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Every plait call returns a status; the text says which rank failed in what. */
#define MUST(_call)                                            \
    do {                                                       \
        if ((_call) != PLAIT_OK) {                             \
            (void)fprintf(stderr, "%s\n", plait_error_text()); \
            MPI_Abort(MPI_COMM_WORLD, 1);                      \
            exit(1); /* it may come back */                    \
        }                                                      \
    } while (0)

enum { N = 48 };

/* The larger number; unlike fmax it keeps NaN. */
static double larger(double a, double b)
{
    return (a >= b || isnan(a)) ? a : b;
}

static double complex wave(int64_t x, int64_t y, int64_t z)
{
    return cos(0.3 * (double)x) + I * sin(0.2 * (double)y) + 0.01 * (double)z;
}

int main(int argc, char **argv)
{
    const int64_t shape[] = {N, N, N};
    const int along_x[] = {0, -1, -1}; /* array axis 0 is split over grid axis 0 */
    const int along_y[] = {-1, 0, -1};
    const int axes[] = {0, 1, 2};
    plait_layout_t x_split;
    plait_layout_t y_split;
    plait_comm_t *comm = NULL;
    plait_plan_t *forward = NULL;
    plait_plan_t *inverse = NULL;
    int64_t in[3];
    int64_t out[3];
    int provided = 0;
    int rank = 0;
    int size = 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm world = MPI_COMM_WORLD;
    MUST(plait_comm_mpi(PLAIT_MPI_COMM_BITS(world), &comm));

    MUST(plait_layout_pencil(3, shape, 1, &size, along_x, PLAIT_SPLIT_EVEN, &x_split));
    MUST(plait_layout_pencil(3, shape, 1, &size, along_y, PLAIT_SPLIT_EVEN, &y_split));
    plait_layout_local_shape(&x_split, rank, in);
    plait_layout_local_shape(&y_split, rank, out);

    const plait_fft_problem_t there = {.dtype = PLAIT_C128,
                                       .from = &x_split,
                                       .to = &y_split,
                                       .n_axes = 3,
                                       .axes = axes,
                                       .sign = -1,
                                       .scale = 1.0};
    const plait_fft_problem_t back = {.dtype = PLAIT_C128,
                                      .from = &y_split,
                                      .to = &x_split,
                                      .n_axes = 3,
                                      .axes = axes,
                                      .sign = 1,
                                      .scale = 1.0 / ((double)N * N * N)};
    MUST(plait_fft_plan(comm, &there, &forward));
    MUST(plait_fft_plan(comm, &back, &inverse));
    if (rank == 0) {
        (void)printf("%d ranks by %s (%s)\n", size, plait_comm_transport(comm),
                     plait_comm_direct(comm));
        plait_plan_print(forward, stdout);
    }

    size_t n_in = (size_t)(in[0] * in[1] * in[2]);
    size_t n_out = (size_t)(out[0] * out[1] * out[2]);
    double complex *x = malloc((n_in + 1) * sizeof(*x));
    double complex *y = malloc((n_out + 1) * sizeof(*y));
    double complex *z = malloc((n_in + 1) * sizeof(*z));
    int64_t x_lo = plait_layout_interval(&x_split, rank, 0, 0, NULL).lo;
    double sums[2] = {0, 0}; /* of the input: coefficient (0, 0, 0) by definition */
    double totals[2];
    for (size_t i = 0; i < n_in; i++) {
        int64_t at = (int64_t)i;
        x[i] = wave(x_lo + at / (N * N), at / N % N, at % N);
        sums[0] += creal(x[i]);
        sums[1] += cimag(x[i]);
    }
    MUST(plait_plan_execute(forward, comm, (const void *[]){x}, (void *[]){y}));
    MUST(plait_plan_execute(inverse, comm, (const void *[]){y}, (void *[]){z}));
    MUST(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 2, sums, totals));

    double worst = 0;
    for (size_t i = 0; i < n_in; i++) {
        worst = larger(worst, cabs(z[i] - x[i]));
    }
    MUST(plait_allreduce(comm, PLAIT_MAX, PLAIT_F64, 1, &worst, &worst));
    int is_right = worst < 1e-12;
    if (rank == 0) {
        double off = cabs(y[0] - (totals[0] + I * totals[1])) / (N * N * N);
        is_right = is_right && off < 1e-12;
        (void)printf("there and back: %.1e, zero frequency: %.1e, %s\n", worst, off,
                     is_right ? "right" : "WRONG");
    }
    free(x);
    free(y);
    free(z);
    plait_plan_destroy(&forward);
    plait_plan_destroy(&inverse);
    plait_comm_destroy(&comm);
    MPI_Finalize();
    return !is_right;
}
