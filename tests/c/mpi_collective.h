/* Parts of the program mpi_transport, each on one endpoint and collective: fences, data
 * under fences, native collectives. */
#ifndef PLAIT_TESTS_MPI_COLLECTIVE_H
#define PLAIT_TESTS_MPI_COLLECTIVE_H

#include "check.h"
#include "numbers.h"
#include "transport/transport.h"

#include <string.h>

static plait_session_t begin(plait_endpoint_t *end)
{
    plait_session_t session = {.end = end};

    CHECK(end->transport->begin(&session, true) == PLAIT_OK, "begin");
    return session;
}

static inline void test_barrier(plait_endpoint_t *end)
{
    plait_session_t session = begin(end);

    CHECK(end->transport->barrier(&session) == PLAIT_OK, "barrier");
    end->transport->end(&session);
}

static void test_fence(plait_endpoint_t *end)
{
    plait_session_t session = begin(end);

    for (int round = 0; round < 50; round++) {
        plait_record_t mine = {
            .status = round % 3, .n_slots = PLAIT_MAX_SLOTS, .agree = (uint64_t)round};
        mine.slot[0] = (uint64_t)end->rank;
        mine.slot[7] = (uint64_t)(1000 * round + end->rank);
        CHECK(end->transport->fence(&session, &mine, NULL, 0) == PLAIT_OK, "fence");
        for (int i = 0; i < end->size; i++) {
            const plait_record_t *r = plait_peer_record(&session, i);
            CHECK(r->status == round % 3 && r->n_slots == PLAIT_MAX_SLOTS &&
                      r->agree == (uint64_t)round && r->slot[0] == (uint64_t)i &&
                      r->slot[7] == (uint64_t)(1000 * round + i),
                  "record of rank %d in round %d", i, round);
        }
    }
    end->transport->end(&session);
}

static unsigned char byte_of(int rank, int64_t i)
{
    return (unsigned char)(i * 31 + (i >> 8) * 7 + rank * 101 + 3);
}

/* Bytes that a rank publishes in a round: none, few, the most, and numbers between, which mostly differ
 * between ranks. */
static int64_t published(const plait_endpoint_t *end, int rank, int round)
{
    static const int64_t sizes[] = {0, 8, 63, 64, 65, 200, 256};
    int64_t most = end->caps.publish_bytes;
    int64_t n = (round < 7)    ? sizes[round]
                : (round < 14) ? sizes[(round + 3 * rank) % 7]
                : (round < 20) ? most * (rank == round % end->size)
                               : most - 7 * rank;

    return (n < most) ? n : most;
}

static void check_published(const plait_session_t *session, int round)
{
    for (int r = 0; r < session->end->size; r++) {
        const char *bytes = plait_peer_bytes(session, r);
        int64_t n = published(session->end, r, round);
        int64_t n_wrong = 0;
        for (int64_t i = 0; i < n; i++) {
            n_wrong += (unsigned char)bytes[i] != byte_of(r + round, i);
        }
        CHECK(n_wrong == 0 && plait_peer_record(session, r)->n_slots == -n &&
                  plait_peer_record(session, r)->agree == (uint64_t)(round * r),
              "rank %d published %lld bytes in round %d, %lld wrong", r, (long long)n,
              round, (long long)n_wrong);
    }
}

static void test_publish(plait_endpoint_t *end)
{
    unsigned char bytes[PLAIT_PUBLISH_BYTES];
    plait_session_t session = begin(end);

    for (int round = 0; round < 22 && end->caps.publish_bytes >= 0; round++) {
        const plait_record_t mine = {.agree = (uint64_t)(round * end->rank)};
        for (int64_t i = 0; i < PLAIT_PUBLISH_BYTES; i++) {
            bytes[i] = byte_of(end->rank + round, i);
        }
        CHECK(end->transport->fence(&session, &mine, bytes,
                                    published(end, end->rank, round)) == PLAIT_OK,
              "fence");
        memset(bytes, 255, sizeof(bytes)); /* the caller's again */
        check_published(&session, round);
    }
    end->transport->end(&session);
}

