/* Reductions, identities and factors of a CUDA device against the host's, bit for bit, for every
 * operation and dtype. On the first GPU, or with the argument `host` on stand-ins of CUDA's libraries,
 * which run the same kernels. Without a GPU: skipped, with the reason. */
#include "cuda_arrays.h"
#include "device/element.h"
#include "fakes.h"
#include "kernel/reduce.h"

#include <math.h>

enum { MAX_PIECES = 1100 };

typedef struct {
    plait_reduce_t op;
    plait_dtype_t dtype;
    int64_t n;
    int n_pieces, alias; /* the piece that is the result; -1: none */
    int64_t at;          /* bytes by which the arrays are off 16 */
} problem_t;

static const char *text(const problem_t *p)
{
    static char line[160];

    snprintf(line, sizeof(line), "%s %s n %lld, %d pieces, alias %d, at %lld",
             plait_reduce_name(p->op), plait_dtype_name(p->dtype), (long long)p->n,
             p->n_pieces, p->alias, (long long)p->at);
    return line;
}

/* Any bits, often 0, equal numbers, all ones, infinities and NaN; and for longer floats numbers whose products
 * are in range. */
static void sample_elements(plait_dtype_t dtype, random_t *r, int64_t n, char *x)
{
    const int64_t item = plait_dtype_bytes(dtype);
    bool is_float = dtype == PLAIT_F32 || dtype == PLAIT_F64 || dtype == PLAIT_C64 ||
                    dtype == PLAIT_C128;
    const bool is_double = dtype == PLAIT_F64 || dtype == PLAIT_C128;
    const int64_t part = !is_float ? item : is_double ? 8 : 4;

    for (int64_t i = 0; i < n * item / part; i++) {
        double d = (double)draw(r, -1000000, 1000000) / 262144;
        float f = (float)d;
        char fill = (char)draw(r, -1, 0);
        bool is_special = draw(r, 0, 5) == 0;
        if (is_float && !is_special) {
            memcpy(x + i * part, is_double ? (const void *)&d : (const void *)&f,
                   (size_t)part);
        }
        for (int64_t k = 0; k < part && (!is_float || is_special); k++) {
            x[i * part + k] = is_special ? fill : (char)draw(r, -128, 127);
        }
        if (dtype == PLAIT_BOOL) {
            x[i] = (char)(x[i] & 1);
        }
    }
}

static bool is_nan(plait_dtype_t dtype, const char *x)
{
    uint16_t h;
    float f;
    double d;

    memcpy(&h, x, 2);
    if (dtype == PLAIT_F16 || dtype == PLAIT_BF16) {
        return (dtype == PLAIT_F16) ? plait_is_nan_f16(h) : plait_is_nan_bf16(h);
    }
    if (plait_dtype_bytes(dtype) == 4) {
        memcpy(&f, x, 4);
        return isnan(f);
    }
    memcpy(&d, x, 8);
    return isnan(d);
}

/* Compares bits; for sums and products all NaN are alike, because IEEE 754 does not say which NaN results. */
static bool is_same(const problem_t *p, const char *a, const char *b)
{
    plait_kind_t kind = plait_dtype_kind(p->dtype);
    bool is_complex = kind == PLAIT_KIND_COMPLEX;
    bool is_float = is_complex || kind == PLAIT_KIND_FLOAT;
    const plait_dtype_t part_dtype = (p->dtype == PLAIT_C64)    ? PLAIT_F32
                                     : (p->dtype == PLAIT_C128) ? PLAIT_F64
                                                                : p->dtype;
    const int64_t part = plait_dtype_bytes(part_dtype);
    const int64_t n = p->n * plait_dtype_bytes(p->dtype) / part;
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < n; i++) {
        const char *x = a + i * part, *y = b + i * part;
        bool is_any_nan = is_float && p->op <= PLAIT_PROD && is_nan(part_dtype, x) &&
                          is_nan(part_dtype, y);
        n_wrong += (memcmp(x, y, (size_t)part) != 0 && !is_any_nan);
    }
    return n_wrong == 0;
}

/* The host's functions on all pieces. */
static void reduce_on_host(const problem_t *p, const char *pieces[], char *dst)
{
    plait_reduce_fn_t fn = plait_reduce_find(p->op, p->dtype);
    const int64_t n_bytes = p->n * plait_dtype_bytes(p->dtype);
    bool is_logical = p->op >= PLAIT_LAND && p->op <= PLAIT_LXOR;

    if (p->n_pieces == 0) {
        plait_reduce_fill(p->op, p->dtype, p->n, dst);
    } else if (p->n_pieces == 1 && is_logical) {
        plait_reduce_find(PLAIT_LOR, p->dtype)(p->n, dst, pieces[0], pieces[0]);
    } else {
        char *sum = plait_alloc(n_bytes + 1, 1);
        memcpy(sum, pieces[0], (size_t)n_bytes);
        for (int q = 1; q < p->n_pieces; q++) {
            fn(p->n, sum, sum, pieces[q]);
        }
        memcpy(dst, sum, (size_t)n_bytes);
        plait_free(sum);
    }
}

