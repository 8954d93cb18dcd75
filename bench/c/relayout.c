/* An n x n matrix of doubles, split by columns or by rows, to block columns dealt out in turn (as
 * dense operations want it) and back, beside memcpy of the local data; on MPI ranks (BENCH_MPI) or
 * threads. It is column-major before (relayout), or row-major as JAX has it (turn).
 *
 *   relayout op=relayout|turn n=8192 rounds=15 limit=60 seconds=60 out=FILE */
#ifndef BENCH_MPI
#define _GNU_SOURCE
#endif
#include "plait/dense.h"
#include "plait/redist.h"

#ifdef BENCH_MPI
#include "mpi_team.h"
#else
#include "thread_team.h"
#endif

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128, N_WAYS = 2, N_CASES = 2 * N_WAYS + 1 };

/* A split matrix, there and back again. */
typedef struct {
    plait_comm_t *comm;
    plait_layout_t split, dealt;
    plait_plan_t *to_dealt, *to_split;
    double *from, *blocks, *back;
    size_t n_bytes; /* of the split matrix here */
} relayout_t;

typedef plait_status_t (*planner_t)(const plait_comm_t *comm, plait_dtype_t dtype,
                                    const plait_layout_t *from,
                                    const plait_layout_t *to, plait_plan_t **plan_p);

static void must(plait_status_t status)
{
    bench_must(status == PLAIT_OK, plait_error_text());
}

/* The array of which `axis` is split. */
static plait_layout_t split_layout(int64_t n, int size, int axis, plait_split_t split)
{
    const int64_t shape[] = {n, n};
    int over[] = {-1, -1};
    plait_layout_t layout;

    over[axis] = 0;
    must(plait_layout_pencil(2, shape, 1, &size, over, PLAIT_SPLIT_EVEN, &layout));
    if (split == PLAIT_SPLIT_CYCLIC) {
        layout.axis[axis].split = split;
        layout.axis[axis].block = BLOCK;
        layout.stored[axis] = plait_dense_columns(n, BLOCK, size);
    }
    must(plait_layout_check(&layout));
    return layout;
}

static int64_t n_stored(const plait_layout_t *layout, int rank)
{
    int64_t shape[2];

    plait_layout_stored_shape(layout, rank, shape);
    return shape[0] * shape[1];
}

/* Whether (or so that) each element is its index in the whole column-major matrix; turned: the array
 * is row-major. */
static bool visit(const plait_layout_t *l, int rank, bool is_turned, double data[],
                  bool is_filled)
{
    int64_t shape[2];
    int64_t local[2];
    bool is_right = true;

    plait_layout_stored_shape(l, rank, shape);
    for (int64_t k = 0; k < plait_layout_n_intervals(l, rank, 0); k++) {
        const plait_interval_t c = plait_layout_interval(l, rank, 0, k, &local[0]);
        const plait_interval_t r = plait_layout_interval(l, rank, 1, 0, &local[1]);
        for (int64_t i = c.lo; i < c.hi; i++) {
            double *line = data + (local[0] + i - c.lo) * shape[1] + local[1];
            for (int64_t j = r.lo; j < r.hi; j++) {
                const double value =
                    (double)(is_turned ? j * l->shape[0] + i : i * l->shape[1] + j);
                is_right = is_right && (!is_filled || line[j - r.lo] == value);
                line[j - r.lo] = value;
            }
        }
    }
    return is_right;
}

static void run_to_dealt(void *state)
{
    const relayout_t *m = state;

    must(plait_plan_execute(m->to_dealt, m->comm, (const void *[]){m->from},
                            (void *[]){m->blocks}));
}

static void run_to_split(void *state)
{
    const relayout_t *m = state;

    must(plait_plan_execute(m->to_split, m->comm, (const void *[]){m->blocks},
                            (void *[]){m->back}));
}

static void run_memcpy(void *state)
{
    const relayout_t *m = state;

    memcpy(m->back, m->from, m->n_bytes);
}

