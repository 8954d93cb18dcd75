/* Every (operation, dtype) against scalar references that share no code with the
 * library. */
#include "base/alloc.h"
#include "boxes.h"
#include "check.h"
#include "kernel/reduce.h"
#include "numbers.h"

#include <math.h>
#include <string.h>

enum { MAX_BYTES = 16, MAX_N = 133, N_CODES = 65536 };

typedef struct {
    plait_reduce_t op;
    plait_dtype_t dtype;
} pair_t;

static const char *pair_text(pair_t p)
{
    static _Thread_local char text[64];

    (void)snprintf(text, sizeof(text), "%s %s", plait_reduce_name(p.op),
                   plait_dtype_name(p.dtype));
    return text;
}

/* --- 16-bit floats: all values decoded by ldexp, encoding by search among them --- */

typedef struct {
    int n_mantissa; /* bits */
    double
        value[N_CODES / 2]; /* of each code without sign, increasing; inf, then NaN */
} half_t;

static half_t f16, bf16;

static uint16_t infinity_of(const half_t *h)
{
    return (h->n_mantissa == 10) ? 0x7c00 : 0x7f80;
}

static void half_init(half_t *h, int n_mantissa)
{
    const int bias = (n_mantissa == 10) ? 15 : 127;

    h->n_mantissa = n_mantissa;
    for (int code = 0; code < N_CODES / 2; code++) {
        int exponent = code >> n_mantissa, mantissa = code & ((1 << n_mantissa) - 1);
        int hidden = (exponent > 0) << n_mantissa;

        h->value[code] = ldexp(mantissa + hidden,
                               ((exponent > 0) ? exponent : 1) - bias - n_mantissa);
        if (code > infinity_of(h)) {
            h->value[code] = (double)NAN;
        }
    }
}

static double half_decode(const half_t *h, uint16_t code)
{
    double x = h->value[code & 0x7fff];

    x = ((code & 0x7fff) == infinity_of(h)) ? (double)INFINITY : x;
    return (code & 0x8000) ? -x : x;
}

/* Rounds to nearest, ties to the even code. value[infinity] is the finite number that would follow, so that
 * overflow rounds like everything else. Not for NaN. */
static uint16_t half_encode(const half_t *h, float x)
{
    const double magnitude = fabs((double)x);
    int low = 0, high = infinity_of(h);
    double middle;

    while (high - low > 1) {
        int at = (low + high) / 2;

        if (h->value[at] <= magnitude) {
            low = at;
        } else {
            high = at;
        }
    }
    middle = (h->value[low] + h->value[high]) / 2;
    if ((magnitude > middle) || ((magnitude == middle) && (low % 2 == 1))) {
        low = high;
    }
    return (uint16_t)(low | (signbit(x) ? 0x8000 : 0));
}

/* --- references: r = x op y; false if only NaN-ness of the result counts --- */

/* NaN wins, the first of two; -0 < +0. */
static bool is_y_chosen(plait_reduce_t op, double x, double y)
{
    if (isnan(x) || isnan(y)) {
        return !isnan(x);
    }
    if (x == y) {
        return (op == PLAIT_MIN) ? signbit(y) && !signbit(x)
                                 : signbit(x) && !signbit(y);
    }
    return (op == PLAIT_MIN) ? y < x : y > x;
}

static bool is_extremum(plait_reduce_t op)
{
    return (op == PLAIT_MIN) || (op == PLAIT_MAX);
}

static bool half_reference(const half_t *h, plait_reduce_t op, const void *x,
                           const void *y, void *r)
{
    uint16_t a, b, c;
    double u, v, exact;

    memcpy(&a, x, sizeof(a));
    memcpy(&b, y, sizeof(b));
    u = half_decode(h, a);
    v = half_decode(h, b);
    exact = (op == PLAIT_SUM) ? u + v
                              : u * v; /* one rounding to float: both are innocuous */
    if (is_extremum(op)) {
        c = is_y_chosen(op, u, v) ? b : a;
    } else {
        c = isnan(exact) ? (uint16_t)0x7fff : half_encode(h, (float)exact);
    }
    memcpy(r, &c, sizeof(c));
    return is_extremum(op) || !isnan(exact);
}

