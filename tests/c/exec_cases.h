/* Transforms executed by threads (redistribution: exec_redist.h, halos: exec_halo.h), against arithmetic on
 * global indices. The same functions test arrays in host memory, for every way to reach a peer's memory
 * (test_exec), and arrays on a device (test_device_exec). */
#ifndef PLAIT_TESTS_EXEC_CASES_H
#define PLAIT_TESTS_EXEC_CASES_H

#include "device/pool.h"
#include "dft.h"
#include "exec_redist.h"
#include "plait/fft.h"

#include <complex.h>
#include <math.h>

/* ---------------------------------------------------------------- fft */

typedef struct {
    plait_layout_t from, to;
    int n_axes, axes[3];
    int sign;
    bool in_place;
    plait_dtype_t dtype;
    plait_fft_kind_t kind;
    plait_wave_t waves[3]; /* of PLAIT_FFT_REAL_TO_REAL */
    double scale;
    const double complex *x, *want; /* global */
    char text[200];
} fft_test_t;

static double complex get(const void *data, plait_dtype_t dtype, int64_t i)
{
    switch (dtype) {
    case PLAIT_F32:
        return (double)((const float *)data)[i];
    case PLAIT_F64:
        return ((const double *)data)[i];
    case PLAIT_C64:
        return (double complex)((const float complex *)data)[i];
    default:
        return ((const double complex *)data)[i];
    }
}

static void put(void *data, plait_dtype_t dtype, int64_t i, double complex v)
{
    switch (dtype) {
    case PLAIT_F32:
        ((float *)data)[i] = (float)creal(v);
        break;
    case PLAIT_F64:
        ((double *)data)[i] = creal(v);
        break;
    case PLAIT_C64:
        ((float complex *)data)[i] = (float complex)v;
        break;
    default:
        ((double complex *)data)[i] = v;
    }
}

static plait_dtype_t dtype_of(const fft_test_t *t, bool is_result)
{
    plait_dtype_t real = (t->dtype == PLAIT_C64) ? PLAIT_F32 : PLAIT_F64;
    plait_fft_kind_t kind =
        is_result ? PLAIT_FFT_COMPLEX_TO_REAL : PLAIT_FFT_REAL_TO_COMPLEX;

    return (t->kind == kind || t->kind == PLAIT_FFT_REAL_TO_REAL) ? real : t->dtype;
}

static void fft_rank(plait_comm_t *comm, void *context)
{
    const fft_test_t *t = context;
    int rank = plait_comm_rank(comm);
    int64_t n_x = n_local(&t->from, rank);
    int64_t n_y = n_local(&t->to, rank);
    int64_t item = plait_dtype_bytes(t->dtype);
    void *x = plait_alloc(n_x + n_y + 1, item);
    void *y = t->in_place ? x : plait_alloc(n_y + 1, item);
    plait_plan_t *plan = NULL;
    bool is_zero = true;
    double error = 0;
    double norm = 0;
    int64_t n_total = 1;
    const bool is_wave = t->kind == PLAIT_FFT_REAL_TO_REAL;
    const plait_fft_problem_t problem = {.dtype = t->dtype,
                                         .from = &t->from,
                                         .to = &t->to,
                                         .n_axes = t->n_axes,
                                         .axes = t->axes,
                                         .sign = t->sign,
                                         .kind = t->kind,
                                         .waves = is_wave ? t->waves : NULL,
                                         .scale = t->scale};
    const plait_dtype_t from = dtype_of(t, false), to = dtype_of(t, true);
    int64_t *at_x = globals_of(&t->from, rank);
    int64_t *at_y = globals_of(&t->to, rank);

    for (int64_t i = 0; i < n_x; i++) {
        const int64_t at = at_x[i];
        put(x, from, i, (at >= 0) ? t->x[at] : (double complex)NAN);
    }
    CHECK(plait_fft_plan(comm, &problem, &plan) == PLAIT_OK, "%s", t->text);
    if (plan != NULL) {
        CHECK(plait_plan_execute(plan, comm, (const void *[]){x}, (void *[]){y}) ==
                  PLAIT_OK,
              "%s", t->text);
        for (int64_t i = 0; i < n_y; i++) {
            const int64_t at = at_y[i];
            const double complex want = (at >= 0) ? t->want[at] : 0;
            const double complex wrong = get(y, to, i) - want;
            is_zero = is_zero && (at >= 0 || get(y, to, i) == 0);
            error += pow(creal(wrong), 2) + pow(cimag(wrong), 2);
            norm += pow(creal(want), 2) + pow(cimag(want), 2);
        }
        for (int i = 0; i < t->n_axes; i++) {
            n_total *= t->from.shape[t->axes[i]];
        }
        CHECK(is_zero, "%s rank %d padding", t->text, rank);
        double eps = (t->dtype == PLAIT_C128) ? 2.3e-16 : 1.2e-7;
        double bound =
            16 * eps * (1 + log2((double)n_total)); /* Bluestein's, per axis */
        CHECK(sqrt(error) <= bound * sqrt(norm) + 1e-300,
              "%s rank %d error %g bound %g", t->text, rank, sqrt(error / norm), bound);
    }
    plait_plan_destroy(&plan);
    plait_free(at_x);
    plait_free(at_y);
    plait_free(x);
    if (!t->in_place) {
        plait_free(y);
    }
}

