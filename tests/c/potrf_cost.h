/* Costs of potrf plans, against counts by the definition, for up to 64 ranks. */
#ifndef PLAIT_TESTS_POTRF_COST_H
#define PLAIT_TESTS_POTRF_COST_H

#include "dense/grid.h"
#include "dense_factor.h"

/* Of more ranks than MANY a third is counted, and one of two accesses, in turns. */
enum { MAX_COUNTED = 64, MANY = 16 };

/* A rank's place in a grid, and its matrix in blocks. */
typedef struct {
    int64_t n, block, n_blocks;
    int n_rows, n_columns;
    int rank, row, column;
    bool has_messages;
} view_t;

static int64_t width_of(const view_t *v, int64_t k)
{
    return plait_min(v->block, v->n - k * v->block);
}

/* Counts what comes from a rank in one move. */
typedef struct {
    int64_t words, n_messages;
    bool is_from[MAX_COUNTED];
} count_t;

static void count_from(count_t *c, const view_t *v, int peer, int64_t words)
{
    if (peer != v->rank && words > 0) {
        c->words += words;
        c->n_messages += !c->is_from[peer];
        c->is_from[peer] = true;
    }
}

static void count_next_move(count_t *c)
{
    memset(c->is_from, 0, sizeof(c->is_from));
}

static void count_deal(count_t *c, const view_t *v, bool is_back)
{
    count_next_move(c);
    for (int64_t j = 0; j < v->n_blocks; j++) {
        for (int64_t i = j; i < v->n_blocks; i++) {
            int stores = (int)(j % (v->n_rows * v->n_columns));
            int holds = (int)(i % v->n_rows * v->n_columns + j % v->n_columns);
            if ((is_back ? stores : holds) == v->rank) {
                count_from(c, v, is_back ? holds : stores,
                           width_of(v, i) * width_of(v, j));
            }
        }
    }
}

/* Rows of this rank's columns that a row of the grid has: what the rank gets of panel k from there. */
static int64_t columns_from(const view_t *v, int64_t k, int row)
{
    int64_t words = 0;

    for (int64_t j = k + 1; j < v->n_blocks; j++) {
        if (j % v->n_columns == v->column && j % v->n_rows == row) {
            words += width_of(v, j) * width_of(v, k);
        }
    }
    return words;
}

static void count_columns(count_t *c, const view_t *v, int64_t k)
{
    const int owners = (int)(k % v->n_columns);

    for (int reach = 1; reach < v->n_rows; reach *= 2) {
        count_next_move(c); /* one message brings all of a tree's step */
        for (int i = reach; i < 2 * reach && i < v->n_rows; i++) {
            int row = (v->row - i + v->n_rows) % v->n_rows;
            int peer = v->has_messages
                           ? (v->row - reach + v->n_rows) % v->n_rows * v->n_columns
                           : row * v->n_columns + owners;
            peer += v->has_messages ? v->column : 0;
            count_from(c, v, peer, columns_from(v, k, row));
        }
    }
}

/* By the definition: others' blocks that a rank needs, each once. *dealt_p: words of the redistributions. */
static count_t count_grid(const view_t *v, int64_t *dealt_p, int64_t *n_infos_p)
{
    count_t c = {0};

    count_deal(&c, v, false);
    count_deal(&c, v, true);
    *dealt_p = c.words;
    *n_infos_p = 0;
    for (int64_t k = 0; k < v->n_blocks; k++) {
        const bool has_panel = k % v->n_columns == v->column;
        const bool has_diagonal = has_panel && k % v->n_rows == v->row;
        *n_infos_p += !has_diagonal;
        c.n_messages += !has_diagonal;
        for (int64_t i = k; i < v->n_blocks; i++) {
            bool is_own = i % v->n_rows == v->row;
            bool is_wanted = (i == k)
                                 ? has_panel && !has_diagonal && k + 1 < v->n_blocks
                                 : !has_panel && is_own;
            c.words += is_wanted ? width_of(v, i) * width_of(v, k) : 0;
        }
        count_columns(&c, v, k);
    }
    return c;
}

static dealt_run_t counted_run(const shape_t *s, int n_ranks, plait_direct_t direct,
                               const plait_potrf_params_t *params)
{
    return (dealt_run_t){
        .op = &plait_op_potrf,
        .params = params,
        .n_ranks = n_ranks,
        .direct = direct,
        .n_args = 1,
        .n_rets = 2,
        .args = {matrix_of(PLAIT_C64, s, n_ranks)},
        .rets = {matrix_of(PLAIT_C64, s, n_ranks), vector_of(PLAIT_S32, 1)},
        .text = "potrf"};
}

