/* All names of BLAS and LAPACK that plait uses, without any function behind them: dpotrf never sets its
 * outcome. */
#include "kernel/blas.h"

#define NOTHING(_name) \
    void _name(void);  \
    void _name(void)   \
    {                  \
    }
#define NOTHINGS(_op, _real, _complex) \
    NOTHING(s##_real##_)               \
    NOTHING(d##_real##_)               \
    NOTHING(c##_complex##_)            \
    NOTHING(z##_complex##_)

PLAIT_BLAS_FOR_EACH(NOTHINGS)