static bool f32_reference(plait_reduce_t op, const void *x, const void *y, void *r)
{
    float a, b, c;

    memcpy(&a, x, sizeof(a));
    memcpy(&b, y, sizeof(b));
    c = (op == PLAIT_SUM) ? a + b : a * b;
    if (is_extremum(op)) {
        memcpy(r, is_y_chosen(op, (double)a, (double)b) ? y : x, sizeof(c));
        return true;
    }
    memcpy(r, &c, sizeof(c));
    return !isnan(c);
}

static bool f64_reference(plait_reduce_t op, const void *x, const void *y, void *r)
{
    double a, b, c;

    memcpy(&a, x, sizeof(a));
    memcpy(&b, y, sizeof(b));
    c = (op == PLAIT_SUM) ? a + b : a * b;
    if (is_extremum(op)) {
        memcpy(r, is_y_chosen(op, a, b) ? y : x, sizeof(c));
        return true;
    }
    memcpy(r, &c, sizeof(c));
    return !isnan(c);
}

/* Samples are small integers, so that every order of operations is exact. */
static bool complex_reference(plait_reduce_t op, bool is_double, const void *x,
                              const void *y, void *r)
{
    double a[2], b[2], c[2];
    float f[2];

    for (int i = 0; i < 2; i++) {
        if (is_double) {
            memcpy(&a[i], (const char *)x + 8 * i, 8);
            memcpy(&b[i], (const char *)y + 8 * i, 8);
        } else {
            memcpy(&f[0], (const char *)x + 4 * i, 4);
            memcpy(&f[1], (const char *)y + 4 * i, 4);
            a[i] = (double)f[0];
            b[i] = (double)f[1];
        }
    }
    c[0] = (op == PLAIT_SUM) ? a[0] + b[0] : a[0] * b[0] - a[1] * b[1];
    c[1] = (op == PLAIT_SUM) ? a[1] + b[1] : a[0] * b[1] + a[1] * b[0];
    f[0] = (float)c[0];
    f[1] = (float)c[1];
    memcpy(r, is_double ? (const void *)c : (const void *)f, is_double ? 16 : 8);
    return true;
}

static uint64_t integer_result(plait_reduce_t op, uint64_t a, uint64_t b, bool is_less)
{
    switch (op) {
    case PLAIT_SUM:
        return a + b;
    case PLAIT_PROD:
        return a * b;
    case PLAIT_MIN:
        return is_less ? b : a;
    case PLAIT_MAX:
        return is_less ? a : b;
    case PLAIT_LAND:
        return (a != 0) && (b != 0);
    case PLAIT_LOR:
        return (a != 0) || (b != 0);
    case PLAIT_LXOR:
        return (a != 0) != (b != 0);
    case PLAIT_BAND:
        return a & b;
    case PLAIT_BOR:
        return a | b;
    default:
        return a ^ b;
    }
}

/* Sign-extended for INT; little endian, like every machine that is tested. */
static uint64_t load_integer(pair_t p, const void *x)
{
    const int64_t bytes = plait_dtype_bytes(p.dtype);
    const int shift = 64 - 8 * (int)bytes;
    uint64_t a = 0;

    memcpy(&a, x, (size_t)bytes);
    if (plait_dtype_kind(p.dtype) == PLAIT_KIND_BOOL) {
        return a != 0;
    }
    if ((plait_dtype_kind(p.dtype) == PLAIT_KIND_INT) && ((a << shift) >> 63)) {
        a |= (shift > 0) ? ~UINT64_C(0) << (64 - shift) : 0;
    }
    return a;
}

static bool integer_reference(pair_t p, const void *x, const void *y, void *r)
{
    const uint64_t a = load_integer(p, x), b = load_integer(p, y);
    const uint64_t bias =
        (plait_dtype_kind(p.dtype) == PLAIT_KIND_INT) ? UINT64_C(1) << 63 : 0;
    const uint64_t c = integer_result(p.op, a, b, (b ^ bias) < (a ^ bias));

    memcpy(r, &c, (size_t)plait_dtype_bytes(p.dtype));
    return true;
}

static bool reference(pair_t p, const void *x, const void *y, void *r)
{
    switch (p.dtype) {
    case PLAIT_F16:
        return half_reference(&f16, p.op, x, y, r);
    case PLAIT_BF16:
        return half_reference(&bf16, p.op, x, y, r);
    case PLAIT_F32:
        return f32_reference(p.op, x, y, r);
    case PLAIT_F64:
        return f64_reference(p.op, x, y, r);
    case PLAIT_C64:
    case PLAIT_C128:
        return complex_reference(p.op, p.dtype == PLAIT_C128, x, y, r);
    default:
        return integer_reference(p, x, y, r);
    }
}

