#include "kernel/cpu.h"

#include "base/setting.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && !defined(PLAIT_GENERIC_KERNELS)
#include <cpuid.h>
#endif

#if defined(__x86_64__)
static const char *const names[] = {"auto", "sse2", "avx2", "avx512", NULL};
#else
static const char *const names[] = {"auto", "generic", NULL};
#endif

/* Names in front of the levels' names. */
enum { N_BEFORE = 1 };

#if defined(__x86_64__) && !defined(PLAIT_GENERIC_KERNELS)

/* Not __builtin_cpu_supports: with some compilers it does not link into shared libraries. */
static uint32_t enabled_states(void)
{
    uint32_t low = 0, high = 0;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static plait_cpu_level_t detect(void)
{
    const uint32_t ymm_state = 0x6, zmm_state = 0xe6;
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28;
    const uint32_t avx2 = 1u << 5, avx512 = (1u << 16) | (1u << 17) | (1u << 31);
    uint32_t a = 0, b = 0, c = 0, d = 0, leaf1_c = 0, leaf7_b = 0, states = 0;

    if (__get_cpuid(1, &a, &b, &leaf1_c, &d) && (leaf1_c & osxsave)) {
        states = enabled_states();
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        leaf7_b = b;
    }
    if (((states & ymm_state) != ymm_state) || !(leaf7_b & avx2) || !(leaf1_c & fma) ||
        !(leaf1_c & avx)) {
        return PLAIT_CPU_GENERIC;
    }
    if (((states & zmm_state) != zmm_state) || ((leaf7_b & avx512) != avx512)) {
        return PLAIT_CPU_AVX2;
    }
    return PLAIT_CPU_AVX512;
}

#else

static plait_cpu_level_t detect(void)
{
    return PLAIT_CPU_GENERIC;
}

#endif

/* Asked once: under a hypervisor cpuid takes tens of microseconds. */
static plait_cpu_level_t detected(void)
{
    enum { UNKNOWN = -1 };
    static atomic_int known = UNKNOWN;
    int level = atomic_load_explicit(&known, memory_order_relaxed);

    if (level == UNKNOWN) {
        level = (int)detect();
        atomic_store_explicit(&known, level, memory_order_relaxed);
    }
    return (plait_cpu_level_t)level;
}

plait_cpu_level_t plait_cpu_level(void)
{
    plait_cpu_level_t level = detected();
    int wish = plait_setting("PLAIT_ISA", names, 0);

    return (wish > 0 && wish - N_BEFORE < (int)level)
               ? (plait_cpu_level_t)(wish - N_BEFORE)
               : level;
}

const char *plait_cpu_isa(void)
{
    return names[N_BEFORE + (int)plait_cpu_level()];
}
