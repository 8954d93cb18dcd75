/* FFT, redistribution and planning of the C library by threads of one process, without
 * MPI; the FFT beside FFTW's own threads (compiled with BENCH_FFTW).
 *
 *   threads op=fft|redist|redist_02|plan n=256 rounds=15 limit=60 seconds=60 out=FILE */
#define _GNU_SOURCE
#include "problems.h"
#include "thread_team.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef BENCH_FFTW
#include <fftw3.h>
#endif

#ifdef BENCH_FFTW
typedef struct {
    FFTW(complex) * in, *out;
    FFTW(plan) plan;
    double plan_s;
} fftw_t;

static void fftw_run(void *state)
{
    fftw_t *f = state;

    FFTW(execute_dft)(f->plan, f->in, f->out);
}

static void fftw_create(fftw_t *f, int n)
{
    const size_t n_bytes = (size_t)n * (size_t)n * (size_t)n * BENCH_COMPLEX_BYTES;

    bench_must(FFTW(init_threads)() != 0, "FFTW's threads");
    FFTW(plan_with_nthreads)(THREAD_RANKS);
    f->in = bench_alloc(n_bytes);
    f->out = bench_alloc(n_bytes);
    const double begin = bench_seconds();
    f->plan = FFTW(plan_dft_3d)(n, n, n, f->in, f->out, FFTW_FORWARD, FFTW_MEASURE);
    f->plan_s = bench_seconds() - begin;
    bench_must(f->plan != NULL, "FFTW made no plan");
}

/* plait's result is (n, n/P, n): a part of FFTW's. */
static double fftw_difference(const thread_rank_t *self, const problem_t *p,
                              const fftw_t *f)
{
    const int64_t start = self->team.rank * p->out[1];
    double worst = 0;
    double largest = 0;

    for (int64_t a = 0; a < p->out[0]; a++) {
        const real_t *ours = p->y + 2 * a * p->out[1] * p->out[2];
        const real_t *theirs =
            (const real_t *)f->out + 2 * (a * p->n + start) * p->out[2];
        for (int64_t i = 0; i < 2 * p->out[1] * p->out[2]; i++) {
            worst = fmax(worst, fabs((double)ours[i] - (double)theirs[i]));
            largest = fmax(largest, fabs((double)theirs[i]));
        }
    }
    return worst / largest;
}

/* Before anything is timed: each rank compares its part. */
static double fftw_compare(thread_rank_t *self, problem_t *p, fftw_t *f)
{
    bench_must(p->n % THREAD_RANKS == 0, "n is a multiple of the ranks");
    if (self->team.rank == 0) {
        /* the ranks' operands, one after the other */
        for (int64_t k = 0; k < THREAD_RANKS * p->n_real; k++) {
            ((real_t *)f->in)[k] = problem_value(k % p->n_real);
        }
        fftw_run(f);
    }
    problem_run(p);
    thread_team_barrier(&self->team);
    return thread_team_max(&self->team, fftw_difference(self, p, f));
}

static void measure_beside_fftw(thread_rank_t *self, problem_t *p, const char *facts)
{
    static fftw_t f; /* rank 0 makes and runs it */
    char more[1024];

    if (self->team.rank == 0) {
        fftw_create(&f, self->options->n);
    }
    thread_team_barrier(&self->team);
    const double difference = fftw_compare(self, p, &f);
    (void)snprintf(more, sizeof(more),
                   "%s, \"fftw\": \"%s\", \"fftw_plan_s\": %.3e, \"difference\": %.3e",
                   facts, FFTW(version), f.plan_s, difference);
    const bench_case_t cases[] = {
        {.name = "plait", .run = problem_run, .state = p},
        {.name = "fftw", .run = fftw_run, .state = &f, .is_solo = true},
        {.name = "memcpy", .run = problem_memcpy, .state = p}};
    bench_rounds(&self->team, self->options, self->options->op, more, 3, cases);
    if (self->team.rank == 0) {
        FFTW(destroy_plan)(f.plan);
        free(f.in);
        free(f.out);
    }
}
#endif

static void *measure(void *rank)
{
    thread_rank_t *self = rank;
    problem_t p;
    char facts[768];

    problem_create(&p, self->comm, self->options->op, self->options->n);
    problem_facts(&p, facts, sizeof(facts));
#ifdef BENCH_FFTW
    if (strcmp(self->options->op, "fft") == 0) {
        measure_beside_fftw(self, &p, facts);
        thread_team_barrier(&self->team);
        problem_destroy(&p);
        return NULL;
    }
#endif
    const bench_case_t cases[] = {
        {.name = "plait", .run = problem_run, .state = &p},
        {.name = "memcpy", .run = problem_memcpy, .state = &p}};
    bench_rounds(&self->team, self->options, self->options->op, facts, 2, cases);
    thread_team_barrier(&self->team);
    problem_destroy(&p);
    return NULL;
}

/* The first plan of a shape in this process, and the following ones, as a line. */
static void plan_one(const bench_options_t *o, plait_comm_t *comm, const char *op,
                     const int64_t shape[3], FILE *file)
{
    plait_plan_cost_t cost = {0};
    int64_t local_bytes = 0;

    (void)fprintf(file,
                  "{\"name\": \"%s\", \"shape\": \"%" PRId64 "x%" PRId64 "x%" PRId64
                  "\", \"plan_s\": [",
                  op, shape[0], shape[1], shape[2]);
    for (int k = 0; k < o->n_rounds; k++) {
        (void)fprintf(file, "%s%.6e", (k == 0) ? "" : ", ",
                      problem_plan_time(comm, op, shape, &cost, &local_bytes));
    }
    (void)fprintf(file,
                  "], \"facts\": {\"work_bytes\": %" PRId64
                  ", \"scratch_bytes\": %" PRId64 ", \"local_bytes\": %" PRId64 "}}\n",
                  cost.work_bytes, cost.scratch_bytes, local_bytes);
}

static void plan_all(const bench_options_t *o, plait_comm_t *comm)
{
    static const char *const ops[] = {"fft", "fft_natural", "rfft"};
    static const int64_t shapes[][3] = {
        {1024, 1024, 1024}, {1021, 1019, 1013}, {1000, 1000, 1000}, {768, 768, 768},
        {512, 512, 512},    {256, 256, 256},    {128, 128, 128},    {64, 64, 64}};
    FILE *file = (o->out == NULL) ? stdout : fopen(o->out, "a");

    bench_must(file != NULL, "cannot write the file of out=");
    for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            plan_one(o, comm, ops[k], shapes[i], file);
        }
    }
    if (file != stdout) {
        (void)fclose(file);
    }
}

int main(int argc, char **argv)
{
    const bench_options_t options = bench_options(argc, argv);
    plait_comm_t *comms[THREAD_RANKS];

    bench_must(plait_comm_threads(THREAD_RANKS, comms) == PLAIT_OK, plait_error_text());
    if (strcmp(options.op, "plan") == 0) {
        plan_all(&options, comms[0]);
    } else {
        thread_team_run(&options, comms, measure);
    }
    for (int r = 0; r < THREAD_RANKS; r++) {
        plait_comm_destroy(&comms[r]);
    }
    return 0;
}
