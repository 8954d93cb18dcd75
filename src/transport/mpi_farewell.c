/* Ranks that share no memory do not see each other end. A rank that ends with an exception tells the others by
 * a message on the control duplicate. Ranks that have waited long enough for the guard to look, look for this
 * message. */
#include "base/clock.h"
#include "transport/mpi.h"
#include "transport/mpi_link.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* Messages of one process. A rank that was told ends, too, and tells the next ranks. */
enum { MOST_LINKS = 64, MOST_MESSAGES = 256 };

/* MPICH can wait for ever inside MPI_Isend to a process that has just ended. So a rank stays that long, while
 * ranks that come to the same end send it the same news. */
enum { LAST_NS = 1000000000, NAP_NS = 1000000, RECEIVE_POLLS = 1000 };

/* Not on a stack: the process ends while these are under way. */
static plait_farewell_t farewells[MOST_LINKS];
static uint64_t requests[MOST_MESSAGES];
static char why_here[PLAIT_FAREWELL_BYTES];
static atomic_bool is_said;

/* Sends to one rank, unless the rank sees this process. */
static int tell(plait_mpi_link_t *link, int peer, const plait_farewell_t *farewell,
                uint64_t *request_p)
{
    int n_sent = 0;
    bool is_seen = plait_process_find(&link->processes[peer].process) != NULL;

    if (!is_seen && !plait_mpi_has_left(link, peer) && plait_mpi_lock()) {
        n_sent =
            link->mpi->isend(farewell, sizeof(*farewell), peer, PLAIT_MPI_TAG_FAREWELL,
                             link->control, request_p) == 0;
        (void)plait_mpi_unlock(link->rank, "farewell", 0);
    }
    return n_sent;
}

/* Tells the ranks after this one first, so that ranks told early have others to tell. */
static int tell_all(int n_links, plait_mpi_link_t *const links[])
{
    int n = 0;
    bool is_left = true; /* there is a rank at this distance */

    for (int d = 1; is_left && n < MOST_MESSAGES; d++) {
        is_left = false;
        for (int i = 0; i < n_links && n < MOST_MESSAGES; i++) {
            if (d < links[i]->size) {
                int peer = (links[i]->rank + d) % links[i]->size;
                is_left = true;
                n += tell(links[i], peer, &farewells[i], &requests[n]);
            }
        }
    }
    return n;
}

/* Lets MPI send the messages, and take in what comes. */
static void push(const plait_mpi_link_t *link, int n)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    int64_t end = plait_clock_ns() + LAST_NS;
    int i = 0;

    while (n > 0 && plait_clock_ns() < end) {
        plait_mpi_envelope_t from;
        bool is_done = false;
        if (plait_mpi_lock()) {
            (void)link->mpi->iprobe(link->control, PLAIT_MPI_TAG_NONE, &is_done, &from);
            is_done = i < n &&
                      (link->mpi->test(&requests[i], &is_done, NULL) != 0 || is_done);
            (void)plait_mpi_unlock(link->rank, "farewell", 0);
        }
        i += is_done;
        if (!is_done) {
            (void)nanosleep(&nap, NULL);
        }
    }
}

static void *say(void *nothing)
{
    plait_mpi_link_t *links[MOST_LINKS];
    int n_links = plait_mpi_open_links(MOST_LINKS, links);

    for (int i = 0; i < n_links; i++) {
        farewells[i].id = links[i]->id;
        farewells[i].rank = links[i]->rank;
        memcpy(farewells[i].why, why_here, PLAIT_FAREWELL_BYTES);
    }
    if (n_links > 0) {
        push(links[0], tell_all(n_links, links));
    }
    atomic_store(&is_said, true);
    return nothing;
}

bool plait_mpi_say_farewell(const char *why, int64_t limit_ns)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    const int64_t end = plait_clock_ns() + limit_ns;
    pthread_t thread;

    strncpy(why_here, why, PLAIT_FAREWELL_BYTES - 1);
    if (pthread_create(&thread, NULL, say, NULL) == 0) {
        (void)pthread_detach(thread);
        while (!atomic_load(&is_said) && plait_clock_ns() < end) {
            (void)nanosleep(&nap, NULL);
        }
    }
    return atomic_load(&is_said);
}

/* Takes a message that has come, under the lock. */
static void receive(plait_mpi_link_t *link)
{
    const plait_mpi_backend_t *mpi = link->mpi;
    plait_mpi_envelope_t from = {0};
    bool is_there = false;
    bool is_done = false;
    uint64_t request = 0;

    if (mpi->iprobe(link->control, PLAIT_MPI_TAG_FAREWELL, &is_there, &from) == 0 &&
        is_there && from.n_bytes == (int64_t)sizeof(link->heard) &&
        mpi->irecv(&link->heard, from.n_bytes, from.source, PLAIT_MPI_TAG_FAREWELL,
                   link->control, &request) == 0) {
        for (int i = 0; i < RECEIVE_POLLS && !is_done; i++) {
            is_done = mpi->test(&request, &is_done, NULL) != 0 || is_done;
        }
        if (!is_done) { /* memory of a message under way must not be freed */
            atomic_store(&link->is_stuck, true);
        }
        link->heard.why[PLAIT_FAREWELL_BYTES - 1] = '\0';
    }
}

/* Farewells come from processes, so ranks are compared by process. */
bool plait_mpi_has_left(const plait_mpi_link_t *link, int rank)
{
    const plait_mpi_link_t *process = (link->process != NULL) ? link->process : link;
    bool has_left = true; /* as far as MPI can still reach the rank */

    if (plait_mpi_lock()) {
        has_left = process->heard.why[0] != '\0' &&
                   process->heard.rank == plait_mpi_process_of(link, rank);
        (void)plait_mpi_unlock(link->rank, "farewell", 0);
    }
    return has_left;
}

/* The first rank of a process. */
static int rank_in(const plait_mpi_link_t *link, int process)
{
    int rank = 0;

    while (rank < link->size - 1 && plait_mpi_process_of(link, rank) != process) {
        rank++;
    }
    return rank;
}

bool plait_mpi_farewell(const plait_endpoint_t *end, int peer,
                        plait_farewell_t *farewell_p)
{
    plait_mpi_link_t *own = end->state;
    plait_mpi_link_t *link = (own->process != NULL) ? own->process : own;
    bool is_heard = false;

    if (plait_mpi_lock()) {
        receive(link);
        /* This duplicate may have the place of an earlier communicator's. */
        is_heard = link->heard.why[0] != '\0' && link->heard.id == link->id &&
                   (peer < 0 || plait_mpi_process_of(own, peer) == link->heard.rank);
        *farewell_p = link->heard;
        farewell_p->rank = rank_in(own, link->heard.rank);
        (void)plait_mpi_unlock(link->rank, "farewell", 0);
    }
    return is_heard;
}
