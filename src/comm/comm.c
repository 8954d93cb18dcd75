#include "comm/comm.h"

#include "base/alloc.h"
#include "base/number.h"
#include "base/status.h"
#include "base/team.h"
#include "base/trace.h"
#include "base/wait.h"
#include "transport/device_link.h"
#include "transport/hosts.h"
#include "transport/local.h"
#include "transport/mpi.h"
#include "transport/process_grid.h"
#include "transport/self.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static plait_comm_t *comm_create(const char *label)
{
    plait_comm_t *comm = plait_alloc(1, sizeof(*comm));

    if (comm == NULL) {
        (void)plait_fail(PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    } else {
        (void)snprintf(comm->label, sizeof(comm->label), "%s", label);
    }
    return comm;
}

/* Ranks that read each other's memory are on one node, and may have to share its processors. For other ranks
 * this is not known: they get one thread each, unless PLAIT_THREADS says more. n_here: devices of this process
 * that are used together; some of them may be no ranks here. */
static plait_status_t share_processors(plait_endpoint_t *end, int n_here)
{
    plait_status_t status = PLAIT_OK;
    pid_t *pids = NULL;
    int n = (end->peers != NULL) ? INT_MAX : (end->size > n_here) ? end->size : n_here;

    if (end->peers != NULL && end->caps.direct == PLAIT_DIRECT_READ) {
        n = end->size * n_here;
        pids = plait_alloc(n, sizeof(*pids));
        PLAIT_CHECK(pids != NULL, PLAIT_ERR_NO_MEMORY, "no memory for %d ranks", n);
        for (int i = 0; i < n; i++) {
            pids[i] = end->peers[i % end->size].process.pid;
        }
    }
    PLAIT_TRY(plait_team_size(n, pids, &end->caps.n_threads));
done:
    plait_free(pids);
    return status;
}

plait_status_t plait_comm_open_self(int n_here, plait_comm_t **comm_p)
{
    plait_status_t status = PLAIT_OK;
    plait_comm_t *comm = comm_create("self");

    PLAIT_CHECK(comm != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    PLAIT_TRY(plait_self_open(&comm->end));
    PLAIT_TRY(share_processors(&comm->end, n_here));
    comm->end.why = "shared addresses: one rank";
    *comm_p = comm;
    comm = NULL;
done:
    plait_comm_destroy(&comm);
    return status;
}

plait_status_t plait_comm_self(plait_comm_t **comm_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(comm_p != NULL, PLAIT_ERR_INVALID, "comm_p is NULL");
    PLAIT_TRY(plait_comm_open_self(1, comm_p));
done:
    return status;
}

plait_status_t plait_comm_open_threads(int n_ranks, int n_here, plait_comm_t *comms[])
{
    plait_status_t status = PLAIT_OK;
    plait_endpoint_t *ends = NULL;
    int n_made = 0;

    PLAIT_CHECK(n_ranks >= 1, PLAIT_ERR_INVALID, "%d ranks, expected 1 or more",
                n_ranks);
    ends = plait_alloc(n_ranks, sizeof(*ends));
    PLAIT_CHECK(ends != NULL, PLAIT_ERR_NO_MEMORY, "no memory for %d ranks", n_ranks);
    for (; n_made < n_ranks; n_made++) {
        comms[n_made] = comm_create("threads");
        PLAIT_CHECK(comms[n_made] != NULL, PLAIT_ERR_NO_MEMORY, "no memory for rank %d",
                    n_made);
    }
    PLAIT_TRY(plait_local_open(n_ranks, ends));
    for (int r = 0; r < n_ranks; r++) {
        comms[r]->end = ends[r];
        comms[r]->track = r;
        comms[r]->end.why = "shared addresses: threads of one process";
    }
    for (int r = 0; r < n_ranks; r++) { /* all are closed if one fails */
        PLAIT_TRY(share_processors(&comms[r]->end, n_here));
    }
done:
    for (int r = 0; status != PLAIT_OK && r < n_made; r++) {
        plait_comm_destroy(&comms[r]);
    }
    plait_free(ends);
    return status;
}

plait_status_t plait_comm_threads(int n_ranks, plait_comm_t *comms[])
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(comms != NULL, PLAIT_ERR_INVALID, "comms is NULL");
    PLAIT_TRY(plait_comm_open_threads(n_ranks, 1, comms));
done:
    return status;
}

plait_status_t plait_comm_open_mpi(uint64_t mpi_comm_bits, int size, int rank,
                                   const char *label, int64_t *id_p,
                                   plait_comm_t **comm_p)
{
    plait_status_t status = PLAIT_OK;
    plait_comm_t *comm = comm_create(label);

    PLAIT_CHECK(comm != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    comm->id = *id_p;
    PLAIT_TRY(plait_mpi_open(mpi_comm_bits, size, rank, &comm->id, &comm->end,
                             &comm->end.why));
    status = share_processors(&comm->end, 1);
    if (status != PLAIT_OK) {
        plait_trace_give_up(comm->id); /* other ranks have it */
        goto done;
    }
    *id_p = comm->id;
    *comm_p = comm;
    comm = NULL;
done:
    plait_comm_destroy(&comm);
    return status;
}

/* Each rank here is the one device of its process, which may have devices in other communicators. */
static plait_status_t open_apart(const plait_comm_devices_t *devices, int64_t id,
                                 plait_comm_t *comms[])
{
    plait_status_t status = PLAIT_OK;
    int *tracks = plait_alloc(devices->n_ranks, sizeof(*tracks));

    PLAIT_CHECK(tracks != NULL, PLAIT_ERR_NO_MEMORY, "no memory for %d ranks",
                devices->n_ranks);
    for (int r = 0; r < devices->n_ranks; r++) {
        tracks[devices->places[r].process] = devices->places[r].track;
    }
    PLAIT_TRY(plait_comm_open_mpi(devices->mpi_comm_bits, devices->n_ranks, -1, "mesh",
                                  &id, &comms[0]));
    plait_mpi_set_tracks(&comms[0]->end, tracks);
    comms[0]->track = tracks[comms[0]->end.rank];
    PLAIT_TRY(share_processors(&comms[0]->end, devices->n_here));
done:
    plait_free(tracks);
    return status;
}

static plait_status_t open_hosts(const plait_comm_devices_t *devices, int64_t id,
                                 plait_comm_t *comms[])
{
    plait_status_t status = PLAIT_OK;
    plait_endpoint_t *ends = plait_alloc(devices->n_members, sizeof(*ends));

    PLAIT_CHECK(ends != NULL, PLAIT_ERR_NO_MEMORY, "no memory for %d ranks",
                devices->n_members);
    for (int i = 0; i < devices->n_members; i++) {
        comms[i] = comm_create("mesh");
        PLAIT_CHECK(comms[i] != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a rank");
    }
    PLAIT_TRY(plait_hosts_open(devices->mpi_comm_bits, devices->n_ranks,
                               devices->places, id, ends));
    for (int i = 0; i < devices->n_members; i++) {
        comms[i]->end = ends[i];
        comms[i]->track = devices->places[ends[i].rank].track;
    }
    for (int i = 0; i < devices->n_members; i++) {
        PLAIT_TRY(share_processors(&comms[i]->end, devices->n_here));
    }
done:
    plait_free(ends);
    return status;
}

plait_status_t plait_comm_open_devices(const plait_comm_devices_t *devices, int64_t id,
                                       plait_comm_t *comms[])
{
    plait_status_t status = PLAIT_OK;

    for (int i = 0; i < devices->n_members; i++) {
        comms[i] = NULL;
    }
    if (devices->n_members < devices->n_ranks && devices->is_one_each) {
        status = open_apart(devices, id, comms);
    } else if (devices->n_members < devices->n_ranks) {
        status = open_hosts(devices, id, comms);
    } else {
        status =
            (devices->n_ranks == 1)
                ? plait_comm_open_self(devices->n_here, &comms[0])
                : plait_comm_open_threads(devices->n_ranks, devices->n_here, comms);
        for (int r = 0; status == PLAIT_OK && r < devices->n_ranks; r++) {
            comms[r]->track = devices->places[r].track;
        }
    }
    if (status != PLAIT_OK && devices->n_members < devices->n_ranks) {
        plait_trace_give_up(id); /* other processes may have it by now */
    }
    for (int i = 0; status != PLAIT_OK && i < devices->n_members; i++) {
        plait_comm_destroy(&comms[i]);
    }
    return status;
}

plait_status_t plait_comm_mpi(uint64_t mpi_comm_bits, plait_comm_t **comm_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t id = PLAIT_NUMBER_NEW;
    int32_t *members = NULL;
    int n_members = 0;

    PLAIT_CHECK(comm_p != NULL, PLAIT_ERR_INVALID, "comm_p is NULL");
    PLAIT_TRY(plait_mpi_bind(NULL));
    if (plait_wait_wants_members()) {
        PLAIT_TRY(plait_mpi_members(mpi_comm_bits, &n_members, &members));
        plait_wait_expect(n_members, members);
    }
    PLAIT_TRY(plait_comm_open_mpi(mpi_comm_bits, -1, -1, "a call of plait_comm_mpi",
                                  &id, comm_p));
done:
    plait_wait_expect(0, NULL);
    plait_free(members);
    return status;
}

void plait_comm_destroy(plait_comm_t **comm_p)
{
    plait_comm_t *comm = (comm_p != NULL) ? *comm_p : NULL;

    if (comm != NULL) {
        void *attached = atomic_load(&comm->attached);
        if (attached != NULL) {
            comm->detach(attached);
        }
        const bool is_whole = !atomic_load(&comm->is_given_up);
        plait_process_grid_close(&comm->end, is_whole);
        plait_device_close_ways(&comm->end, is_whole);
        plait_comm_leave_device(comm);
        if (comm->end.transport != NULL) {
            comm->end.transport->close(&comm->end);
        }
        plait_free(comm->ordinals);
        plait_free(comm);
        *comm_p = NULL;
    }
}

int plait_comm_rank(const plait_comm_t *comm)
{
    return (comm != NULL) ? comm->end.rank : -1;
}

int plait_comm_size(const plait_comm_t *comm)
{
    return (comm != NULL) ? comm->end.size : 0;
}

const char *plait_comm_transport(const plait_comm_t *comm)
{
    return (comm != NULL) ? comm->end.transport->name : "";
}

const char *plait_comm_direct(const plait_comm_t *comm)
{
    return (comm != NULL && comm->end.why != NULL) ? comm->end.why : "";
}

bool plait_comm_is_freed(const plait_comm_t *comm)
{
    return comm->end.freed_p != NULL &&
           atomic_load_explicit(comm->end.freed_p, memory_order_relaxed);
}

__attribute__((noinline, cold)) static plait_status_t fail_unusable(
    const plait_comm_t *comm)
{
    plait_status_t status = PLAIT_OK;
    const bool has_why = atomic_load_explicit(&comm->has_why, memory_order_acquire);

    if (plait_comm_is_freed(comm)) {
        PLAIT_TRY(plait_mpi_usable("communicator")); /* MPI_Finalize frees them, too */
        status = plait_fail(PLAIT_ERR_COMM, "communicator #%lld (made at %s) was freed",
                            (long long)comm->id, comm->label);
    } else {
        status = plait_fail(
            PLAIT_ERR_COMM,
            "an earlier operation on communicator #%lld (made at %s) was given up%s%s",
            (long long)comm->id, comm->label, has_why ? ": " : "",
            has_why ? comm->why : "");
    }
done:
    return status;
}

plait_status_t plait_comm_usable(const plait_comm_t *comm)
{
    const bool is_usable =
        !plait_comm_is_freed(comm) &&
        !atomic_load_explicit(&comm->is_given_up, memory_order_relaxed);

    return is_usable ? PLAIT_OK : fail_unusable(comm);
}

void plait_comm_give_up(plait_comm_t *comm, const char *title)
{
    const char *text = plait_error_text();
    const int n_name = plait_error_name(title);

    if (!atomic_exchange(&comm->is_why_taken, true)) {
        (void)snprintf(comm->why, sizeof(comm->why), "%.*s%s%.*s", n_name, title,
                       (n_name > 0) ? ": " : "", (int)strcspn(text, "\n"), text);
        atomic_store_explicit(&comm->has_why, true, memory_order_release);
    }
    atomic_store(&comm->is_given_up, true);
}