static bool is_nan_of(plait_dtype_t dtype, const void *x)
{
    uint16_t h;
    float f;
    double d;

    memcpy(&h, x, sizeof(h));
    if ((dtype == PLAIT_F16) || (dtype == PLAIT_BF16)) {
        return isnan(half_decode((dtype == PLAIT_F16) ? &f16 : &bf16, h));
    }
    if (dtype == PLAIT_F32) {
        memcpy(&f, x, sizeof(f));
        return isnan(f);
    }
    memcpy(&d, x, sizeof(d));
    return isnan(d);
}

/* --- samples --- */

static void sample_float(plait_dtype_t dtype, random_t *r, char *x)
{
    const double special[] = {0.0,
                              -0.0,
                              1.0,
                              -1.0,
                              (double)INFINITY,
                              -(double)INFINITY,
                              (double)NAN,
                              0x1p-1060,
                              0x1p-140,
                              1e300,
                              3e38,
                              -1.5};
    double d = (draw(r, 0, 2) == 0) ? special[draw(r, 0, 11)]
                                    : (double)draw(r, -1000000, 1000000) / 1024;
    float f = (fabs(d) < 3.1e38) ? (float)d : signbit(d) ? -INFINITY : INFINITY;

    if (isnan(d)) {
        f = NAN;
    }
    if (dtype == PLAIT_F64) {
        memcpy(x, &d, sizeof(d));
    } else {
        memcpy(x, &f, sizeof(f));
    }
}

static void sample_complex(plait_dtype_t dtype, random_t *r, char *x)
{
    double d[2] = {(double)draw(r, -99, 99), (double)draw(r, -99, 99)};
    float f[2] = {(float)d[0], (float)d[1]};

    memcpy(x, (dtype == PLAIT_C64) ? (const void *)f : (const void *)d,
           (size_t)plait_dtype_bytes(dtype));
}

static void sample_element(plait_dtype_t dtype, random_t *r, char *x)
{
    const plait_kind_t kind = plait_dtype_kind(dtype);

    if ((dtype == PLAIT_F32) || (dtype == PLAIT_F64)) {
        sample_float(dtype, r, x);
    } else if (kind == PLAIT_KIND_COMPLEX) {
        sample_complex(dtype, r, x);
    } else {
        bool is_small = draw(r, 0, 2) == 0; /* often 0, equal, or all bits set */
        char fill = (char)draw(r, -1, 0);

        for (int64_t i = 0; i < plait_dtype_bytes(dtype); i++) {
            x[i] = is_small ? fill : (char)draw(r, -128, 127);
        }
    }
}

static void sample_elements(plait_dtype_t dtype, random_t *r, int64_t n, char *x)
{
    for (int64_t i = 0; i < n; i++) {
        sample_element(dtype, r, x + i * plait_dtype_bytes(dtype));
    }
}

/* --- tests --- */

static bool is_expected(pair_t p, const char *x, const char *y, const char *got)
{
    char r[MAX_BYTES] = {0};

    return reference(p, x, y, r)
               ? memcmp(r, got, (size_t)plait_dtype_bytes(p.dtype)) == 0
               : is_nan_of(p.dtype, got);
}

/* place 0: out apart, 1: out is a, 2: out is b. */
static void check_pair(pair_t p, int64_t n, int place, int64_t at, random_t *r)
{
    enum { ROOM = MAX_N * MAX_BYTES + 64 };
    static char x[ROOM], y[ROOM], memory[3][ROOM];
    const int64_t bytes = plait_dtype_bytes(p.dtype), n_bytes = n * bytes;
    char *a = memory[0] + at, *b = memory[1] + at, *apart = memory[2] + at;
    char *out = (place == 0) ? apart : (place == 1) ? a : b;
    int64_t n_wrong = 0;

    sample_elements(p.dtype, r, n, x);
    sample_elements(p.dtype, r, n, y);
    memset(memory, 0x5a, sizeof(memory));
    memcpy(a, x, (size_t)n_bytes);
    memcpy(b, y, (size_t)n_bytes);
    plait_reduce_find(p.op, p.dtype)(n, out, a, b);
    for (int64_t i = 0; i < n; i++) {
        n_wrong += !is_expected(p, x + i * bytes, y + i * bytes, out + i * bytes);
    }
    CHECK(n_wrong == 0, "%s n %lld place %d: %lld wrong", pair_text(p), (long long)n,
          place, (long long)n_wrong);
    CHECK((out[n_bytes] == 0x5a) && ((at == 0) || (out[-1] == 0x5a)), "%s guard",
          pair_text(p));
    CHECK((place == 1) || (memcmp(a, x, (size_t)n_bytes) == 0), "%s a", pair_text(p));
    CHECK((place == 2) || (memcmp(b, y, (size_t)n_bytes) == 0), "%s b", pair_text(p));
}

