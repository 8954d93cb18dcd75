#include "kernel/fft_turn.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "kernel/fft_twiddle.h"

#include <stdbool.h>
#include <stddef.h>

/* Rows and columns of a tile: 16 lines of 16 complex numbers on each side stay in L1. */
enum { TILE = 16 };

/* exp(sign 2 pi i m / n) = coarse[m >> shift] fine[m mod 2^shift]. */
struct plait_turn {
    bool is_single;
    int shift;
    double *coarse, *fine;
};

typedef struct {
    int64_t n_rows, n_columns, n_inner, first;
    int64_t r_lo, r_hi, c_lo, c_hi;
} tile_t;

static inline void root(const plait_turn_t *turn, int64_t m, double w[2])
{
    const double *u = turn->coarse + 2 * (m >> turn->shift);
    const double *v = turn->fine + 2 * (m & (((int64_t)1 << turn->shift) - 1));

    w[0] = u[0] * v[0] - u[1] * v[1];
    w[1] = u[1] * v[0] + u[0] * v[1];
}

#define SCALAR      float
#define NAME(_name) _name##_f32
#include "kernel/fft_turn.inc"
#undef SCALAR
#undef NAME
#define SCALAR      double
#define NAME(_name) _name##_f64
#include "kernel/fft_turn.inc"
#undef SCALAR
#undef NAME

static void fill(const plait_roots_t *roots, int64_t count, int64_t step, int sign,
                 double *w)
{
    for (int64_t i = 0; i < count; i++) {
        plait_roots_get(roots, i * step, w + 2 * i);
        w[2 * i + 1] *= -sign; /* the roots have sign -1 */
    }
}

plait_status_t plait_turn_create(int64_t n, plait_dtype_t dtype, int sign,
                                 plait_turn_t **turn_p)
{
    plait_status_t status = PLAIT_OK;
    plait_turn_t *turn = plait_alloc(1, sizeof(*turn));
    plait_roots_t roots = {0};
    int64_t n_fine = 1;

    PLAIT_CHECK(turn != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a transform");
    turn->is_single = dtype == PLAIT_C64;
    while (n_fine < n / n_fine) {
        n_fine *= 2;
        turn->shift++;
    }
    const int64_t n_coarse = ((n - 1) >> turn->shift) + 1;
    turn->coarse = plait_alloc(2 * n_coarse, sizeof(double));
    turn->fine = plait_alloc(2 * n_fine, sizeof(double));
    PLAIT_CHECK(turn->coarse != NULL && turn->fine != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for %lld roots of unity", (long long)(n_coarse + n_fine));
    PLAIT_TRY(plait_roots_create(n, &roots));
    fill(&roots, n_coarse, n_fine, sign, turn->coarse);
    fill(&roots, plait_min(n_fine, n), 1, sign, turn->fine);
    *turn_p = turn;
    turn = NULL;
done:
    plait_roots_destroy(&roots);
    plait_turn_destroy(&turn);
    return status;
}

void plait_turn_destroy(plait_turn_t **turn_p)
{
    plait_turn_t *turn = *turn_p;

    if (turn != NULL) {
        plait_free(turn->coarse);
        plait_free(turn->fine);
        plait_free(turn);
        *turn_p = NULL;
    }
}

void plait_turn_run(const plait_turn_t *turn, int64_t n_rows, int64_t first,
                    int64_t n_columns, int64_t n_inner, const void *in, void *out)
{
    tile_t tile = {
        .n_rows = n_rows, .n_columns = n_columns, .n_inner = n_inner, .first = first};

    for (int64_t c = 0; c < n_columns; c += TILE) {
        tile.c_lo = c;
        tile.c_hi = plait_min(c + TILE, n_columns);
        for (int64_t r = 0; r < n_rows; r += TILE) {
            tile.r_lo = r;
            tile.r_hi = plait_min(r + TILE, n_rows);
            if (turn->is_single) {
                turn_tile_f32(turn, &tile, in, out);
            } else {
                turn_tile_f64(turn, &tile, in, out);
            }
        }
    }
}
