/* Operations on arrays of devices. One device fails at each of its calls in turn; checks which ranks learn of
 * it. */
#ifndef PLAIT_TESTS_DEVICE_FAILING_H
#define PLAIT_TESTS_DEVICE_FAILING_H

#include "check.h"
#include "check_device.h"
#include "device_matched.h"
#include "nvshmem.h"
#include "on_device.h"
#include "plait/coll.h"
#include "team.h"

#include <string.h>

typedef struct {
    const char *name;
    plait_status_t (*call)(plait_comm_t *comm, void *x, void *y);
    bool is_matched;
    bool has_host; /* the others have their arrays on the host */
} failing_t;

enum { N_FAILING = 20000 }; /* doubles, of more than two chunks */

static inline plait_status_t call_allreduce(plait_comm_t *comm, void *x, void *y)
{
    return plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, N_FAILING, x, y);
}

static inline plait_status_t call_alltoall(plait_comm_t *comm, void *x, void *y)
{
    return plait_alltoall(comm, PLAIT_F64, N_FAILING / plait_comm_size(comm), x, y);
}

static inline plait_status_t call_scan(plait_comm_t *comm, void *x, void *y)
{
    return plait_scan(comm, PLAIT_MAX, 0, PLAIT_F64, 100, x, y);
}

static inline plait_status_t call_gather(plait_comm_t *comm, void *x, void *y)
{
    return plait_gather(comm, 0, PLAIT_F64, 40, x, y);
}

static inline plait_status_t call_barrier(plait_comm_t *comm, void *x, void *y)
{
    (void)x;
    (void)y;
    return plait_barrier(comm);
}

static inline plait_status_t call_ring(plait_comm_t *comm, void *x, void *y)
{
    int me = plait_comm_rank(comm);
    int size = plait_comm_size(comm);

    return plait_sendrecv(comm, (me + 1) % size, 3, PLAIT_F64, 1000, x,
                          (me + size - 1) % size, 3, PLAIT_F64, 1000, y, NULL);
}

static inline plait_status_t call_large_ring(plait_comm_t *comm, void *x, void *y)
{
    int me = plait_comm_rank(comm);
    int size = plait_comm_size(comm);

    return plait_sendrecv(comm, (me + 1) % size, 3, PLAIT_F64, N_FAILING, x,
                          PLAIT_ANY_SOURCE, 3, PLAIT_F64, N_FAILING, y, NULL);
}

static inline plait_status_t call_send(plait_comm_t *comm, void *x, void *y)
{
    int me = plait_comm_rank(comm);

    return (me == 0)   ? plait_send(comm, 1, 3, PLAIT_F64, N_FAILING, x)
           : (me == 1) ? plait_recv(comm, 0, 3, PLAIT_F64, N_FAILING, y, NULL)
                       : PLAIT_OK;
}

static const failing_t failing[] = {
    {"allreduce", call_allreduce, false, false},
    {"alltoall", call_alltoall, false, false},
    {"scan", call_scan, false, false},
    {"gather", call_gather, false, false},
    {"barrier", call_barrier, false, false},
    {"sendrecv", call_ring, true, false},
    {"send", call_send, true, false},
    {"send", call_send, true, false}, /* of the other rank's device */
    {"sendrecv of many", call_large_ring, true, false},
    {"send, from the host", call_send, true, true},
    {"send, to the host", call_send, true, true},
    {"sendrecv of many, with hosts", call_large_ring, true, true},
};

typedef struct {
    const failing_t *what;
    int rank;  /* whose device fails */
    int64_t n; /* at which call; 0: none */
    bool is_dead;
    int64_t n_calls; /* out: of that device */
    plait_status_t status[TEAM_MAX];
    char text[TEAM_MAX][400];
} failure_t;

/* By rank. The contents do not matter. */
static double failing_arrays[2][4][N_FAILING];

