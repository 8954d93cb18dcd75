/* FFTs of the C library on MPI ranks, beside FFTW-MPI (compiled with BENCH_FFTW) in the
 * same processes.
 *
 *   fft op=fft|rfft n=256 rounds=15 limit=60 seconds=60 out=FILE
 *
 * fft: complex, with transposed output (as the forward path ends) and with natural
 * output in one record; rfft: of real numbers, with transposed output. */
#include "mpi_team.h"
#include "problems.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WAYS = 2, N_TRIES = 3, N_MOST = 256 };

typedef struct {
    const char *op; /* of the group of ways */
    int n_ways;     /* ... which run on the same arrays */
    const char *ways[MAX_WAYS];
    const char *names[MAX_WAYS]; /* in cases: plait NAME, fftw NAME */
    bool is_real;
} ways_t;

static const ways_t WAYS[] = {
    {"fft", 2, {"fft", "fft_natural"}, {"transposed", "natural"}, false},
    {"rfft", 1, {"rfft"}, {"transposed"}, true}};

#ifdef BENCH_FFTW
#include <fftw3-mpi.h>

/* The arrays of all plans; what is transformed in place is `out`. Between the comparison
 * of results and the end both hold zeros, which stay small however often they are
 * transformed in place. */
typedef struct {
    void *in, *out;
    size_t n_bytes;
} fftw_arrays_t;

/* n^3, MEASURE, in the faster of its two ways: out of place or in. Beyond N_MOST, where a
 * plan takes minutes, a further layout is planned only in the way that was faster. */
typedef struct {
    const fftw_arrays_t *arrays;
    FFTW(plan) out_of_place, in_place, chosen;
    bool is_real, is_natural;
    double plan_s, difference;
} fftw_t;

typedef struct {
    fftw_arrays_t arrays;
    fftw_t ways[MAX_WAYS];
    char names[MAX_WAYS][32];
} fftw_all_t;

static void fftw_run(void *state)
{
    const fftw_t *f = state;
    void *in = (f->chosen == f->in_place) ? f->arrays->out : f->arrays->in;

    if (f->is_real) {
        FFTW(mpi_execute_dft_r2c)(f->chosen, in, f->arrays->out);
    } else {
        FFTW(mpi_execute_dft)(f->chosen, in, f->arrays->out);
    }
}

static double fftw_best_of(team_t *team, fftw_t *f, FFTW(plan) plan)
{
    double best = HUGE_VAL;

    f->chosen = plan;
    for (int i = 0; i < N_TRIES; i++) {
        team->barrier(team);
        const double begin = bench_seconds();
        fftw_run(f);
        best = fmin(best, team->max(team, bench_seconds() - begin));
    }
    return best;
}

static FFTW(plan) fftw_plan_of(const fftw_t *f, ptrdiff_t n, void *in)
{
    const unsigned flags = FFTW_MEASURE | (f->is_natural ? 0 : FFTW_MPI_TRANSPOSED_OUT);
    void *out = f->arrays->out;
    FFTW(plan)
    plan = f->is_real
               ? FFTW(mpi_plan_dft_r2c_3d)(n, n, n, in, out, MPI_COMM_WORLD, flags)
               : FFTW(mpi_plan_dft_3d)(n, n, n, in, out, MPI_COMM_WORLD, FFTW_FORWARD,
                                       flags);
    bench_must(plan != NULL, "FFTW made no plan");
    return plan;
}

/* FFTW's transposed result has its first two axes exchanged. */
static double fftw_difference(const problem_t *p, const fftw_t *f)
{
    const int64_t step_a = f->is_natural ? p->out[1] : 1;
    const int64_t step_b = f->is_natural ? 1 : p->out[0];
    double worst = 0;
    double largest = 0;

    for (int64_t a = 0; a < p->out[0]; a++) {
        for (int64_t b = 0; b < p->out[1]; b++) {
            const real_t *ours = p->y + 2 * (a * p->out[1] + b) * p->out[2];
            const real_t *theirs = (const real_t *)f->arrays->out +
                                   2 * (a * step_a + b * step_b) * p->out[2];
            for (int64_t c = 0; c < 2 * p->out[2]; c++) {
                worst = fmax(worst, fabs((double)ours[c] - (double)theirs[c]));
                largest = fmax(largest, fabs((double)theirs[c]));
            }
        }
    }
    return worst / largest;
}

/* Rows of real numbers are padded to those of the complex ones, in FFTW also out of
 * place. */
static void fftw_fill(const problem_t *p, const fftw_t *f, real_t *in)
{
    const int64_t row = f->is_real ? p->in[2] : 2 * p->in[2];
    const int64_t pitch = 2 * p->out[2];

    for (int64_t i = 0; i < p->in[0] * p->in[1]; i++) {
        memcpy(in + i * pitch, p->x + i * row, (size_t)row * sizeof(real_t));
    }
}

static void fftw_clear(const fftw_arrays_t *a)
{
    memset(a->in, 0, a->n_bytes);
    memset(a->out, 0, a->n_bytes);
}

static fftw_arrays_t fftw_arrays_create(const problem_t *p)
{
    const ptrdiff_t n = (ptrdiff_t)p->n;
    ptrdiff_t part[4];
    fftw_arrays_t a;

    FFTW(mpi_init)();
    /* as much as the largest of all ways needs */
    const ptrdiff_t n_local = FFTW(mpi_local_size_3d_transposed)(
        n, n, p->out[2], MPI_COMM_WORLD, &part[0], &part[1], &part[2], &part[3]);
    bench_must(part[0] == p->in[0] && part[2] == p->out[1], "FFTW splits otherwise");
    a.n_bytes = (size_t)n_local * BENCH_COMPLEX_BYTES;
    a.in = bench_alloc(a.n_bytes);
    a.out = bench_alloc(a.n_bytes);
    return a;
}

