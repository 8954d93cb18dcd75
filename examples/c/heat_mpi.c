/* Heat that spreads on a periodic plane, with plain MPI: the ghost rows of each rank come from its
 * neighbours while its inner rows are computed.
 *
 *   mpicc heat_mpi.c $(pkg-config --cflags --libs plait) -lm -o heat_mpi
 *   mpiexec -n 2 ./heat_mpi
 */
#include <plait/coll.h>
#include <plait/halo.h>

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

enum { N = 300, N_STEPS = 200 };
static const double PI = 3.14159265358979323846,
                    STEP = 0.2; /* of time, in squares of a cell */

/* A rank's rows with one ghost row on each side; columns are whole on every rank. */
typedef struct {
    int64_t first, n_rows;
    double *old, *new;
} part_t;

/* The larger number; unlike fmax it keeps NaN. */
static double larger(double a, double b)
{
    return (a >= b || isnan(a)) ? a : b;
}

static double *row(double *u, int64_t i)
{
    return u + (i + 1) * N; /* row -1 is a ghost */
}

static void update(const part_t *p, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        const double *above = row(p->old, i - 1), *here = row(p->old, i),
                     *below = row(p->old, i + 1);
        for (int j = 0; j < N; j++) {
            const double around =
                above[j] + below[j] + here[(j + 1) % N] + here[(j + N - 1) % N];
            row(p->new, i)[j] = here[j] + STEP * (around - 4 * here[j]);
        }
    }
}

/* The exchange works in place and writes only ghosts, so the rows themselves may be read meanwhile. */
static void advance(part_t *p, const plait_plan_t *exchange, plait_comm_t *comm)
{
    plait_request_t request;
    double *swapped = p->old;

    MUST(plait_plan_start(exchange, comm, (const void *[]){p->old}, (void *[]){p->old},
                          &request));
    update(p, 1, p->n_rows - 1);
    MUST(plait_request_wait(&request));
    update(p, 0, (p->n_rows > 0) ? 1 : 0);
    update(p, (p->n_rows > 1) ? p->n_rows - 1 : p->n_rows, p->n_rows);
    p->old = p->new;
    p->new = swapped;
}

/* A wave keeps its form, and its loss in each step is known. */
static double wave(int64_t i, int64_t j)
{
    return cos(2 * PI * (double)(3 * i + 2 * j) / N);
}

static double error_of(const part_t *p)
{
    const double loss =
        4 - 2 * cos(2 * PI * 3 / (double)N) - 2 * cos(2 * PI * 2 / (double)N);
    const double left = pow(1 - STEP * loss, N_STEPS);
    double error = 0;

    for (int64_t i = 0; i < p->n_rows; i++) {
        for (int64_t j = 0; j < N; j++) {
            error =
                larger(error, fabs(row(p->old, i)[j] - left * wave(p->first + i, j)));
        }
    }
    return error;
}

int main(int argc, char **argv)
{
    const int64_t shape[] = {N, N}, ghosts[] = {1, 0};
    const int along_rows[] = {0, -1};
    MPI_Comm world = MPI_COMM_WORLD;
    int provided = 0, size = 0;
    plait_comm_t *comm = NULL;
    plait_plan_t *exchange = NULL;
    plait_layout_t cells;
    int64_t local[2];
    double error = 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_size(world, &size);
    MUST(plait_comm_mpi(PLAIT_MPI_COMM_BITS(world), &comm));
    MUST(plait_layout_pencil(2, shape, 1, &size, along_rows, PLAIT_SPLIT_EVEN, &cells));
    const plait_halo_problem_t problem = {
        .dtype = PLAIT_F64, .cells = &cells, .before = ghosts};
    MUST(plait_halo_exchange_plan(comm, &problem, &exchange));

    const int rank = plait_comm_rank(comm);
    const size_t room = (size_t)(N / size + 3) * N;
    plait_layout_local_shape(&cells, rank, local);
    part_t p = {.first = plait_layout_interval(&cells, rank, 0, 0, NULL).lo,
                .n_rows = local[0],
                .old = calloc(room, sizeof(double)),
                .new = calloc(room, sizeof(double))};
    for (int64_t i = 0; i < p.n_rows * N; i++) {
        row(p.old, 0)[i] = wave(p.first + i / N, i % N);
    }
    for (int step = 0; step < N_STEPS; step++) {
        advance(&p, exchange, comm);
    }
    error = error_of(&p);
    MUST(plait_allreduce(comm, PLAIT_MAX, PLAIT_F64, 1, &error, &error));
    if (rank == 0) {
        (void)printf("%d ranks, %d steps of %d x %d: largest error %.1e\n", size,
                     N_STEPS, N, N, error);
    }
    free(p.old);
    free(p.new);
    plait_plan_destroy(&exchange);
    plait_comm_destroy(&comm);
    MPI_Finalize();
    return !(error < 1e-12);
}
