/* What the C tests share: a count of checks, a problem that prints itself when it fails. */
#ifndef PLAIT_TESTS_CHECK_H
#define PLAIT_TESTS_CHECK_H

#include "base/alloc.h"
#include "plait/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Atomic int n_checked, n_failed;

/* One check; on failure prints where, the condition and the problem string. */
#define CHECK(_cond, ...)                                      \
    do {                                                       \
        n_checked++;                                           \
        if (!(_cond)) {                                        \
            n_failed++;                                        \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #_cond); \
            printf(__VA_ARGS__);                               \
            printf(" (%s)\n", plait_error_text());             \
        }                                                      \
    } while (0)

static inline void check_good(plait_status_t status)
{
    CHECK(status == PLAIT_OK, "%s", plait_error_text());
}

/* Checks the status and a part of the text of a refusal. */
static inline void check_refused(plait_status_t status, plait_status_t expected,
                                 const char *part)
{
    CHECK(status == expected, "%s: %s", part, plait_status_name(status));
    CHECK(strstr(plait_error_text(), part) != NULL, "no '%s' in the text", part);
}

/* clang announces its sanitizers, and so do newer gccs. */
#if defined(__has_feature)
#define HAS_FEATURE(_x) __has_feature(_x)
#else
#define HAS_FEATURE(_x) 0
#endif

/* Whether ThreadSanitizer checks this program. Work of a single thread tells it nothing. */
static inline bool finds_races(void)
{
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
    return true;
#else
    return false;
#endif
}

/* Whether any sanitizer checks this program. */
static inline bool is_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
    return true;
#else
    return finds_races();
#endif
}

/* Fewer problems of each kind: in a quick run, and always under sanitizers (PLAIT_TEST_QUICK). */
static inline bool is_quick(void)
{
    return getenv("PLAIT_TEST_QUICK") != NULL;
}

/* Pseudo-random numbers that any rank can compute: value of index i in [-0.5, 0.5). */
static inline double sample(uint64_t seed, uint64_t i)
{
    uint64_t x =
        (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xbf58476d1ce4e5b9);

    x ^= x >> 31;
    x *= UINT64_C(0x94d049bb133111eb);
    x ^= x >> 29;
    return (double)(x >> 11) * 0x1p-53 - 0.5;
}

/* The allocation balance once threads that nobody waits for have ended; waits up to ten seconds. */
static inline int64_t balance_at_last(int64_t expected)
{
    const struct timespec nap = {.tv_nsec = 1000000};

    for (int i = 0; i < 10000 && plait_alloc_balance() != expected; i++) {
        (void)nanosleep(&nap, NULL);
    }
    return plait_alloc_balance();
}

/* Prints the program's last line and returns its exit code. A leak fails, too, unless memory has to be kept. */
static inline int report_but(const char *name, bool is_kept)
{
    int64_t balance = is_kept ? plait_alloc_balance() : balance_at_last(0);

    if (balance != 0) {
        n_failed += !is_kept;
        printf("%s: %lld allocations were not freed%s\n", name, (long long)balance,
               is_kept ? ", some because MPI may write to them" : "");
    }
    printf("%s: %d checks, %d failed\n", name, n_checked, n_failed);
    return n_failed != 0;
}

static inline int report(const char *name)
{
    return report_but(name, false);
}

#endif
