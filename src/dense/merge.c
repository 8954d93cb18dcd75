#include "dense/merge.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    const plait_merge_pair_t *x = a, *y = b;
    const int by_key = (x->key > y->key) - (x->key < y->key);

    return (by_key != 0) ? by_key : (x->place > y->place) - (x->place < y->place);
}

static void sort(int64_t n, const double keys[], plait_merge_pair_t pairs[])
{
    for (int64_t i = 0; i < n; i++) {
        pairs[i] = (plait_merge_pair_t){keys[i], i};
    }
    qsort(pairs, (size_t)n, sizeof(*pairs), ascending);
}

/* A change of eigenvalues by less than this is rounding. */
static double tolerance_of(const plait_merge_t *m, const double values[],
                           const double z[])
{
    double largest = 0;

    for (int64_t i = 0; i < m->n; i++) {
        largest = fmax(largest, fmax(fabs(values[i]), fabs(z[i])));
    }
    return 8 * (DBL_EPSILON / 2) * largest;
}

static void rotate(double *left, double *right, double c, double s)
{
    const double x = *left, y = *right;

    *left = c * x + s * y;
    *right = c * y - s * x;
}

/* If two successive eigenvalues are so close that a rotation which removes the first one's part of z costs no
 * more than rounding: makes this rotation, and returns true. */
static bool deflates(const plait_merge_t *m, int64_t left, int64_t right,
                     double tolerance, double values[], const plait_merge_room_t *room)
{
    double *z = room->z;
    const double r = hypot(z[left], z[right]);
    const double c = z[right] / r, s = -z[left] / r;
    const double gap = values[right] - values[left];
    const bool is_close = fabs(gap * c * s) <= tolerance;

    if (is_close) {
        const double low = values[left], high = values[right];
        const int64_t k = (*m->n_rotations_p)++;
        z[right] = r;
        z[left] = 0;
        values[left] = low * c * c + high * s * s;
        values[right] = low * s * s + high * c * c;
        rotate(&room->rows[0][left], &room->rows[0][right], c, s);
        rotate(&room->rows[1][left], &room->rows[1][right], c, s);
        m->left[k] = left;
        m->right[k] = right;
        m->c[k] = c;
        m->s[k] = s;
    }
    return is_close;
}

/* Makes F, and the poles that are not deflated. */
static void deflate(const plait_merge_t *m, double rho, double values[],
                    const plait_merge_room_t *room)
{
    const double tolerance = tolerance_of(m, values, room->z);
    int64_t n_kept = 0, n_deflated = 0, last = -1;

    sort(m->n, values, room->pairs);
    for (int64_t i = 0; i <= m->n; i++) {
        const int64_t at = (i < m->n) ? room->pairs[i].place : -1;
        if (at >= 0 && rho * fabs(room->z[at]) <= tolerance) {
            m->from[m->n - ++n_deflated] = at;
            continue;
        }
        if (last >= 0 && at >= 0 && deflates(m, last, at, tolerance, values, room)) {
            m->from[m->n - ++n_deflated] = last;
        } else if (last >= 0) {
            m->from[n_kept] = last;
            m->d[n_kept] = values[last];
            m->z[n_kept] = room->z[last];
            n_kept++;
        }
        last = at;
    }
    *m->n_kept_p = n_kept;
}

plait_secular_t plait_merge_secular(const plait_merge_t *m)
{
    return (plait_secular_t){.n = *m->n_kept_p, .d = m->d, .z = m->z};
}

/* Makes S, and multiplies the two rows with its vectors. */
static void solve(const plait_merge_t *m, double rho, const plait_merge_room_t *room)
{
    const double *const rows[] = {room->packed[0], room->packed[1]};
    plait_secular_t s = plait_merge_secular(m);

    s.rho = rho;
    for (int64_t j = 0; j < s.n; j++) {
        plait_secular_root(&s, j, &m->origin[j], &m->offset[j]);
        room->base[j] = m->d[m->origin[j]];
        room->values[j] = room->base[j] + m->offset[j];
    }
    for (int64_t i = 0; i < s.n; i++) {
        room->weights[i] = plait_secular_weight(&s, i, room->base, m->offset);
    }
    for (int64_t i = 0; i < s.n; i++) {
        m->z[i] = room->weights[i];
    }
    for (int64_t j = 0; j < s.n; j++) {
        double products[2];
        m->scale[j] =
            plait_secular_vector(&s, m->origin[j], m->offset[j], rows, products);
        room->rows[0][j] = products[0];
        room->rows[1][j] = products[1];
    }
}

void plait_merge(const plait_merge_t *m, double coupling, const plait_ends_t *ends,
                 const plait_merge_room_t *room)
{
    const double rho = 2 * fabs(coupling), sign = copysign(1, coupling);

    *m->n_rotations_p = 0;
    for (int64_t i = 0; i < m->n; i++) {
        const bool is_first = i < m->n_first;
        room->z[i] = (is_first ? ends->last[i] : sign * ends->first[i]) * sqrt(0.5);
        room->rows[0][i] = is_first ? ends->first[i] : 0;
        room->rows[1][i] = is_first ? 0 : ends->last[i];
    }
    deflate(m, rho, ends->values, room);
    for (int64_t p = 0; p < m->n; p++) {
        room->packed[0][p] = room->rows[0][m->from[p]];
        room->packed[1][p] = room->rows[1][m->from[p]];
        room->values[p] = ends->values[m->from[p]];
    }
    solve(m, rho, room);
    for (int64_t p = *m->n_kept_p; p < m->n; p++) {
        room->rows[0][p] = room->packed[0][p];
        room->rows[1][p] = room->packed[1][p];
    }
    sort(m->n, room->values, room->pairs);
    for (int64_t i = 0; i < m->n; i++) {
        const int64_t p = room->pairs[i].place;
        m->order[i] = p;
        ends->values[i] = room->values[p];
        ends->first[i] = room->rows[0][p];
        ends->last[i] = room->rows[1][p];
    }
}
