/* Dense linear algebra on matrices whose block columns are dealt out to the ranks.
 *
 * Of an m x n matrix in blocks of `block` columns, block k (columns k * block to (k + 1) * block - 1,
 * the last one may have less) belongs to rank k mod P and is its (k div P)-th. A rank's array is
 * column-major with leading dimension m: row-major, as the planner sees arrays, it has
 * plait_dense_columns(n, block, P) rows of m elements, the same on all ranks. What is behind a rank's
 * own columns is never read, and zero in results. As a layout it is the (n, m) array whose axis 0
 * is CYCLIC with `block`, and stored (layout.h), so that plait_redist_plan makes it of any other one.
 *
 * All matrices of one operation have the same block and dtype: PLAIT_F32, PLAIT_F64, PLAIT_C64 or
 * PLAIT_C128. Any extents, also 0 and less than the number of ranks.
 *
 * The arithmetic is that of a BLAS and LAPACK library, which is looked for when the first plan is
 * made: PLAIT_BLAS=/path/to/library names it. A result depends on the number of ranks and on how
 * they reach each other's memory by rounding alone.
 *
 * All functions that plan return COMM (comm is NULL), INVALID (another pointer is), OVERFLOW (extents
 * that the library's integers do not hold), UNSUPPORTED (no BLAS or LAPACK, a backend chosen by
 * plait_config_set) and NO_MEMORY, besides what is said with each. */
#ifndef PLAIT_DENSE_H
#define PLAIT_DENSE_H

#include "plait/comm.h"
#include "plait/dtype.h"
#include "plait/plan.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* op(A): A itself, its transpose without conjugation, its adjoint (conjugate transpose). */
typedef enum {
    PLAIT_TRANS_NONE = 0,
    PLAIT_TRANS_PLAIN = 1,
    PLAIT_TRANS_ADJOINT = 2
} plait_trans_t;

/* Which triangle of a matrix is read. */
typedef enum { PLAIT_UPLO_LOWER = 0, PLAIT_UPLO_UPPER = 1 } plait_uplo_t;

/* UNIT: the diagonal is taken to be 1 and not read. */
typedef enum { PLAIT_DIAG_NON_UNIT = 0, PLAIT_DIAG_UNIT = 1 } plait_diag_t;

/* Which entries of an m x n matrix may differ from zero; others are not read in operands, and zero
 * in results. */
typedef enum {
    PLAIT_FORM_GENERAL = 0,
    PLAIT_FORM_LOWER = 1, /* row >= column */
    PLAIT_FORM_UPPER = 2,
    PLAIT_FORM_UNIT_LOWER = 3, /* with a diagonal of 1, which is not read */
    PLAIT_FORM_UNIT_UPPER = 4
} plait_form_t;

/** Columns of every rank's array of a dealt matrix: its first dimension. 0 for arguments that no
 *  matrix has.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT int64_t plait_dense_columns(int64_t n, int64_t block, int n_ranks);

typedef struct {
    plait_dtype_t dtype;
    int64_t m, n, k; /* C is m x n, op(A) is m x k, B is k x n */
    int64_t block;
    plait_trans_t trans; /* of A, which is stored as m x k or k x m */
    plait_form_t form_a; /* of A as it is stored */
    plait_form_t form_c; /* GENERAL; LOWER: only that part of the product is computed */
} plait_gemm_problem_t;

/** Plans C = op(A) B.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: operands are this rank's arrays of A and B, the result that of C, all dealt by `block`
 *  columns; C has memory of its own.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (extents, block, dtype, trans, forms).
 *  Source: SUMMA, van de Geijn, Watts, Concurrency 9(4), 1997, in one dimension. */
PLAIT_EXPORT plait_status_t plait_gemm_plan(const plait_comm_t *comm,
                                            const plait_gemm_problem_t *problem,
                                            plait_plan_t **plan_p);

typedef struct {
    plait_dtype_t dtype;
    int64_t n, n_rhs; /* A is n x n, B and X are n x n_rhs */
    int64_t block;
    plait_uplo_t uplo; /* of A as it is stored */
    plait_trans_t trans;
    plait_diag_t diag;
    /* GENERAL; LOWER, where op(A) is lower triangular: of B only that part is read, and X has it,
     * too; n_rhs need not be n. With the identity as B: the inverse, at a third of the cost. */
    plait_form_t form;
    bool
        is_whole; /* B and X are n x n_rhs on every rank, the same on all; needs GENERAL */
} plait_trsm_problem_t;

