/* Users of the same transform share one transform, even threads at once. It lives until its last user has
 * released it, and each user counts its bytes. */
#include "check.h"
#include "kernel/fft.h"

#include <math.h>
#include <pthread.h>

enum { N_THREADS = 4, N_ROUNDS = 200 };

static plait_fft1_t *made(int64_t n, plait_dtype_t dtype, int sign, double scale)
{
    plait_fft1_t *fft = NULL;

    CHECK(plait_fft1_create(n, dtype, sign, scale, &fft) == PLAIT_OK, "%lld",
          (long long)n);
    return fft;
}

static void check_keys(void)
{
    plait_fft1_t *one = made(60, PLAIT_C128, -1, 1),
                 *same = made(60, PLAIT_C128, -1, 1);
    plait_fft1_t *others[] = {made(61, PLAIT_C128, -1, 1), made(60, PLAIT_C64, -1, 1),
                              made(60, PLAIT_C128, 1, 1), made(60, PLAIT_C128, -1, 0.5),
                              made(60 + 256, PLAIT_C128, -1, 1)};

    CHECK(one == same, "two of the same");
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        CHECK(others[i] != one, "%zu is another one", i);
        plait_fft1_destroy(&others[i]);
    }
    plait_fft1_destroy(&one);
    plait_fft1_destroy(&same);
    one = made(60, PLAIT_C128, -1, NAN);
    same = made(60, PLAIT_C128, -1, NAN);
    plait_fft1_destroy(&one);
    plait_fft1_destroy(&same);
}

/* A length that needs transforms of other lengths, by Bluestein's or Rader's method. */
static void check_bytes(int64_t n)
{
    const int64_t before = plait_alloc_tally();
    plait_fft1_t *one = made(n, PLAIT_C64, -1, 1);
    const int64_t first = plait_alloc_tally() - before;
    plait_fft1_t *same = made(n, PLAIT_C64, -1, 1);
    const int64_t both = plait_alloc_tally() - before;

    CHECK(first > n && both >= first + n, "%lld and %lld bytes of %lld points",
          (long long)first, (long long)both, (long long)n);
    plait_fft1_destroy(&one);
    CHECK(plait_alloc_tally() - before >= n, "what is held is not counted any more");
    plait_fft1_destroy(&same);
    CHECK(plait_alloc_tally() == before, "%lld bytes are left",
          (long long)(plait_alloc_tally() - before));
}

/* For input of ones, y[0] is n. */
static void *use(void *argument)
{
    enum { MAX_N = 1100 };
    unsigned *seed = argument;
    double x[2 * MAX_N], y[2 * MAX_N];
    void *scratch = NULL;

    for (int i = 0; i < N_ROUNDS; i++) {
        const int64_t n = 1000 + 9 * (rand_r(seed) % 11); /* 1009 is prime */
        plait_fft1_t *fft = made(n, PLAIT_C128, -1, 1);
        if (posix_memalign(&scratch, 64, (size_t)plait_fft1_scratch_bytes(fft) + 64) !=
            0) {
            abort();
        }
        for (int64_t j = 0; j < 2 * n; j++) {
            x[j] = j % 2 == 0;
        }
        plait_fft1_rows(fft, 1, (const char *)x, 0, (char *)y, 0, scratch,
                        PLAIT_FFT_STORE);
        CHECK(fabs(y[0] - (double)n) < 1e-9 && fabs(y[2]) < 1e-9, "%lld: %g",
              (long long)n, y[0]);
        free(scratch);
        plait_fft1_destroy(&fft);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[N_THREADS];
    unsigned seeds[N_THREADS];

    check_keys();
    check_bytes(1009);
    check_bytes(100003);
    check_bytes(1 << 18);
    for (int t = 0; t < N_THREADS; t++) {
        seeds[t] = (unsigned)t;
        (void)pthread_create(&threads[t], NULL, use, &seeds[t]);
    }
    for (int t = 0; t < N_THREADS; t++) {
        (void)pthread_join(threads[t], NULL);
    }
    plait_fft1_t *none = NULL;
    check_refused(plait_fft1_create(0, PLAIT_C128, -1, 1, &none), PLAIT_ERR_INVALID,
                  "a transform of 0 points");
    check_refused(plait_fft1_create(5, PLAIT_F64, -1, 1, &none), PLAIT_ERR_INVALID,
                  "no transform of float64");
    return report("test_fft_shared");
}
