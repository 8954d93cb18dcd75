/* Part of the program mpi_transport, with PLAIT_TEST_LATENCY set: times of an endpoint beside those of
 * blocking MPI, alternating in the same run. The best round counts. */
#ifndef PLAIT_TESTS_MPI_LATENCY_H
#define PLAIT_TESTS_MPI_LATENCY_H

#include "base/clock.h"
#include "mpi_host.h"
#include "mpi_matched.h"

typedef struct {
    plait_session_t session;
    uint64_t world;
    double *x, *y;
    int64_t n; /* doubles */
    int next, before;
} timed_t;

static void raw_allreduce(timed_t *t)
{
    (void)host.allreduce(t->x, t->y, (int)t->n, host.f64, host.sum, t->world);
}

static void our_allreduce(timed_t *t)
{
    const plait_transport_t *transport = t->session.end->transport;

    CHECK(transport->begin(&t->session, true) == PLAIT_OK &&
              transport->allreduce(&t->session, PLAIT_SUM, PLAIT_F64, t->n, t->x,
                                   t->y) == PLAIT_OK,
          "allreduce");
    transport->end(&t->session);
}

static void raw_sendrecv(timed_t *t)
{
    (void)host.sendrecv(t->x, (int)t->n, host.f64, t->next, 1, t->y, (int)t->n,
                        host.f64, t->before, 1, t->world, host.status_ignore);
}

static void our_sendrecv(timed_t *t)
{
    const plait_transport_t *transport = t->session.end->transport;
    plait_half_t send = {t->next, 1, t->x, t->n * 8, PLAIT_F64, 0, NULL};
    plait_half_t recv = {t->before, 1, t->y, t->n * 8, PLAIT_F64, 0, NULL};

    CHECK(transport->begin(&t->session, false) == PLAIT_OK &&
              transport->sendrecv(&t->session, &send, &recv, NULL) == PLAIT_OK,
          "sendrecv");
    transport->end(&t->session);
}

static void raw_barrier(timed_t *t)
{
    (void)host.barrier(t->world);
}

static void our_fence(timed_t *t)
{
    plait_record_t mine = {.n_slots = 0};

    CHECK(t->session.end->transport->fence(&t->session, &mine, NULL, 0) == PLAIT_OK,
          "fence");
}

static void our_barrier(timed_t *t)
{
    CHECK(t->session.end->transport->barrier(&t->session) == PLAIT_OK, "barrier");
}

static double time_of(timed_t *t, void (*operation)(timed_t *), int n)
{
    (void)host.barrier(t->world);
    int64_t start = plait_clock_ns();
    for (int i = 0; i < n; i++) {
        operation(t);
    }
    return (double)(plait_clock_ns() - start) / n / 1000;
}

static void compare(timed_t *t, const char *name, void (*raw)(timed_t *),
                    void (*ours)(timed_t *), int n)
{
    double best[2] = {1e30, 1e30};

    for (int round = 0; round < (n > 10 ? 60 : 7); round++) {
        double now[2] = {time_of(t, raw, n), time_of(t, ours, n)};
        for (int k = 0; k < 2; k++) {
            best[k] = (now[k] < best[k]) ? now[k] : best[k];
        }
    }
    if (t->session.end->rank == 0) {
        printf("%-10s %-9s %10lld B: %10.2f us, MPI %10.2f us, ratio %.2f\n",
               t->session.end->transport->name, name, (long long)t->n * 8, best[1],
               best[0], best[1] / best[0]);
    }
}

/* The whole array from one rank to the next under two fences, beside MPI_Sendrecv. */
static void our_move(timed_t *t)
{
    const plait_transport_t *transport = t->session.end->transport;
    plait_message_t out = {t->next, t->x, t->n * 8};
    plait_message_t in = {t->before, t->y, t->n * 8};

    if (t->session.end->caps.direct == PLAIT_DIRECT_READ) {
        struct iovec to = {t->y, (size_t)t->n * 8};
        struct iovec from = {.iov_len = (size_t)t->n * 8};
        fence_at(&t->session, t->x);
        from.iov_base =
            (void *)(uintptr_t)plait_peer_record(&t->session, t->before)->slot[0];
        CHECK(transport->read(&t->session, t->before, &to, 1, &from, 1) == PLAIT_OK,
              "read");
        fence_at(&t->session, t->x);
    } else {
        CHECK(transport->exchange(&t->session, 1, &out, 1, &in) == PLAIT_OK,
              "exchange");
    }
}

static void test_latency(plait_endpoint_t *end, uint64_t world)
{
    enum { MAX = 8 << 20 }; /* doubles: 64 MiB */
    timed_t t = {.world = world,
                 .x = plait_alloc_aligned(MAX * 8),
                 .y = plait_alloc_aligned(MAX * 8),
                 .n = 1,
                 .next = (end->rank + 1) % end->size,
                 .before = (end->rank + end->size - 1) % end->size};

    memset(t.x, 0, MAX * 8);
    memset(t.y, 0, MAX * 8);
    t.session = begin(end);
    compare(&t, "barrier", raw_barrier, our_barrier, 200);
    compare(&t, "fence", raw_barrier, our_fence, 200);
    for (t.n = 1; t.n <= MAX; t.n *= 128) {
        int n = (t.n < 1000) ? 200 : (t.n < 100000) ? 20 : 3;
        compare(&t, "allreduce", raw_allreduce, our_allreduce, n);
        compare(&t, "sendrecv", raw_sendrecv, our_sendrecv, n);
        compare(&t, "move", raw_sendrecv, our_move, n);
    }
    t.n = MAX;
    compare(&t, "allreduce", raw_allreduce, our_allreduce, 2);
    compare(&t, "sendrecv", raw_sendrecv, our_sendrecv, 3);
    compare(&t, "move", raw_sendrecv, our_move, 3);
    end->transport->end(&t.session);
    plait_free(t.y);
    plait_free(t.x);
}

#endif