/* axis: 0 if columns are split, 1 if rows are. */
static void relayout_create(relayout_t *m, plait_comm_t *comm, int64_t n, int axis,
                            bool turns)
{
    const int size = plait_comm_size(comm);
    const int rank = plait_comm_rank(comm);

    *m = (relayout_t){
        .comm = comm,
        .split = split_layout(n, size, turns ? 1 - axis : axis, PLAIT_SPLIT_EVEN),
        .dealt = split_layout(n, size, 0, PLAIT_SPLIT_CYCLIC)};
    m->n_bytes = (size_t)n_stored(&m->split, rank) * sizeof(double);
    m->from = bench_alloc(m->n_bytes);
    m->back = bench_alloc(m->n_bytes);
    m->blocks = bench_alloc((size_t)n_stored(&m->dealt, rank) * sizeof(double));
    const planner_t plan = turns ? plait_redist_turn_plan : plait_redist_plan;
    must(plan(comm, PLAIT_F64, &m->split, &m->dealt, &m->to_dealt));
    must(plan(comm, PLAIT_F64, &m->dealt, &m->split, &m->to_split));
    (void)visit(&m->split, rank, turns, m->from, false);
    run_to_dealt(m);
    run_to_split(m);
    bench_must(visit(&m->dealt, rank, false, m->blocks, true),
               "wrong in block columns");
    bench_must(visit(&m->split, rank, turns, m->back, true), "wrong on the way back");
}

static void relayout_destroy(relayout_t *m)
{
    plait_plan_destroy(&m->to_dealt);
    plait_plan_destroy(&m->to_split);
    free(m->from);
    free(m->back);
    free(m->blocks);
}

static void measure(team_t *team, const bench_options_t *o, plait_comm_t *comm)
{
    relayout_t ways[N_WAYS];
    char facts[512];

    for (int axis = 0; axis < N_WAYS; axis++) {
        relayout_create(&ways[axis], comm, o->n, axis, strcmp(o->op, "turn") == 0);
    }
    const bench_case_t cases[N_CASES] = {
        {.name = "columns to blocks", .run = run_to_dealt, .state = &ways[0]},
        {.name = "blocks to columns", .run = run_to_split, .state = &ways[0]},
        {.name = "rows to blocks", .run = run_to_dealt, .state = &ways[1]},
        {.name = "blocks to rows", .run = run_to_split, .state = &ways[1]},
        {.name = "memcpy", .run = run_memcpy, .state = &ways[0]}};
    (void)snprintf(facts, sizeof(facts), "\"n\": %d, \"block\": %d, \"direct\": \"%s\"",
                   o->n, BLOCK, plait_comm_direct(comm));
    bench_rounds(team, o, o->op, facts, N_CASES, cases);
    team->barrier(team);
    for (int axis = 0; axis < N_WAYS; axis++) {
        relayout_destroy(&ways[axis]);
    }
}

#ifdef BENCH_MPI
int main(int argc, char **argv)
{
    const bench_options_t options = bench_options(argc, argv);
    plait_comm_t *comm = NULL;
    team_t team = mpi_team_start(&argc, &argv, &comm);

    measure(&team, &options, comm);
    plait_comm_destroy(&comm);
    MPI_Finalize();
    return 0;
}
#else
static void *run(void *rank)
{
    thread_rank_t *self = rank;

    measure(&self->team, self->options, self->comm);
    return NULL;
}

int main(int argc, char **argv)
{
    const bench_options_t options = bench_options(argc, argv);
    plait_comm_t *comms[THREAD_RANKS];

    bench_must(plait_comm_threads(THREAD_RANKS, comms) == PLAIT_OK, plait_error_text());
    thread_team_run(&options, comms, run);
    for (int r = 0; r < THREAD_RANKS; r++) {
        plait_comm_destroy(&comms[r]);
    }
    return 0;
}
#endif
