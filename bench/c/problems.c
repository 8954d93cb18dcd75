#include "problems.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int AXES[3] = {0, 1, 2};

typedef struct {
    const char *name;
    bool is_fft;
    plait_fft_kind_t kind;
    int to_axis; /* split after */
} op_t;

static const op_t OPS[] = {{"fft", true, PLAIT_FFT_COMPLEX, 1},
                           {"fft_natural", true, PLAIT_FFT_COMPLEX, 0},
                           {"rfft", true, PLAIT_FFT_REAL_TO_COMPLEX, 1},
                           {"redist", false, PLAIT_FFT_COMPLEX, 1},
                           {"redist_02", false, PLAIT_FFT_COMPLEX, 2}};

/* An operation on an array of one shape. */
typedef struct {
    const op_t *op;
    plait_layout_t from, to;
    int64_t in[3], out[3];
    int64_t n_real;
    size_t n_bytes;
} setting_t;

static void must(plait_status_t status)
{
    bench_must(status == PLAIT_OK, plait_error_text());
}

static const op_t *op_of(const char *name)
{
    const op_t *found = NULL;

    for (size_t i = 0; i < sizeof(OPS) / sizeof(OPS[0]); i++) {
        found = (strcmp(OPS[i].name, name) == 0) ? &OPS[i] : found;
    }
    bench_must(found != NULL, "op is fft, fft_natural, rfft, redist or redist_02");
    return found;
}

static void make_layout(int size, const int64_t shape[3], int axis, plait_layout_t *l)
{
    int over[] = {-1, -1, -1};

    over[axis] = 0;
    must(plait_layout_pencil(3, shape, 1, &size, over, PLAIT_SPLIT_EVEN, l));
}

static setting_t setting_of(const plait_comm_t *comm, const char *op,
                            const int64_t shape[3])
{
    const int size = plait_comm_size(comm);
    const int rank = plait_comm_rank(comm);
    setting_t s = {.op = op_of(op)};
    const bool is_real = s.op->kind == PLAIT_FFT_REAL_TO_COMPLEX;
    const int64_t after[] = {shape[0], shape[1], is_real ? shape[2] / 2 + 1 : shape[2]};

    make_layout(size, shape, 0, &s.from);
    make_layout(size, after, s.op->to_axis, &s.to);
    plait_layout_local_shape(&s.from, rank, s.in);
    plait_layout_local_shape(&s.to, rank, s.out);
    s.n_real = s.in[0] * s.in[1] * s.in[2] * (is_real ? 1 : 2);
    const size_t before_bytes = (size_t)s.n_real * sizeof(real_t);
    const size_t after_bytes =
        (size_t)(s.out[0] * s.out[1] * s.out[2]) * BENCH_COMPLEX_BYTES;
    s.n_bytes = (before_bytes > after_bytes) ? before_bytes : after_bytes;
    return s;
}

/* The seconds that planning took. */
static double make_plan(const plait_comm_t *comm, const setting_t *s,
                        plait_plan_t **plan_p)
{
    const plait_fft_problem_t fft = {.dtype = BENCH_DTYPE,
                                     .from = &s->from,
                                     .to = &s->to,
                                     .n_axes = 3,
                                     .axes = AXES,
                                     .sign = -1,
                                     .scale = 1.0,
                                     .kind = s->op->kind};
    const double begin = bench_seconds();

    must(s->op->is_fft
             ? plait_fft_plan(comm, &fft, plan_p)
             : plait_redist_plan(comm, BENCH_DTYPE, &s->from, &s->to, plan_p));
    return bench_seconds() - begin;
}

real_t problem_value(int64_t k)
{
    const uint64_t mixed = (uint64_t)(k + 1) * UINT64_C(0x9E3779B97F4A7C15);

    return (real_t)((double)((mixed ^ (mixed >> 29)) >> 40 & 0xffffff) * 0x1p-24 - 0.5);
}

static problem_t planned(plait_comm_t *comm, const char *op, int64_t n)
{
    const int64_t shape[3] = {n, n, n};
    const setting_t s = setting_of(comm, op, shape);
    problem_t p = {.comm = comm, .n = n, .n_real = s.n_real, .n_bytes = s.n_bytes};

    memcpy(p.in, s.in, sizeof(p.in));
    memcpy(p.out, s.out, sizeof(p.out));
    p.plan_s = make_plan(comm, &s, &p.plan);
    return p;
}

void problem_create(problem_t *p, plait_comm_t *comm, const char *op, int64_t n)
{
    *p = planned(comm, op, n);
    p->x = bench_alloc(p->n_bytes);
    p->y = bench_alloc(p->n_bytes);
    p->owns = true;
    for (int64_t k = 0; k < p->n_real; k++) {
        p->x[k] = problem_value(k);
    }
}

void problem_create_beside(problem_t *p, const problem_t *other, const char *op)
{
    *p = planned(other->comm, op, other->n);
    bench_must(p->n_bytes == other->n_bytes, "problems of one size");
    p->x = other->x;
    p->y = other->y;
}

void problem_destroy(problem_t *p)
{
    plait_plan_destroy(&p->plan);
    if (p->owns) {
        free(p->x);
        free(p->y);
    }
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

double problem_plan_time(plait_comm_t *comm, const char *op, const int64_t shape[3],
                         plait_plan_cost_t *cost_p, int64_t *local_bytes_p)
{
    const setting_t s = setting_of(comm, op, shape);
    plait_plan_t *plan = NULL;
    const double seconds = make_plan(comm, &s, &plan);

    *local_bytes_p = (int64_t)s.n_bytes;
    *cost_p = plait_plan_cost(plan);
    plait_plan_destroy(&plan);
    return seconds;
}
