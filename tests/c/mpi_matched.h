/* Parts of the program mpi_transport: matched transfers, threads, messages above 2 GiB. */
#ifndef PLAIT_TESTS_MPI_MATCHED_H
#define PLAIT_TESTS_MPI_MATCHED_H

#include "mpi_collective.h"
#include "mpi_world.h"
#include "transport/mpi_link.h"

#include <limits.h>
#include <pthread.h>

static plait_status_t transfer(plait_endpoint_t *end, const plait_half_t *send,
                               const plait_half_t *recv, plait_matched_t *matched_p)
{
    plait_session_t session = {.end = end};

    CHECK(end->transport->begin(&session, false) == PLAIT_OK, "begin");
    plait_status_t status = end->transport->sendrecv(&session, send, recv, matched_p);
    end->transport->end(&session);
    return status;
}

/* Each rank sends to the next and receives from the one before. */
static void check_ring(plait_endpoint_t *end, int64_t n_bytes, int tag, bool any)
{
    int next = (end->rank + 1) % end->size;
    int before = (end->rank + end->size - 1) % end->size;
    unsigned char *x = plait_alloc(n_bytes + 1, 1);
    unsigned char *y = plait_alloc(n_bytes + 1, 1);
    plait_half_t send = {next, tag, x, n_bytes, PLAIT_U8, 0, NULL};
    plait_half_t recv = {
        any ? PLAIT_ANY : before, any ? PLAIT_ANY : tag, y, n_bytes, PLAIT_U8, 0, NULL};
    plait_matched_t matched = {0};
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < n_bytes; i++) {
        x[i] = byte_of(end->rank + tag % 1000, i);
    }
    y[n_bytes] = 99;
    CHECK(transfer(end, &send, &recv, &matched) == PLAIT_OK, "ring of %lld",
          (long long)n_bytes);
    for (int64_t i = 0; i < n_bytes; i++) {
        n_wrong += (y[i] != byte_of(before + tag % 1000, i));
    }
    CHECK(n_wrong == 0 && y[n_bytes] == 99, "ring of %lld bytes", (long long)n_bytes);
    CHECK(matched.source == before && matched.tag == tag && matched.n_bytes == n_bytes,
          "matched %d tag %d", matched.source, matched.tag);
    plait_free(y);
    plait_free(x);
}

/* Rank 0 sends, rank 1 receives; both see the same failure, and nothing is written. */
static void check_fault(plait_endpoint_t *end, int64_t n_send, plait_dtype_t sent,
                        int64_t n_recv, plait_dtype_t expected, plait_status_t fault)
{
    int64_t n_max = (n_send > n_recv) ? n_send : n_recv;
    unsigned char *data = plait_alloc(n_max, 1);
    plait_half_t half = {1 - end->rank,
                         5,
                         data,
                         (end->rank == 0) ? n_send : n_recv,
                         (end->rank == 0) ? sent : expected,
                         0,
                         NULL};
    plait_matched_t matched;
    int64_t n_wrong = 0;

    if (end->rank < 2) {
        memset(data, end->rank == 0 ? 1 : 2, (size_t)n_max);
        CHECK(transfer(end, end->rank == 0 ? &half : NULL,
                       end->rank == 1 ? &half : NULL, &matched) == fault,
              "%lld bytes of %s to %lld of %s", (long long)n_send,
              plait_dtype_name(sent), (long long)n_recv, plait_dtype_name(expected));
        CHECK(strstr(plait_error_text(), plait_dtype_name(sent)) != NULL &&
                  strstr(plait_error_text(), plait_dtype_name(expected)) != NULL,
              "text");
        for (int64_t i = 0; i < n_max; i++) {
            n_wrong += (data[i] != end->rank + 1);
        }
        CHECK(n_wrong == 0, "the receiving side was written");
    }
    plait_free(data);
}

