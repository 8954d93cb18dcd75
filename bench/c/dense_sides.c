#include "dense_sides.h"

#include "dense_lapack.h"
#include "dense_plait.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_TRIES = 2, N_SMALL = 1500, N_FACTS = 4096 };

int dense_blocks(const dense_problem_t *p, int64_t blocks[])
{
    const int64_t first = (strcmp(p->op, "syevd") == 0) ? 32 : 64;

    for (int i = 0; i < 3; i++) {
        blocks[i] = first << i;
    }
    return 3;
}

/* ---- plait ----------------------------------------------------------------------------------- */

static void of_plait_create(void *state, const dense_problem_t *p,
                            const dense_choice_t *c)
{
    dense_plait_create(state, p->comm, p->op, p->n, c->block);
}

static void of_plait_destroy(void *state)
{
    dense_plait_destroy(state);
}

static double of_plait_residual(team_t *team, void *state)
{
    return dense_plait_residual(team, state);
}

static int of_plait_choices(int n_ranks, const dense_problem_t *p,
                            dense_choice_t choices[])
{
    int64_t blocks[DENSE_MAX_CHOICES];
    const int n_blocks = dense_blocks(p, blocks);

    for (int i = 0; i < n_blocks; i++) {
        choices[i] = (dense_choice_t){.block = blocks[i], .grid = {1, n_ranks}};
    }
    return n_blocks;
}

const dense_kind_t dense_of_plait = {.name = "plait",
                                     .n_bytes = sizeof(dense_plait_t),
                                     .create = of_plait_create,
                                     .destroy = of_plait_destroy,
                                     .prepare = dense_plait_prepare,
                                     .run = dense_plait_run,
                                     .residual = of_plait_residual,
                                     .choices = of_plait_choices};

/* ---- LAPACK ---------------------------------------------------------------------------------- */

static void of_lapack_create(void *state, const dense_problem_t *p,
                             const dense_choice_t *c)
{
    dense_lapack_t *d = state;

    dense_lapack_create(d, p->op, p->n);
    d->n_threads = c->n_threads;
}

static void of_lapack_destroy(void *state)
{
    dense_lapack_destroy(state);
}

static double of_lapack_residual(team_t *team, void *state)
{
    (void)team;
    return dense_lapack_residual(state);
}

/* As many threads as there are ranks; of small matrices one may be faster. */
static int of_lapack_choices(int n_ranks, const dense_problem_t *p,
                             dense_choice_t choices[])
{
    choices[0] = (dense_choice_t){.n_threads = n_ranks};
    choices[1] = (dense_choice_t){.n_threads = 1};
    return (p->n < N_SMALL) ? 2 : 1;
}

const dense_kind_t dense_of_lapack = {.name = "lapack",
                                      .is_solo = true,
                                      .n_bytes = sizeof(dense_lapack_t),
                                      .create = of_lapack_create,
                                      .destroy = of_lapack_destroy,
                                      .prepare = dense_lapack_prepare,
                                      .run = dense_lapack_run,
                                      .residual = of_lapack_residual,
                                      .choices = of_lapack_choices};

/* ---- Sides ----------------------------------------------------------------------------------- */

/* One of a kind, as it was chosen. */
typedef struct {
    const dense_kind_t *kind;
    dense_choice_t choice;
    void *state;
    double residual;
} side_t;

static void make(side_t *s, team_t *team, const dense_problem_t *p,
                 const dense_choice_t *choice)
{
    s->choice = *choice;
    if (!s->kind->is_solo || team->rank == 0) {
        s->kind->create(s->state, p, choice);
    }
}

static void unmake(const side_t *s, const team_t *team)
{
    if (!s->kind->is_solo || team->rank == 0) {
        s->kind->destroy(s->state);
    }
}

