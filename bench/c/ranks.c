/* FFT and redistribution of the C library on MPI ranks; the FFT beside FFTW-MPI
 * (compiled with BENCH_FFTW) in the same processes.
 *
 *   ranks op=fft|redist n=256 rounds=15 limit=60 seconds=60 out=FILE */
#include "mpi_team.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef BENCH_FFTW
#include <fftw3-mpi.h>
#endif

#ifdef BENCH_FFTW
/* n^3, MEASURE, transposed output, in the faster of its two ways: out of place or in.
 */
typedef struct {
    FFTW(complex) * in, *out;
    FFTW(plan) out_of_place, in_place, chosen;
    double plan_s, error;
} fftw_t;

static void fftw_run(void *state)
{
    fftw_t *f = state;

    if (f->chosen == f->in_place) {
        FFTW(mpi_execute_dft)(f->chosen, f->out, f->out);
    } else {
        FFTW(mpi_execute_dft)(f->chosen, f->in, f->out);
    }
}

static double fftw_best_of(team_t *team, fftw_t *f, FFTW(plan) plan)
{
    double best = HUGE_VAL;

    f->chosen = plan;
    for (int i = 0; i < 5; i++) {
        team->barrier(team);
        const double begin = bench_seconds();
        fftw_run(f);
        best = fmin(best, team->max(team, bench_seconds() - begin));
    }
    return best;
}

/* plait's result is (n, n/P, n), FFTW's (n/P, n, n). */
static double fftw_difference(const problem_t *p, const fftw_t *f)
{
    double worst = 0;
    double largest = 0;

    for (int64_t a = 0; a < p->out[0]; a++) {
        for (int64_t b = 0; b < p->out[1]; b++) {
            const real_t *ours = p->y + 2 * (a * p->out[1] + b) * p->out[2];
            const real_t *theirs =
                (const real_t *)f->out + 2 * (b * p->out[0] + a) * p->out[2];
            for (int64_t c = 0; c < 2 * p->out[2]; c++) {
                worst = fmax(worst, fabs((double)ours[c] - (double)theirs[c]));
                largest = fmax(largest, fabs((double)theirs[c]));
            }
        }
    }
    return worst / largest;
}

static void fftw_create(team_t *team, fftw_t *f, problem_t *p)
{
    const ptrdiff_t n = (ptrdiff_t)p->n;
    const unsigned flags = FFTW_MEASURE | FFTW_MPI_TRANSPOSED_OUT;
    ptrdiff_t part[4];

    FFTW(mpi_init)();
    const ptrdiff_t n_local = FFTW(mpi_local_size_3d_transposed)(
        n, n, n, MPI_COMM_WORLD, &part[0], &part[1], &part[2], &part[3]);
    bench_must(part[0] == p->in[0] && part[2] == p->out[1], "FFTW splits otherwise");
    f->in = bench_alloc((size_t)n_local * BENCH_COMPLEX_BYTES);
    f->out = bench_alloc((size_t)n_local * BENCH_COMPLEX_BYTES);
    const double begin = bench_seconds();
    f->out_of_place = FFTW(mpi_plan_dft_3d)(n, n, n, f->in, f->out, MPI_COMM_WORLD,
                                            FFTW_FORWARD, flags);
    f->plan_s = bench_seconds() - begin;
    f->in_place = FFTW(mpi_plan_dft_3d)(n, n, n, f->out, f->out, MPI_COMM_WORLD,
                                        FFTW_FORWARD, flags);
    bench_must(f->out_of_place != NULL && f->in_place != NULL, "FFTW made no plan");
    memset(f->out, 0, (size_t)n_local * BENCH_COMPLEX_BYTES);
    const double time_in =
        fftw_best_of(team, f, f->in_place); /* of zeros: they stay small */
    memcpy(f->in, p->x, (size_t)(p->in[0] * p->in[1] * p->in[2]) * BENCH_COMPLEX_BYTES);
    const double time_out = fftw_best_of(team, f, f->out_of_place);
    problem_run(p);
    f->error = team->max(team, fftw_difference(p, f));
    f->chosen = (time_in < time_out) ? f->in_place : f->out_of_place;
    memset(f->out, 0, (size_t)n_local * BENCH_COMPLEX_BYTES);
}

static void measure_beside_fftw(team_t *team, const bench_options_t *o, problem_t *p,
                                const char *facts)
{
    fftw_t f = {0};
    char more[1024];

    fftw_create(team, &f, p);
    (void)snprintf(
        more, sizeof(more),
        "%s, \"fftw\": \"%s\", \"fftw_plan_s\": %.3e, \"fftw_in_place\": %s, "
        "\"difference\": %.3e",
        facts, FFTW(version), f.plan_s, (f.chosen == f.in_place) ? "true" : "false",
        f.error);
    const bench_case_t cases[] = {{"plait", problem_run, p, false},
                                  {"fftw", fftw_run, &f, false},
                                  {"memcpy", problem_memcpy, p, false}};
    bench_rounds(team, o, o->op, more, 3, cases);
    FFTW(destroy_plan)(f.out_of_place);
    FFTW(destroy_plan)(f.in_place);
    free(f.in);
    free(f.out);
}
#endif

static void measure(team_t *team, const bench_options_t *o, plait_comm_t *comm)
{
    problem_t p;
    char facts[768];

    problem_create(&p, comm, o->op, o->n);
    problem_facts(&p, facts, sizeof(facts));
#ifdef BENCH_FFTW
    if (strcmp(o->op, "fft") == 0) {
        measure_beside_fftw(team, o, &p, facts);
        problem_destroy(&p);
        return;
    }
#endif
    const bench_case_t cases[] = {{"plait", problem_run, &p, false},
                                  {"memcpy", problem_memcpy, &p, false}};
    bench_rounds(team, o, o->op, facts, 2, cases);
    problem_destroy(&p);
}

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
