/* Programs with new sizes and tags at each step: their plans do not stay for ever, and an operation called
 * again and again keeps its plan. */
#include "check.h"
#include "plait/coll.h"
#include "plan/kept.h"
#include "team.h"

enum { MOST = 4200, N_THREADS = 4 };

/* More steps than plans that are kept. */
static int64_t n_steps(void)
{
    return is_quick() ? 5000 : 12000;
}

static void sizes_rank(plait_comm_t *comm, void *context)
{
    double *x = plait_alloc(n_steps(), sizeof(*x));
    double sum = 0, one = 1;

    (void)context;
    for (int64_t n = 1; n < n_steps(); n++) {
        x[0] = (comm->end.rank == 0) ? (double)n : 0;
        x[n - 1] = x[0];
        CHECK(plait_bcast(comm, 0, PLAIT_F64, n, x, x) == PLAIT_OK &&
                  x[0] == (double)n && x[n - 1] == (double)n,
              "bcast of %lld", (long long)n);
        CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &one, &sum) == PLAIT_OK &&
                  sum == (double)comm->end.size,
              "allreduce after %lld", (long long)n);
    }
    CHECK(plait_kept_count(plait_kept_of(comm)) <= MOST, "%lld plans",
          (long long)plait_kept_count(plait_kept_of(comm)));
    plait_free(x);
}

typedef struct {
    plait_comm_t *comm;
    int number;
} sender_t;

/* Threads far apart write to the same place of the flight recorder, which is allowed. */
enum { TOGETHER = 16 };

static pthread_barrier_t barrier;

/* Sends messages to itself, each with its own tag. */
static void *send_all(void *argument)
{
    const sender_t *s = argument;

    for (int64_t i = 0; i < n_steps() / 2; i++) {
        const int tag = (int)(N_THREADS * i) + s->number;
        const double x = tag;
        double y = 0;

        if (i % TOGETHER == 0) {
            (void)pthread_barrier_wait(&barrier);
        }
        CHECK(plait_sendrecv(s->comm, 0, tag, PLAIT_F64, 1, &x, 0, tag, PLAIT_F64, 1,
                             &y, NULL) == PLAIT_OK &&
                  y == x,
              "tag %d: %g", tag, y);
    }
    return NULL;
}

/* Threads of one communicator; some may have found a plan that another thread drops. */
static void check_threads(void)
{
    plait_comm_t *comm = NULL;
    pthread_t threads[N_THREADS];
    sender_t senders[N_THREADS];

    CHECK(plait_comm_self(&comm) == PLAIT_OK, "self");
    (void)pthread_barrier_init(&barrier, NULL, N_THREADS);
    for (int t = 0; t < N_THREADS; t++) {
        senders[t] = (sender_t){comm, t};
        (void)pthread_create(&threads[t], NULL, send_all, &senders[t]);
    }
    for (int t = 0; t < N_THREADS; t++) {
        (void)pthread_join(threads[t], NULL);
    }
    const double x = 1;
    double y = 0;
    (void)pthread_barrier_destroy(&barrier);
    const int tag = N_THREADS * (int)n_steps();
    CHECK(plait_sendrecv(comm, 0, tag, PLAIT_F64, 1, &x, 0, tag, PLAIT_F64, 1, &y,
                         NULL) == PLAIT_OK,
          "alone");
    CHECK(plait_kept_count(plait_kept_of(comm)) <= MOST, "%lld plans",
          (long long)plait_kept_count(plait_kept_of(comm)));
    plait_comm_destroy(&comm);
}

/* Plans with many edges: few plans stay, and plans that are called in turns stay. */
static void check_large(int64_t n_edges, int n_large, int n_most)
{
    plait_edge_t *edges = plait_alloc(n_edges, sizeof(*edges));
    uint8_t *x = plait_alloc(n_edges, 1);
    uint8_t *y = plait_alloc(n_edges, 1);
    plait_comm_t *comm = NULL;
    const int64_t before = plait_alloc_tally();

    CHECK(plait_comm_self(&comm) == PLAIT_OK, "self");
    for (int64_t i = 0; i < n_edges; i++) {
        edges[i] = (plait_edge_t){.source_block = i, .dest_block = n_edges - 1 - i};
        x[i] = (uint8_t)i;
    }
    for (int64_t n = n_edges - n_large; n < n_edges; n++) {
        CHECK(plait_route(comm, n, edges, PLAIT_U8, 1, n_edges, x, n_edges, y) ==
                      PLAIT_OK &&
                  y[n_edges - 1] == x[0] && y[n_edges - n] == x[n - 1],
              "%lld edges", (long long)n);
    }
    CHECK(plait_kept_count(plait_kept_of(comm)) <= n_most, "%lld plans",
          (long long)plait_kept_count(plait_kept_of(comm)));
    const int64_t kept = plait_alloc_tally() - before;
    for (int64_t k = 0; k < 8; k++) {
        CHECK(plait_route(comm, n_edges - 1 - k % 4, edges, PLAIT_U8, 1, n_edges, x,
                          n_edges, y) == PLAIT_OK &&
                  plait_alloc_tally() - before == kept,
              "a plan that was there is made anew");
    }
    plait_comm_destroy(&comm);
    CHECK(plait_alloc_tally() == before, "%lld bytes are left",
          (long long)(plait_alloc_tally() - before));
    plait_free(edges);
    plait_free(x);
    plait_free(y);
}

int main(void)
{
    team_run(2, PLAIT_DIRECT_POINTER, sizes_rank, NULL);
    team_run(1, PLAIT_DIRECT_POINTER, sizes_rank, NULL);
    check_threads();
    if (!finds_races()) {
        check_large(20000, 100, 40);
        check_large(150000, 24, 16);
    }
    return report("test_kept");
}