/* All pieces and the result in one array; bytes between them must not change. */
static void check_reduce(const machine_t *m, const problem_t *p)
{
    const int64_t n_bytes = p->n * plait_dtype_bytes(p->dtype);
    const int64_t step = (n_bytes + 16 + 15) / 16 * 16;
    static const void *dev[MAX_PIECES];
    static const char *host[MAX_PIECES];
    array_t a = array_create(m, (p->n_pieces + 1) * step + p->at);
    random_t r = {(uint64_t)p->op * 31 + (uint64_t)p->dtype * 7 + (uint64_t)p->n};

    array_fill(&a, &r);
    for (int q = 0; q <= p->n_pieces; q++) {
        sample_elements(p->dtype, &r, p->n, a.pinned + p->at + q * step);
    }
    array_put(m, &a);
    for (int q = 0; q < p->n_pieces; q++) {
        dev[q] = a.dev + p->at + q * step;
        host[q] = a.expected + p->at + q * step;
    }
    int64_t to = p->at + ((p->alias >= 0) ? p->alias : p->n_pieces) * step;
    reduce_on_host(p, host, a.expected + to);
    good(m->call->reduce(m->device, m->stream, p->op, p->dtype, p->n, p->n_pieces, dev,
                         a.dev + to),
         text(p));
    memset((void *)dev, 0, sizeof(dev)); /* it has been read */
    array_get(m, &a);
    CHECK(is_same(p, a.pinned + to, a.expected + to), "%s", text(p));
    memcpy(a.pinned + to, a.expected + to, (size_t)n_bytes);
    CHECK(memcmp(a.pinned, a.expected, (size_t)a.n_bytes) == 0, "%s: beside", text(p));
    array_destroy(m, &a);
}

static void test_cuda_reduce_pair(const machine_t *m, plait_reduce_t op,
                                  plait_dtype_t dtype)
{
    static const int64_t sizes[] = {1, 3, 15, 16, 64, 777, 5000};
    static const int pieces[] = {0, 1, 2, 3, 7};
    const int64_t item = plait_dtype_bytes(dtype);
    problem_t p = {.op = op, .dtype = dtype, .n = 0, .n_pieces = 2, .alias = -1};

    check_reduce(m, &p);
    for (int k = 0; k < 7 * 5 * 2; k++) {
        p.n = sizes[k % 7];
        p.n_pieces = pieces[k / 7 % 5];
        p.alias = (p.n_pieces > 0 && k % 3 > 0) ? k % p.n_pieces : -1;
        p.at = (k / 35 == 0) ? 0 : item * (1 + k % 3) % 16;
        check_reduce(m, &p);
    }
}

/* More pieces than one launch takes, too; the result may overlap one of the later pieces. */
static void test_cuda_reduce_many(const machine_t *m)
{
    problem_t p = {.op = PLAIT_SUM, .dtype = PLAIT_F32, .n = 100, .alias = -1};
    static const int pieces[] = {479, 480, 481, 959, 960, MAX_PIECES - 1};
    static const void *dev[MAX_PIECES];

    for (int k = 0; k < 6; k++) {
        p.n_pieces = pieces[k];
        p.alias = (k % 2 == 0) ? -1 : 400;
        check_reduce(m, &p);
    }
    array_t a = array_create(m, 64);
    for (int q = 0; q < 500; q++) {
        dev[q] = a.dev;
    }
    CHECK(m->call->reduce(m->device, m->stream, PLAIT_SUM, PLAIT_F32, 4, 500, dev,
                          a.dev) == PLAIT_ERR_UNSUPPORTED,
          "alias behind the first launch");
    array_destroy(m, &a);
}

