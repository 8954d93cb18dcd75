/* Dense linear algebra on matrices whose block columns are dealt out to the ranks in turn.
 *
 * An m x n matrix is cut into blocks of `block` columns. Block k has the columns k * block to
 * (k + 1) * block - 1; the last block may have fewer. Block k belongs to rank k mod P and is block k div P
 * of that rank. A rank's array is column-major with leading dimension m. Seen as row-major, as planning sees
 * arrays, it has plait_dense_columns(n, block, P) rows of m elements, the same number on all ranks. The
 * columns behind a rank's own ones are never read in operands, and zero in results. As a layout (layout.h)
 * the matrix is the (n, m) array whose axis 0 is CYCLIC with `block`, and stored; plait_redist_plan moves
 * an array of any other layout to it.
 *
 * All matrices of one operation have the same block and dtype: PLAIT_F32, PLAIT_F64, PLAIT_C64 or
 * PLAIT_C128. Any extents are legal, also 0 and fewer than there are ranks.
 *
 * A BLAS and LAPACK library does the arithmetic. Making the first plan looks for it;
 * PLAIT_BLAS=/path/to/library names it. The number of ranks, and how they reach each other's memory, change
 * a result by rounding alone.
 *
 * All functions that plan return COMM (comm is NULL), INVALID (another pointer is NULL), OVERFLOW (extents
 * that do not fit the library's integers), UNSUPPORTED (no BLAS or LAPACK, a backend chosen by
 * plait_config_set), NO_MEMORY, and the errors listed with each. */
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

/* The triangle of a matrix that is read. */
typedef enum { PLAIT_UPLO_LOWER = 0, PLAIT_UPLO_UPPER = 1 } plait_uplo_t;

/* UNIT: the diagonal counts as 1 and is not read. */
typedef enum { PLAIT_DIAG_NON_UNIT = 0, PLAIT_DIAG_UNIT = 1 } plait_diag_t;

/* Which entries of an m x n matrix may differ from zero. The others are not read in operands, and are zero
 * in results. */
typedef enum {
    PLAIT_FORM_GENERAL = 0,
    PLAIT_FORM_LOWER = 1, /* row >= column */
    PLAIT_FORM_UPPER = 2,
    PLAIT_FORM_UNIT_LOWER = 3, /* with a diagonal of 1, which is not read */
    PLAIT_FORM_UNIT_UPPER = 4
} plait_form_t;

/** Number of columns in every rank's array of a dealt matrix: the first dimension of the array. Returns 0
 *  for arguments that no matrix has.
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
 *  Shapes: the operands are this rank's arrays of A and B, the result is its array of C, all dealt by
 *  `block` columns; C has memory of its own.
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
    /* Of B and X: GENERAL; or LOWER, for a lower triangular op(A). With LOWER only that part of B is read,
     * and X has that form, too; n_rhs need not be n. With the identity as B, X is the inverse, at a third
     * of the cost. */
    plait_form_t form;
    bool
        is_whole; /* every rank has all of B and X, n x n_rhs, the same on all; needs GENERAL */
} plait_trsm_problem_t;

/** Plans X = op(A)^-1 B with a triangular A. A zero on the diagonal puts Inf and NaN into X.
 *  With is_whole all ranks work, however few columns B has, and nothing of A travels. It is for B with too
 *  few columns to give each rank a block of them.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operands are this rank's arrays of A and B, the result is its array of X, all dealt by
 *  `block` columns; with is_whole B and X are whole and column-major. X may have the memory of B.
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
    /* Rows of the grid of ranks on which A is factored; a divisor of the number of ranks. 1: A stays in
     * block columns. 0: plait chooses the grid that it expects to be the fastest. */
    int64_t grid;
} plait_potrf_problem_t;

/** Plans A = L L^H for a Hermitian positive definite A. Only the lower triangle of A is read.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is this rank's array of A. The first result is its array of L, zero above the
 *  diagonal; it may have the memory of A. The second is one int32, the same on all ranks: 0, or the order of
 *  the first leading minor that is not positive definite; L is NaN then.
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
    bool is_whole; /* as in plait_trsm_problem_t */
} plait_potrs_problem_t;

/** Plans X = A^-1 B with the factor L of plait_potrf_plan. X is NaN if L is NaN.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operands are this rank's arrays of L and B, the result is its array of X, as in
 *  plait_trsm_plan. Only the lower triangle of L is read. X may have the memory of B.
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

/** Plans the lower triangle of A^-1 from the factor L of plait_potrf_plan. The result is NaN if L is NaN.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is this rank's array of L, of which only the lower triangle is read. The result is
 *  its array of the inverse, zero above the diagonal; it may have the memory of L. Work memory is one more
 *  array of this size.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as plait_potrs_plan.
 *  Source: Higham, Accuracy and Stability of Numerical Algorithms, 14.4 (method 2, by L^-1). */
