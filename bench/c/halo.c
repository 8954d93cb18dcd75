/* Halo exchange of the C library on MPI ranks, in place, beside nonblocking messages of MPI with
 * subarray datatypes in the same arrays: n^3 float64, split along one axis and periodic there,
 * width 2.
 *
 *   halo op=0|1|2 n=256 rounds=15 limit=60 seconds=60 out=FILE      (op: the axis) */
#include "plait/halo.h"

#include "mpi_team.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 2, N_FACES = 2 };

typedef struct {
    plait_comm_t *comm;
    plait_plan_t *plan;
    plait_layout_t cells;
    int axis;
    int64_t dims[3]; /* with ghosts */
    size_t n_bytes;
    double *x, *other; /* other: of memcpy */
    int neighbours[N_FACES];
    MPI_Datatype sent[N_FACES], received[N_FACES];
} halo_t;

/* What cell i of the padded array holds: the index of the cell that it is a copy of. */
static double halo_value(const halo_t *h, int64_t i)
{
    const int rank = plait_comm_rank(h->comm);
    int64_t at = 0;
    int64_t stride = 1;

    for (int a = 2; a >= 0; a--) {
        const int64_t n = h->cells.shape[a];
        const int64_t start = plait_layout_interval(&h->cells, rank, a, 0, NULL).lo -
                              (a == h->axis) * WIDTH;
        at += (start + i % h->dims[a] + n) % n * stride;
        i /= h->dims[a];
        stride *= n;
    }
    return (double)at;
}

static int64_t halo_size(const halo_t *h)
{
    return h->dims[0] * h->dims[1] * h->dims[2];
}

static bool is_ghost(const halo_t *h, int64_t i)
{
    for (int a = 2; a > h->axis; a--) {
        i /= h->dims[a];
    }
    const int64_t at = i % h->dims[h->axis];
    return at < WIDTH || at >= h->dims[h->axis] - WIDTH;
}

static MPI_Datatype face(const halo_t *h, int64_t start)
{
    const int dims[] = {(int)h->dims[0], (int)h->dims[1], (int)h->dims[2]};
    int sizes[] = {dims[0], dims[1], dims[2]};
    int starts[] = {0, 0, 0};
    MPI_Datatype type;

    sizes[h->axis] = WIDTH;
    starts[h->axis] = (int)start;
    MPI_Type_create_subarray(3, dims, sizes, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

static void halo_create(halo_t *h, const team_t *team, plait_comm_t *comm,
                        const bench_options_t *o)
{
    const int64_t shape[] = {o->n, o->n, o->n};
    int64_t width[] = {0, 0, 0};
    int over[] = {-1, -1, -1};

    *h = (halo_t){.comm = comm, .axis = (int)strtol(o->op, NULL, 10)};
    bench_must(h->axis >= 0 && h->axis < 3, "op is an axis");
    over[h->axis] = 0;
    width[h->axis] = WIDTH;
    const plait_halo_problem_t problem = {
        .dtype = PLAIT_F64, .cells = &h->cells, .before = width};
    bench_must(plait_layout_pencil(3, shape, 1, &team->size, over, PLAIT_SPLIT_EVEN,
                                   &h->cells) == PLAIT_OK &&
                   plait_halo_exchange_plan(comm, &problem, &h->plan) == PLAIT_OK,
               plait_error_text());
    plait_layout_local_shape(&h->cells, team->rank, h->dims);
    h->dims[h->axis] += 2 * WIDTH;
    h->n_bytes = (size_t)halo_size(h) * sizeof(double);
    h->x = bench_alloc(h->n_bytes);
    h->other = bench_alloc(h->n_bytes);
    const int64_t n = h->dims[h->axis];
    h->neighbours[0] = (team->rank + team->size - 1) % team->size;
    h->neighbours[1] = (team->rank + 1) % team->size;
    h->received[0] = face(h, 0);
    h->sent[0] = face(h, WIDTH);
    h->received[1] = face(h, n - WIDTH);
    h->sent[1] = face(h, n - 2 * WIDTH);
}

static void halo_destroy(halo_t *h)
{
    for (int i = 0; i < N_FACES; i++) {
        MPI_Type_free(&h->sent[i]);
        MPI_Type_free(&h->received[i]);
    }
    plait_plan_destroy(&h->plan);
    free(h->x);
    free(h->other);
}

static void run_plait(void *state)
{
    halo_t *h = state;

    bench_must(plait_plan_execute(h->plan, h->comm, (const void *[]){h->x},
                                  (void *[]){h->x}) == PLAIT_OK,
               plait_error_text());
}

/* The tag is the side on which a face arrives: with two ranks both come from one neighbour. */
static void run_mpi(void *state)
{
    halo_t *h = state;
    MPI_Request requests[2 * N_FACES];

    for (int i = 0; i < N_FACES; i++) {
        MPI_Irecv(h->x, 1, h->received[i], h->neighbours[i], i, MPI_COMM_WORLD,
                  &requests[i]);
    }
    for (int i = 0; i < N_FACES; i++) {
        MPI_Isend(h->x, 1, h->sent[i], h->neighbours[i], 1 - i, MPI_COMM_WORLD,
                  &requests[N_FACES + i]);
    }
    MPI_Waitall(2 * N_FACES, requests, MPI_STATUSES_IGNORE);
}

static void run_memcpy(void *state)
{
    halo_t *h = state;

    memcpy(h->other, h->x, h->n_bytes);
}

/* Fills the cells, runs one way and compares all places with what they should hold. */
static void verify(halo_t *h, void (*run)(void *state), const char *text)
{
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < halo_size(h); i++) {
        h->x[i] = is_ghost(h, i) ? -1 : halo_value(h, i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    run(h);
    for (int64_t i = 0; i < halo_size(h); i++) {
        n_wrong += h->x[i] != halo_value(h, i);
    }
    bench_must(n_wrong == 0, text);
}

int main(int argc, char **argv)
{
    bench_options_t options = bench_options(argc, argv);
    plait_comm_t *comm = NULL;
    team_t team = mpi_team_start(&argc, &argv, &comm);
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    char facts[512];
    char name[16];
    int n_text = 0;
    halo_t h;

    halo_create(&h, &team, comm, &options);
    verify(&h, run_plait, "plait's exchange is wrong");
    verify(&h, run_mpi, "MPI's exchange is wrong");
    MPI_Get_library_version(version, &n_text);
    version[strcspn(version, "\n\t,\"")] = '\0';
    (void)snprintf(facts, sizeof(facts),
                   "\"n\": %d, \"face_bytes\": %lld, \"mpi\": \"%.64s\", "
                   "\"transport\": \"%s\", \"direct\": \"%s\"",
                   options.n, (long long)(WIDTH * options.n) * options.n * 8, version,
                   plait_comm_transport(comm), plait_comm_direct(comm));
    (void)snprintf(name, sizeof(name), "axis %d", h.axis);
    const bench_case_t cases[] = {{.name = "plait", .run = run_plait, .state = &h},
                                  {.name = "mpi", .run = run_mpi, .state = &h},
                                  {.name = "memcpy", .run = run_memcpy, .state = &h}};
    bench_rounds(&team, &options, name, facts, 3, cases);
    halo_destroy(&h);
    plait_comm_destroy(&comm);
    MPI_Finalize();
    return 0;
}
