#include "problems.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int AXES[3] = {0, 1, 2};

static void must(plait_status_t status)
{
    bench_must(status == PLAIT_OK, plait_error_text());
}

static void make_layouts(plait_comm_t *comm, const int64_t shape[3],
                         plait_layout_t *from, plait_layout_t *to)
{
    const int size = plait_comm_size(comm);
    const int over_0[] = {0, -1, -1};
    const int over_1[] = {-1, 0, -1};

    must(plait_layout_pencil(3, shape, 1, &size, over_0, PLAIT_SPLIT_EVEN, from));
    must(plait_layout_pencil(3, shape, 1, &size, over_1, PLAIT_SPLIT_EVEN, to));
}

static size_t bytes_of(const int64_t shape[3])
{
    return (size_t)(shape[0] * shape[1] * shape[2]) * BENCH_COMPLEX_BYTES;
}

static void make_plan(const plait_comm_t *comm, const char *op,
                      const plait_layout_t *from, const plait_layout_t *to,
                      plait_plan_t **plan_p)
{
    const plait_fft_problem_t fft = {.dtype = BENCH_DTYPE,
                                     .from = from,
                                     .to = to,
                                     .n_axes = 3,
                                     .axes = AXES,
                                     .sign = -1,
                                     .scale = 1.0};

    if (strcmp(op, "fft") == 0) {
        must(plait_fft_plan(comm, &fft, plan_p));
    } else {
        bench_must(strcmp(op, "redist") == 0, "op is fft or redist");
        must(plait_redist_plan(comm, BENCH_DTYPE, from, to, plan_p));
    }
}

real_t problem_value(int64_t k)
{
    const uint64_t mixed = (uint64_t)(k + 1) * UINT64_C(0x9E3779B97F4A7C15);

    return (real_t)((double)((mixed ^ (mixed >> 29)) >> 40 & 0xffffff) * 0x1p-24 - 0.5);
}

void problem_create(problem_t *p, plait_comm_t *comm, const char *op, int64_t n)
{
    const int64_t shape[3] = {n, n, n};
    const int rank = plait_comm_rank(comm);
    plait_layout_t from;
    plait_layout_t to;

    *p = (problem_t){.comm = comm, .n = n};
    make_layouts(comm, shape, &from, &to);
    plait_layout_local_shape(&from, rank, p->in);
    plait_layout_local_shape(&to, rank, p->out);
    p->n_bytes =
        (bytes_of(p->in) > bytes_of(p->out)) ? bytes_of(p->in) : bytes_of(p->out);
    const double begin = bench_seconds();
    make_plan(comm, op, &from, &to, &p->plan);
    p->plan_s = bench_seconds() - begin;
    p->x = bench_alloc(p->n_bytes);
    p->y = bench_alloc(p->n_bytes);
    for (int64_t k = 0; k < 2 * p->in[0] * p->in[1] * p->in[2]; k++) {
        p->x[k] = problem_value(k);
    }
}

void problem_destroy(problem_t *p)
{
    plait_plan_destroy(&p->plan);
    free(p->x);
    free(p->y);
}

void problem_run(void *state)
{
    problem_t *p = state;

    must(
        plait_plan_execute(p->plan, p->comm, (const void *[]){p->x}, (void *[]){p->y}));
}

void problem_memcpy(void *state)
{
    problem_t *p = state;

    memcpy(p->y, p->x, p->n_bytes);
}

void problem_facts(const problem_t *p, char *text, size_t n_text)
{
    const plait_plan_cost_t cost = plait_plan_cost(p->plan);

    (void)snprintf(text, n_text,
                   "\"n\": %" PRId64 ", \"local_bytes\": %zu, \"work_bytes\": %" PRId64
                   ", \"scratch_bytes\": %" PRId64
                   ", \"plan_s\": %.3e, \"transport\": \"%s\", \"direct\": \"%s\"",
                   p->n, p->n_bytes, cost.work_bytes, cost.scratch_bytes, p->plan_s,
                   plait_comm_transport(p->comm), plait_comm_direct(p->comm));
}

double problem_plan_time(plait_comm_t *comm, const int64_t shape[3],
                         plait_plan_cost_t *cost_p, int64_t *local_bytes_p)
{
    plait_layout_t from;
    plait_layout_t to;
    plait_plan_t *plan = NULL;
    int64_t in[3];
    int64_t out[3];

    make_layouts(comm, shape, &from, &to);
    plait_layout_local_shape(&from, plait_comm_rank(comm), in);
    plait_layout_local_shape(&to, plait_comm_rank(comm), out);
    *local_bytes_p =
        (int64_t)((bytes_of(in) > bytes_of(out)) ? bytes_of(in) : bytes_of(out));
    const double begin = bench_seconds();
    make_plan(comm, "fft", &from, &to, &plan);
    const double seconds = bench_seconds() - begin;
    *cost_p = plait_plan_cost(plan);
    plait_plan_destroy(&plan);
    return seconds;
}