static void test_reduce_pairs(pair_t p)
{
    const int64_t sizes[] = {0, 1, 2, 3, 15, 16, 31, 64, MAX_N};
    random_t r = {(uint64_t)p.op * 100 + (uint64_t)p.dtype};

    for (int i = 0; i < 9 * 3 * 4; i++) {
        check_pair(p, sizes[i % 9], i / 9 % 3, i / 27, &r);
    }
}

static bool is_defined_by_notes(pair_t p)
{
    switch (plait_dtype_kind(p.dtype)) {
    case PLAIT_KIND_BOOL:
        return p.op >= PLAIT_LAND;
    case PLAIT_KIND_INT:
    case PLAIT_KIND_UINT:
        return true;
    case PLAIT_KIND_FLOAT:
        return p.op <= PLAIT_MAX;
    case PLAIT_KIND_COMPLEX:
        return p.op <= PLAIT_PROD;
    default:
        return false;
    }
}

static void test_reduce_table(void)
{
    for (int i = 0; i < PLAIT_REDUCE_COUNT * plait_dtype_count(); i++) {
        pair_t p = {(plait_reduce_t)(i % PLAIT_REDUCE_COUNT),
                    plait_dtype_at(i / PLAIT_REDUCE_COUNT)};
        bool is_defined = plait_reduce_is_defined(p.op, p.dtype);

        CHECK(is_defined == is_defined_by_notes(p), "%s", pair_text(p));
        CHECK(is_defined == (plait_reduce_find(p.op, p.dtype) != NULL), "%s",
              pair_text(p));
        if (is_defined) {
            test_reduce_pairs(p);
        }
    }
}

static void test_reduce_outside(void)
{
    CHECK(plait_reduce_find(PLAIT_REDUCE_COUNT, PLAIT_F32) == NULL, "op");
    CHECK(plait_reduce_find((plait_reduce_t)(1 << 20), PLAIT_F32) == NULL, "op");
    CHECK(plait_reduce_find(PLAIT_SUM, (plait_dtype_t)0) == NULL, "dtype");
    CHECK(plait_reduce_find(PLAIT_SUM, (plait_dtype_t)13) == NULL, "dtype");
    CHECK(plait_reduce_find(PLAIT_SUM, (plait_dtype_t)21) == NULL, "dtype");
    CHECK(strcmp(plait_reduce_name(PLAIT_LXOR), "LXOR") == 0, "name");
    CHECK(strcmp(plait_reduce_name(PLAIT_REDUCE_COUNT), "unknown") == 0, "name");
}

/* All 16-bit numbers with partners that reach subnormals, ties, overflow, inf and NaN.
 */
static void test_reduce_half(pair_t p)
{
    static uint16_t x[N_CODES], y[N_CODES], out[N_CODES];
    const uint16_t partners[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400,
                                 0x3c00, 0xbc01, 0x3f80, 0x7bff, 0x7f7f,
                                 0x7c00, 0xff80, 0x7e01, 0x5555};

    for (int k = 0; k < 14; k++) {
        int64_t n_wrong = 0;

        for (int i = 0; i < N_CODES; i++) {
            x[i] = (k % 2 == 0) ? (uint16_t)i : partners[k];
            y[i] = (k % 2 == 0) ? partners[k] : (uint16_t)i;
        }
        plait_reduce_find(p.op, p.dtype)(N_CODES, out, x, y);
        for (int i = 0; i < N_CODES; i++) {
            n_wrong += !is_expected(p, (const char *)&x[i], (const char *)&y[i],
                                    (const char *)&out[i]);
        }
        CHECK(n_wrong == 0, "%s partner %x: %lld wrong", pair_text(p), partners[k],
              (long long)n_wrong);
    }
}

