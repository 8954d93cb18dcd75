/* Who is compared in a dense problem: sides that are made in several ways, of which the fastest one
 * of a short trial is measured. */
#ifndef BENCH_DENSE_SIDES_H
#define BENCH_DENSE_SIDES_H

#include "check_dense.h"
#include "plait/comm.h"

enum { DENSE_MAX_CHOICES = 8 };

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

/* One of a kind, as it was chosen. */
typedef struct {
    const dense_kind_t *kind;
    dense_choice_t choice;
    void *state;
    double residual;
} dense_side_t;

extern const dense_kind_t dense_of_plait, dense_of_lapack;

/* Blocks that are worth a trial. */
int dense_blocks(const dense_problem_t *p, int64_t blocks[]);

/* Tries, makes the fastest one, runs it and looks at its result. Collective over the team. */
void dense_side_create(dense_side_t *s, team_t *team, const dense_kind_t *kind,
                       const dense_problem_t *p);
void dense_side_destroy(dense_side_t *s, team_t *team);

bench_case_t dense_side_case(const dense_side_t *s);

/* The library of BLAS, the size and the way to peers' memory, as members of a JSON object. */
void dense_problem_facts(const dense_problem_t *p, char *text, size_t n_text);

/* Appends the choice and the residual, as a member of a JSON object with the name of the side. */
void dense_side_facts(const dense_side_t *s, char *text, size_t n_text);

#endif
