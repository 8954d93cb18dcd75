#include "dense/secular.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { N_LANES = 4, MAX_ITERATIONS = 400 };

/* Divisions take most of the time: as many are made at once as the processor can. */
typedef double lanes_t __attribute__((vector_size(N_LANES * sizeof(double))));

static inline void load(lanes_t *to, const double *from)
{
    memcpy(to, from, sizeof(*to));
}

static inline double total(const lanes_t *x)
{
    return ((*x)[0] + (*x)[1]) + ((*x)[2] + (*x)[3]);
}

/* A part of the secular function and its derivative, both with their own sign. */
typedef struct {
    double value, slope;
} part_t;

/* Sums over poles [from, to), at `offset` from pole `origin`. */
static part_t sum_poles(const plait_secular_t *s, int64_t from, int64_t to,
                        int64_t origin, double offset)
{
    const double base = s->d[origin];
    lanes_t values = {0}, slopes = {0};
    part_t sum = {0, 0};
    int64_t i = from;

    for (; i + N_LANES <= to; i += N_LANES) {
        lanes_t d, z;
        load(&d, s->d + i);
        load(&z, s->z + i);
        const lanes_t t = z / ((d - base) - offset);
        values += z * t;
        slopes += t * t;
    }
    for (; i < to; i++) {
        const double t = s->z[i] / ((s->d[i] - base) - offset);
        sum.value += s->z[i] * t;
        sum.slope += t * t;
    }
    sum.value += total(&values);
    sum.slope += total(&slopes);
    return sum;
}

/* The search for a root: the two poles that count most, and an interval with the root. */
typedef struct {
    int64_t left; /* pole; the other pole is the next one */
    int64_t origin;
    bool is_last; /* the root is beyond both */
    double low, high;
} search_t;

/* The step to the root of a function with two poles that has the same value, and in both parts the same slopes;
 * NaN if there is none. */
static double step_for(const plait_secular_t *s, const search_t *q, double offset,
                       part_t left, part_t right, double value)
{
    const double base = s->d[q->origin];
    const double x = (s->d[q->left] - base) - offset;
    const double y = (s->d[q->left + 1] - base) - offset;
    const double c = value - x * left.slope - y * right.slope;
    const double a = (x + y) * value - x * y * (left.slope + right.slope);
    const double b = x * y * value;
    const double root = sqrt(fmax(0, a * a - 4 * b * c));
    double step = 0;

    if (q->is_last) {
        step = (a >= 0) ? (a + root) / (2 * c) : 2 * b / (a - root);
    } else {
        step = (a <= 0) ? (a - root) / (2 * c) : 2 * b / (a + root);
    }
    return step;
}

/* Halves the interval; near a pole goes by orders of magnitude. */
static double halved(const search_t *q)
{
    double middle = (q->low + q->high) / 2;

    if (q->low == 0 || q->high == 0) {
        middle = (q->low + q->high) / 16;
    }
    return middle;
}

static double iterate(const plait_secular_t *s, search_t *q, double offset)
{
    const double constant = 1 / s->rho;
    bool is_found = false;

    for (int i = 0; i < MAX_ITERATIONS && !is_found; i++) {
        const part_t left = sum_poles(s, 0, q->left + 1, q->origin, offset);
        const part_t right = sum_poles(s, q->left + 1, s->n, q->origin, offset);
        const double value = constant + left.value + right.value;
        const double error = 8 * (fabs(left.value) + fabs(right.value)) + constant +
                             fabs(offset) * (left.slope + right.slope);
        if (value < 0) {
            q->low = offset;
        } else {
            q->high = offset;
        }
        double next = offset + step_for(s, q, offset, left, right, value);
        next = (next > q->low && next < q->high) ? next : halved(q);
        is_found = fabs(value) <= DBL_EPSILON * error || next == offset ||
                   !(q->high - q->low > DBL_EPSILON * fabs(offset));
        offset = is_found ? offset : next;
    }
    return offset;
}

/* Starts a search between two poles. The root is measured from the pole in whose half of the interval it
 * lies. */
