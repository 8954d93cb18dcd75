/* Plans in words: the text of plait_plan_print, for every rank and way, and refusals. */
#include "api/describe.h"
#include "check.h"
#include "coll/coll.h"

#include <string.h>

enum { TEXT_BYTES = 4096 };

typedef struct {
    int64_t n_text;
    plait_plan_cost_t cost;
} told_t;

static plait_status_t describe(const char *op, int rank, int way, char *text,
                               int n_bytes, told_t *told)
{
    static const int64_t arrays[] = {PLAIT_F32, 2, 4, 8, PLAIT_F32, 2, 4, 8};
    const plait_alltoall_params_t params = {.n_counts = 0};
    const plait_describe_rank_t on = {.n_ranks = 4, .rank = rank, .way = way};

    return plait_describe(op, &params, &on, arrays, text, n_bytes, &told->n_text,
                          &told->cost);
}

static int64_t count_lines(const char *text, const char *word)
{
    int64_t n = 0;

    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        n++;
    }
    return n;
}

static void check_texts(void)
{
    static const char *const by[] = {"shared addresses", "one-copy reads", "messages"};
    /* Two staging buffers of a cache line, which no message needs here. */
    static const int scratch[] = {0, 0, 2 * 64};

    for (int way = 0; way < PLAIT_DESCRIBE_COUNT; way++) {
        for (int rank = 0; rank < 4; rank++) {
            char text[TEXT_BYTES] = "";
            char want[160];
            told_t told = {0};

            (void)snprintf(
                want, sizeof(want),
                "alltoall(float32(4, 8)), rank %d of 4 by %s: 3 messages, 96 "
                "bytes, work 0 bytes, scratch %d bytes\n",
                rank, by[way], scratch[way]);
            CHECK(describe("alltoall", rank, way, text, TEXT_BYTES, &told) == PLAIT_OK,
                  "%s", want);
            CHECK(strncmp(text, want, strlen(want)) == 0, "%s", text);
            CHECK(strstr(text, "   1  ") != NULL, "%s", text);
            CHECK(told.n_text == (int64_t)strlen(text), "%s", text);
            CHECK(told.cost.n_messages == 3 && told.cost.message_bytes == 96 &&
                      told.cost.work_bytes == 0 &&
                      told.cost.scratch_bytes == scratch[way],
                  "%s", text);
            CHECK(told.cost.n_fences == count_lines(text, "  fence"), "%s", text);
            CHECK((told.cost.n_fences > 0) == (way != PLAIT_DESCRIBE_MESSAGES), "%s",
                  text);
        }
    }
}

static void check_room(void)
{
    char whole[TEXT_BYTES] = "";
    char text[TEXT_BYTES];
    told_t told;

    CHECK(describe("alltoall", 0, 0, whole, TEXT_BYTES, &told) == PLAIT_OK, "whole");
    int n = (int)strlen(whole);
    for (int room = 1; room <= n + 1; room += n / 2) {
        memset(text, '#', sizeof(text));
        CHECK(describe("alltoall", 0, 0, text, room, &told) == PLAIT_OK, "%d", room);
        CHECK(told.n_text == n, "%d of %d", (int)told.n_text, n);
        CHECK((int)strlen(text) == room - 1 && text[room] == '#', "%d", room);
        CHECK(strncmp(text, whole, (size_t)room - 1) == 0, "%s", text);
    }
}

static void check_refusals(void)
{
    char text[TEXT_BYTES];
    told_t told;

    CHECK(describe("all", 0, 0, text, TEXT_BYTES, &told) == PLAIT_ERR_INVALID, "name");
    for (int rank = -1; rank <= 4; rank += 5) {
        CHECK(describe("alltoall", rank, 0, text, TEXT_BYTES, &told) ==
                  PLAIT_ERR_INVALID,
              "rank %d", rank);
    }
    for (int way = -1; way <= PLAIT_DESCRIBE_COUNT; way += PLAIT_DESCRIBE_COUNT + 1) {
        CHECK(describe("alltoall", 0, way, text, TEXT_BYTES, &told) ==
                  PLAIT_ERR_INVALID,
              "way %d", way);
    }
}

int main(void)
{
    check_texts();
    check_room();
    check_refusals();
    return report("test_describe");
}
