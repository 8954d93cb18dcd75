/* Memory that ranks show each other (device/pool.h, transport/node_map.h). */
#ifndef PLAIT_TESTS_MPI_MAPS_H
#define PLAIT_TESTS_MPI_MAPS_H

#include "check.h"
#include "device/pool.h"
#include "mpi_host.h"
#include "transport/transport.h"

#include <stdio.h>
#include <string.h>

enum { MAPS_AT_MOST = 8, LARGE_BYTES = 9 << 20 };

/* Mappings of shown memory in this process. */
static int count_maps(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        n += strstr(line, "/memfd:plait-work") != NULL;
    }
    CHECK(file != NULL, "/proc/self/maps");
    if (file != NULL) {
        (void)fclose(file);
    }
    return n;
}

static uint8_t shown_byte(int rank, int64_t i, int round)
{
    return (uint8_t)(7 * rank + i / 3 + 11 * round);
}

static void fill_shown(char *buffer, int64_t n_bytes, int rank, int round)
{
    for (int64_t i = 0; i < n_bytes; i++) {
        buffer[i] = (char)shown_byte(rank, i, round);
    }
}

static void check_bytes(const char *buffer, int64_t n_bytes, int rank, int round)
{
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < n_bytes; i++) {
        n_wrong += (uint8_t)buffer[i] != shown_byte(rank, i, round);
    }
    CHECK(n_wrong == 0, "rank %d, round %d: %lld of %lld bytes", rank, round,
          (long long)n_wrong, (long long)n_bytes);
}

static void show(plait_session_t *session, uint64_t token)
{
    const plait_record_t mine = {.n_slots = 1, .slot = {token}};

    CHECK(session->end->transport->fence(session, &mine, NULL, 0) == PLAIT_OK, "fence");
}

/* Reads what all others show, in each of two rounds. Tokens are 0 on all ranks or on none. */
static void read_all(plait_session_t *session, char *mine, uint64_t token, int64_t n)
{
    const plait_endpoint_t *end = session->end;

    for (int round = 0; round < 2; round++) {
        fill_shown(mine, n, end->rank, round);
        show(session, token);
        for (int r = 0; r < end->size; r++) {
            const uint64_t theirs = plait_peer_record(session, r)->slot[0];
            CHECK((theirs != 0) == (token != 0), "rank %d shows it, too", r);
            if (r != end->rank && theirs != 0) {
                char *base = end->transport->map(session, r, theirs);
                CHECK(base != NULL, "what rank %d shows is mapped", r);
                if (base != NULL) {
                    check_bytes(base, n, r, round);
                    CHECK(end->transport->map(session, r, theirs) == base, "once");
                    end->transport->unmap(session, r, theirs);
                    end->transport->unmap(session, r, theirs);
                }
            }
        }
        show(session, token);
    }
}

/* Buffers one after the other, each given back to the system before the next. Peers release the mappings that
 * they keep of it. */
static void test_turns(plait_session_t *session)
{
    static const int64_t sizes[] = {4096, 100000, 1, 3 << 20, LARGE_BYTES, 5000};
    const int others = session->end->size - 1;
    int at_first = 0;

    for (int i = 0; i < 12; i++) {
        const int64_t n = sizes[i % 6];
        void *buffer = NULL;
        uint64_t token = 1;
        CHECK(plait_pool_take_shown(n, &buffer, &token) == PLAIT_OK, "%lld bytes",
              (long long)n);
        CHECK(token != 0 || n == LARGE_BYTES, "%lld bytes are shown", (long long)n);
        read_all(session, buffer, token, n);
        plait_pool_give(buffer);
        (void)plait_pool_trim();
        at_first = (i == 0) ? count_maps() : at_first;
        CHECK(count_maps() <= at_first + ((token == 0) ? others : 0), "%d maps, %d",
              count_maps(), at_first);
    }
}

/* More buffers than are kept mapped, all in use: the last one cannot be mapped. Nor can memory that is
 * nobody's. */
static void test_many(plait_session_t *session)
{
    const plait_endpoint_t *end = session->end;
    const int peer = (end->rank + 1) % end->size;
    plait_record_t mine = {.n_slots = 8};
    uint64_t theirs[MAPS_AT_MOST + 1];
    uint64_t tokens[MAPS_AT_MOST + 1];
    void *buffers[MAPS_AT_MOST + 1];

    for (int i = 0; i <= MAPS_AT_MOST; i++) {
        CHECK(plait_pool_take_shown(100, &buffers[i], &tokens[i]) == PLAIT_OK, "take");
        fill_shown(buffers[i], 100, end->rank, i);
    }
    memcpy(mine.slot, tokens, 8 * sizeof(tokens[0]));
    CHECK(end->transport->fence(session, &mine, NULL, 0) == PLAIT_OK, "fence");
    memcpy(theirs, plait_peer_record(session, peer)->slot, 8 * sizeof(theirs[0]));
    show(session, tokens[MAPS_AT_MOST]);
    theirs[MAPS_AT_MOST] = plait_peer_record(session, peer)->slot[0];
    for (int i = 0; i < MAPS_AT_MOST; i++) {
        char *base = end->transport->map(session, peer, theirs[i]);
        CHECK(base != NULL, "buffer %d", i);
        if (base != NULL) {
            check_bytes(base, 100, peer, i);
        }
    }
    CHECK(end->transport->map(session, peer, theirs[MAPS_AT_MOST]) == NULL,
          "there is no place");
    end->transport->unmap(session, peer, theirs[3]);
    char *last = end->transport->map(session, peer, theirs[MAPS_AT_MOST]);
    CHECK(last != NULL, "there is one now");
    if (last != NULL) {
        check_bytes(last, 100, peer, MAPS_AT_MOST);
    }
    for (int i = 0; i <= MAPS_AT_MOST; i++) {
        if (i != 3) {
            end->transport->unmap(session, peer, theirs[i]);
        }
    }
    const uint64_t other = theirs[0] ^ UINT64_C(1) << 40; /* another inode */
    CHECK(end->transport->map(session, peer, other) == NULL, "another file");
    CHECK(end->transport->map(session, peer, (theirs[0] | UINT32_MAX) - 5) == NULL,
          "no descriptor");
    CHECK(end->transport->map(session, peer, theirs[0]) != NULL, "afterwards");
    end->transport->unmap(session, peer, theirs[0]);
    show(session, 0);
    for (int i = 0; i <= MAPS_AT_MOST; i++) {
        plait_pool_give(buffers[i]);
    }
    (void)plait_pool_trim();
}

static void test_maps(plait_endpoint_t *end)
{
    plait_session_t session = {.end = end};

    if (end->caps.direct == PLAIT_DIRECT_READ && end->size > 1) {
        CHECK(end->transport->begin(&session, true) == PLAIT_OK, "begin");
        test_turns(&session);
        test_many(&session);
        end->transport->end(&session);
    }
}

#endif