/* See plait_wave_t: edges are those of the first type, of the operand of 3 and of the result of 2. */
static bool is_edge(const plait_wave_t *w, int64_t n, int64_t i, int type)
{
    return (w->type == 1 && !w->is_sine && (i == 0 || i == n - 1)) ||
           (w->type == type && i == (w->is_sine ? n - 1 : 0));
}

static double wave_factor(const plait_wave_t *w, int64_t n, int64_t j, int64_t k)
{
    const double half_j = (w->type % 2 == 0) ? 0.5 : w->is_sine;
    const double half_k = (w->type > 2) ? 0.5 : w->is_sine;
    const int64_t period = (w->type != 1) ? n : w->is_sine ? n + 1 : n - 1;
    const double turns =
        fmod(((double)j + half_j) * ((double)k + half_k), 2 * (double)period);
    const double angle = acos(-1.0) * turns / (double)period;
    const double in = is_edge(w, n, j, 3) ? w->edge_in / 2 : 1;
    const double out = is_edge(w, n, k, 2) ? w->edge_out : 1;

    return 2 * in * out * (w->is_sine ? sin(angle) : cos(angle));
}

/* Along one axis, in place. */
static void wave_axis(double complex *y, int ndim, const int64_t shape[], int axis,
                      const plait_wave_t *wave)
{
    const int64_t n = shape[axis];
    const int64_t n_all = n_elements(ndim, shape);
    double complex *line = plait_alloc(n, sizeof(*line));
    int64_t step = 1;

    for (int a = axis + 1; a < ndim; a++) {
        step *= shape[a];
    }
    for (int64_t first = 0; first < n_all; first++) {
        if (first / step % n != 0) {
            continue;
        }
        for (int64_t j = 0; j < n; j++) {
            line[j] = y[first + j * step];
        }
        for (int64_t k = 0; k < n; k++) {
            y[first + k * step] = 0;
            for (int64_t j = 0; j < n; j++) {
                y[first + k * step] += line[j] * wave_factor(wave, n, j, k);
            }
        }
    }
    plait_free(line);
}

/* The expected transform of t->x, whose shape is t->from's. */
static double complex *expected(const fft_test_t *t)
{
    int ndim = t->from.ndim;
    int half = t->axes[t->n_axes - 1];
    bool to_real = t->kind == PLAIT_FFT_COMPLEX_TO_REAL;
    int64_t shape[PLAIT_MAX_NDIM];
    int64_t n = n_elements(ndim, t->from.shape);
    double complex *y = plait_alloc(n, sizeof(*y));

    memcpy(shape, t->from.shape, sizeof(shape));
    for (int64_t i = 0; i < n; i++) {
        y[i] = t->x[i] * t->scale;
    }
    for (int i = 0; i < t->n_axes - to_real; i++) {
        if (t->kind == PLAIT_FFT_REAL_TO_REAL) {
            wave_axis(y, ndim, shape, t->axes[i], &t->waves[i]);
        } else {
            dft_axis(y, ndim, shape, t->axes[i], t->sign);
        }
    }
    if (t->kind == PLAIT_FFT_REAL_TO_COMPLEX || to_real) {
        double complex *all = y;
        y = map_lines(all, ndim, shape, half, t->to.shape[half],
                      to_real ? half_to_real : keep_half, t->sign);
        plait_free(all);
    }
    return y;
}

