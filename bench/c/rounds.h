/* Rounds of interleaved cases, timed by a team of ranks (processes or threads) at once.
 */
#ifndef BENCH_ROUNDS_H
#define BENCH_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { BENCH_MAX_CASES = 6, BENCH_MAX_ROUNDS = 400 };

typedef struct team team_t;

/* The functions are collective over the team. */
struct team {
    int rank, size;
    void *self;
    void (*barrier)(team_t *team);
    double (*max)(team_t *team, double value);
    void (*sum)(team_t *team, int64_t n, double values[]); /* or NULL */
};

typedef struct {
    const char *name;
    void (*run)(void *state);
    void *state;
    bool is_solo;                 /* rank 0 alone runs it, the others sleep */
    void (*prepare)(void *state); /* before each run, outside of its time; or NULL */
} bench_case_t;

/* What the command line says, as key=value. */
typedef struct {
    const char *op;
    int n;
    int n_rounds; /* so many clean rounds are wanted, and so many are made at least */
    int n_limit;  /* and no more than these                                          */
    double limit_s; /* nor for longer than that */
    const char *out;
} bench_options_t;

bench_options_t bench_options(int argc, char **argv);

double bench_seconds(void);

void bench_nap(double seconds);

/* 2 MiB aligned, in huge pages where the system has them, touched. */
void *bench_alloc(size_t n_bytes);

/* Ends the program with a text unless `is_right`. */
void bench_must(bool is_right, const char *text);

/* Seconds that one of n_calls calls of a case takes, of the slowest rank. */
double bench_time(team_t *team, const bench_case_t *c, int n_calls);

/* Runs the cases in turns until enough rounds are clean, or a limit is reached. A round
 * is clean if memcpys before and after each of its cases were nearly as fast as the
 * fastest of the job. Rank 0 appends one line of JSON to options->out; `facts` are its
 * further members. */
void bench_rounds(team_t *team, const bench_options_t *options, const char *name,
                  const char *facts, int n_cases, const bench_case_t cases[]);

#endif
