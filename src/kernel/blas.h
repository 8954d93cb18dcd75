/* The table of BLAS and LAPACK functions. plait is linked with no BLAS: pointers come from the caller (Python
 * gives those that SciPy ships) or from a library that is opened when it is first needed.
 *
 * Integers are passed as addresses of int64_t: a library with 32-bit integers reads the lower half
 * (little-endian), a library with 64-bit integers reads all of it. Arrays of integers have the library's own
 * type, of plait_blas_int_bytes() each. Strings are one letter. Their hidden lengths, which Fortran puts after
 * the last argument, are always passed: a function that does not expect them does not see them. */
#ifndef PLAIT_KERNEL_BLAS_H
#define PLAIT_KERNEL_BLAS_H

#include "plait/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* The one list: enumerator, stem of the function for real and for complex numbers. The letters
 * s, d, c, z stand before it. */
#define PLAIT_BLAS_FOR_EACH(_row) \
    _row(GEMM, gemm, gemm)        \
    _row(HERK, syrk, herk)        \
    _row(HER2K, syr2k, her2k)     \
    _row(HEMM, symm, hemm)        \
    _row(TRSM, trsm, trsm)        \
    _row(TRMM, trmm, trmm)        \
    _row(GEMV, gemv, gemv)        \
    _row(HEMV, symv, hemv)        \
    _row(TRMV, trmv, trmv)        \
    _row(GER, ger, gerc)          \
    _row(POTRF, potrf, potrf)     \
    _row(TRTRI, trtri, trtri)     \
    _row(LAUUM, lauum, lauum)     \
    _row(GETRF, getrf, getrf)     \
    _row(LASWP, laswp, laswp)     \
    _row(GEQRF, geqrf, geqrf)     \
    _row(ORGQR, orgqr, ungqr)     \
    _row(ORMQR, ormqr, unmqr)     \
    _row(LARFG, larfg, larfg)     \
    _row(LARFT, larft, larft)     \
    _row(LARFB, larfb, larfb)     \
    _row(HEEVD, syevd, heevd)     \
    _row(STEMR, stemr, stemr)     \
    _row(STEDC, stedc, stedc)     \
    _row(GESVD, gesvd, gesvd)     \
    _row(LANGE, lange, lange)     \
    _row(LANHE, lansy, lanhe)

typedef enum {
#define PLAIT_BLAS_ENUM(_op, _real, _complex) \
    PLAIT_BLAS_##_op                          \
    ,
    PLAIT_BLAS_FOR_EACH(PLAIT_BLAS_ENUM)
#undef PLAIT_BLAS_ENUM
        PLAIT_BLAS_N_OPS
} plait_blas_op_t;

typedef void (*plait_blas_fn_t)(void);

/* ---- The table ------------------------------------------------------------------------------ */

/** Names of the functions, "dgemm" and so on; NULL outside 0 <= i < plait_blas_count(). */
PLAIT_EXPORT int plait_blas_count(void);
PLAIT_EXPORT const char *plait_blas_name(int i);

/** One pointer. INVALID: no such name, or NULL. Before the first plait_blas_require. */
PLAIT_EXPORT plait_status_t plait_blas_fill(const char *name, void *pointer);

/** All pointers, from a library; `path` is a file or soname, or several with ':' between them, which
 *  together have all functions. The names may have the prefix scipy_ and the suffixes _, 64_, _64_.
 *  UNSUPPORTED: what does not open, or the first function that is missing; nothing is changed. */
PLAIT_EXPORT plait_status_t plait_blas_load(const char *path);

/** The table is complete, afterwards: if not filled by the caller, then from PLAIT_BLAS, or from
 *  the program itself, or from the usual libraries. Every rank's planner calls it before the first
 *  of the functions below; from any thread.
 *  UNSUPPORTED: what was looked for, and where. */
PLAIT_EXPORT plait_status_t plait_blas_require(void);

/** Whether all pointers are there. */
PLAIT_EXPORT bool plait_blas_is_complete(void);

/** Empties the table, for tests. */
PLAIT_EXPORT void plait_blas_clear(void);

/** A pointer of the table; NULL for a dtype that is none of F32, F64, C64, C128. */
PLAIT_EXPORT plait_blas_fn_t plait_blas_find(plait_blas_op_t op, plait_dtype_t dtype);

/** 4 or 8, found out by a call; 0 as long as the table is not complete. */
PLAIT_EXPORT int plait_blas_int_bytes(void);