/* An operand and its expected result. They depend on the global problem alone, so they serve all layouts,
 * numbers of ranks and ways of access. */
typedef struct {
    fft_test_t of; /* what it depends on */
    double complex *x, *want;
} oracle_t;

enum { N_ORACLES = 1024 };
static oracle_t oracles[N_ORACLES];

static bool is_same_wave(const plait_wave_t *a, const plait_wave_t *b)
{
    return a->type == b->type && a->is_sine == b->is_sine && a->edge_in == b->edge_in &&
           a->edge_out == b->edge_out;
}

static bool is_same_problem(const fft_test_t *a, const fft_test_t *b)
{
    const size_t n_bytes = (size_t)a->from.ndim * sizeof(a->from.shape[0]);

    return a->from.ndim == b->from.ndim && a->n_axes == b->n_axes &&
           a->sign == b->sign && a->dtype == b->dtype && a->kind == b->kind &&
           a->scale == b->scale && memcmp(a->from.shape, b->from.shape, n_bytes) == 0 &&
           memcmp(a->to.shape, b->to.shape, n_bytes) == 0 &&
           is_same_wave(&a->waves[0], &b->waves[0]) &&
           is_same_wave(&a->waves[1], &b->waves[1]) &&
           is_same_wave(&a->waves[2], &b->waves[2]) &&
           memcmp(a->axes, b->axes, (size_t)a->n_axes * sizeof(a->axes[0])) == 0;
}

static void oracle_forget(oracle_t *o)
{
    plait_free(o->x);
    plait_free(o->want);
    *o = (oracle_t){.x = NULL};
}

static void oracles_forget(void)
{
    for (int i = 0; i < N_ORACLES; i++) {
        oracle_forget(&oracles[i]);
    }
}

/* The problem's oracle; the problem that had its place before is forgotten. */
static oracle_t *oracle_of(const fft_test_t *t)
{
    const plait_dtype_t from = dtype_of(t, false);
    const int64_t n = n_elements(t->from.ndim, t->from.shape);
    uint64_t hash = (uint64_t)t->kind * 8 + (uint64_t)t->dtype * 2 + (t->sign > 0);

    for (int a = 0; a < t->from.ndim; a++) {
        hash = hash * 1000003 + (uint64_t)t->from.shape[a];
    }
    for (int i = 0; i < t->n_axes; i++) {
        hash = hash * 1000003 + (uint64_t)t->axes[i];
    }
    oracle_t *o = &oracles[hash % N_ORACLES];
    if (o->x == NULL || !is_same_problem(t, &o->of)) {
        oracle_forget(o);
        o->of = *t;
        o->x = plait_alloc(n + 1, sizeof(*o->x));
        for (int64_t i = 0; i < n; i++) {
            double complex z = sample(1, (uint64_t)i) + sample(2, (uint64_t)i) * I;
            put(&o->x[i], from, 0, z); /* rounded as the operand is */
            o->x[i] = get(&o->x[i], from, 0);
        }
        o->of.x = o->x;
        o->want = expected(&o->of);
    }
    return o;
}

/* Checks one kind of transform. The axis that is named last is halved. */
static void check_fft_kind(fft_test_t t, int n_ranks, plait_direct_t direct)
{
    const oracle_t *o = oracle_of(&t);
    bool is_equal = t.kind == PLAIT_FFT_COMPLEX || t.kind == PLAIT_FFT_REAL_TO_REAL;

    t.x = o->x;
    t.want = o->want;
    team_run(n_ranks, direct, fft_rank, &t);
    for (int r = 0; r < n_ranks; r++) {
        is_equal = is_equal && is_alike(&t.from, &t.to, r);
    }
    t.in_place = true;
    if (is_equal) {
        team_run(n_ranks, direct, fft_rank, &t);
    }
}

