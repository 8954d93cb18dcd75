/* Plans in words: those of plait_plan_print, for every rank and way, and what is refused. */
#include "api/describe.h"
#include "check.h"
#include "coll/coll.h"

#include <string.h>

enum { TEXT_BYTES = 4096 };

static plait_status_t describe(const char *op, int rank, int way, char *text,
                               int n_bytes)
{
    static const int64_t arrays[] = {PLAIT_F32, 2, 4, 8, PLAIT_F32, 2, 4, 8};
    const plait_alltoall_params_t params = {.n_counts = 0};

    return plait_describe(op, &params, 4, rank, way, arrays, text, n_bytes);
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

            (void)snprintf(
                want, sizeof(want),
                "alltoall(float32(4, 8)), rank %d of 4 by %s: 3 messages, 96 "
                "bytes, work 0 bytes, scratch %d bytes\n",
                rank, by[way], scratch[way]);
            CHECK(describe("alltoall", rank, way, text, TEXT_BYTES) == PLAIT_OK, "%s",
                  want);
            CHECK(strncmp(text, want, strlen(want)) == 0, "%s", text);
            CHECK(strstr(text, "   1  ") != NULL, "%s", text);
        }
    }
}

static void check_room(void)
{
    char whole[TEXT_BYTES] = "";
    char text[TEXT_BYTES];

    CHECK(describe("alltoall", 0, 0, whole, TEXT_BYTES) == PLAIT_OK, "whole");
    int n = (int)strlen(whole);
    memset(text, '#', sizeof(text));
    CHECK(describe("alltoall", 0, 0, text, n) == PLAIT_ERR_OVERFLOW, "without its NUL");
    CHECK(text[0] == '#', "a text that does not fit is left out");
    CHECK(describe("alltoall", 0, 0, text, n + 1) == PLAIT_OK, "exact");
    CHECK(strcmp(text, whole) == 0 && text[n + 1] == '#', "%s", text);
}

static void check_refusals(void)
{
    char text[TEXT_BYTES];

    CHECK(describe("all", 0, 0, text, TEXT_BYTES) == PLAIT_ERR_INVALID, "name");
    CHECK(describe("alltoall", 4, 0, text, TEXT_BYTES) == PLAIT_ERR_INVALID, "rank");
    CHECK(describe("alltoall", -1, 0, text, TEXT_BYTES) == PLAIT_ERR_INVALID, "rank");
    CHECK(describe("alltoall", 0, PLAIT_DESCRIBE_COUNT, text, TEXT_BYTES) ==
              PLAIT_ERR_INVALID,
          "way");
    CHECK(describe("alltoall", 0, -1, text, TEXT_BYTES) == PLAIT_ERR_INVALID, "way");
}

int main(void)
{
    check_texts();
    check_room();
    check_refusals();
    return report("test_describe");
}
