/* Who is compared in a dense problem: sides that are made in several ways, of which the fastest one
 * of a short trial is measured. */
#ifndef BENCH_DENSE_SIDES_H
#define BENCH_DENSE_SIDES_H

#include "check_dense.h"
#include "plait/comm.h"

enum { DENSE_MAX_CHOICES = 8, DENSE_MAX_SIDES = 4 };

typedef struct {
    plait_comm_t *comm;
    const char *op;
    int64_t n;
} dense_problem_t;

/* What is to be chosen; what a side does not know of is 0. */
typedef struct {
    int64_t block;
    int grid[2];
    int n_threads;
} dense_choice_t;

typedef struct {
    const char *name; /* of the case */
    bool is_solo;     /* rank 0 alone makes and runs it */
    size_t n_bytes;   /* of the state */
    void (*create)(void *state, const dense_problem_t *p, const dense_choice_t *c);
    void (*destroy)(void *state);
    void (*prepare)(void *state);
    void (*run)(void *state);
    double (*residual)(team_t *team, void *state);
    int (*choices)(int n_ranks, const dense_problem_t *p, dense_choice_t choices[]);
} dense_kind_t;

extern const dense_kind_t dense_of_plait, dense_of_lapack;

/* Blocks that are worth a trial. */
int dense_blocks(const dense_problem_t *p, int64_t blocks[]);

/* Of each kind the fastest one of a trial runs once, its result is looked at, and then all are
 * measured in turns. Collective over the team. */
void dense_sides_measure(team_t *team, const bench_options_t *options,
                         const dense_problem_t *p, int n_kinds,
                         const dense_kind_t *const kinds[]);

#endif