/** Plans X = op(A)^-1 B with a triangular A. A zero on the diagonal makes Inf and NaN of X.
 *  With is_whole all ranks work on any number of columns, and nothing of A travels: for fewer columns
 *  than give each rank a block of them.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: operands are this rank's arrays of A and B, the result that of X, all dealt by `block`
 *  columns, or with is_whole B and X whole, column-major; X may have the memory of B.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (extents, block, dtype, uplo, trans, diag, form).
 *  Source: own; block substitution, Golub, Van Loan, Matrix Computations, 3.1. */
PLAIT_EXPORT plait_status_t plait_trsm_plan(const plait_comm_t *comm,
                                            const plait_trsm_problem_t *problem,
                                            plait_plan_t **plan_p);

typedef struct {
    plait_dtype_t dtype;
    int64_t n; /* A is n x n */
    int64_t block;
    /* Rows of the grid of ranks that it is factored on, a divisor of their number. 1: it stays in block
     * columns; 0: what is expected to take the least time. */
    int64_t grid;
} plait_potrf_problem_t;

/** Plans A = L L^H for a Hermitian positive definite A, of which the lower triangle is read.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is this rank's array of A; results are that of L, zero above the diagonal,
 *  which may have the memory of A, and one int32, the same on all ranks: 0, or the order of the
 *  first leading minor that is not positive definite, where L is NaN.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (extents, block, dtype, grid).
 *  Source: Golub, Van Loan, Matrix Computations, 4.2.9, with look-ahead. */
PLAIT_EXPORT plait_status_t plait_potrf_plan(const plait_comm_t *comm,
                                             const plait_potrf_problem_t *problem,
                                             plait_plan_t **plan_p);

typedef struct {
    plait_dtype_t dtype;
    int64_t n, n_rhs; /* A is n x n, B and X are n x n_rhs */
    int64_t block;
    bool is_whole; /* as plait_trsm_problem_t has it */
} plait_potrs_problem_t;

/** Plans X = A^-1 B with the factor that plait_potrf_plan has made: NaN where that is NaN.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: operands are this rank's arrays of L, of which the lower triangle is read, and B, the result
 *  that of X, as plait_trsm_plan has them; X may have the memory of B.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (extents, block, dtype).
 *  Source: Golub, Van Loan, Matrix Computations, 4.2; both substitutions in one plan. */
PLAIT_EXPORT plait_status_t plait_potrs_plan(const plait_comm_t *comm,
                                             const plait_potrs_problem_t *problem,
                                             plait_plan_t **plan_p);

typedef struct {
    plait_dtype_t dtype;
    int64_t n; /* A is n x n */
    int64_t block;
} plait_potri_problem_t;

/** Plans the lower triangle of A^-1 from the factor that plait_potrf_plan has made: NaN where that is NaN.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is this rank's array of L, of which the lower triangle is read, the result that of
 *  the inverse, zero above the diagonal, which may have the memory of L. Work is one more of them.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as plait_potrs_plan.
 *  Source: Higham, Accuracy and Stability of Numerical Algorithms, 14.4 (method 2, by L^-1). */
PLAIT_EXPORT plait_status_t plait_potri_plan(const plait_comm_t *comm,
                                             const plait_potri_problem_t *problem,
                                             plait_plan_t **plan_p);

/* Of getrf and geqrf. */
typedef struct {
    plait_dtype_t dtype;
    int64_t m, n; /* A is m x n */
    int64_t block;
} plait_panels_problem_t;

/** Plans P A = L U, with partial pivoting.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is this rank's array of A. Results are that of U with the rest of L below it,
 *  which may have the memory of A; min(m, n) int32, the row that was exchanged with row i, counted
 *  from 0; and one int32: 0, or the first i, counted from 1, where U_ii is zero or not finite (all
 *  columns are done nevertheless). The last two are the same on all ranks.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (extents, block, dtype).
 *  Source: Golub, Van Loan, Matrix Computations, 3.4, with look-ahead. */
PLAIT_EXPORT plait_status_t plait_getrf_plan(const plait_comm_t *comm,
                                             const plait_panels_problem_t *problem,
                                             plait_plan_t **plan_p);