/* Every rank also fails in one half while the other half succeeds. */
static void check_half_fault(plait_endpoint_t *end)
{
    int peer = 1 - end->rank;
    double x = end->rank + 1;
    double y[2] = {0, 0};
    plait_half_t send = {peer, 3, &x, sizeof(x), PLAIT_F64, 0, NULL};
    plait_half_t recv = {
        peer, 3, y, (end->rank == 0) ? sizeof(x) : 2 * sizeof(x), PLAIT_F64, 0, NULL};

    if (end->rank < 2) {
        /* 0 to 1 fails on both; 1 to 0 arrives */
        CHECK(transfer(end, &send, &recv, NULL) == PLAIT_ERR_MISMATCH,
              "one half fails");
        CHECK(y[0] == (end->rank == 0 ? 2.0 : 0.0), "the other half arrives: %g", y[0]);
    }
}

static void check_none(plait_endpoint_t *end)
{
    int32_t x = 5;
    int32_t y = 6;
    plait_half_t none = {PLAIT_NO_RANK, 0, &y, sizeof(y), PLAIT_S32, 0, NULL};
    plait_half_t send = {end->rank, 9, &x, sizeof(x), PLAIT_S32, 0, NULL};
    plait_half_t recv = {end->rank, PLAIT_ANY, &y, sizeof(y), PLAIT_S32, 0, NULL};
    plait_half_t far = {end->size, 9, &x, sizeof(x), PLAIT_S32, 0, NULL};
    plait_half_t tag = {end->rank, -2, &x, sizeof(x), PLAIT_S32, 0, NULL};
    plait_matched_t matched = {0};

    CHECK(transfer(end, &none, &none, &matched) == PLAIT_OK, "no halves");
    CHECK(matched.source == PLAIT_NO_RANK && y == 6, "nothing came");
    CHECK(transfer(end, &send, &recv, &matched) == PLAIT_OK, "to itself");
    CHECK(matched.source == end->rank && matched.tag == 9 && y == 5, "from itself");
    CHECK(transfer(end, &far, NULL, NULL) == PLAIT_ERR_INVALID, "no such rank");
    CHECK(transfer(end, &tag, NULL, NULL) == PLAIT_ERR_INVALID, "no such tag");
}

/* Tags up to this MPI's bound if MPI carries messages, any int in shared memory. A larger tag is refused
 * before anything is sent. */
static void check_tags(plait_endpoint_t *end)
{
    const plait_mpi_link_t *link = end->state;
    const bool is_shared = strcmp(end->transport->name, "node") == 0 &&
                           end->caps.direct == PLAIT_DIRECT_READ;
    const int max_tag = is_shared ? INT_MAX : plait_mpi_max_tag();
    const int tags[] = {32768, 1000003, max_tag, 536870911};
    int32_t x = 5;
    plait_half_t beyond = {
        end->rank, (max_tag < INT_MAX) ? max_tag + 1 : -2, &x, sizeof(x), PLAIT_S32, 0,
        NULL};

    CHECK(plait_mpi_max_tag() > 32767, "MPI_TAG_UB %d", plait_mpi_max_tag());
    CHECK(link->max_tag == max_tag, "%s: %d", end->transport->name, link->max_tag);
    for (int i = 0; i < 4 && tags[i] <= max_tag; i++) {
        check_ring(end, 77, tags[i], false);
        check_ring(end, 5000, tags[i], true);
        test_barrier(end);
    }
    CHECK(transfer(end, &beyond, NULL, NULL) == PLAIT_ERR_INVALID, "send");
    CHECK((strstr(plait_error_text(), "MPI_TAG_UB") == NULL) == (max_tag == INT_MAX),
          "%s", plait_error_text());
    CHECK(transfer(end, NULL, &beyond, NULL) == PLAIT_ERR_INVALID, "recv");
}

