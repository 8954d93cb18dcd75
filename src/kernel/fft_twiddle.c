#include "kernel/fft_twiddle.h"

#include "base/alloc.h"
#include "base/status.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

static void fill(plait_wide_t *table, int64_t count, int64_t step, int64_t n)
{
    const long double unit = 6.283185307179586476925286766559L / (8 * (long double)n);

    for (int64_t i = 0; i < count; i++) {
        long double angle = unit * (long double)(i * step);

        table[2 * i] = (plait_wide_t)cosl(angle);
        table[2 * i + 1] = (plait_wide_t)sinl(angle);
    }
}

plait_status_t plait_roots_create(int64_t n, plait_roots_t *roots_p)
{
    plait_status_t status = PLAIT_OK;
    plait_roots_t roots = {.n = n};
    int64_t n_fine = 1, n_coarse = 0;

    while (n_fine * n_fine < n) {
        n_fine *= 2;
        roots.shift++;
    }
    n_coarse = (n >> roots.shift) + 1;
    roots.coarse = plait_alloc(2 * n_coarse, sizeof *roots.coarse);
    roots.fine = plait_alloc(2 * n_fine, sizeof *roots.fine);
    PLAIT_CHECK((roots.coarse != NULL) && (roots.fine != NULL), PLAIT_ERR_NO_MEMORY,
                "no memory for %lld roots of unity", (long long)(n_coarse + n_fine));
    fill(roots.coarse, n_coarse, n_fine, n);
    fill(roots.fine, n_fine, 1, n);
    *roots_p = roots;
    roots = (plait_roots_t){0};
done:
    plait_roots_destroy(&roots);
    return status;
}

void plait_roots_destroy(plait_roots_t *roots)
{
    plait_free(roots->coarse);
    plait_free(roots->fine);
    *roots = (plait_roots_t){0};
}

/* Integers fold the angle into the first octant, so that multiples of pi / 4 and symmetric angles give equal
 * results to the last bit. */
static void get(const plait_roots_t *roots, int64_t t, plait_wide_t w[2])
{
    const int64_t n = roots->n;
    const bool lower = 2 * t > n;
    int64_t a = 8 * (lower ? n - t : t);
    const bool left = a > 2 * n;
    a = left ? 4 * n - a : a;
    const bool steep = a > n;
    a = steep ? 2 * n - a : a;
    const plait_wide_t *u = roots->coarse + 2 * (a >> roots->shift);
    const plait_wide_t *v = roots->fine + 2 * (a & (((int64_t)1 << roots->shift) - 1));
    const plait_wide_t c = u[0] * v[0] - u[1] * v[1], s = u[1] * v[0] + u[0] * v[1];

    w[0] = steep ? s : c;
    w[1] = steep ? c : s;
    w[0] = left ? -w[0] : w[0];
    w[1] = lower ? w[1] : -w[1];
}

void plait_roots_get(const plait_roots_t *roots, int64_t t, double w[2])
{
    plait_wide_t wide[2];

    get(roots, t, wide);
    w[0] = (double)wide[0];
    w[1] = (double)wide[1];
}

void plait_roots_powers(const plait_roots_t *roots, int64_t step, int64_t count,
                        double *w)
{
    enum { CHUNK = 32 };
    plait_wide_t fine[CHUNK][2];
    plait_wide_t start[2] = {0, 0};

    for (int64_t j = 0; j < CHUNK && j < count; j++) {
        get(roots, step * j, fine[j]);
    }
    for (int64_t j = 0; j < count; j++) {
        const plait_wide_t *v = fine[j % CHUNK];

        if (j % CHUNK == 0) {
            get(roots, step * j, start);
        }
        w[2 * j] = (double)(start[0] * v[0] - start[1] * v[1]);
        w[2 * j + 1] = (double)(start[1] * v[0] + start[0] * v[1]);
    }
}