/** Plans A = Q R by Householder reflectors.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is this rank's array of A. Results are that of R with the reflectors below it,
 *  as LAPACK stores them, which may have the memory of A; and the min(m, n) scalar factors of the
 *  reflectors, the same on all ranks.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as plait_getrf_plan.
 *  Source: Golub, Van Loan, Matrix Computations, 5.2, with look-ahead. */
PLAIT_EXPORT plait_status_t plait_geqrf_plan(const plait_comm_t *comm,
                                             const plait_panels_problem_t *problem,
                                             plait_plan_t **plan_p);

typedef struct {
    plait_dtype_t dtype;
    int64_t m, k, n; /* Q is that of an m x k matrix, and C is m x n */
    int64_t block;
    bool is_adjoint;
} plait_ormqr_problem_t;

/** Plans Q C or Q^H C, with the full Q that plait_geqrf_plan has made.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: operands are this rank's array of the factors, the factors of the reflectors, and this
 *  rank's array of C; the result may have the memory of C.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as plait_getrf_plan.
 *  Source: Schreiber, Van Loan, SIAM J. Sci. Stat. Comput. 10(1), 1989. */
PLAIT_EXPORT plait_status_t plait_ormqr_plan(const plait_comm_t *comm,
                                             const plait_ormqr_problem_t *problem,
                                             plait_plan_t **plan_p);

typedef struct {
    plait_dtype_t dtype;
    int64_t m, n;   /* rows of A on every rank, at least n; columns */
    bool without_q; /* R alone, in half of the time */
} plait_tsqr_problem_t;

/** Plans A = Q R of a tall A that is split by rows, with orthonormal columns of Q: what
 *  plait_geqrf_plan does at the price of triangles alone, ceil(log2 P) of n (n + 1) / 2 elements one after
 *  the other, and back two each time. A rank may fill up its rows with zeros at their end: these are
 *  zero in Q, unless A has less than full rank.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is this rank's rows of A, column-major, m x n: row-major an (n, m) array. Results
 *  are its rows of Q, which may have the memory of A, and R, column-major, n x n, zero below the
 *  diagonal and the same bits on all ranks. A rank's work is n (n + 1) + 2 n^2 ceil(log2 P) elements at
 *  most. Without Q the first result has no elements, nothing but R comes back, and the work is
 *  n (n + 1) + 2 n^2 + m n elements at most. On a device triangles are squares, and rows and a pair have
 *  a copy.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (extents, m < n, dtype).
 *  Source: Demmel, Grigori, Hoemmen, Langou, SIAM J. Sci. Comput. 34(1), 2012. */
PLAIT_EXPORT plait_status_t plait_tsqr_plan(const plait_comm_t *comm,
                                            const plait_tsqr_problem_t *problem,
                                            plait_plan_t **plan_p);

typedef struct {
    plait_dtype_t dtype;
    int64_t n; /* A is n x n */
    int64_t block;
    int64_t n_vectors; /* 0: eigenvalues alone */
    int64_t
        first; /* eigenvectors of the eigenvalues first, first + 1, ... from below */
} plait_heevd_problem_t;

/** Plans A = V diag(w) V^H of a Hermitian A: eigenvalues w, ascending, and eigenvectors V with
 *  V^H V = 1, all n or some that follow each other. Only the lower triangle of A is read, of its
 *  diagonal the real part.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is this rank's array of A, dealt by `block` columns. Results: w, n numbers of
 *  the real dtype, the same on all ranks; V, n x n_vectors, dealt by ceil(n_vectors / P) columns, so
 *  that a rank's are contiguous, and NULL may be given where there are none; info, one int32, the
 *  same on all ranks: 0, or not 0 where A has NaN or Inf (n + 1) or the iteration did not converge
 *  (as LAPACK counts): w and V are NaN then. Results have memory of their own.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (extents, block, dtype, vectors that there are not).
 *  Source: Dongarra, Sorensen, Hammarling, J. Comput. Appl. Math. 27, 1989 (reduction); Gu,
 *  Eisenstat, SIAM J. Matrix Anal. Appl. 16, 1995 (divide and conquer). */
PLAIT_EXPORT plait_status_t plait_heevd_plan(const plait_comm_t *comm,
                                             const plait_heevd_problem_t *problem,
                                             plait_plan_t **plan_p);

#ifdef __cplusplus
}
#endif
#endif