static void search_between(const plait_secular_t *s, int64_t j, search_t *q,
                           double *start_p)
{
    const double half = (s->d[j + 1] - s->d[j]) / 2;
    const part_t left = sum_poles(s, 0, j + 1, j, half);
    const part_t right = sum_poles(s, j + 1, s->n, j, half);
    const double value = 1 / s->rho + left.value + right.value;

    *q = (search_t){.left = j, .origin = j, .low = 0, .high = half};
    if (value < 0) {
        *q = (search_t){.left = j, .origin = j + 1, .low = -half, .high = 0};
    }
    *start_p = ((value < 0) ? -half : half) +
               step_for(s, q, (value < 0) ? -half : half, left, right, value);
}

void plait_secular_root(const plait_secular_t *s, int64_t j, int64_t *origin_p,
                        double *offset_p)
{
    search_t q = {.left = j - 1, .origin = j, .is_last = true};
    double square = 0, start = 0;

    if (s->n == 1) {
        *origin_p = 0;
        *offset_p = s->rho * s->z[0] * s->z[0];
    } else {
        if (j + 1 < s->n) {
            search_between(s, j, &q, &start);
        } else {
            for (int64_t i = 0; i < s->n; i++) {
                square += s->z[i] * s->z[i];
            }
            q.high = s->rho * square * (1 + 8 * DBL_EPSILON);
            start = q.high / 2;
        }
        start = (start > q.low && start < q.high) ? start : halved(&q);
        *offset_p = iterate(s, &q, start);
        *origin_p = q.origin;
    }
}

/* Product of (d - root j) / (d - pole j), j in [from, to). */
static double multiply_ratios(const plait_secular_t *s, double d, int64_t from,
                              int64_t to, const double base[], const double offset[])
{
    lanes_t products = {1, 1, 1, 1};
    double product = 1;
    int64_t j = from;

    for (; j + N_LANES <= to; j += N_LANES) {
        lanes_t b, o, pole;
        load(&b, base + j);
        load(&o, offset + j);
        load(&pole, s->d + j);
        products *= ((d - b) - o) / (d - pole);
    }
    for (; j < to; j++) {
        product *= ((d - base[j]) - offset[j]) / (d - s->d[j]);
    }
    return product * ((products[0] * products[1]) * (products[2] * products[3]));
}

double plait_secular_weight(const plait_secular_t *s, int64_t i, const double base[],
                            const double offset[])
{
    const double d = s->d[i], own = offset[i] - (d - base[i]);
    const double below = multiply_ratios(s, d, 0, i, base, offset);
    const double above = multiply_ratios(s, d, i + 1, s->n, base, offset);

    return copysign(sqrt(fmax(0, own * below * above)), s->z[i]);
}

double plait_secular_vector(const plait_secular_t *s, int64_t origin, double offset,
                            const double *const rows[2], double products[2])
{
    const double base = s->d[origin];
    lanes_t squares = {0}, firsts = {0}, seconds = {0};
    double square = 0, first = 0, second = 0;
    int64_t i = 0;

    for (; i + N_LANES <= s->n; i += N_LANES) {
        lanes_t d, z, a, b;
        load(&d, s->d + i);
        load(&z, s->z + i);
        load(&a, rows[0] + i);
        load(&b, rows[1] + i);
        const lanes_t x = z / ((d - base) - offset);
        squares += x * x;
        firsts += a * x;
        seconds += b * x;
    }
    for (; i < s->n; i++) {
        const double x = s->z[i] / ((s->d[i] - base) - offset);
        square += x * x;
        first += rows[0][i] * x;
        second += rows[1][i] * x;
    }
    const double scale = 1 / sqrt(square + total(&squares));
    products[0] = scale * (first + total(&firsts));
    products[1] = scale * (second + total(&seconds));
    return scale;
}

void plait_secular_column(const plait_secular_t *s, int64_t origin, double offset,
                          double scale, double x[])
{
    const double base = s->d[origin];
    int64_t i = 0;

    for (; i + N_LANES <= s->n; i += N_LANES) {
        lanes_t d, z;
        load(&d, s->d + i);
        load(&z, s->z + i);
        const lanes_t t = scale * z / ((d - base) - offset);
        memcpy(x + i, &t, sizeof(t));
    }
    for (; i < s->n; i++) {
        x[i] = scale * s->z[i] / ((s->d[i] - base) - offset);
    }
}
