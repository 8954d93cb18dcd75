/* One call of the library that takes several CUDA devices at once: its operands, dealt out to the devices, and
 * its results, judged by their residual. */
#ifndef PLAIT_TESTS_MG_CASE_H
#define PLAIT_TESTS_MG_CASE_H

#include "cuda_arrays.h"
#include "dense/dealt.h"
#include "elements.h"

#include <math.h>

enum { MOST = 4, FILL = 0x5a };

/* One device's part. */
typedef struct {
    plait_device_t *device;
    plait_stream_t stream;
    char *matrix, *rhs, *work;
    char *host, *host_rhs; /* pinned: the matrix, and the right-hand side */
} part_t;

typedef struct {
    plait_joint_problem_t h;
    plait_dealt_t d, rhs;
    int64_t n_bytes, rhs_bytes, work_bytes; /* of a part */
    part_t parts[MOST];
    void *w; /* pinned */
    const char *text;
} case_t;

/* ---- Devices' parts ------------------------------------------------------------------------ */

static inline void take(part_t *p, int64_t n_bytes, char **memory_p)
{
    void *memory = NULL;

    good(p->device->table->take(p->device, p->stream, n_bytes, &memory), "take");
    *memory_p = memory;
}

/* A case that is not yet planned. */
static inline case_t case_of(int n_devices, const int ids[], plait_dtype_t dtype,
                             int64_t n, int64_t block, bool has_vectors,
                             plait_joint_op_t op)
{
    static const char *const names[] = {"heevd", "potrf", "potrs", "potri"};
    static char text[120];
    case_t c = {
        .h = {.op = op,
              .n_devices = n_devices,
              .dtype = dtype,
              .has_vectors = has_vectors,
              .n = n,
              .block = block,
              .n_rhs = (op == PLAIT_JOINT_POTRS) ? 1 + (n + block) % 7 : 0},
        .d = {.m = n, .n = n, .block = block, .n_ranks = n_devices, .dtype = dtype},
        .text = text};

    (void)snprintf(text, sizeof(text),
                   "%s of %s %lld in blocks of %lld on %d, vectors %d", names[op],
                   plait_dtype_name(dtype), (long long)n, (long long)block, n_devices,
                   (int)has_vectors);
    if (n <= INT32_MAX) { /* longer matrices are only planned */
        c.n_bytes = plait_dealt_bytes(&c.d);
    }
    c.rhs = c.d;
    c.rhs.n = c.h.n_rhs;
    c.rhs_bytes = plait_dealt_bytes(&c.rhs);
    for (int i = 0; i < n_devices; i++) {
        good(plait_cuda_device(ids[i], &c.h.devices[i]), "device");
        c.parts[i].device = c.h.devices[i];
    }
    return c;
}

/* Definite for potrf; the lower triangle is the factor for potrs and potri. */
static inline double complex element(const case_t *c, int64_t i, int64_t j)
{
    const double complex z =
        element_sample(c->d.dtype, 31, (i > j) ? i * 1000 + j : j * 1000 + i);
    const double more =
        (c->h.op != PLAIT_JOINT_HEEVD && i == j) ? 2 * (double)c->d.n : 0;

    return (i == j) ? creal(z) + more : (i > j) ? z : conj(z);
}

static inline double complex rhs_element(const case_t *c, int64_t i, int64_t j)
{
    return element_sample(c->d.dtype, 32, j * 1000 + i);
}

static inline void fill_rhs(case_t *c, int device)
{
    char *host = c->parts[device].host_rhs;

    memset(host, 0xff, (size_t)c->rhs_bytes);
    for (int64_t k = device; k < plait_dealt_n_blocks(&c->rhs); k += c->rhs.n_ranks) {
        for (int64_t j = 0; j < plait_dealt_width(&c->rhs, k); j++) {
            char *at = host + plait_dealt_at(&c->rhs, k, 0) +
                       j * plait_dealt_ld_bytes(&c->rhs);
            for (int64_t i = 0; i < c->rhs.m; i++) {
                plait_scalar_put(c->rhs.dtype, at, i,
                                 rhs_element(c, i, plait_dealt_column(&c->rhs, k) + j));
            }
        }
    }
}

/* Fills the lower triangle; the rest must not be read. */
static inline void fill(case_t *c, int device)
{
    char *host = c->parts[device].host;

    fill_rhs(c, device);
    memset(host, 0xff, (size_t)c->n_bytes); /* NaN */
    for (int64_t k = device; k < plait_dealt_n_blocks(&c->d); k += c->d.n_ranks) {
        for (int64_t j = 0; j < plait_dealt_width(&c->d, k); j++) {
            const int64_t column = plait_dealt_column(&c->d, k) + j;
            char *at =
                host + plait_dealt_at(&c->d, k, 0) + j * plait_dealt_ld_bytes(&c->d);
            for (int64_t i = column; i < c->d.n; i++) {
                plait_scalar_put(c->d.dtype, at, i, element(c, i, column));
            }
        }
    }
}