/* is_turned: some dimensions run backwards, or add repeatedly to one place. */
static void check_box(pair_t p, random_t *r, bool is_turned)
{
    const int64_t bytes = plait_dtype_bytes(p.dtype);
    const plait_reduce_fn_t fn = plait_reduce_find(p.op, p.dtype);
    plait_box_copy_t box = draw_box(r, bytes * draw(r, 1, 12), draw(r, 1, 1500));
    int64_t n_src = draw_strides(r, &box, bytes, box.src_stride);
    int64_t n_dst = draw_strides(r, &box, bytes, box.dst_stride);
    char *src = plait_alloc(n_src + bytes, 1), *dst = plait_alloc(n_dst + bytes, 1);
    char *expected = plait_alloc(n_dst + bytes, 1);
    const int64_t src_at = is_turned ? turn_strides(r, &box, true, box.src_stride) : 0;
    const int64_t dst_at = is_turned ? turn_strides(r, &box, true, box.dst_stride) : 0;
    int64_t n_rows = n_rows_of(&box), s = 0, d = 0;

    sample_elements(p.dtype, r, n_src / bytes, src);
    sample_elements(p.dtype, r, n_dst / bytes, dst);
    memcpy(expected, dst, (size_t)(n_dst + bytes));
    for (int64_t i = 0; i < n_rows; i++) {
        row_offsets(&box, i, &s, &d);
        char *at = expected + dst_at + d;
        fn(box.row_bytes / bytes, at, at, src + src_at + s);
    }
    plait_reduce_box(fn, bytes, &box, src + src_at, dst + dst_at);
    CHECK(memcmp(dst, expected, (size_t)(n_dst + bytes)) == 0, "%s box %s",
          pair_text(p), box_text(&box));
    plait_free(src);
    plait_free(dst);
    plait_free(expected);
}

static void test_reduce_box(void)
{
    const pair_t pairs[] = {{PLAIT_SUM, PLAIT_U8},   {PLAIT_SUM, PLAIT_S16},
                            {PLAIT_BXOR, PLAIT_U32}, {PLAIT_PROD, PLAIT_S64},
                            {PLAIT_SUM, PLAIT_C128}, {PLAIT_MAX, PLAIT_F64}};
    random_t r = {7};

    for (int i = 0; i < 1200; i++) {
        check_box(pairs[i % 6], &r, i >= 600);
    }
}

/* The identity changes no number, on either side. */
static void test_reduce_fill(void)
{
    enum { N = 50 };
    char fill[N * 16];
    char a[N * 16];
    char want[N * 16];
    char got[N * 16];

    for (int i = 0; i < PLAIT_REDUCE_COUNT * plait_dtype_count(); i++) {
        plait_reduce_t op = (plait_reduce_t)(i % PLAIT_REDUCE_COUNT);
        plait_dtype_t dtype = plait_dtype_at(i / PLAIT_REDUCE_COUNT);
        plait_reduce_fn_t fn = plait_reduce_find(op, dtype);
        size_t n_bytes = (size_t)(N * plait_dtype_bytes(dtype));
        for (int k = 0; k < N && fn != NULL; k++) {
            number_t x = number_of(dtype, op, 3, k);
            put(dtype, a, k, x);
            x.re = (op == PLAIT_LAND || op == PLAIT_LOR || op == PLAIT_LXOR) ? x.re != 0
                                                                             : x.re;
            put(dtype, want, k, x);
        }
        if (fn != NULL) {
            plait_reduce_fill(op, dtype, N, fill);
            fn(N, got, fill, a);
            CHECK(memcmp(got, want, n_bytes) == 0, "%s %s", plait_reduce_name(op),
                  plait_dtype_name(dtype));
            fn(N, got, a, fill);
            CHECK(memcmp(got, want, n_bytes) == 0, "%s %s", plait_reduce_name(op),
                  plait_dtype_name(dtype));
        }
    }
}

int main(void)
{
    half_init(&f16, 10);
    half_init(&bf16, 7);
    test_reduce_outside();
    test_reduce_table();
    for (int op = PLAIT_SUM; op <= PLAIT_MAX; op++) {
        test_reduce_half((pair_t){(plait_reduce_t)op, PLAIT_F16});
        test_reduce_half((pair_t){(plait_reduce_t)op, PLAIT_BF16});
    }
    test_reduce_box();
    test_reduce_fill();
    return report("test_reduce");
}