static void fence_at(plait_session_t *session, const void *slot)
{
    plait_record_t mine = {.n_slots = 1, .slot = {(uint64_t)(uintptr_t)slot}};

    CHECK(session->end->transport->fence(session, &mine, NULL, 0) == PLAIT_OK, "fence");
}

/* n_rows rows of row bytes, stride apart at the peer; here in pieces of another size. */
static void check_read(plait_session_t *session, int peer, int64_t n_rows, int64_t row,
                       int64_t stride, int64_t piece)
{
    int64_t n_bytes = n_rows * row;
    int64_t n_pieces = (n_bytes + piece - 1) / piece;
    unsigned char *to = plait_alloc(n_bytes + 1, 1);
    struct iovec *local = plait_alloc(n_pieces, sizeof(*local));
    struct iovec *remote = plait_alloc(n_rows, sizeof(*remote));
    char *base = (char *)(uintptr_t)plait_peer_record(session, peer)->slot[0];
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < n_pieces; i++) {
        int64_t n = (i + 1 < n_pieces) ? piece : n_bytes - i * piece;
        local[i] = (struct iovec){to + i * piece, (size_t)n};
    }
    for (int64_t i = 0; i < n_rows; i++) {
        remote[i] = (struct iovec){base + i * stride, (size_t)row};
    }
    to[n_bytes] = 77;
    CHECK(session->end->transport->read(session, peer, local, n_pieces, remote,
                                        n_rows) == PLAIT_OK,
          "read");
    for (int64_t i = 0; i < n_bytes; i++) {
        n_wrong += (to[i] != byte_of(peer, i / row * stride + i % row));
    }
    CHECK(n_wrong == 0 && to[n_bytes] == 77,
          "read %lld rows of %lld, stride %lld, pieces %lld", (long long)n_rows,
          (long long)row, (long long)stride, (long long)piece);
    plait_free(remote);
    plait_free(local);
    plait_free(to);
}

static void check_bad_read(plait_session_t *session, int peer)
{
    char to[16];
    struct iovec local = {to, sizeof(to)};
    struct iovec remote = {(void *)(uintptr_t)64, sizeof(to)};

    CHECK(session->end->transport->read(session, peer, &local, 1, &remote, 1) ==
              PLAIT_ERR_TRANSPORT,
          "read of nothing");
}

static void check_reads(plait_endpoint_t *end)
{
    enum { BYTES = 9 << 20 };
    unsigned char *mine = plait_alloc(BYTES, 1);
    plait_session_t session = begin(end);

    for (int64_t i = 0; i < BYTES; i++) {
        mine[i] = byte_of(end->rank, i);
    }
    fence_at(&session, mine);
    for (int peer = 0; peer < end->size; peer++) {
        check_read(&session, peer, 1, BYTES, BYTES, BYTES);
        check_read(&session, peer, 1, 8, 8, 3);
        check_read(&session, peer, 5000, 8, 24, 40000);
        check_read(&session, peer, 3000, 24, 1000, 7);
        check_read(&session, peer, 2049, 4000, 4096, 4000);
        check_read(&session, peer, 7, 5000, 100000, 1);
        check_read(&session, peer, 1100, 1, 8000, 1);
        check_read(&session, peer, 0, 8, 8, 8);
        check_bad_read(&session, peer);
    }
    fence_at(&session, mine);
    end->transport->end(&session);
    plait_free(mine);
}