/* Allocates work memory and matrices on all devices, which are idle afterwards. */
static inline void open_case(case_t *c)
{
    void *memory = NULL;

    for (int i = 0; i < c->h.n_devices; i++) {
        part_t *p = &c->parts[i];
        const plait_device_table_t *call = p->device->table;
        good(call->enter(p->device), "enter");
        good(call->stream_create(p->device, &p->stream), "stream");
        take(p, c->n_bytes, &p->matrix);
        take(p, c->rhs_bytes + 1, &p->rhs);
        take(p, c->work_bytes + 1, &p->work);
        good(call->host_take(p->device, c->n_bytes, &memory), "host_take");
        p->host = memory;
        good(call->host_take(p->device, c->rhs_bytes + 1, &memory), "host_take");
        p->host_rhs = memory;
        fill(c, i);
        good(call->to_device(p->device, p->stream, p->rhs, p->host_rhs,
                             c->rhs_bytes + 1),
             "to_device");
        good(call->to_device(p->device, p->stream, p->matrix, p->host, c->n_bytes),
             "to_device");
        good(call->stream_wait(p->device, p->stream), "wait");
        if (i == 0) {
            good(call->host_take(p->device, 16 * c->d.n, &c->w), "host_take");
            memset(c->w, FILL, (size_t)(16 * c->d.n));
        }
        call->leave(p->device);
    }
}

/* Also for devices that have failed, which nothing can enter any more. */
static inline void close_case(case_t *c)
{
    for (int i = 0; i < c->h.n_devices; i++) {
        part_t *p = &c->parts[i];
        const plait_device_table_t *call = p->device->table;
        const bool is_inside = call->enter(p->device) == PLAIT_OK;
        call->give(p->device, p->stream, p->matrix);
        call->give(p->device, p->stream, p->rhs);
        call->host_give(p->device, p->host_rhs);
        call->give(p->device, p->stream, p->work);
        call->host_give(p->device, p->host);
        if (i == 0) {
            call->host_give(p->device, c->w);
        }
        call->stream_destroy(p->device, p->stream);
        if (is_inside) {
            call->leave(p->device);
        }
    }
}

/* Copies the devices' parts to host memory. */
static inline void fetch(case_t *c)
{
    for (int i = 0; i < c->h.n_devices; i++) {
        part_t *p = &c->parts[i];
        const plait_device_table_t *call = p->device->table;
        good(call->enter(p->device), "enter");
        good(call->to_host(p->device, p->stream, p->host, p->matrix, c->n_bytes),
             "to_host");
        good(call->to_host(p->device, p->stream, p->host_rhs, p->rhs, c->rhs_bytes + 1),
             "to_host");
        good(call->stream_wait(p->device, p->stream), "wait");
        call->leave(p->device);
    }
}

/* Called inside of the last device, which is current before and after. */
static inline plait_status_t solve(case_t *c, int32_t *info_p)
{
    const int n = c->h.n_devices;
    plait_device_t *last = c->parts[n - 1].device;
    void *a[MOST] = {NULL}, *b[MOST] = {NULL}, *work[MOST] = {NULL};

    for (int i = 0; i < n; i++) {
        a[i] = c->parts[i].matrix;
        b[i] = c->parts[i].rhs;
        work[i] = c->parts[i].work;
    }
    good(last->table->enter(last), "enter");
    const plait_status_t status =
        last->table->joint->run(&c->h, c->work_bytes, a, b, work, c->w, info_p);
    last->table->leave(last);
    return status;
}

static inline plait_status_t plan(case_t *c)
{
    return c->h.devices[0]->table->joint->plan(&c->h, &c->work_bytes);
}

/* ---- What comes out ------------------------------------------------------------------------- */

static inline double complex number_at(const plait_dealt_t *d, const char *part,
                                       int64_t i, int64_t j)
{
    const char *at = part + plait_dealt_at(d, j / d->block, 0) +
                     j % d->block * plait_dealt_ld_bytes(d);

    return plait_scalar_get(d->dtype, at, i);
}

static inline double complex vector_of(const case_t *c, int64_t i, int64_t j)
{
    const int owner = plait_dealt_owner(&c->d, j / c->d.block);

    return number_at(&c->d, c->parts[owner].host, i, j);
}

static inline double complex solution(const case_t *c, int64_t i, int64_t j)
{
    const int owner = plait_dealt_owner(&c->rhs, j / c->rhs.block);

    return number_at(&c->rhs, c->parts[owner].host_rhs, i, j);
}

