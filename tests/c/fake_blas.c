/* All names of BLAS and LAPACK that plait wants, and nothing behind them: dpotrf never says how it
 * went. */
#include "kernel/blas.h"

#define NOTHING(_op, _real, _complex) \
    void s##_real##_(void);           \
    void s##_real##_(void)            \
    {                                 \
    }                                 \
    void d##_real##_(void);           \
    void d##_real##_(void)            \
    {                                 \
    }                                 \
    void c##_complex##_(void);        \
    void c##_complex##_(void)         \
    {                                 \
    }                                 \
    void z##_complex##_(void);        \
    void z##_complex##_(void)         \
    {                                 \
    }

PLAIT_BLAS_FOR_EACH(NOTHING)