/* The waves whose turn it is. */
static void set_waves(fft_test_t *t, int turn)
{
    const bool has_edges = turn % 3 == 0;

    for (int i = 0; i < t->n_axes && t->kind == PLAIT_FFT_REAL_TO_REAL; i++) {
        const int which = (turn + 3 * i + (t->sign > 0)) % 8;
        plait_wave_t wave = {.type = 1 + which % 4, .is_sine = which / 4 != 0};
        wave.is_sine =
            wave.is_sine || (wave.type == 1 && t->from.shape[t->axes[i]] < 2);
        wave.edge_in = has_edges ? 1.5 : 1;
        wave.edge_out = has_edges ? 0.75 : 1;
        t->waves[i] = wave;
    }
}

static void check_fft(int n_ranks, int ndim, const int64_t shape[], int grid_ndim,
                      const int grid[], int from, int to, int first_axis, int sign,
                      plait_direct_t direct, plait_dtype_t dtype)
{
    static const char *const names[] = {"complex", "from real", "to real", "waves"};
    const int n_variants = (team_devices[0] == NULL) ? 6 : 5; /* no waves on devices */

    for (int variant = 0; variant < n_variants; variant++) {
        fft_test_t t = {.dtype = dtype, .sign = sign, .scale = 0.5};
        char a[64];
        char b[64];

        t.kind = (variant == 0)       ? PLAIT_FFT_COMPLEX
                 : (variant == 5)     ? PLAIT_FFT_REAL_TO_REAL
                 : (variant % 2 == 0) ? PLAIT_FFT_COMPLEX_TO_REAL
                                      : PLAIT_FFT_REAL_TO_COMPLEX;
        int stored =
            (from + to + variant + (int)direct) % 4; /* bit 0: operand, 1: result */
        if (!layout_of(from, ndim, shape, grid_ndim, grid, splits[(from + variant) % 2],
                       (stored & 1) != 0, &t.from) ||
            !layout_of(to, ndim, shape, grid_ndim, grid, splits[(to + variant) % 2],
                       (stored & 2) != 0, &t.to)) {
            return;
        }
        for (int i = first_axis; i < ndim; i++) {
            t.axes[t.n_axes++] = (variant < 3) ? i : ndim - 1 - (i - first_axis);
        }
        int half = t.axes[t.n_axes - 1];
        set_waves(&t, from + to);
        if (t.kind == PLAIT_FFT_REAL_TO_COMPLEX) {
            t.to.shape[half] =
                t.to.shape[half] / 2 + 1; /* what is stored is still enough */
        } else if (t.kind == PLAIT_FFT_COMPLEX_TO_REAL) {
            t.from.shape[half] = t.from.shape[half] / 2 + 1;
        }
        plait_layout_print(&t.from, a, sizeof(a));
        plait_layout_print(&t.to, b, sizeof(b));
        (void)snprintf(
            t.text, sizeof(t.text),
            "fft %s %s %s -> %s axes from %d, axis %d last, sign %d direct %d",
            plait_dtype_name(dtype), names[t.kind], a, b, first_axis, half, sign,
            (int)direct);
        check_fft_kind(t, n_ranks, direct);
    }
}

static int code_of(int grid_ndim, int ndim, const int over[])
{
    int code = 0;

    for (int a = ndim - 1; a >= 0; a--) {
        code = code * (grid_ndim + 1) + over[a] + 1;
    }
    return code;
}

