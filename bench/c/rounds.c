#ifndef _GNU_SOURCE /* with plait's own objects it is defined */
#define _GNU_SOURCE
#endif
#include "rounds.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Beyond the second-level cache; short beside what is measured. */
enum { CANARY_BYTES = 16 << 20 };
static const double CLEAN = 1.3; /* times the fastest canary; as in bench/_rounds.py */
static const double MIN_S = 0.004;   /* shorter cases are called several times */
static const double SETTLE_S = 0.05; /* idle threads of OpenBLAS spin for 27 ms */

double bench_seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void bench_nap(double seconds)
{
    const struct timespec nap = {(time_t)seconds,
                                 (long)(1e9 * (seconds - (double)(time_t)seconds))};

    (void)nanosleep(&nap, NULL);
}

void bench_must(bool is_right, const char *text)
{
    if (!is_right) {
        (void)fprintf(stderr, "bench: %s\n", text);
        exit(1);
    }
}

void *bench_alloc(size_t n_bytes)
{
    const size_t page = (size_t)2 << 20;
    const size_t rounded = (n_bytes / page + 1) * page;
    void *data = aligned_alloc(page, rounded);

    bench_must(data != NULL, "out of memory");
    (void)madvise(data, rounded, MADV_HUGEPAGE);
    memset(data, 0, rounded);
    return data;
}

bench_options_t bench_options(int argc, char **argv)
{
    bench_options_t o = {.op = "fft",
                         .n = 64,
                         .n_rounds = 15,
                         .n_limit = 60,
                         .limit_s = 60,
                         .out = NULL};

    for (int i = 1; i < argc; i++) {
        const char *value = strchr(argv[i], '=');

        bench_must(value != NULL, "arguments are op= n= rounds= limit= seconds= out=");
        value++;
        switch (argv[i][0]) {
        case 'o':
            *((argv[i][1] == 'p') ? &o.op : &o.out) = value;
            break;
        case 'n':
            o.n = (int)strtol(value, NULL, 10);
            break;
        case 'r':
            o.n_rounds = (int)strtol(value, NULL, 10);
            break;
        case 'l':
            o.n_limit = (int)strtol(value, NULL, 10);
            break;
        case 's':
            o.limit_s = strtod(value, NULL);
            break;
        default:
            bench_must(false, argv[i]);
        }
    }
    bench_must(o.n_rounds <= BENCH_MAX_ROUNDS && o.n_limit <= BENCH_MAX_ROUNDS,
               "too many rounds");
    return o;
}

typedef struct {
    int n;
    double canary[BENCH_MAX_ROUNDS];
    double time[BENCH_MAX_CASES][BENCH_MAX_ROUNDS];
    char *from, *to;
} log_t;

static double canary(team_t *team, log_t *log)
{
    team->barrier(team);
    const double begin = bench_seconds();
    memcpy(log->to, log->from, CANARY_BYTES);
    return team->max(team, bench_seconds() - begin);
}

/* Seconds of n_calls calls on this rank, each prepared. */
static double prepared(team_t *team, const bench_case_t *c, int n_calls)
{
    double seconds = 0;

    for (int i = 0; i < n_calls; i++) {
        c->prepare(c->state);
        if (!c->is_solo || i == 0) {
            team->barrier(team);
        }
        const double begin = bench_seconds();
        c->run(c->state);
        seconds += bench_seconds() - begin;
    }
    return seconds;
}

static double repeated(team_t *team, const bench_case_t *c, int n_calls)
{
    team->barrier(team);
    const double begin = bench_seconds();
    for (int i = 0; i < n_calls; i++) {
        c->run(c->state);
    }
    return bench_seconds() - begin;
}

double bench_time(team_t *team, const bench_case_t *c, int n_calls)
{
    const bool runs = !c->is_solo || team->rank == 0;
    double mine = 0;

    if (!runs) {
        team->barrier(team);
    } else if (c->prepare != NULL) {
        mine = prepared(team, c, n_calls);
    } else {
        mine = repeated(team, c, n_calls);
    }
    const double slowest = team->max(team, mine) / n_calls;
    if (c->is_solo) {
        bench_nap(SETTLE_S);
    }
    return slowest;
}

static int n_clean(const log_t *log)
{
    double best = log->canary[0];
    int n = 0;

    for (int i = 0; i < log->n; i++) {
        best = (log->canary[i] < best) ? log->canary[i] : best;
    }
    for (int i = 0; i < log->n; i++) {
        n += log->canary[i] <= CLEAN * best;
    }
    return n;
}

/* Every second round in the opposite order. */
static void one_round(team_t *team, log_t *log, int n_cases, const bench_case_t cases[],
                      const int n_calls[])
{
    double worst = canary(team, log);

    for (int k = 0; k < n_cases; k++) {
        const int i = (log->n % 2 == 0) ? k : n_cases - 1 - k;

        log->time[i][log->n] = bench_time(team, &cases[i], n_calls[i]);
        const double now = canary(team, log);
        worst = (now > worst) ? now : worst;
    }
    log->canary[log->n++] = worst;
}

static void write_array(FILE *file, const char *name, int n, const double values[])
{
    (void)fprintf(file, "\"%s\": [", name);
    for (int i = 0; i < n; i++) {
        (void)fprintf(file, "%s%.6e", (i == 0) ? "" : ", ", values[i]);
    }
    (void)fputc(']', file);
}

static void write_log(const bench_options_t *options, const log_t *log,
                      const char *name, const char *facts, int n_cases,
                      const bench_case_t cases[])
{
    FILE *file = (options->out == NULL) ? stdout : fopen(options->out, "a");

    bench_must(file != NULL, "cannot write the file of out=");
    (void)fprintf(file, "{\"name\": \"%s\", \"facts\": {%s}, ", name, facts);
    write_array(file, "canary", log->n, log->canary);
    (void)fputs(", \"cases\": {", file);
    for (int i = 0; i < n_cases; i++) {
        (void)fputs((i == 0) ? "" : ", ", file);
        write_array(file, cases[i].name, log->n, log->time[i]);
    }
    (void)fputs("}}\n", file);
    if (file != stdout) {
        (void)fclose(file);
    }
}

void bench_rounds(team_t *team, const bench_options_t *options, const char *name,
                  const char *facts, int n_cases, const bench_case_t cases[])
{
    log_t *log = calloc(1, sizeof(*log));
    int n_calls[BENCH_MAX_CASES] = {0};

    bench_must(log != NULL && n_cases <= BENCH_MAX_CASES, "rounds");
    log->from = bench_alloc(CANARY_BYTES);
    log->to = bench_alloc(CANARY_BYTES);
    for (int i = 0; i < n_cases; i++) {
        (void)bench_time(team, &cases[i], 1); /* the first call warms up */
        const double once = bench_time(team, &cases[i], 1);
        n_calls[i] = (once >= MIN_S) ? 1 : (int)(MIN_S / once) + 1;
    }
    const double begin = bench_seconds();
    while (log->n < options->n_rounds ||
           (n_clean(log) < options->n_rounds && log->n < options->n_limit &&
            team->max(team, bench_seconds() - begin) < options->limit_s)) {
        one_round(team, log, n_cases, cases, n_calls);
    }
    if (team->rank == 0) {
        write_log(options, log, name, facts, n_cases, cases);
    }
    free(log->from);
    free(log->to);
    free(log);
}