/* Writes a rank's pattern into rows of every peer's memory, from scattered pieces. */
static void check_write(plait_session_t *session, unsigned char *mine, int64_t n_rows,
                        int64_t row, int64_t stride, int64_t piece)
{
    const plait_endpoint_t *end = session->end;
    const int64_t n_bytes = n_rows * row;
    const int64_t room = n_rows * stride;
    const int64_t n_pieces = (n_bytes + piece - 1) / piece;
    unsigned char *from = plait_alloc(n_bytes + 1, 1);
    struct iovec *local = plait_alloc(n_pieces + 1, sizeof(*local));
    struct iovec *remote = plait_alloc(n_rows + 1, sizeof(*remote));
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < n_bytes; i++) {
        from[i] = byte_of(end->rank, i);
    }
    for (int64_t i = 0; i < n_pieces; i++) {
        int64_t n = (i + 1 < n_pieces) ? piece : n_bytes - i * piece;
        local[i] = (struct iovec){from + i * piece, (size_t)n};
    }
    memset(mine, 255, (size_t)(end->size * room));
    fence_at(session, mine);
    for (int peer = 0; peer < end->size; peer++) {
        char *base = (char *)(uintptr_t)plait_peer_record(session, peer)->slot[0];
        for (int64_t i = 0; i < n_rows; i++) {
            remote[i] =
                (struct iovec){base + end->rank * room + i * stride, (size_t)row};
        }
        CHECK(end->transport->write(session, peer, local, n_pieces, remote, n_rows) ==
                  PLAIT_OK,
              "write");
    }
    fence_at(session, mine);
    for (int64_t i = 0; i < end->size * room; i++) {
        int64_t at = i % room;
        bool is_written = at % stride < row;
        n_wrong += mine[i] != (is_written ? byte_of((int)(i / room),
                                                    at / stride * row + at % stride)
                                          : 255);
    }
    CHECK(n_wrong == 0, "write %lld rows of %lld, stride %lld, pieces %lld",
          (long long)n_rows, (long long)row, (long long)stride, (long long)piece);
    plait_free(remote);
    plait_free(local);
    plait_free(from);
}

static void check_bad_write(plait_session_t *session, int peer)
{
    char from[16] = {0};
    struct iovec local = {from, sizeof(from)};
    struct iovec remote = {(void *)(uintptr_t)64, sizeof(from)};

    CHECK(session->end->transport->write(session, peer, &local, 1, &remote, 1) ==
              PLAIT_ERR_TRANSPORT,
          "write to nothing");
    CHECK(strstr(plait_error_text(), "cannot write memory of rank") != NULL, "text");
}

static void check_writes(plait_endpoint_t *end)
{
    plait_session_t session = begin(end);
    unsigned char *mine = plait_alloc(end->size, 3 << 20);

    check_write(&session, mine, 1, 3 << 20, 3 << 20, 3 << 20);
    check_write(&session, mine, 5000, 8, 24, 40000);
    check_write(&session, mine, 2049, 1000, 1024, 7000);
    check_write(&session, mine, 7, 5000, 100000, 1);
    check_write(&session, mine, 0, 8, 8, 8);
    for (int peer = 0; peer < end->size; peer++) {
        check_bad_write(&session, peer);
    }
    fence_at(&session, mine);
    end->transport->end(&session);
    plait_free(mine);
}

/* Two messages for each pair; for some pairs the second is empty. */
static int64_t exchange_bytes(int from, int to, int k)
{
    static const int64_t sizes[] = {1, 4096, 0, 3 << 20, 100000};

    return sizes[(from + 2 * to + 3 * k) % 5];
}

static void check_exchange(plait_endpoint_t *end)
{
    enum { MAX = 2 * 64, ROOM = 3 << 20 };
    plait_message_t sends[MAX];
    plait_message_t recvs[MAX];
    plait_session_t session = begin(end);
    int n = 0;

    for (int peer = 0; peer < end->size; peer++) {
        for (int k = 0; k < 2; k++, n++) {
            sends[n] = (plait_message_t){peer, plait_alloc(ROOM, 1),
                                         exchange_bytes(end->rank, peer, k)};
            recvs[n] = (plait_message_t){peer, plait_alloc(ROOM, 1),
                                         exchange_bytes(peer, end->rank, k)};
            for (int64_t i = 0; i < sends[n].n_bytes; i++) {
                ((unsigned char *)sends[n].data)[i] =
                    byte_of(end->rank + 50 * k + peer, i);
            }
        }
    }
    CHECK(end->transport->exchange(&session, n, sends, n, recvs) == PLAIT_OK,
          "exchange");
    for (int i = 0; i < n; i++) {
        int64_t n_wrong = 0;
        for (int64_t j = 0; j < recvs[i].n_bytes; j++) {
            n_wrong += ((unsigned char *)recvs[i].data)[j] !=
                       byte_of(recvs[i].peer + 50 * (i % 2) + end->rank, j);
        }
        CHECK(n_wrong == 0, "exchange with %d, message %d", recvs[i].peer, i % 2);
        plait_free(sends[i].data);
        plait_free(recvs[i].data);
    }
    end->transport->end(&session);
}