/** OVERFLOW unless the library's integers hold n: extents, and sizes of workspaces. */
PLAIT_EXPORT plait_status_t plait_blas_fits(int64_t n);

/** File of the library, as far as is known (that of dgemm, where no setter of threads is found), and
 *  the kernels that OpenBLAS chose: "SkylakeX"; "" where it is another library. Static. */
PLAIT_EXPORT const char *plait_blas_library(void);
PLAIT_EXPORT const char *plait_blas_core(void);

/** Between the two the library uses one thread; the last one to leave restores what the first one
 *  found. The number is the process's, where the library has a way to set it. */
PLAIT_EXPORT void plait_blas_enter(void);
PLAIT_EXPORT void plait_blas_leave(void);

/** Threads that the library uses now; 0 where it does not say. */
PLAIT_EXPORT int plait_blas_n_threads(void);

/* ---- The functions --------------------------------------------------------------------------
 * As BLAS and LAPACK have them, column-major, with these differences: dtype comes first; alpha and
 * beta are real; trans 'C' is the adjoint for real numbers, too (their 'T'); info is returned. */

PLAIT_EXPORT void plait_blas_gemm(plait_dtype_t dtype, char trans_a, char trans_b,
                                  int64_t m, int64_t n, int64_t k, double alpha,
                                  const void *a, int64_t lda, const void *b,
                                  int64_t ldb, double beta, void *c, int64_t ldc);

/* One triangle of c = alpha a a^H + beta c ('N'), or a^H a ('C'). */
PLAIT_EXPORT void plait_blas_herk(plait_dtype_t dtype, char uplo, char trans, int64_t n,
                                  int64_t k, double alpha, const void *a, int64_t lda,
                                  double beta, void *c, int64_t ldc);
/* One triangle of c = alpha (a b^H + b a^H) + beta c ('N'), or a^H b + b^H a ('C'). */
PLAIT_EXPORT void plait_blas_her2k(plait_dtype_t dtype, char uplo, char trans,
                                   int64_t n, int64_t k, double alpha, const void *a,
                                   int64_t lda, const void *b, int64_t ldb, double beta,
                                   void *c, int64_t ldc);
PLAIT_EXPORT void plait_blas_hemm(plait_dtype_t dtype, char side, char uplo, int64_t m,
                                  int64_t n, double alpha, const void *a, int64_t lda,
                                  const void *b, int64_t ldb, double beta, void *c,
                                  int64_t ldc);
PLAIT_EXPORT void plait_blas_trsm(plait_dtype_t dtype, char side, char uplo, char trans,
                                  char diag, int64_t m, int64_t n, double alpha,
                                  const void *a, int64_t lda, void *b, int64_t ldb);
PLAIT_EXPORT void plait_blas_trmm(plait_dtype_t dtype, char side, char uplo, char trans,
                                  char diag, int64_t m, int64_t n, double alpha,
                                  const void *a, int64_t lda, void *b, int64_t ldb);
PLAIT_EXPORT void plait_blas_gemv(plait_dtype_t dtype, char trans, int64_t m, int64_t n,
                                  double alpha, const void *a, int64_t lda,
                                  const void *x, int64_t incx, double beta, void *y,
                                  int64_t incy);
PLAIT_EXPORT void plait_blas_hemv(plait_dtype_t dtype, char uplo, int64_t n,
                                  double alpha, const void *a, int64_t lda,
                                  const void *x, int64_t incx, double beta, void *y,
                                  int64_t incy);
PLAIT_EXPORT void plait_blas_trmv(plait_dtype_t dtype, char uplo, char trans, char diag,
                                  int64_t n, const void *a, int64_t lda, void *x,
                                  int64_t incx);
/* a += alpha x y^H */
PLAIT_EXPORT void plait_blas_ger(plait_dtype_t dtype, int64_t m, int64_t n,
                                 double alpha, const void *x, int64_t incx,
                                 const void *y, int64_t incy, void *a, int64_t lda);

PLAIT_EXPORT int64_t plait_blas_potrf(plait_dtype_t dtype, char uplo, int64_t n,
                                      void *a, int64_t lda);
PLAIT_EXPORT int64_t plait_blas_trtri(plait_dtype_t dtype, char uplo, char diag,
                                      int64_t n, void *a, int64_t lda);
PLAIT_EXPORT int64_t plait_blas_lauum(plait_dtype_t dtype, char uplo, int64_t n,
                                      void *a, int64_t lda);
