/* Divide and conquer for a symmetric tridiagonal matrix: merges two halves whose eigenvalues are known. A
 * merge needs only the first and last rows of the halves' eigenvectors, and makes only these rows of the
 * whole matrix's eigenvectors. It keeps what is needed to make any of the vectors later.
 *
 * The eigenvectors are Q = diag(Q1, Q2) R F [S 0; 0 1] O with
 *
 *   R  rotations that deflate equal eigenvalues of the halves
 *   F  an order in which the K eigenvalues that are not deflated come first
 *   S  the vectors of a diagonal matrix plus a matrix of rank one (secular.h)
 *   O  the order in which eigenvalues ascend
 *
 * Source: Cuppen, Numer. Math. 36, 1981; Gu, Eisenstat, SIAM J. Matrix Anal. Appl. 16, 1995. */
#ifndef PLAIT_DENSE_MERGE_H
#define PLAIT_DENSE_MERGE_H

#include "dense/secular.h"

/* A merge of n eigenvalues. Arrays have n entries. */
typedef struct {
    int64_t n, n_first;                /* of both halves, of the first half */
    int64_t *n_kept_p, *n_rotations_p; /* K */
    double *d, *z, *offset, *scale; /* K poles and weights; K roots, and 1 / |vector| */
    int64_t *origin;
    int64_t *from;         /* F: for each place, the column of diag(Q1, Q2) R */
    int64_t *order;        /* O: for each eigenvalue, its place */
    int64_t *left, *right; /* of the rotations: columns, */
    double *c, *s;         /* left' = c left + s right, right' = c right - s left */
} plait_merge_t;

/* In: of the halves, out: of the whole matrix. Eigenvalues ascend. */
typedef struct {
    double *values;
    double *first, *last; /* rows of the vectors */
} plait_ends_t;

typedef struct {
    double key;
    int64_t place;
} plait_merge_pair_t;

/* Work arrays of n entries, for one merge at a time. */
typedef struct {
    double *z, *rows[2], *packed[2], *values, *weights, *base;
    plait_merge_pair_t *pairs;
} plait_merge_room_t;

/* coupling: the element of the tridiagonal matrix between the halves. Its absolute value has been subtracted
 * from the diagonal elements on both sides of it. */
void plait_merge(const plait_merge_t *m, double coupling, const plait_ends_t *ends,
                 const plait_merge_room_t *room);

/* The secular problem, which remains after deflation. */
plait_secular_t plait_merge_secular(const plait_merge_t *m);

#endif