static bench_case_t case_of(const side_t *s)
{
    return (bench_case_t){.name = s->kind->name,
                          .run = s->kind->run,
                          .state = s->state,
                          .is_solo = s->kind->is_solo,
                          .prepare = s->kind->prepare};
}

static double best_time(side_t *s, team_t *team)
{
    const bench_case_t c = case_of(s);
    double best = HUGE_VAL;

    for (int i = 0; i < N_TRIES; i++) {
        best = fmin(best, bench_time(team, &c, 1));
    }
    return best;
}

/* All ranks see the same times. */
static dense_choice_t choose(side_t *s, team_t *team, const dense_problem_t *p)
{
    dense_choice_t choices[DENSE_MAX_CHOICES];
    const int n_choices = s->kind->choices(team->size, p, choices);
    double best = HUGE_VAL;
    int fastest = 0;

    for (int i = 0; n_choices > 1 && i < n_choices; i++) {
        make(s, team, p, &choices[i]);
        const double seconds = best_time(s, team);
        unmake(s, team);
        fastest = (seconds < best) ? i : fastest;
        best = fmin(best, seconds);
    }
    return choices[fastest];
}

/* Tries, makes the fastest one, runs it. */
static void side_create(side_t *s, team_t *team, const dense_kind_t *kind,
                        const dense_problem_t *p)
{
    const bool runs = !kind->is_solo || team->rank == 0;

    *s = (side_t){.kind = kind, .state = calloc(1, kind->n_bytes)};
    bench_must(s->state != NULL, "out of memory");
    const dense_choice_t choice = choose(s, team, p);
    make(s, team, p, &choice);
    if (runs) {
        kind->prepare(s->state);
        kind->run(s->state);
    }
    const double residual = runs ? kind->residual(team, s->state) : 0;
    s->residual = team->max(team, isfinite(residual) ? residual : HUGE_VAL);
}

static void side_destroy(side_t *s, team_t *team)
{
    unmake(s, team);
    free(s->state);
}

/* The library of BLAS, the size and the way to peers' memory, as members of a JSON object. */
static void problem_facts(const dense_problem_t *p, char *text, size_t n_text)
{
    dense_blas_facts(text, n_text);
    const size_t used = strlen(text);
    (void)snprintf(text + used, n_text - used,
                   ", \"n\": %" PRId64 ", \"transport\": \"%s\", \"direct\": \"%s\"",
                   p->n, plait_comm_transport(p->comm), plait_comm_direct(p->comm));
}

/* Appends the choice and the residual as a member. JSON has no infinity. */
static void side_facts(const side_t *s, char *text, size_t n_text)
{
    const size_t used = strlen(text);

    (void)snprintf(text + used, n_text - used,
                   ", \"%s\": {\"block\": %" PRId64
                   ", \"grid\": \"%dx%d\", \"n_threads\": %d, \"residual\": %.3e}",
                   s->kind->name, s->choice.block, s->choice.grid[0], s->choice.grid[1],
                   s->choice.n_threads, fmin(s->residual, 1e300));
}

void dense_sides_measure(team_t *team, const bench_options_t *o,
                         const dense_problem_t *p, int n_kinds,
                         const dense_kind_t *const kinds[])
{
    side_t sides[DENSE_MAX_SIDES];
    bench_case_t cases[DENSE_MAX_SIDES];
    char facts[N_FACTS];
    char name[64];

    for (int i = 0; i < n_kinds; i++) {
        side_create(&sides[i], team, kinds[i], p);
        cases[i] = case_of(&sides[i]);
    }
    problem_facts(p, facts, sizeof(facts));
    for (int i = 0; i < n_kinds; i++) {
        side_facts(&sides[i], facts, sizeof(facts));
    }
    (void)snprintf(name, sizeof(name), "%s %d", o->op, o->n);
    bench_rounds(team, o, name, facts, n_kinds, cases);
    team->barrier(team);
    for (int i = 0; i < n_kinds; i++) {
        side_destroy(&sides[i], team);
    }
}