static void check_ffts(int n_ranks)
{
    static const int64_t shapes[][3] = {
        {8, 8, 8}, {6, 5, 7}, {3, 2, 4}, {1, 17, 2}, {16, 9, 20}};
    const int line[] = {n_ranks};

    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        for (int d = 0; d < 3; d++) {
            for (int from = -1; from < 3; from++) {
                for (int to = -1; to < 3; to++) {
                    const int i = (int)s + from + 2 * to;
                    if (!goes_by(i + 3, d) ||
                        (is_quick() && (i + d + n_ranks) % 4 != 0)) {
                        continue;
                    }
                    int f[3] = {-1, -1, -1};
                    int t[3] = {-1, -1, -1};
                    if (from >= 0) {
                        f[from] = 0;
                    }
                    if (to >= 0) {
                        t[to] = 0;
                    }
                    check_fft(n_ranks, 3, shapes[s], 1, line, code_of(1, 3, f),
                              code_of(1, 3, t), (from + to + 2) % 3,
                              (s + (size_t)d) % 2 ? 1 : -1, directs[d],
                              d == 1 ? PLAIT_C64 : PLAIT_C128);
                }
            }
        }
    }
    for (int a = 2; a < n_ranks; a++) {
        if (n_ranks % a == 0) {
            const int grid[] = {a, n_ranks / a};
            static const int paths[][2][3] = {{{0, 1, -1}, {-1, 0, 1}},
                                              {{-1, 0, 1}, {0, 1, -1}},
                                              {{0, 1, -1}, {0, 1, -1}},
                                              {{1, -1, 0}, {0, -1, 1}}};
            for (size_t p = 0; p < 4; p++) {
                for (int d = 0; d < 3; d++) {
                    if (!goes_by((int)p, d)) {
                        continue;
                    }
                    check_fft(n_ranks, 3, shapes[p], 2, grid,
                              code_of(2, 3, paths[p][0]), code_of(2, 3, paths[p][1]), 0,
                              -1, directs[d], PLAIT_C128);
                }
            }
        }
    }
    static const int64_t flat[][2] = {{12, 10}, {3, 50}};
    for (int d = 0; d < 3; d++) {
        check_fft(n_ranks, 2, flat[0], 1, line, 1, 2, 0, -1, directs[d], PLAIT_C128);
        check_fft(n_ranks, 2, flat[1], 1, line, 2, 1, 0, 1, directs[d], PLAIT_C64);
        check_fft(n_ranks, 2, flat[0], 1, line, 2, 2, 1, 1, directs[d], PLAIT_C64);
    }
}

/* Axes that no other axis takes the split of, or only one too short: products, primes, fewer
 * points than ranks; from one place along the array to others. */
static void check_lone_axes(int n_ranks)
{
    const int64_t p = n_ranks;
    const int64_t lines[] = {30,  64, 96,    97,        120,
                             192, 2,  p * p, p * p * 2, p * (p + 1)};
    const int line[] = {n_ranks};

    for (size_t s = 0; s < sizeof(lines) / sizeof(lines[0]); s++) {
        for (int i = 0; i < 9; i++) { /* 0 whole, 1 split */
            int d = (i + (int)s) % 3;
            check_fft(n_ranks, 1, &lines[s], 1, line, (i < 6), (i < 3 || i > 5), 0,
                      (i % 2) ? 1 : -1, directs[i % 3],
                      (d == 1) ? PLAIT_C64 : PLAIT_C128);
        }
    }
    for (int split = 0; split < 3; split++) {
        int64_t shape[] = {2, 1, 3};
        int over[] = {-1, -1, -1};
        shape[split] = 4 * p * (p + 2);
        over[split] = 0;
        int f = code_of(1, 3, over);
        for (int d = 0; d < 3; d++) {
            if (!goes_by(split, d)) {
                continue;
            }
            check_fft(n_ranks, 3, shape, 1, line, f, f, 0, 1, directs[d], PLAIT_C128);
            check_fft(n_ranks, 3, shape, 1, line, f, code_of(1, 3, (int[]){-1, 0, -1}),
                      split, -1, directs[d], PLAIT_C64);
        }
    }
    for (int a = 2; a < n_ranks; a++) {
        const int64_t shape[] = {2 * a * a, 3 * (p / a) * (p / a)};
        const int grid[] = {a, n_ranks / a};
        for (int d = 0; d < 3 && n_ranks % a == 0; d++) {
            int both = code_of(2, 2, (int[]){0, 1});
            check_fft(n_ranks, 2, shape, 2, grid, both, both, d % 2, -1, directs[d],
                      PLAIT_C128);
        }
    }
}

/* All of them but the largest. */
static void exec_cases(int n_ranks)
{
    static const int64_t shapes[][3] = {{4, 6, 5}, {7, 3, 2}, {2, 1, 9}};
    const int line[] = {n_ranks};

    check_redist(n_ranks, 2, shapes[n_ranks % 3], 1, line);
    check_ffts(n_ranks);
    check_lone_axes(n_ranks);
    if (n_ranks % 2 == 0 && n_ranks > 2) {
        const int grid[] = {2, n_ranks / 2};
        check_redist(n_ranks, 3, shapes[0], 2, grid);
    }
}

#endif
