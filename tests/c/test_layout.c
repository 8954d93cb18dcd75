/* Blocks longer than the axis that they split: a rank whose part begins beyond the end has no part. */
#include "check.h"
#include "plait/layout.h"

static plait_layout_t split(plait_split_t rule, int64_t n, int n_ranks, int64_t block)
{
    return (plait_layout_t){.ndim = 1,
                            .shape = {n},
                            .grid_ndim = 1,
                            .grid = {n_ranks},
                            .axis = {{rule, 1, {0}, block}}};
}

/* Intervals of all ranks in turns follow one another from 0 to n, and make up all that a rank owns. */
static void check_split(plait_split_t rule, int64_t n, int n_ranks, int64_t block)
{
    const plait_layout_t layout = split(rule, n, n_ranks, block);
    char text[100];
    int64_t local = 0, at = 0;
    bool is_more = true;

    plait_layout_print(&layout, text, sizeof(text));
    CHECK(plait_layout_check(&layout) == PLAIT_OK, "%s", text);
    for (int64_t k = 0; is_more; k++) {
        is_more = false;
        for (int r = 0; r < n_ranks; r++) {
            if (k < plait_layout_n_intervals(&layout, r, 0)) {
                plait_interval_t i = plait_layout_interval(&layout, r, 0, k, &local);
                CHECK(i.lo == at && i.hi > i.lo && i.hi <= n,
                      "%s, rank %d: %lld to %lld", text, r, (long long)i.lo,
                      (long long)i.hi);
                at = i.hi;
                is_more = true;
            }
        }
    }
    CHECK(at == n, "%s: up to %lld", text, (long long)at);
}

/* A rank without an interval has an empty first interval, at the end. */
static void check_behind(plait_split_t rule, int64_t n, int n_ranks, int64_t block)
{
    const plait_layout_t layout = split(rule, n, n_ranks, block);

    for (int r = 0; r < n_ranks; r++) {
        int64_t n_local = -1;
        plait_interval_t i = plait_layout_interval(&layout, r, 0, 0, NULL);
        plait_layout_local_shape(&layout, r, &n_local);
        CHECK(i.lo >= 0 && i.lo <= i.hi && i.hi <= n && n_local == i.hi - i.lo,
              "split %d of %lld in blocks of %lld, rank %d: %lld to %lld, %lld local",
              (int)rule, (long long)n, (long long)block, r, (long long)i.lo,
              (long long)i.hi, (long long)n_local);
    }
}

int main(void)
{
    static const int64_t lengths[] = {0, 1, 10, (INT64_C(1) << 57) - 1};
    static const int64_t blocks[] = {INT64_C(1) << 57,  INT64_C(1) << 62, INT64_MAX / 2,
                                     INT64_MAX / 3 + 1, INT64_MAX - 1,    INT64_MAX};

    for (size_t i = 0; i < 4 * sizeof(blocks) / sizeof(blocks[0]); i++) {
        for (int n_ranks = 1; n_ranks <= 5; n_ranks++) {
            for (int rule = PLAIT_SPLIT_CEIL; rule <= PLAIT_SPLIT_CYCLIC; rule++) {
                check_split((plait_split_t)rule, lengths[i % 4], n_ranks,
                            blocks[i / 4]);
                check_behind((plait_split_t)rule, lengths[i % 4], n_ranks,
                             blocks[i / 4]);
            }
        }
    }
    return report("test_layout");
}
