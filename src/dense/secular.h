/* Eigenvalues of a diagonal matrix plus a matrix of rank one, D + rho z z^T, and what is needed to make their
 * eigenvectors. Poles ascend and differ, no element of z is 0, rho > 0, |z| = 1; all in double.
 *
 * A root is kept as its distance from the nearer pole, so that all differences of poles and roots have small
 * relative errors. z is replaced by the vector for which the computed roots are exact; this makes the vectors
 * orthogonal to working precision however close roots are.
 * Source: Gu, Eisenstat, SIAM J. Matrix Anal. Appl. 15, 1994; Li, LAPACK Working Note 89, 1994. */
#ifndef PLAIT_DENSE_SECULAR_H
#define PLAIT_DENSE_SECULAR_H

#include <stdint.h>

typedef struct {
    int64_t n;
    const double *d; /* poles */
    const double *z;
    double rho;
} plait_secular_t;

/* Root j, between poles j and j + 1: d[*origin_p] + *offset_p. */
void plait_secular_root(const plait_secular_t *s, int64_t j, int64_t *origin_p,
                        double *offset_p);

/* Element i of the vector for which the roots are base[j] + offset[j], up to a factor that all elements share.
 * base[j] is the pole from which root j is measured. */
double plait_secular_weight(const plait_secular_t *s, int64_t i, const double base[],
                            const double offset[]);

/* Needs s->z replaced by plait_secular_weight. With x[i] = z[i] / (d[i] - root j) for vector j: returns 1 /
 * |x|, and the inner products of two rows with x / |x|. */
double plait_secular_vector(const plait_secular_t *s, int64_t origin, double offset,
                            const double *const rows[2], double products[2]);

/* x[i] = scale z[i] / (d[i] - root). */
void plait_secular_column(const plait_secular_t *s, int64_t origin, double offset,
                          double scale, double x[]);

#endif
