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

/* The one list of functions: enumerator, and the stem of the name for real and for complex numbers. The letter
 * s, d, c or z stands before the stem. */
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

/** Sets one pointer, before the first plait_blas_require. INVALID: no such name, or NULL. */
PLAIT_EXPORT plait_status_t plait_blas_fill(const char *name, void *pointer);

/** Takes all pointers from a library. `path` is a file or soname, or several with ':' between them, which
 *  together have all functions. The names may have the prefix scipy_ and the suffixes _, 64_, _64_.
 *  UNSUPPORTED: says what does not open, or which function is missing first; nothing is changed. */
PLAIT_EXPORT plait_status_t plait_blas_load(const char *path);

/** Makes sure that the table is complete. If the caller has not filled it, pointers come from PLAIT_BLAS, or
 *  from the program itself, or from the usual libraries. Every rank's planner calls this before the first of
 *  the functions below; any thread may.
 *  UNSUPPORTED: says what was looked for, and where. */
PLAIT_EXPORT plait_status_t plait_blas_require(void);

/** Whether the table has all pointers. */
PLAIT_EXPORT bool plait_blas_is_complete(void);

/** Empties the table, for tests. */
PLAIT_EXPORT void plait_blas_clear(void);

/** A pointer of the table; NULL for a dtype other than F32, F64, C64, C128. */
PLAIT_EXPORT plait_blas_fn_t plait_blas_find(plait_blas_op_t op, plait_dtype_t dtype);

/** 4 or 8, found by a call; 0 while the table is not complete. */
PLAIT_EXPORT int plait_blas_int_bytes(void);

/** OVERFLOW unless the library's integers can hold n: extents, and sizes of workspaces. */
PLAIT_EXPORT plait_status_t plait_blas_fits(int64_t n);

/** The library's file, if known (dgemm's file if no setter of threads is found). And the name of the kernels
 *  that OpenBLAS chose, "SkylakeX"; "" for another library. Static. */
PLAIT_EXPORT const char *plait_blas_library(void);
PLAIT_EXPORT const char *plait_blas_core(void);

/** Between enter and leave the library uses one thread. The last call of leave restores the number that the
 *  first call of enter found. This number belongs to the process. Nothing happens if the library has no
 *  setter. */
PLAIT_EXPORT void plait_blas_enter(void);
PLAIT_EXPORT void plait_blas_leave(void);

/** Threads that the library uses now; 0 if it does not say. */
PLAIT_EXPORT int plait_blas_n_threads(void);

/* ---- The functions --------------------------------------------------------------------------
 * As in BLAS and LAPACK, column-major, with these differences: dtype comes first; alpha and beta are real;
 * trans 'C' is the adjoint for real numbers, too (their 'T'); info is returned. */

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
/* pivot[i]: the row, counted from 1, that was exchanged with row i; min(m, n) entries. */
PLAIT_EXPORT int64_t plait_blas_getrf(plait_dtype_t dtype, int64_t m, int64_t n,
                                      void *a, int64_t lda, int64_t pivot[]);
/* Exchanges row i with row pivot[i] for i = 0..n_pivots - 1; is_inverse: in reverse order, to undo this. */
PLAIT_EXPORT void plait_blas_laswp(plait_dtype_t dtype, int64_t n, void *a, int64_t lda,
                                   int64_t n_pivots, const int64_t pivot[],
                                   bool is_inverse);
/* b = op(a)^-1 b, with a from getrf. */
PLAIT_EXPORT void plait_blas_getrs(plait_dtype_t dtype, char trans, int64_t n,
                                   int64_t n_rhs, const void *a, int64_t lda,
                                   const int64_t pivot[], void *b, int64_t ldb);

/* Workspaces. With n < 0 a function only fills in how much it wants: n numbers of the dtype, n_real of its real
 * dtype, n_ints times 8 bytes. Then the caller sets the pointers. */
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
/* Forward, columnwise: the triangle t of k reflectors, and their application to c. work of larfb: n k for side
 * 'L', m k for side 'R'. */
PLAIT_EXPORT void plait_blas_larft(plait_dtype_t dtype, int64_t n, int64_t k,
                                   const void *v, int64_t ldv, const void *tau, void *t,
                                   int64_t ldt);
PLAIT_EXPORT void plait_blas_larfb(plait_dtype_t dtype, char side, char trans,
                                   int64_t m, int64_t n, int64_t k, const void *v,
                                   int64_t ldv, const void *t, int64_t ldt, void *c,
                                   int64_t ldc, void *work);

/* w, d, e, s have the real dtype. */
PLAIT_EXPORT int64_t plait_blas_heevd(plait_dtype_t dtype, char jobz, char uplo,
                                      int64_t n, void *a, int64_t lda, void *w,
                                      plait_blas_work_t *work);
/* Eigenvalues first..last of n, counted from 0, including last, and their vectors (z NULL: no vectors). d and e
 * (n entries) are destroyed. *n_found_p: number of eigenvalues. */
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

/* norm: 'M' (largest element), '1', 'I', 'F'. work: m (lange, 'I') or n (lanhe, '1', 'I') numbers of the real
 * dtype, otherwise NULL. */
PLAIT_EXPORT double plait_blas_lange(plait_dtype_t dtype, char norm, int64_t m,
                                     int64_t n, const void *a, int64_t lda, void *work);
PLAIT_EXPORT double plait_blas_lanhe(plait_dtype_t dtype, char norm, char uplo,
                                     int64_t n, const void *a, int64_t lda, void *work);

#endif