/* L L^H, L being the lower triangle that was given, row by row. */
static inline double complex *squares(const case_t *c)
{
    const int64_t n = c->d.n;
    double complex *l = plait_alloc(n * n, sizeof(*l));
    double complex *a = plait_alloc(n * n, sizeof(*a));

    for (int64_t i = 0; i < n * n; i++) {
        l[i] = element(c, i / n, i % n);
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            for (int64_t k = 0; k <= i && k <= j; k++) {
                a[i * n + j] += l[i * n + k] * conj(l[j * n + k]);
            }
        }
    }
    plait_free(l);
    return a;
}

/* The results, column by column; of an inverse, the lower triangle. */
static inline double complex *solutions(const case_t *c, int64_t n_columns)
{
    const int64_t n = c->d.n;
    double complex *y = plait_alloc(n * n_columns, sizeof(*y));

    for (int64_t j = 0; j < n_columns; j++) {
        for (int64_t i = 0; i < n; i++) {
            y[j * n + i] = (c->h.op != PLAIT_JOINT_POTRI) ? solution(c, i, j)
                           : (i >= j)                     ? vector_of(c, i, j)
                                                          : conj(vector_of(c, j, i));
        }
    }
    return y;
}

/* A x - b of all columns; or A y - 1 for the inverse y, which has only its lower triangle. */
static inline void judge_solution(case_t *c)
{
    const int64_t n = c->d.n;
    const bool is_inverse = c->h.op == PLAIT_JOINT_POTRI;
    const int64_t n_columns = is_inverse ? n : c->rhs.n;
    double error = 0, norm = 0;
    bool is_kept = true;
    double complex *a = squares(c), *y = NULL;

    fetch(c);
    y = solutions(c, n_columns);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n_columns; j++) {
            double complex sum = !is_inverse ? -rhs_element(c, i, j)
                                 : (i == j)  ? -1
                                             : 0;
            for (int64_t k = 0; k < n; k++) {
                const double complex product = a[i * n + k] * y[j * n + k];
                sum += product;
                norm = fmax(norm, cabs(product));
            }
            error = (cabs(sum) > error || isnan(cabs(sum))) ? cabs(sum) : error;
        }
        for (int64_t j = 0; j <= i && !is_inverse; j++) {
            const double complex l = vector_of(c, i, j) - element(c, i, j);
            is_kept = is_kept && cabs(l) <= element_unit(c->d.dtype) * 4 * (double)n;
        }
    }
    const double bound = 40 * (double)n * element_unit(c->d.dtype) * norm;
    CHECK(error <= bound, "%s: residual %g of %g", c->text, error, bound);
    CHECK(is_kept, "%s: the factor has changed", c->text);
    plait_free(a);
    plait_free(y);
}

/* Judges the lower triangle of a factor. */
static inline void judge_factor(case_t *c)
{
    const int64_t n = c->d.n;
    double error = 0;

    fetch(c);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j; i < n; i++) {
            double complex sum = -element(c, i, j);
            for (int64_t k = 0; k <= j; k++) {
                sum += vector_of(c, i, k) * conj(vector_of(c, j, k));
            }
            error = (cabs(sum) > error || isnan(cabs(sum))) ? cabs(sum) : error;
        }
    }
    const double bound = 40 * (double)n * (double)n * element_unit(c->d.dtype);
    CHECK(error <= bound, "%s: L L^H - A %g of %g", c->text, error, bound);
}

static inline void judge_values(case_t *c)
{
    const plait_dtype_t dtype = c->d.dtype, real = plait_real_of(dtype);
    const int64_t n = c->d.n;
    double error = 0, unit = 0, trace = 0;
    double before = -INFINITY;

    fetch(c);
    for (int64_t j = 0; j < n; j++) {
        const double w = creal(plait_scalar_get(real, c->w, j));
        CHECK(w >= before, "%s: value %lld", c->text, (long long)j);
        before = w;
        trace += w - creal(element(c, j, j));
        for (int64_t i = 0; i < n && c->h.has_vectors; i++) {
            double complex sum = -w * vector_of(c, i, j), dot = (i == j) ? -1 : 0;
            for (int64_t l = 0; l < n; l++) {
                sum += element(c, i, l) * vector_of(c, l, j);
                dot += conj(vector_of(c, l, i)) * vector_of(c, l, j);
            }
            error = fmax(error, cabs(sum));
            unit = fmax(unit, cabs(dot));
        }
    }
    const double bound = 40 * (double)n * element_unit(dtype);
    CHECK(error <= bound, "%s: A V - V w %g of %g", c->text, error, bound);
    CHECK(unit <= bound, "%s: V^H V - 1 %g of %g", c->text, unit, bound);
    CHECK(fabs(trace) <= bound * (double)n, "%s: trace %g", c->text, trace);
}

static inline void judge(case_t *c)
{
    switch (c->h.op) {
    case PLAIT_JOINT_HEEVD:
        judge_values(c);
        break;
    case PLAIT_JOINT_POTRF:
        judge_factor(c);
        break;
    default:
        judge_solution(c);
    }
}

#endif