static void test_data(plait_endpoint_t *end)
{
    if (end->caps.direct == PLAIT_DIRECT_READ) {
        check_reads(end);
        if (end->caps.can_write) {
            check_writes(end);
        }
    } else {
        check_exchange(end);
    }
}

static void check_allreduce(plait_session_t *session, plait_reduce_t op,
                            plait_dtype_t dtype, int64_t n, bool in_place)
{
    const plait_endpoint_t *end = session->end;
    int64_t n_bytes = n * plait_dtype_bytes(dtype);
    char *x = plait_alloc(n_bytes, 1);
    char *y = plait_alloc(n_bytes, 1);
    char *expected = plait_alloc(n_bytes, 1);

    for (int64_t i = 0; i < n; i++) {
        number_t sum = number_of(dtype, op, 0, i);
        for (int rank = 1; rank < end->size; rank++) {
            sum = combine(op, dtype, sum, number_of(dtype, op, rank, i));
        }
        put(dtype, expected, i, sum);
        put(dtype, x, i, number_of(dtype, op, end->rank, i));
    }
    memcpy(y, x, (size_t)n_bytes);
    CHECK(end->transport->allreduce(session, op, dtype, n, in_place ? y : x, y) ==
              PLAIT_OK,
          "allreduce");
    CHECK(memcmp(y, expected, (size_t)n_bytes) == 0, "allreduce op %d %s n%lld%s",
          (int)op, plait_dtype_name(dtype), (long long)n, in_place ? " in place" : "");
    plait_free(expected);
    plait_free(y);
    plait_free(x);
}

static void check_allreduces(plait_session_t *session)
{
    const plait_caps_t *caps = &session->end->caps;
    static const int64_t counts[] = {0, 1, 3, 1000, 70001};

    for (int op = 0; op < PLAIT_REDUCE_COUNT; op++) {
        for (int d = 0; d < plait_dtype_count(); d++) {
            plait_dtype_t dtype = plait_dtype_at(d);
            for (int k = 0; (caps->native_reduce[op] >> dtype & 1) != 0 && k < 5; k++) {
                check_allreduce(session, (plait_reduce_t)op, dtype, counts[k],
                                k % 2 == 1);
            }
        }
    }
    CHECK((~caps->native_reduce[PLAIT_SUM] & (1 << PLAIT_S64 | 1 << PLAIT_F32)) == 0,
          "sums");
    CHECK((caps->native_reduce[PLAIT_SUM] >> PLAIT_BF16 & 1) == 0, "no bfloat16");
    CHECK((caps->native_reduce[PLAIT_MAX] >> PLAIT_F32 & 1) == 0, "MAX loses NaN");
}

static inline void test_collectives(plait_endpoint_t *end)
{
    enum { BYTES = 1 << 20 };
    unsigned char *data = plait_alloc(BYTES, 1);
    plait_session_t session = begin(end);

    check_allreduces(&session);
    for (int root = 0; root < end->size; root++) {
        for (int64_t n = 1; n <= BYTES; n *= 32) {
            for (int64_t i = 0; i < n; i++) {
                data[i] = byte_of(end->rank, i);
            }
            CHECK(end->transport->bcast(&session, root, data, n) == PLAIT_OK, "bcast");
            int64_t n_wrong = 0;
            for (int64_t i = 0; i < n; i++) {
                n_wrong += (data[i] != byte_of(root, i));
            }
            CHECK(n_wrong == 0, "bcast from %d of %lld bytes", root, (long long)n);
        }
        CHECK(end->transport->barrier(&session) == PLAIT_OK, "barrier");
    }
    CHECK(end->transport->bcast(&session, 0, NULL, 0) == PLAIT_OK, "bcast of nothing");
    end->transport->end(&session);
    plait_free(data);
}

#endif
