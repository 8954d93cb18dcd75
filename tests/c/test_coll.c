/* Collectives and matched transfers by threads: values against arithmetic, every way of
 * reaching a peer's memory, in place and not, and what happens when ranks disagree. */
#include "check.h"
#include "device/pool.h"
#include "plait/coll.h"
#include "plan/launch.h"
#include "team.h"

#include <string.h>

static const plait_direct_t directs[] = {PLAIT_DIRECT_POINTER, PLAIT_DIRECT_READ,
                                         PLAIT_DIRECT_NONE};

typedef struct {
    int64_t n;
    bool in_place;
    int root;
} vector_t;

/* Small integers: sums are exact in every order. */
static double value(int rank, int64_t i)
{
    return (double)((rank * 7 + i * 3) % 11 - 5);
}

static void allreduce_rank(plait_comm_t *comm, void *context)
{
    const vector_t *t = context;
    int rank = plait_comm_rank(comm);
    double *x = plait_alloc(t->n + 1, sizeof(double));
    double *y = t->in_place ? x : plait_alloc(t->n + 1, sizeof(double));

    for (int round = 0; round < 3; round++) {
        int64_t n_wrong = 0;
        for (int64_t i = 0; i < t->n; i++) {
            x[i] = value(rank, i + round);
        }
        CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, t->n, x, y) == PLAIT_OK,
              "n %lld", (long long)t->n);
        for (int64_t i = 0; i < t->n; i++) {
            double want = 0;
            for (int r = 0; r < plait_comm_size(comm); r++) {
                want += value(r, i + round);
            }
            n_wrong += y[i] != want;
        }
        CHECK(n_wrong == 0, "allreduce n %lld of %d: %lld wrong", (long long)t->n,
              plait_comm_size(comm), (long long)n_wrong);
    }
    plait_free(x);
    if (!t->in_place) {
        plait_free(y);
    }
}

static void bcast_rank(plait_comm_t *comm, void *context)
{
    const vector_t *t = context;
    float *x = plait_alloc(t->n + 1, sizeof(float));
    float *y = t->in_place ? x : plait_alloc(t->n + 1, sizeof(float));
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < t->n; i++) {
        x[i] = (float)value(plait_comm_rank(comm), i);
    }
    CHECK(plait_bcast(comm, t->root, PLAIT_F32, t->n, x, y) == PLAIT_OK, "n %lld",
          (long long)t->n);
    for (int64_t i = 0; i < t->n; i++) {
        n_wrong += y[i] != (float)value(t->root, i);
    }
    CHECK(n_wrong == 0, "bcast n %lld root %d: %lld wrong", (long long)t->n, t->root,
          (long long)n_wrong);
    CHECK(plait_barrier(comm) == PLAIT_OK, "barrier");
    plait_free(x);
    if (!t->in_place) {
        plait_free(y);
    }
}

/* Every rank sends right and receives from the left, tags by sender; then ends of a chain. */
static void ring_rank(plait_comm_t *comm, void *context)
{
    const vector_t *t = context;
    int rank = plait_comm_rank(comm);
    int n_ranks = plait_comm_size(comm);
    int right = (rank + 1) % n_ranks;
    int left = (rank + n_ranks - 1) % n_ranks;
    int32_t *x = plait_alloc(t->n + 1, sizeof(int32_t));
    int32_t *y = plait_alloc(t->n + 1, sizeof(int32_t));
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < t->n; i++) {
        x[i] = (int32_t)(rank * 1000 + i);
    }
    CHECK(plait_sendrecv(comm, right, rank, PLAIT_S32, t->n, x, left, left, PLAIT_S32,
                         t->n, y) == PLAIT_OK,
          "ring");
    for (int64_t i = 0; i < t->n; i++) {
        n_wrong += y[i] != (int32_t)(left * 1000 + i);
    }
    CHECK(n_wrong == 0, "ring n %lld: %lld wrong", (long long)t->n, (long long)n_wrong);
    int up = (rank + 1 < n_ranks) ? rank + 1 : PLAIT_PROC_NULL;
    int down = (rank > 0) ? rank - 1 : PLAIT_PROC_NULL;
    y[0] = -1;
    CHECK(plait_sendrecv(comm, up, 5, PLAIT_S32, t->n, x, down, PLAIT_ANY_TAG,
                         PLAIT_S32, t->n, y) == PLAIT_OK,
          "chain");
    CHECK(t->n == 0 || y[0] == ((rank > 0) ? (rank - 1) * 1000 : -1),
          "chain, rank %d got %d", rank, y[0]);
    plait_free(x);
    plait_free(y);
}

