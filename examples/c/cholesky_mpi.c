/* A x = b with plain MPI: Cholesky's factor of a matrix whose block columns are dealt out to the
 * ranks, and the solution for right-hand sides that all of them have.
 *
 *   mpicc cholesky_mpi.c $(pkg-config --cflags --libs plait) -lm -o cholesky_mpi
 *   mpiexec -n 2 ./cholesky_mpi
 *
 * The arithmetic on blocks is that of a BLAS and LAPACK: PLAIT_BLAS=/path/to/libopenblas.so names
 * the library where the system has none that is found.
 */
#include <plait/coll.h>
#include <plait/dense.h>

#include <mpi.h>

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

enum { N = 300, BLOCK = 32, N_RHS = 2 };

/* The larger number; unlike fmax it keeps NaN. */
static double larger(double a, double b)
{
    return (a >= b || isnan(a)) ? a : b;
}

/* Covariance of two points of a line, with noise. */
static double covariance(int64_t i, int64_t j)
{
    return exp(-fabs((double)(i - j)) / 20) + ((i == j) ? 0.1 : 0.0);
}

/* The global column that a rank stores as its column `local`. */
static int64_t column(int64_t local, int rank, int size)
{
    return (local / BLOCK * size + rank) * BLOCK + local % BLOCK;
}

/* The largest entry of A x - b. Each rank sums over its own columns of A. */
static double residual(plait_comm_t *comm, const double *x, const double *b)
{
    int rank = plait_comm_rank(comm);
    int size = plait_comm_size(comm);
    int64_t n_columns = plait_dense_columns(N, BLOCK, size);
    double *r = calloc((size_t)N * N_RHS, sizeof(*r));
    double worst = 0;

    for (int64_t local = 0; local < n_columns; local++) {
        int64_t j = column(local, rank, size);
        for (int64_t i = 0; j < N && i < (int64_t)N * N_RHS; i++) {
            r[i] += covariance(i % N, j) * x[i / N * N + j];
        }
    }
    MUST(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, (int64_t)N * N_RHS, r, r));
    for (int64_t i = 0; i < (int64_t)N * N_RHS; i++) {
        worst = larger(worst, fabs(r[i] - b[i]));
    }
    free(r);
    return worst;
}

int main(int argc, char **argv)
{
    plait_comm_t *comm = NULL;
    plait_plan_t *factor = NULL;
    plait_plan_t *solve = NULL;
    int provided = 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm world = MPI_COMM_WORLD;
    MUST(plait_comm_mpi(PLAIT_MPI_COMM_BITS(world), &comm));
    int rank = plait_comm_rank(comm);
    int size = plait_comm_size(comm);

    const plait_potrf_problem_t to_factor = {
        .dtype = PLAIT_F64, .n = N, .block = BLOCK};
    const plait_potrs_problem_t to_solve = {
        .dtype = PLAIT_F64, .n = N, .n_rhs = N_RHS, .block = BLOCK, .is_whole = true};
    MUST(plait_potrf_plan(comm, &to_factor, &factor));
    MUST(plait_potrs_plan(comm, &to_solve, &solve));

    /* Column-major, as in LAPACK; memory behind a rank's own columns is never read. */
    int64_t n_columns = plait_dense_columns(N, BLOCK, size);
    double *a = calloc((size_t)n_columns * N + 1, sizeof(*a));
    double *b = calloc((size_t)N * N_RHS, sizeof(*b));
    double *x = calloc((size_t)N * N_RHS, sizeof(*x));
    for (int64_t at = 0; at < n_columns * N; at++) {
        a[at] = covariance(at % N, column(at / N, rank, size));
    }
    for (int64_t i = 0; i < N; i++) {
        b[i] = sin(0.05 * (double)i);
        b[N + i] = 1;
    }

    int32_t info = 0; /* the same on all ranks */
    MUST(plait_plan_execute(factor, comm, (const void *[]){a}, (void *[]){a, &info}));
    MUST(plait_plan_execute(solve, comm, (const void *[]){a, b}, (void *[]){x}));
    double worst = residual(comm, x, b);
    int is_right = info == 0 && worst < 1e-12;
    if (rank == 0) {
        (void)printf("%d ranks, %d unknowns: residual %.1e, %s\n", size, N, worst,
                     is_right ? "right" : "WRONG");
    }
    free(a);
    free(b);
    free(x);
    plait_plan_destroy(&factor);
    plait_plan_destroy(&solve);
    plait_comm_destroy(&comm);
    MPI_Finalize();
    return !is_right;
}
