/* Dense operations of the C library by threads of one process, without MPI, beside LAPACK's own
 * threads: all by the same BLAS.
 *
 *   dense_threads op=potrf|potri|getrf|geqrf|syevd n=4096 rounds=15 limit=60 seconds=60 out=FILE */
#define _GNU_SOURCE
#include "dense_lapack.h"
#include "dense_plait.h"
#include "dense_sides.h"
#include "thread_team.h"

enum { N_SIDES = 2 };

static void *measure(void *rank)
{
    static const dense_kind_t *const kinds[N_SIDES] = {&dense_of_plait,
                                                       &dense_of_lapack};
    thread_rank_t *self = rank;
    const dense_problem_t p = {
        .comm = self->comm, .op = self->options->op, .n = self->options->n};

    dense_sides_measure(&self->team, self->options, &p, N_SIDES, kinds);
    return NULL;
}

int main(int argc, char **argv)
{
    const bench_options_t options = bench_options(argc, argv);
    plait_comm_t *comms[THREAD_RANKS];

    openblas_set_num_threads(1);
    dense_blas_choose();
    bench_must(plait_comm_threads(THREAD_RANKS, comms) == PLAIT_OK, plait_error_text());
    thread_team_run(&options, comms, measure);
    for (int r = 0; r < THREAD_RANKS; r++) {
        plait_comm_destroy(&comms[r]);
    }
    return 0;
}