/* Rank 0 receives from all others in the order in which messages come. */
static void check_many_to_one(plait_endpoint_t *end)
{
    int64_t x = 1000 + end->rank;
    int64_t sum = 0;
    plait_matched_t matched = {0};

    if (end->rank == 0) {
        for (int i = 1; i < end->size; i++) {
            int64_t y = 0;
            plait_half_t recv = {PLAIT_ANY, PLAIT_ANY, &y,  sizeof(y),
                                 PLAIT_S64, 0,         NULL};
            CHECK(transfer(end, NULL, &recv, &matched) == PLAIT_OK, "recv from any");
            CHECK(y == 1000 + matched.source && matched.tag == 10 + matched.source,
                  "who it is");
            sum += y - 1000;
        }
        CHECK(sum == end->size * (end->size - 1) / 2, "each once");
    } else {
        plait_half_t send = {0, 10 + end->rank, &x, sizeof(x), PLAIT_S64, 0, NULL};
        CHECK(transfer(end, &send, NULL, NULL) == PLAIT_OK, "send to 0");
    }
}

/* Rank 0 sends a message that rank 1 receives last. The message keeps its number while as many others as there
 * are numbers go out. The message after these meets neither its answer nor its bytes. */
static void check_number(plait_endpoint_t *end, int64_t n_held, int64_t n_next)
{
    plait_mpi_link_t *link = end->state;
    plait_session_t session = {.end = end};
    char *held = plait_alloc(n_held, 1);
    char *next = plait_alloc(n_next, 1);
    plait_half_t first = {1 - end->rank, 7, held, n_held, PLAIT_U8, 0, NULL};
    plait_half_t second = {1 - end->rank, 2, next, n_next, PLAIT_U8, 0, NULL};

    if (end->rank == 0) {
        memset(held, 7, (size_t)n_held);
        memset(next, 2, (size_t)n_next);
        CHECK(end->transport->begin(&session, false) == PLAIT_OK, "begin");
        CHECK(end->transport->send(&session, &first) == PLAIT_OK, "held");
        atomic_fetch_add(&link->n_transfers, PLAIT_MPI_N_NUMBERS - 1);
        CHECK(((n_next <= PLAIT_SEND_BYTES)
                   ? end->transport->send(&session, &second)
                   : end->transport->sendrecv(&session, &second, NULL, NULL)) ==
                  PLAIT_OK,
              "next");
        end->transport->end(&session);
    } else if (end->rank == 1) {
        CHECK(transfer(end, NULL, &second, NULL) == PLAIT_OK, "next");
        CHECK(transfer(end, NULL, &first, NULL) == PLAIT_OK, "held");
        CHECK(next[0] == 2 && next[n_next - 1] == 2, "next has %d %d", next[0],
              next[n_next - 1]);
        CHECK(held[0] == 7 && held[n_held - 1] == 7, "held has %d %d", held[0],
              held[n_held - 1]);
    }
    plait_free(next);
    plait_free(held);
}

/* A transfer that has ended holds no number. */
static void check_none_held(plait_endpoint_t *end)
{
    plait_mpi_link_t *link = end->state;
    plait_session_t session = {.end = end};
    uint64_t held = 0;

    for (int i = 0; i < 1000 && atomic_load(&link->n_pending) > 0; i++) {
        CHECK(plait_mpi_refusal(&session) == PLAIT_OK, "refused");
        nap(1);
    }
    for (int i = 0; i < PLAIT_MPI_N_NUMBERS / 64; i++) {
        held |= atomic_load(&link->held_numbers[i]);
    }
    CHECK(held == 0 && link->held_bytes == 0, "%d sends have not ended, %lld bytes",
          atomic_load(&link->n_pending), (long long)link->held_bytes);
}