/* The message is longer than the place for it, then of another dtype: both partners know,
 * nothing is written, and the communicator goes on working. */
static void faults_rank(plait_comm_t *comm, void *context)
{
    int rank = plait_comm_rank(comm);
    int n_ranks = plait_comm_size(comm);
    int right = (rank + 1) % n_ranks;
    int left = (rank + n_ranks - 1) % n_ranks;
    double x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    double y[8] = {0};

    (void)context;
    CHECK(plait_sendrecv(comm, right, 0, PLAIT_F64, 8, x, left, 0, PLAIT_F64, 4, y) ==
              PLAIT_ERR_TRUNCATION,
          "truncation");
    CHECK(strstr(plait_error_text(), "got 64 bytes, room for 32") != NULL, "text");
    CHECK(y[0] == 0, "y was written");
    CHECK(plait_sendrecv(comm, right, 0, PLAIT_F64, 4, x, left, 0, PLAIT_S64, 4, y) ==
              PLAIT_ERR_MISMATCH,
          "dtype");
    CHECK(plait_sendrecv(comm, right, 0, PLAIT_F64, 4, x, left, 0, PLAIT_F64, 4, y) ==
              PLAIT_OK,
          "after faults");
    CHECK(y[3] == 4, "after faults");
    CHECK(plait_sendrecv(comm, n_ranks, 0, PLAIT_F64, 4, x, left, 0, PLAIT_F64, 4, y) ==
              PLAIT_ERR_INVALID,
          "dest");
    CHECK(plait_sendrecv(comm, right, 40000, PLAIT_F64, 4, x, left, 0, PLAIT_F64, 4,
                         y) == PLAIT_ERR_INVALID,
          "tag");
    CHECK(plait_bcast(comm, -1, PLAIT_F64, 4, x, x) == PLAIT_ERR_INVALID, "root");
    CHECK(plait_allreduce(comm, PLAIT_LAND, PLAIT_F64, 4, x, y) == PLAIT_ERR_INVALID,
          "LAND of floats");
    CHECK(plait_allreduce(NULL, PLAIT_SUM, PLAIT_F64, 4, x, y) == PLAIT_ERR_COMM,
          "no communicator");
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, -4, x, y) == PLAIT_ERR_INVALID,
          "negative n");
}

/* Ranks call different things at the same place. */
static void mismatch_rank(plait_comm_t *comm, void *context)
{
    int rank = plait_comm_rank(comm);
    double x[4] = {1, 1, 1, 1};
    double y[4] = {0};

    (void)context;
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, (rank == 1) ? 3 : 4, x, y) ==
              PLAIT_ERR_MISMATCH,
          "n");
    CHECK(plait_allreduce(comm, (rank == 1) ? PLAIT_MAX : PLAIT_SUM, PLAIT_F64, 4, x,
                          y) == PLAIT_ERR_MISMATCH,
          "op");
    CHECK(((rank == 1)
               ? plait_barrier(comm)
               : plait_bcast(comm, 0, PLAIT_F64, 4, x, y)) == PLAIT_ERR_MISMATCH,
          "operation");
    CHECK(y[0] == 0, "rank %d: y was written", rank);
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 4, x, y) == PLAIT_OK &&
              y[0] == plait_comm_size(comm),
          "after");
}

int main(void)
{
    static const int64_t sizes[] = {0, 1, 63, 64, 1000, 20000, 300001};

    for (int n_ranks = 1; n_ranks <= (is_quick() ? 3 : 8); n_ranks++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            for (int d = 0; d < 3; d++) {
                for (int in_place = 0; in_place < 2; in_place++) {
                    vector_t t = {
                        .n = sizes[s], .in_place = in_place, .root = n_ranks / 2};
                    team_run(n_ranks, directs[d], allreduce_rank, &t);
                    team_run(n_ranks, directs[d], bcast_rank, &t);
                }
            }
            vector_t t = {.n = sizes[s]};
            team_run(n_ranks, PLAIT_DIRECT_POINTER, ring_rank, &t);
        }
        team_run(n_ranks, PLAIT_DIRECT_POINTER, faults_rank, NULL);
        for (int d = 0; n_ranks > 1 && d < 2; d++) {
            team_run(n_ranks, directs[d], mismatch_rank, NULL);
        }
    }
    (void)plait_pool_trim();
    return report("test_coll");
}
