#include "matrix.h"

#include "rounds.h"

#include <stdlib.h>

static int64_t n_local(int64_t n, int64_t block, int grid, int at)
{
    const int64_t n_full = n / block;
    const int64_t mine = n_full / grid + (at < n_full % grid);

    return mine * block + ((n_full % grid == at) ? n % block : 0);
}

matrix_t matrix_create(int64_t n, const int64_t block[2], const int grid[2],
                       const int at[2], int64_t n_columns)
{
    matrix_t m = {.n = n};

    for (int axis = 0; axis < 2; axis++) {
        m.block[axis] = block[axis];
        m.grid[axis] = grid[axis];
        m.at[axis] = at[axis];
        m.local[axis] = n_local(n, block[axis], grid[axis], at[axis]);
    }
    m.ld = (m.local[0] > 0) ? m.local[0] : 1;
    n_columns = (n_columns > m.local[1]) ? n_columns : m.local[1];
    m.n_bytes = (size_t)(m.ld * n_columns) * sizeof(double);
    m.data = bench_alloc(m.n_bytes);
    return m;
}

matrix_t matrix_create_whole(int64_t n)
{
    return matrix_create(n, (const int64_t[]){n, n}, (const int[]){1, 1},
                         (const int[]){0, 0}, n);
}

void matrix_destroy(matrix_t *m)
{
    free(m->data);
    m->data = NULL;
}

int64_t matrix_index(const matrix_t *m, int axis, int64_t i)
{
    const int64_t block = m->block[axis];

    return (i / block * m->grid[axis] + m->at[axis]) * block + i % block;
}

/* In [-0.5, 0.5), the same for any layout. */
static double element(int64_t n, int64_t i, int64_t j)
{
    const uint64_t mixed = (uint64_t)(j * n + i + 1) * UINT64_C(0x9E3779B97F4A7C15);

    return (double)((mixed ^ (mixed >> 29)) >> 40 & 0xffffff) * 0x1p-24 - 0.5;
}

void matrix_fill(matrix_t *m, matrix_kind_t kind)
{
    for (int64_t c = 0; c < m->local[1]; c++) {
        const int64_t j = matrix_index(m, 1, c);
        for (int64_t r = 0; r < m->local[0]; r++) {
            const int64_t i = matrix_index(m, 0, r);
            const int is_swapped = kind != MATRIX_GENERAL && i < j;
            m->data[c * m->ld + r] =
                element(m->n, is_swapped ? j : i, is_swapped ? i : j) +
                ((kind == MATRIX_POSITIVE && i == j) ? (double)m->n : 0);
        }
    }
}

static int is_in(matrix_part_t part, int64_t i, int64_t j)
{
    return part == MATRIX_FULL || (part == MATRIX_UPPER && i <= j) ||
           (part == MATRIX_UNIT_LOWER && i > j) ||
           ((part == MATRIX_LOWER || part == MATRIX_MIRRORED) && i >= j);
}

void matrix_times(const matrix_t *m, matrix_part_t part, int is_transposed,
                  const double x[], double y[])
{
    for (int64_t c = 0; c < m->local[1]; c++) {
        const int64_t j = matrix_index(m, 1, c);
        for (int64_t r = 0; r < m->local[0]; r++) {
            const int64_t i = matrix_index(m, 0, r);
            double value = is_in(part, i, j) ? m->data[c * m->ld + r] : 0;

            value = (part == MATRIX_UNIT_LOWER && i == j) ? 1 : value;
            y[is_transposed ? j : i] += value * x[is_transposed ? i : j];
            if (part == MATRIX_MIRRORED && i > j) {
                y[j] += value * x[i];
            }
        }
    }
}