static void test_matched(plait_endpoint_t *end)
{
    static const int64_t sizes[] = {0,    8,     3999,   4000,   4001,
                                    5000, 65537, 100000, 5 << 20};

    for (int i = 0; i < 9; i++) {
        check_ring(end, sizes[i], 0, false);
        check_ring(end, sizes[i], 32767 - i, true);
        test_barrier(end); /* a receive from any must not meet the next ring */
    }
    check_none(end);
    check_tags(end);
    if (end->size > 1) {
        check_fault(end, 96, PLAIT_F32, 48, PLAIT_F32, PLAIT_ERR_TRUNCATION);
        check_fault(end, 48, PLAIT_F32, 96, PLAIT_F32, PLAIT_ERR_MISMATCH);
        check_fault(end, 48, PLAIT_F32, 48, PLAIT_S32, PLAIT_ERR_MISMATCH);
        check_fault(end, 1 << 20, PLAIT_F64, 8, PLAIT_F64, PLAIT_ERR_TRUNCATION);
        check_fault(end, 8, PLAIT_F64, 1 << 20, PLAIT_F64, PLAIT_ERR_MISMATCH);
        check_fault(end, 1 << 20, PLAIT_F64, 1 << 20, PLAIT_C64, PLAIT_ERR_MISMATCH);
        check_half_fault(end);
        check_number(end, 8000, 8000);
        check_number(end, 40, 8000);
        check_number(end, 40, 100000);
        test_barrier(end);
        check_many_to_one(end);
    }
    test_barrier(end);
    check_none_held(end);
    check_ring(end, 77, 1, false);
}

typedef struct {
    plait_endpoint_t *end;
    int id;
} thread_t;

static void *run_thread(void *argument)
{
    thread_t *thread = argument;

    for (int i = 0; i < 100; i++) {
        check_ring(thread->end, (i % 10 == 9) ? 100000 : 64 * thread->id,
                   100 * thread->id + i, false);
    }
    return NULL;
}

/* Transfers of several threads at once, on one endpoint, with tags of their own. */
static void test_threads(plait_endpoint_t *end)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    thread_t arguments[THREADS];

    for (int i = 0; i < THREADS; i++) {
        arguments[i] = (thread_t){end, i};
        (void)pthread_create(&threads[i], NULL, run_thread, &arguments[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    test_barrier(end);
}

static bool is_filled(const char *data, int64_t n, char value)
{
    return (data[0] == value) && (memcmp(data, data + 1, (size_t)n - 1) == 0);
}

/* More bytes than an int counts; needs memory for two arrays per rank. */
static void test_large(plait_endpoint_t *end)
{
    int64_t n = (INT64_C(1) << 31) + 8;
    char *x = plait_alloc_aligned(n);
    char *y = plait_alloc_aligned(n);
    int next = (end->rank + 1) % end->size;
    int before = (end->rank + end->size - 1) % end->size;
    plait_message_t out = {next, x, n};
    plait_message_t in = {before, y, n};
    plait_half_t send = {next, 1, x, n, PLAIT_U8, 0, NULL};
    plait_half_t recv = {before, 1, y, n, PLAIT_U8, 0, NULL};
    plait_session_t session = begin(end);

    memset(x, end->rank + 1, (size_t)n);
    if (end->transport->exchange != NULL) {
        memset(y, 0, (size_t)n);
        CHECK(end->transport->exchange(&session, 1, &out, 1, &in) == PLAIT_OK,
              "large exchange");
        CHECK(is_filled(y, n, (char)(before + 1)), "large exchange");
    }
    memset(y, 0, (size_t)n);
    CHECK(transfer(end, &send, &recv, NULL) == PLAIT_OK, "large sendrecv");
    CHECK(is_filled(y, n, (char)(before + 1)), "large sendrecv");
    memcpy(y, x, (size_t)n);
    CHECK(end->transport->bcast(&session, end->size - 1, y, n) == PLAIT_OK,
          "large bcast");
    CHECK(is_filled(y, n, (char)end->size), "large bcast");
    memset(y, 0, (size_t)n);
    CHECK(end->transport->allreduce(&session, PLAIT_MAX, PLAIT_U8, n, x, y) == PLAIT_OK,
          "large allreduce");
    CHECK(is_filled(y, n, (char)end->size), "large allreduce");
    end->transport->end(&session);
    plait_free(y);
    plait_free(x);
}

#endif