static void test_cuda_reduce_refusals(const machine_t *m)
{
    array_t a = array_create(m, 64);
    const void *two[] = {a.dev, a.dev + 32}, *crooked[] = {a.dev, a.dev + 17};
    const void *half[] = {a.dev + 4, a.dev + 36};

    for (int i = 0; i < PLAIT_REDUCE_COUNT * plait_dtype_count(); i++) {
        plait_reduce_t op = (plait_reduce_t)(i % PLAIT_REDUCE_COUNT);
        plait_dtype_t dtype = plait_dtype_at(i / PLAIT_REDUCE_COUNT);
        plait_status_t status =
            m->call->reduce(m->device, m->stream, op, dtype, 1, 2, two, a.dev);
        CHECK((status == PLAIT_OK) == plait_reduce_is_defined(op, dtype), "%s %s",
              plait_reduce_name(op), plait_dtype_name(dtype));
    }
    CHECK(m->call->reduce(m->device, m->stream, PLAIT_SUM, PLAIT_F32, 1, 2, crooked,
                          a.dev) == PLAIT_ERR_INVALID,
          "not aligned");
    CHECK(strstr(plait_error_text(), "not aligned") != NULL, "text");
    good(
        m->call->reduce(m->device, m->stream, PLAIT_PROD, PLAIT_C64, 1, 2, half, a.dev),
        "complex numbers are aligned as their parts");
    good(m->call->stream_wait(m->device, m->stream), "wait");
    array_destroy(m, &a);
}

static void scale_on_host(plait_dtype_t dtype, int64_t n, double factor, char *x)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        float f;
        double d;

        if (dtype == PLAIT_F16 || dtype == PLAIT_BF16) {
            memcpy(&h, x + 2 * i, 2);
            h = (dtype == PLAIT_F16)
                    ? plait_f16_of_f32(plait_f32_of_f16(h) * (float)factor)
                    : plait_bf16_of_f32(plait_f32_of_bf16(h) * (float)factor);
            memcpy(x + 2 * i, &h, 2);
        } else if (dtype == PLAIT_F32) {
            memcpy(&f, x + 4 * i, 4);
            f *= (float)factor;
            memcpy(x + 4 * i, &f, 4);
        } else {
            memcpy(&d, x + 8 * i, 8);
            d *= factor;
            memcpy(x + 8 * i, &d, 8);
        }
    }
}

static void test_cuda_scale(const machine_t *m)
{
    static const plait_dtype_t dtypes[] = {PLAIT_F16, PLAIT_BF16, PLAIT_F32,
                                           PLAIT_F64, PLAIT_C64,  PLAIT_C128};
    static const int64_t sizes[] = {0, 1, 15, 1000};

    for (int k = 0; k < 6 * 4 * 2; k++) {
        problem_t p = {.op = PLAIT_PROD, .dtype = dtypes[k % 6], .n = sizes[k / 6 % 4]};
        bool is_complex = plait_dtype_kind(p.dtype) == PLAIT_KIND_COMPLEX;
        const int64_t item = plait_dtype_bytes(p.dtype);
        const plait_dtype_t part = (p.dtype == PLAIT_C64)    ? PLAIT_F32
                                   : (p.dtype == PLAIT_C128) ? PLAIT_F64
                                                             : p.dtype;
        p.at = (k < 24) ? 0 : item % 16;
        array_t a = array_create(m, p.n * item + 48);
        random_t r = {6};
        array_fill(&a, &r);
        sample_elements(p.dtype, &r, p.n, a.pinned + p.at);
        array_put(m, &a);
        scale_on_host(part, p.n * (is_complex ? 2 : 1), 1.0 / 48, a.expected + p.at);
        good(m->call->scale(m->device, m->stream, p.dtype, p.n, 1.0 / 48, a.dev + p.at),
             "scale");
        array_get(m, &a);
        CHECK(is_same(&p, a.pinned + p.at, a.expected + p.at), "scale %s", text(&p));
        memcpy(a.pinned + p.at, a.expected + p.at, (size_t)(p.n * item));
        CHECK(memcmp(a.pinned, a.expected, (size_t)a.n_bytes) == 0, "beside");
        array_destroy(m, &a);
    }
    CHECK(m->call->scale(m->device, m->stream, PLAIT_S32, 1, 2, NULL) ==
              PLAIT_ERR_INVALID,
          "integers");
}

int main(int n_arguments, char **arguments)
{
    machine_t m = machine_of(n_arguments, arguments);

    if (!machine_open(&m)) {
        return SKIPPED;
    }
    for (int i = 0; i < PLAIT_REDUCE_COUNT * plait_dtype_count(); i++) {
        plait_reduce_t op = (plait_reduce_t)(i % PLAIT_REDUCE_COUNT);
        plait_dtype_t dtype = plait_dtype_at(i / PLAIT_REDUCE_COUNT);
        if (plait_reduce_is_defined(op, dtype)) {
            test_cuda_reduce_pair(&m, op, dtype);
        }
    }
    test_cuda_reduce_many(&m);
    test_cuda_reduce_refusals(&m);
    test_cuda_scale(&m);
    machine_close(&m);
    if (m.is_host) {
        look_in(NULL);
    }
    return report("test_cuda_reduce");
}
