/* The same transform by threads of one process: no MPI at all.
 *
 *   cc fft_threads.c $(pkg-config --cflags --libs plait) -lpthread -lm -o fft_threads
 *
 * Where plait is installed in a PREFIX that the system does not search: PKG_CONFIG_PATH is
 * PREFIX/lib/pkgconfig for that, and LD_LIBRARY_PATH is PREFIX/lib for the program.
 */
#include <plait/fft.h>

#include <complex.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 32, N_RANKS = 3 };

typedef struct {
    plait_comm_t *comm;
    double error;
} rank_t;

/* The larger number; unlike fmax it keeps NaN. */
static double larger(double a, double b)
{
    return (a >= b || isnan(a)) ? a : b;
}

/* Rank r transforms its planes; a constant array has one coefficient that is not 0. */
static void *run(void *argument)
{
    rank_t *self = argument;
    const int64_t shape[] = {N, N, N};
    const int grid[] = {N_RANKS};
    const int along_x[] = {0, -1, -1};
    const int along_y[] = {-1, 0, -1};
    const int axes[] = {0, 1, 2};
    int rank = plait_comm_rank(self->comm);
    plait_layout_t from;
    plait_layout_t to;
    plait_plan_t *plan = NULL;
    int64_t in[3];
    int64_t out[3];

    self->error = INFINITY;
    if (plait_layout_pencil(3, shape, 1, grid, along_x, PLAIT_SPLIT_EVEN, &from) !=
            PLAIT_OK ||
        plait_layout_pencil(3, shape, 1, grid, along_y, PLAIT_SPLIT_EVEN, &to) !=
            PLAIT_OK) {
        return NULL;
    }
    const plait_fft_problem_t problem = {.dtype = PLAIT_C128,
                                         .from = &from,
                                         .to = &to,
                                         .n_axes = 3,
                                         .axes = axes,
                                         .sign = -1,
                                         .scale = 1.0};
    plait_layout_local_shape(&from, rank, in);
    plait_layout_local_shape(&to, rank, out);
    size_t n_in = (size_t)(in[0] * in[1] * in[2]);
    size_t n_out = (size_t)(out[0] * out[1] * out[2]);
    double complex *x = malloc((n_in + 1) * sizeof(*x));
    double complex *y = malloc((n_out + 1) * sizeof(*y));
    for (size_t i = 0; i < n_in; i++) {
        x[i] = 1.0;
    }
    if (plait_fft_plan(self->comm, &problem, &plan) == PLAIT_OK &&
        plait_plan_execute(plan, self->comm, (const void *[]){x}, (void *[]){y}) ==
            PLAIT_OK) {
        self->error = 0;
        for (size_t i = 0; i < n_out; i++) {
            double want = (rank == 0 && i == 0) ? (double)N * N * N : 0;
            self->error = larger(self->error, cabs(y[i] - want));
        }
    } else {
        (void)fprintf(stderr, "%s\n", plait_error_text());
    }
    plait_plan_destroy(&plan);
    free(x);
    free(y);
    return NULL;
}

int main(void)
{
    plait_comm_t *comms[N_RANKS];
    pthread_t threads[N_RANKS];
    rank_t ranks[N_RANKS];
    double error = 0;

    if (plait_comm_threads(N_RANKS, comms) != PLAIT_OK) {
        (void)fprintf(stderr, "%s\n", plait_error_text());
        return 1;
    }
    for (int r = 0; r < N_RANKS; r++) {
        ranks[r].comm = comms[r];
        if (pthread_create(&threads[r], NULL, run, &ranks[r]) != 0) {
            return 1;
        }
    }
    for (int r = 0; r < N_RANKS; r++) {
        (void)pthread_join(threads[r], NULL);
        error = larger(error, ranks[r].error);
        plait_comm_destroy(&comms[r]);
    }
    (void)printf("%d threads, %d^3: largest error %.1e\n", N_RANKS, N, error);
    return !(error < 1e-9);
}