PLAIT_EXPORT plait_status_t plait_potri_plan(const plait_comm_t *comm,
                                             const plait_potri_problem_t *problem,
                                             plait_plan_t **plan_p);

/* Problem of plait_getrf_plan and plait_geqrf_plan. */
typedef struct {
    plait_dtype_t dtype;
    int64_t m, n; /* A is m x n */
    int64_t block;
} plait_panels_problem_t;

/** Plans P A = L U, with partial pivoting.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is this rank's array of A. The first result is its array of U with L below the
 *  diagonal, without L's diagonal of 1; it may have the memory of A. The second is min(m, n) int32: entry i
 *  is the row that was exchanged with row i, counted from 0. The third is one int32: 0, or the first i,
 *  counted from 1, where U_ii is zero or not finite (all columns are done nevertheless). The second and the
 *  third are the same on all ranks.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (extents, block, dtype).
 *  Source: Golub, Van Loan, Matrix Computations, 3.4, with look-ahead. */
PLAIT_EXPORT plait_status_t plait_getrf_plan(const plait_comm_t *comm,
                                             const plait_panels_problem_t *problem,
                                             plait_plan_t **plan_p);

/** Plans A = Q R by Householder reflectors.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is this rank's array of A. The first result is its array of R with the reflectors
 *  below the diagonal, as LAPACK stores them; it may have the memory of A. The second is the min(m, n)
 *  scalar factors of the reflectors, the same on all ranks.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as plait_getrf_plan.
 *  Source: Golub, Van Loan, Matrix Computations, 5.2, with look-ahead. */
PLAIT_EXPORT plait_status_t plait_geqrf_plan(const plait_comm_t *comm,
                                             const plait_panels_problem_t *problem,
                                             plait_plan_t **plan_p);

typedef struct {
    plait_dtype_t dtype;
    int64_t m, k, n; /* Q is the Q of an m x k matrix, and C is m x n */
    int64_t block;
    bool is_adjoint;
} plait_ormqr_problem_t;

/** Plans Q C or Q^H C, with the full Q of plait_geqrf_plan.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operands are both results of plait_geqrf_plan (this rank's array and the scalar factors) and
 *  this rank's array of C; the result may have the memory of C.
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

/** Plans A = Q R of a tall A that is split by rows; the columns of Q are orthonormal. In contrast to
 *  plait_geqrf_plan only triangles of n (n + 1) / 2 elements travel: ceil(log2 P) of them one after the
 *  other on the way up, two at each of these levels on the way back. A rank may fill up its rows with rows
 *  of zeros at their end. These rows are zero in Q, unless A has less than full rank.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is this rank's rows of A, m x n, column-major (row-major an (n, m) array). The first
 *  result is its rows of Q, which may have the memory of A. The second is R, n x n, column-major, zero below
 *  the diagonal, with the same bits on all ranks. A rank's work memory is n (n + 1) + 2 n^2 ceil(log2 P)
 *  elements at most. Without Q the first result has no elements, only R comes back, and the work memory is
 *  n (n + 1) + 2 n^2 + m n elements at most. On a device triangles are stored as squares, and the work
 *  memory also has a copy of the rows and of one pair of triangles.
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
        first; /* the vectors are those of eigenvalues first, first + 1, ... from below */
} plait_heevd_problem_t;

/** Plans A = V diag(w) V^H of a Hermitian A: eigenvalues w, ascending, and eigenvectors V with V^H V = 1,
 *  either all n or a consecutive range. Only the lower triangle of A is read, and only the real part of its
 *  diagonal.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is this rank's array of A, dealt by `block` columns. The results have memory of their
 *  own. w: n numbers of the real dtype, the same on all ranks. V: n x n_vectors, dealt by
 *  ceil(n_vectors / P) columns, so that a rank's columns are contiguous; NULL is legal if there are no
 *  vectors. info: one int32, the same on all ranks: 0; or n + 1 if A has NaN or Inf; or another value, as
 *  LAPACK counts, if the iteration did not converge. w and V are NaN unless info is 0.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (extents, block, dtype, vectors that do not exist).
 *  Source: Dongarra, Sorensen, Hammarling, J. Comput. Appl. Math. 27, 1989 (reduction); Gu,
 *  Eisenstat, SIAM J. Matrix Anal. Appl. 16, 1995 (divide and conquer). */
PLAIT_EXPORT plait_status_t plait_heevd_plan(const plait_comm_t *comm,
                                             const plait_heevd_problem_t *problem,
                                             plait_plan_t **plan_p);

#ifdef __cplusplus
}
#endif
#endif