/* pivot[i]: the row, counted from 1, that was exchanged with row i; min(m, n) of them. */
PLAIT_EXPORT int64_t plait_blas_getrf(plait_dtype_t dtype, int64_t m, int64_t n,
                                      void *a, int64_t lda, int64_t pivot[]);
/* Exchanges row i with row pivot[i] for i = 0..n_pivots - 1, or the other way round to undo it. */
PLAIT_EXPORT void plait_blas_laswp(plait_dtype_t dtype, int64_t n, void *a, int64_t lda,
                                   int64_t n_pivots, const int64_t pivot[],
                                   bool is_inverse);
/* b = op(a)^-1 b from what getrf made of a. */
PLAIT_EXPORT void plait_blas_getrs(plait_dtype_t dtype, char trans, int64_t n,
                                   int64_t n_rhs, const void *a, int64_t lda,
                                   const int64_t pivot[], void *b, int64_t ldb);

/* Workspaces: with n < 0 a function only fills in how much of each it wants: n of the dtype,
 * n_real of its real dtype, n_ints times 8 bytes. Then the caller sets the pointers. */
typedef struct {
    int64_t n, n_real, n_ints;
    void *work, *real, *ints;
} plait_blas_work_t;

PLAIT_EXPORT int64_t plait_blas_geqrf(plait_dtype_t dtype, int64_t m, int64_t n,
                                      void *a, int64_t lda, void *tau,
                                      plait_blas_work_t *work);
PLAIT_EXPORT int64_t plait_blas_orgqr(plait_dtype_t dtype, int64_t m, int64_t n,
                                      int64_t k, void *a, int64_t lda, const void *tau,
                                      plait_blas_work_t *work);
PLAIT_EXPORT int64_t plait_blas_ormqr(plait_dtype_t dtype, char side, char trans,
                                      int64_t m, int64_t n, int64_t k, const void *a,
                                      int64_t lda, const void *tau, void *c,
                                      int64_t ldc, plait_blas_work_t *work);
PLAIT_EXPORT void plait_blas_larfg(plait_dtype_t dtype, int64_t n, void *alpha, void *x,
                                   int64_t incx, void *tau);
/* Forward, columnwise: the triangle t of k reflectors, and their application to c. work of larfb:
 * n k for side 'L', m k for 'R'. */
PLAIT_EXPORT void plait_blas_larft(plait_dtype_t dtype, int64_t n, int64_t k,
                                   const void *v, int64_t ldv, const void *tau, void *t,
                                   int64_t ldt);
PLAIT_EXPORT void plait_blas_larfb(plait_dtype_t dtype, char side, char trans,
                                   int64_t m, int64_t n, int64_t k, const void *v,
                                   int64_t ldv, const void *t, int64_t ldt, void *c,
                                   int64_t ldc, void *work);

/* w, d, e, s are of the real dtype. */
PLAIT_EXPORT int64_t plait_blas_heevd(plait_dtype_t dtype, char jobz, char uplo,
                                      int64_t n, void *a, int64_t lda, void *w,
                                      plait_blas_work_t *work);
/* Eigenvalues first..last of n, counted from 0, last included, and their vectors (z NULL: none).
 * d, e (n entries) are destroyed. *n_found_p: how many. */
PLAIT_EXPORT int64_t plait_blas_stemr(plait_dtype_t dtype, int64_t n, void *d, void *e,
                                      int64_t first, int64_t last, int64_t *n_found_p,
                                      void *w, void *z, int64_t ldz,
                                      plait_blas_work_t *work);
PLAIT_EXPORT int64_t plait_blas_stedc(plait_dtype_t dtype, char compz, int64_t n,
                                      void *d, void *e, void *z, int64_t ldz,
                                      plait_blas_work_t *work);
PLAIT_EXPORT int64_t plait_blas_gesvd(plait_dtype_t dtype, char jobu, char jobvh,
                                      int64_t m, int64_t n, void *a, int64_t lda,
                                      void *s, void *u, int64_t ldu, void *vh,
                                      int64_t ldvh, plait_blas_work_t *work);

/* norm: 'M' largest element, '1', 'I', 'F'. work: m (lange, 'I') or n (lanhe, '1', 'I') of the
 * real dtype, else NULL. */
PLAIT_EXPORT double plait_blas_lange(plait_dtype_t dtype, char norm, int64_t m,
                                     int64_t n, const void *a, int64_t lda, void *work);
PLAIT_EXPORT double plait_blas_lanhe(plait_dtype_t dtype, char norm, char uplo,
                                     int64_t n, const void *a, int64_t lda, void *work);

#endif
