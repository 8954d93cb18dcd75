/* Parameters of the dense operations, as XLA's attributes name them. */
#ifndef PLAIT_DENSE_PARAMS_H
#define PLAIT_DENSE_PARAMS_H

#include <stdint.h>

typedef struct {
    int64_t m, n, k; /* c is m x n, and the sum is over an extent of k */
    int64_t trans;   /* plait_trans_t, of a */
    int64_t block;
    int64_t form_a; /* plait_form_t of a, as it is stored */
    int64_t form_c; /* PLAIT_FORM_GENERAL or PLAIT_FORM_LOWER */
} plait_gemm_params_t;

typedef struct {
    int64_t n, n_rhs;
    int64_t block;
    int64_t uplo;  /* plait_uplo_t */
    int64_t trans; /* plait_trans_t */
    int64_t diag;  /* plait_diag_t */
    int64_t
        form; /* of right-hand side and solution: PLAIT_FORM_GENERAL or PLAIT_FORM_LOWER */
    int64_t whole; /* 1: all ranks have all columns of both, 0: columns are dealt */
} plait_trsm_params_t;

typedef struct {
    int64_t n, block;
    int64_t grid; /* rows of the grid of ranks; 0: chosen by cost, 1: block columns */
} plait_potrf_params_t;

typedef struct {
    int64_t n, n_rhs;
    int64_t block;
    int64_t whole; /* as for trsm */
} plait_potrs_params_t;

typedef struct {
    int64_t n, block;
} plait_potri_params_t;

typedef struct {
    int64_t m, k, n; /* Q is of an m x k matrix, the operand m x n */
    int64_t trans;   /* 0: Q, 1: its adjoint */
    int64_t block;
} plait_ormqr_params_t;

/* For getrf and geqrf. */
typedef struct {
    int64_t m, n, block;
} plait_panels_params_t;

typedef struct {
    int64_t m, n;      /* rows of every rank, columns */
    int64_t without_q; /* 1: R alone */
} plait_tsqr_params_t;

typedef struct {
    int64_t n;
    int64_t block;
    int64_t first, vectors; /* first eigenvector that is wanted, number of them */
} plait_heevd_params_t;

#endif
