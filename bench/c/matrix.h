/* Matrices of doubles that are dealt out by blocks over a grid of processes, made by a formula. */
#ifndef BENCH_MATRIX_H
#define BENCH_MATRIX_H

#include <stddef.h>
#include <stdint.h>

/* POSITIVE: symmetric and positive definite. */
typedef enum { MATRIX_GENERAL, MATRIX_SYMMETRIC, MATRIX_POSITIVE } matrix_kind_t;

/* Which entries count; those of SYMMETRIC are in the lower triangle. */
typedef enum {
    MATRIX_FULL,
    MATRIX_LOWER,
    MATRIX_UNIT_LOWER,
    MATRIX_UPPER,
    MATRIX_MIRRORED
} matrix_part_t;

/* A process's part of an n x n matrix, column-major. Of each pair, the first is of rows. */
typedef struct {
    int64_t n, block[2];
    int grid[2], at[2]; /* extents; this process's coordinates */
    int64_t local[2];   /* rows and columns that are here */
    int64_t ld;
    double *data;
    size_t n_bytes; /* as allocated */
} matrix_t;

/* Memory for n_columns columns, at least those of this process. */
matrix_t matrix_create(int64_t n, const int64_t block[2], const int grid[2],
                       const int at[2], int64_t n_columns);

/* The whole matrix in one process. */
matrix_t matrix_create_whole(int64_t n);

void matrix_destroy(matrix_t *m);

void matrix_fill(matrix_t *m, matrix_kind_t kind);

/* Global index of local row (axis 0) or column (axis 1) i. */
int64_t matrix_index(const matrix_t *m, int axis, int64_t i);

/* y += (part of m) x, or its transpose times x, as far as this process has it; x and y are whole. */
void matrix_times(const matrix_t *m, matrix_part_t part, int is_transposed,
                  const double x[], double y[]);

#endif