/* before: the same arrays' plans for another layout, or NULL. */
static void fftw_create(team_t *team, fftw_t *f, const fftw_t *before, problem_t *p)
{
    const bool is_one = p->n > N_MOST && before != NULL;
    const bool is_in_place = is_one && before->chosen == before->in_place;
    const double begin = bench_seconds();

    if (!is_in_place) {
        f->out_of_place = fftw_plan_of(f, (ptrdiff_t)p->n, f->arrays->in);
    } else {
        f->in_place = fftw_plan_of(f, (ptrdiff_t)p->n, f->arrays->out);
    }
    f->plan_s = bench_seconds() - begin;
    if (!is_one) {
        f->in_place = fftw_plan_of(f, (ptrdiff_t)p->n, f->arrays->out);
    }
    fftw_fill(p, f, is_in_place ? f->arrays->out : f->arrays->in);
    f->chosen = is_in_place ? f->in_place : f->out_of_place;
    fftw_run(f);
    problem_run(p);
    f->difference = team->max(team, fftw_difference(p, f));
    fftw_clear(f->arrays);
    if (!is_one) {
        const double time_in = fftw_best_of(team, f, f->in_place);
        const double time_out = fftw_best_of(team, f, f->out_of_place);
        f->chosen = (time_in < time_out) ? f->in_place : f->out_of_place;
    }
}

static void fftw_facts(const fftw_t *f, const char *name, char *text, size_t n_text)
{
    const size_t used = strlen(text);

    (void)snprintf(text + used, n_text - used,
                   ", \"%s\": {\"plan_s\": %.3e, \"is_in_place\": %s, "
                   "\"difference\": %.3e}",
                   name, f->plan_s, (f->chosen == f->in_place) ? "true" : "false",
                   f->difference);
}
/* The ways' plans of FFTW, and cases and facts of them; returns the number of cases. */
static int fftw_all_create(fftw_all_t *all, team_t *team, const ways_t *w,
                           problem_t p[], bench_case_t cases[], char *facts,
                           size_t n_facts)
{
    const size_t used = strlen(facts);

    (void)snprintf(facts + used, n_facts - used, ", \"fftw\": \"%s\"", FFTW(version));
    all->arrays = fftw_arrays_create(&p[0]);
    for (int i = 0; i < w->n_ways; i++) {
        fftw_t *f = &all->ways[i];

        *f = (fftw_t){
            .arrays = &all->arrays, .is_real = w->is_real, .is_natural = i > 0};
        fftw_create(team, f, (i > 0) ? &all->ways[i - 1] : NULL, &p[i]);
        fftw_facts(f, w->names[i], facts, n_facts);
        (void)snprintf(all->names[i], sizeof(all->names[i]), "fftw %s", w->names[i]);
        cases[i] = (bench_case_t){.name = all->names[i], .run = fftw_run, .state = f};
    }
    return w->n_ways;
}

static void fftw_all_destroy(fftw_all_t *all, const ways_t *w)
{
    for (int i = 0; i < w->n_ways; i++) {
        FFTW(destroy_plan)(all->ways[i].out_of_place);
        FFTW(destroy_plan)(all->ways[i].in_place);
    }
    free(all->arrays.in);
    free(all->arrays.out);
}
#endif

static const ways_t *ways_of(const char *op)
{
    const ways_t *found = NULL;

    for (size_t i = 0; i < sizeof(WAYS) / sizeof(WAYS[0]); i++) {
        found = (strcmp(WAYS[i].op, op) == 0) ? &WAYS[i] : found;
    }
    bench_must(found != NULL, "op is fft or rfft");
    return found;
}

static void measure(team_t *team, const bench_options_t *o, plait_comm_t *comm)
{
    const ways_t *w = ways_of(o->op);
    problem_t p[MAX_WAYS];
    bench_case_t cases[BENCH_MAX_CASES];
    char names[MAX_WAYS][32];
    char facts[1024];
    int n_cases = 0;

    problem_create(&p[0], comm, w->ways[0], o->n);
    problem_facts(&p[0], facts, sizeof(facts));
    for (int i = 0; i < w->n_ways; i++) {
        if (i > 0) {
            problem_create_beside(&p[i], &p[0], w->ways[i]);
        }
        (void)snprintf(names[i], sizeof(names[i]), "plait %s", w->names[i]);
        cases[n_cases++] =
            (bench_case_t){.name = names[i], .run = problem_run, .state = &p[i]};
    }
#ifdef BENCH_FFTW
    fftw_all_t fftw;
    n_cases +=
        fftw_all_create(&fftw, team, w, p, cases + n_cases, facts, sizeof(facts));
#endif
    cases[n_cases++] =
        (bench_case_t){.name = "memcpy", .run = problem_memcpy, .state = &p[0]};
    bench_rounds(team, o, o->op, facts, n_cases, cases);
#ifdef BENCH_FFTW
    fftw_all_destroy(&fftw, w);
#endif
    for (int i = w->n_ways - 1; i >= 0; i--) {
        problem_destroy(&p[i]);
    }
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