static inline void failure_rank(plait_comm_t *comm, void *context)
{
    failure_t *f = context;
    int me = plait_comm_rank(comm);
    plait_device_t *device = comm->end.caps.device;
    double *x = failing_arrays[0][me], *y = failing_arrays[1][me];

    if (f->what->is_matched) {
        matched_open(comm);
    }
    if (f->what->has_host && me != f->rank) {
        comm->end.caps.device = NULL;
    }
    int64_t before = check_device_counts(device).n_calls;
    if (me == f->rank) {
        check_device_fail_at(device, f->n, f->is_dead);
    }
    f->status[me] = f->what->call(comm, x, y);
    (void)snprintf(f->text[me], sizeof(f->text[me]), "%s",
                   (f->status[me] != PLAIT_OK) ? plait_error_text() : "");
    if (me == f->rank) {
        f->n_calls = check_device_counts(device).n_calls - before;
        check_device_fail_at(device, 0, false);
    }
}

/* All ranks know of a collective's failure. Of a transfer's failure the failing rank knows, and its partners
 * if their part was not over. */
static inline void judge_failure(const failure_t *f, int n_ranks)
{
    char cannot_open[100], is_why[32];

    if (f->n_calls < f->n && f->status[f->rank] == PLAIT_OK) {
        return; /* a wait asked less often, so this call was not reached */
    }
    (void)snprintf(is_why, sizeof(is_why), "check device %d", f->rank);
    (void)snprintf(cannot_open, sizeof(cannot_open),
                   "peers' devices cannot be reached\n  %s: rank ",
                   (team_link != NULL) ? team_link->name : "");
    if (f->status[f->rank] == PLAIT_ERR_UNSUPPORTED) {
        /* the device failed before the first exchange */
        for (int r = 0; r < n_ranks; r++) {
            CHECK(f->status[r] == PLAIT_ERR_UNSUPPORTED &&
                      strstr(f->text[r], cannot_open) != NULL &&
                      strstr(f->text[r], is_why) != NULL,
                  "%s, call %lld: rank %d has %d, %s", f->what->name, (long long)f->n,
                  r, (int)f->status[r], f->text[r]);
        }
        return;
    }
    CHECK(f->status[f->rank] == PLAIT_ERR_INTERNAL &&
              strstr(f->text[f->rank], "check device") != NULL,
          "%s, call %lld: rank %d has %d, %s", f->what->name, (long long)f->n, f->rank,
          (int)f->status[f->rank], f->text[f->rank]);
    for (int r = 0; r < n_ranks; r++) {
        bool is_fine = f->what->is_matched && f->status[r] == PLAIT_OK;
        bool is_named = (f->status[r] == PLAIT_ERR_PEER && !f->what->is_matched &&
                         strstr(f->text[r], "check device") != NULL) ||
                        (f->what->is_matched && (f->status[r] == PLAIT_ERR_MISMATCH ||
                                                 f->status[r] == PLAIT_ERR_TRUNCATION));
        CHECK(r == f->rank || is_fine || is_named, "%s, call %lld: rank %d has %d, %s",
              f->what->name, (long long)f->n, r, (int)f->status[r], f->text[r]);
    }
}

/* Each of the first calls fails once. Later calls, of which there are many when a link is opened, fail now and
 * then. */
static inline void check_failures(int n_ranks)
{
    const int64_t each_of = is_quick() ? 8 : 32;

    for (size_t i = 0; i < sizeof(failing) / sizeof(failing[0]); i++) {
        failure_t f = {.what = &failing[i], .rank = (int)i % n_ranks};
        if (f.what->call == call_send) {
            f.rank = (int)i % 2;
        }
        team_run(n_ranks, PLAIT_DIRECT_NONE, failure_rank, &f);
        const int64_t n_calls = f.n_calls;
        CHECK(f.status[f.rank] == PLAIT_OK && n_calls > 1, "%s: %s", f.what->name,
              f.text[f.rank]);
        for (f.n = 1; f.n <= n_calls; f.n += 1 + f.n / each_of) {
            team_run(n_ranks, PLAIT_DIRECT_NONE, failure_rank, &f);
            judge_failure(&f, n_ranks);
            f.is_dead = !f.is_dead;
            if (team_link == &plait_link_nvshmem) {
                /* revives devices that are lost */
                nvshmem_end(n_ranks, team_devices);
            }
        }
    }
}

#endif
