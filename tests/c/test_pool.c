/* Work buffers: recurring sizes keep their buffers, other buffers are given back. */
#include "check.h"
#include "device/pool.h"

enum { N_SIZES = 60, MIB = 1 << 20 };

static void *take(int64_t n_bytes, bool is_shown)
{
    void *buffer = NULL;
    uint64_t token = 0;
    plait_status_t status = is_shown ? plait_pool_take_shown(n_bytes, &buffer, &token)
                                     : plait_pool_take(n_bytes, &buffer);

    CHECK(status == PLAIT_OK && buffer != NULL, "%lld bytes", (long long)n_bytes);
    return buffer;
}

/* A program of growing arrays does not keep a buffer of each size. */
static void check_growing(bool is_shown)
{
    int64_t n_bytes = 0;

    (void)plait_pool_trim();
    for (int i = 1; i <= N_SIZES; i++) {
        n_bytes = (int64_t)i * MIB / 4;
        void *pair[] = {take(n_bytes, is_shown), take(n_bytes, is_shown)};
        plait_pool_give(pair[0]);
        plait_pool_give(pair[1]);
    }
    const int64_t n_kept = plait_pool_trim();
    CHECK(n_kept >= 2 * n_bytes && n_kept <= 3 * (2 * n_bytes + 4 * MIB), "%lld kept",
          (long long)n_kept);
}

/* A program of recurring sizes has one buffer for each size. */
static void check_coming_again(bool is_shown)
{
    const int64_t sizes[] = {24 * MIB, 10 * MIB, 3 * MIB, MIB, 4096};
    void *first[5] = {NULL};

    (void)plait_pool_trim();
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < 5; i++) {
            void *buffer = take(sizes[i], is_shown);
            CHECK(k == 0 || buffer == first[i], "another one for %lld bytes",
                  (long long)sizes[i]);
            first[i] = buffer;
            plait_pool_give(buffer);
        }
    }
}

/* The memory of one large operation does not stay if all others take little. */
static void check_once_large(bool is_shown)
{
    enum { LARGE = 128 * MIB, N_SMALL = 600 };
    const int64_t sizes[] = {MIB, 3 * MIB};

    (void)plait_pool_trim();
    plait_pool_give(take(LARGE, is_shown));
    for (int i = 0; i < N_SMALL; i++) {
        plait_pool_give(take(sizes[i % 2], is_shown));
    }
    const int64_t n_kept = plait_pool_trim();
    CHECK(n_kept >= 4 * MIB && n_kept < 16 * MIB, "%lld kept", (long long)n_kept);
}

/* A buffer that cannot be had is refused by name, after idle buffers were given up. */
static void check_no_memory(void)
{
    void *buffer = take(MIB, false);

    plait_pool_give(buffer);
    check_refused(plait_pool_take(INT64_MAX, &buffer), PLAIT_ERR_NO_MEMORY,
                  "work buffer of 9223372036854775807 bytes");
    CHECK(buffer == NULL && plait_pool_trim() == 0, "something is idle");
}

int main(void)
{
    for (int is_shown = 0; is_shown < 2; is_shown++) {
        check_growing(is_shown != 0);
        check_coming_again(is_shown != 0);
        check_once_large(is_shown != 0);
    }
    check_no_memory();
    (void)plait_pool_trim();
    return report("test_pool");
}