static void check_grid_cost(const shape_t *s, int n_ranks, int n_rows,
                            plait_direct_t direct)
{
    const int64_t item = 8;
    const plait_potrf_params_t params = {s->n, s->block, n_rows};
    dealt_run_t t = counted_run(s, n_ranks, direct, &params);
    const int n_columns = n_ranks / n_rows;
    const int64_t leading = s->n * s->n / (2 * n_rows) + s->n * s->n / (2 * n_columns);
    const int step = (n_ranks > MANY) ? 3 : 1, first = n_rows % step;

    for (int r = first; r < n_ranks; r += step) {
        const view_t v = {.n = s->n,
                          .block = s->block,
                          .n_blocks = (s->n + s->block - 1) / s->block,
                          .n_rows = n_rows,
                          .n_columns = n_columns,
                          .rank = r,
                          .row = r / n_columns,
                          .column = r % n_columns,
                          .has_messages = direct == PLAIT_DIRECT_NONE};
        int64_t dealt = 0;
        int64_t n_infos = 0;
        const count_t want = count_grid(&v, &dealt, &n_infos);
        const plait_plan_cost_t cost = dealt_cost(&t, r);
        CHECK(
            cost.message_bytes == want.words * item + 4 * n_infos &&
                cost.n_messages == want.n_messages,
            "rank %d of %d x %d, access %d: %lld messages, %lld bytes; expected %lld, "
            "%lld",
            r, n_rows, n_columns, (int)direct, (long long)cost.n_messages,
            (long long)cost.message_bytes, (long long)want.n_messages,
            (long long)(want.words * item + 4 * n_infos));
        CHECK(want.words - dealt <= leading + 3 * s->n * s->block,
              "rank %d of %d x %d: %lld words of panels", r, n_rows, n_columns,
              (long long)(want.words - dealt));
        CHECK(dealt <= s->n * s->n / n_ranks + 4 * s->n * s->block,
              "rank %d of %d x %d: %lld words there and back", r, n_rows, n_columns,
              (long long)dealt);
        CHECK(cost.work_bytes <= item * (s->n + n_rows * s->block) *
                                         (s->n + n_columns * s->block) / n_ranks +
                                     item * 3 * s->block * s->n,
              "rank %d of %d x %d: %lld bytes of work", r, n_rows, n_columns,
              (long long)cost.work_bytes);
    }
    dealt_clear(&t);
}

static void check_grid_costs(void)
{
    const shape_t shape = {100, 100, 3};

    for (int n_ranks = 1; n_ranks <= MAX_COUNTED; n_ranks += is_quick() ? 5 : 1) {
        for (int i = 4; i < 2 * (n_ranks + 1); i++) {
            const int n_rows = i / 2;
            const bool is_turn = n_ranks <= MANY || (n_ranks + i + n_rows) % 2 == 0;
            if (n_ranks % n_rows == 0 && is_turn) {
                check_grid_cost(&shape, n_ranks, n_rows, dealt_directs[1 + i % 2]);
            }
        }
    }
}

/* Checks the choice: a grid near a square if there are many ranks and words count. */
static void check_choice(void)
{
    static const struct {
        int n_ranks;
        int64_t n, block;
        plait_direct_t direct;
        int n_rows;
    } chosen[] = {
        {1, 8192, 128, PLAIT_DIRECT_NONE, 1},     {4, 8192, 128, PLAIT_DIRECT_NONE, 1},
        {8, 8192, 128, PLAIT_DIRECT_READ, 1},     {9, 8192, 128, PLAIT_DIRECT_READ, 3},
        {16, 8192, 128, PLAIT_DIRECT_NONE, 4},    {16, 8192, 128, PLAIT_DIRECT_READ, 4},
        {16, 8192, 128, PLAIT_DIRECT_POINTER, 1}, {13, 8192, 128, PLAIT_DIRECT_NONE, 1},
        {64, 32768, 128, PLAIT_DIRECT_NONE, 8},   {16, 64, 1, PLAIT_DIRECT_NONE, 1},
        {16, 0, 1, PLAIT_DIRECT_NONE, 1}};

    for (size_t i = 0; i < sizeof(chosen) / sizeof(*chosen); i++) {
        const plait_dealt_t d = {.m = chosen[i].n,
                                 .n = chosen[i].n,
                                 .block = chosen[i].block,
                                 .n_ranks = chosen[i].n_ranks,
                                 .dtype = PLAIT_F64};
        int n_rows = plait_grid_choose(&d, chosen[i].direct);
        CHECK(n_rows == chosen[i].n_rows, "n %lld, %d ranks, access %d: %d rows",
              (long long)chosen[i].n, chosen[i].n_ranks, (int)chosen[i].direct, n_rows);
    }
}

/* If a grid is chosen, a rank gets fewer bytes than by block columns, and the plan uses the grid. */
static void check_automatic(void)
{
    static const int teams_of[] = {9, 12, 16, 17, 36, 64};
    const shape_t shape = {4096, 4096, 128};

    for (size_t i = 0; i < sizeof(teams_of) / sizeof(*teams_of); i++) {
        for (int a = 0; a < 3; a++) {
            const int n_ranks = teams_of[i];
            plait_potrf_params_t params = {shape.n, shape.block, 0};
            dealt_run_t t = {.op = &plait_op_potrf, .params = &params, .n_args = 1};
            t.n_ranks = n_ranks;
            t.direct = dealt_directs[a];
            t.n_rets = 2;
            t.args[0] = (dealt_array_t){.d = {.m = shape.n,
                                              .n = shape.n,
                                              .block = shape.block,
                                              .n_ranks = n_ranks,
                                              .dtype = PLAIT_F64}};
            t.rets[0] = t.args[0];
            t.rets[1] = (dealt_array_t){
                .d = {.n = 1}, .is_replicated = true, .dtype = PLAIT_S32};
            t.text = "potrf automatic";
            const plait_plan_cost_t chosen = dealt_cost(&t, n_ranks - 1);
            params.grid = 1;
            const plait_plan_cost_t by_columns = dealt_cost(&t, n_ranks - 1);
            const bool has_grid = a > 0 && n_ranks != 17;
            CHECK(has_grid ? chosen.message_bytes < by_columns.message_bytes * 3 / 4
                           : chosen.message_bytes == by_columns.message_bytes,
                  "%d ranks, access %d: %lld bytes, by columns %lld", n_ranks,
                  (int)t.direct, (long long)chosen.message_bytes,
                  (long long)by_columns.message_bytes);
        }
    }
}

#endif
