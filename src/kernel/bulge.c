#include "kernel/bulge.h"

#include "kernel/cpu.h"

#include <stddef.h>

const plait_bulge_t *plait_bulge(plait_dtype_t dtype)
{
    const plait_bulge_t *found = plait_bulge_generic;

#if defined(__x86_64__) && !defined(PLAIT_GENERIC_KERNELS)
    switch (plait_cpu_level()) {
    case PLAIT_CPU_AVX512:
        found = plait_bulge_avx512;
        break;
    case PLAIT_CPU_AVX2:
        found = plait_bulge_avx2;
        break;
    case PLAIT_CPU_GENERIC:
        break;
    }
#endif
    return (dtype == PLAIT_F32) ? &found[0] : (dtype == PLAIT_F64) ? &found[1] : NULL;
}
