/* The host's memory system: page size, cache size, order of stores. */
#include "device/host.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    MIN_CACHE_BYTES = 1 << 20,
    /* One core complex of an EPYC. A larger size is a whole socket's, and is reported even in a virtual
     * machine of two of its cores: a Xeon that reports 480 MiB keeps up to this much of what one core reads
     * and writes. */
    MAX_CACHE_BYTES = 32 << 20,
    MIN_HUGE_BYTES = 4 << 20 /* measured with XLA's results */
};

/* Linux's figure for the cache that one core shares; 0 if there is none. */
static int64_t kernel_cache_bytes(void)
{
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    long n_kib = 0;

    if (file != NULL) {
        if (fscanf(file, "%ldK", &n_kib) != 1) {
            n_kib = 0;
        }
        (void)fclose(file);
    }
    return (int64_t)n_kib * 1024;
}

/* glibc 2.36, on an EPYC with 32 MiB per core complex, gives the 256 MiB of the whole socket. So it is asked
 * second. */
static int64_t read_cache_bytes(void)
{
    int64_t n_bytes = kernel_cache_bytes();

#if defined(_SC_LEVEL3_CACHE_SIZE)
    if (n_bytes <= 0) {
        n_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    }
    if (n_bytes <= 0) {
        n_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    }
#endif
    n_bytes = (n_bytes > MIN_CACHE_BYTES) ? n_bytes : MIN_CACHE_BYTES;
    return (n_bytes < MAX_CACHE_BYTES) ? n_bytes : MAX_CACHE_BYTES;
}

int64_t plait_host_cache_bytes(void)
{
    static _Atomic int64_t cached; /* 0: not yet read; two threads may both read it */
    int64_t n_bytes = atomic_load_explicit(&cached, memory_order_relaxed);

    if (n_bytes == 0) {
        n_bytes = read_cache_bytes();
        atomic_store_explicit(&cached, n_bytes, memory_order_relaxed);
    }
    return n_bytes;
}

void plait_host_prepare_result(void *p, int64_t n_bytes)
{
#if defined(MADV_HUGEPAGE)
    if (n_bytes >= MIN_HUGE_BYTES) {
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        uintptr_t begin = ((uintptr_t)p + page - 1) & ~(page - 1);
        uintptr_t end = ((uintptr_t)p + (uintptr_t)n_bytes) & ~(page - 1);
        char *first = (char *)p + (begin - (uintptr_t)p);

        (void)madvise(first, end - begin, MADV_HUGEPAGE); /* a hint: may be refused */
    }
#else
    (void)p;
    (void)n_bytes;
#endif
}

void plait_host_stream_fence(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#else
    atomic_thread_fence(memory_order_release);
#endif
}
