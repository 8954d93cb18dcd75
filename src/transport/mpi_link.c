#include "transport/mpi_link.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/trace.h"
#include "base/wait.h"
#include "transport/matched.h"
#include "transport/mpi.h"

#include <time.h>
#include <unistd.h>

typedef enum { UNBOUND, UP, OVER, CHILD } state_t;

/* Requests that were given up get 100 ms to complete, and no more: if a partner has ended, MPICH 5 may abort in
 * MPI_Test. */
enum { LAST_POLLS = 1000, LAST_NAP_NS = 100000 };

static _Atomic bool keeps_memory;

/* Attribute values for COMM_SELF, and for a communicator that was given up; numbers of links are larger. */
enum { SELF_NUMBER = 1, GIVEN_UP_NUMBER = 2 };

/* The largest tag that every MPI has. Source: MPI 4.0, 9.1.2. */
enum { LEAST_MAX_TAG = 32767 };

static const plait_mpi_backend_t *_Atomic backend;
static _Atomic int state;
static void (*_Atomic settle_fn)(void);
static pid_t bound_pid;
static int max_tag = LEAST_MAX_TAG;
static int given_up_keyval;
static int world_size;
static pthread_mutex_t mpi_lock = PTHREAD_MUTEX_INITIALIZER;

/* Order of locks: mpi_lock, then watch_lock. */
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static plait_mpi_link_t *watched;
static uintptr_t last_number = GIVEN_UP_NUMBER;
static bool has_messages; /* some link has messages through MPI */
static bool is_one_node;  /* MPI_COMM_WORLD is, according to a link */

const plait_mpi_backend_t *plait_mpi_started(void)
{
    return atomic_load_explicit(&backend, memory_order_acquire);
}

/* A forked child has the parent's handles and none of its connections. */
static void on_fork(void)
{
    atomic_store(&state, CHILD);
}

static plait_mpi_link_t *find_watched(uintptr_t number)
{
    plait_mpi_link_t *link = watched;

    while (link != NULL && link->number != number) {
        link = link->next;
    }
    return link;
}

static bool is_watched(uintptr_t number)
{
    (void)pthread_mutex_lock(&watch_lock);
    const bool is_there = (find_watched(number) != NULL);
    (void)pthread_mutex_unlock(&watch_lock);
    return is_there;
}

/* MPI completes begun operations before MPI_Comm_free and MPI_Finalize (MPI 4.0, 7.4.3 and 11.2.2). So does
 * plait, also for work that waits in a queue unknown to MPI. */
static void settle_queues(void)
{
    void (*settle)(void) = atomic_load(&settle_fn);

    if (settle != NULL && atomic_load(&state) == UP) {
        settle();
    }
}

static void on_deleted(uintptr_t number)
{
    if (number == SELF_NUMBER) {
        settle_queues();
        plait_mpi_shutdown();
        plait_trace_leave(); /* MPI_Finalize may wait for ranks that wait for this */
    } else if (is_watched(number)) {
        settle_queues();
        (void)pthread_mutex_lock(&watch_lock);
        plait_mpi_link_t *link = find_watched(number);
        if (link != NULL) {
            link->has_attribute = false;
            atomic_store(&link->is_freed, true);
        }
        (void)pthread_mutex_unlock(&watch_lock);
    }
}

void plait_mpi_set_settle(void (*settle)(void))
{
    atomic_store(&settle_fn, settle);
}

static void fill_status(void *mpi_status, const plait_matched_t *matched)
{
    plait_mpi_envelope_t envelope = {
        .source = matched->source, .tag = matched->tag, .n_bytes = matched->n_bytes};

    if (matched->source == PLAIT_MPI_NOBODY) { /* as in MPI 4.0, 3.10 */
        envelope = (plait_mpi_envelope_t){.source = PLAIT_MPI_NOBODY,
                                          .tag = PLAIT_MPI_ANY_TAG};
    }
    (void)PLAIT_MPI_CALL(matched->source, "status",
                         plait_mpi_started()->fill_status(mpi_status, &envelope));
}

plait_status_t plait_mpi_start(const plait_mpi_backend_t *mpi)
{
    plait_status_t status = PLAIT_OK;
    int keyval = 0;
    int rank = 0;
    bool is_inter = false;

    PLAIT_CHECK(mpi->keyval_create(on_deleted, &keyval) == 0, PLAIT_ERR_UNSUPPORTED,
                "MPI_Comm_create_keyval failed");
    PLAIT_CHECK(mpi->attribute_set(mpi->comm_self(), keyval, SELF_NUMBER) == 0,
                PLAIT_ERR_UNSUPPORTED, "MPI_Comm_set_attr on MPI_COMM_SELF failed");
    PLAIT_CHECK(mpi->keyval_create(on_deleted, &given_up_keyval) == 0,
                PLAIT_ERR_UNSUPPORTED, "MPI_Comm_create_keyval failed");
    PLAIT_CHECK(pthread_atfork(NULL, NULL, on_fork) == 0, PLAIT_ERR_NO_MEMORY,
                "pthread_atfork failed");
    PLAIT_CHECK(mpi->max_tag(&max_tag) == 0, PLAIT_ERR_UNSUPPORTED,
                "MPI_Comm_get_attr for MPI_TAG_UB failed");
    PLAIT_CHECK(mpi->comm_facts(mpi->comm_world(), &world_size, &rank, &is_inter) == 0,
                PLAIT_ERR_UNSUPPORTED, "MPI_Comm_size of MPI_COMM_WORLD failed");
    plait_mpi_native_probe(mpi);
    plait_matched_set_fill(fill_status);
    bound_pid = getpid();
    atomic_store(&backend, mpi);
    atomic_store(&state, UP);
done:
    return status;
}

int plait_mpi_max_tag(void)
{
    return max_tag;
}

int plait_mpi_open_links(int room, plait_mpi_link_t *links[])
{
    int n = 0;

    (void)pthread_mutex_lock(&watch_lock);
    for (plait_mpi_link_t *link = watched; link != NULL && n < room;
         link = link->next) {
        links[n++] = link;
    }
    (void)pthread_mutex_unlock(&watch_lock);
    return n;
}

/* Drains the buffered sends of communicators that are still open. */
static void drain_open_links(void)
{
    enum { MAX_LINKS = 256 };
    plait_mpi_link_t *links[MAX_LINKS];
    int64_t until = plait_clock_ns() + PLAIT_MPI_DRAIN_NS;
    int n = plait_mpi_open_links(MAX_LINKS, links);

    for (int i = 0; i < n; i++) {
        if (atomic_load(&links[i]->n_pending) > 0) {
            plait_mpi_drain(links[i], until);
        }
    }
}

void plait_mpi_shutdown(void)
{
    int up = UP;

    if (atomic_load(&state) == UP) {
        drain_open_links();
        (void)pthread_mutex_lock(&mpi_lock);
        (void)atomic_compare_exchange_strong(&state, &up, OVER);
        (void)pthread_mutex_unlock(&mpi_lock);
    }
}

plait_status_t plait_mpi_usable(const char *what)
{
    plait_status_t status = PLAIT_OK;
    int now = atomic_load(&state);

    PLAIT_CHECK(now != UNBOUND, PLAIT_ERR_COMM, "%s: no MPI is bound", what);
    PLAIT_CHECK(now != OVER, PLAIT_ERR_COMM,
                "%s: MPI is finalised, or is being finalised", what);
    PLAIT_CHECK(now != CHILD, PLAIT_ERR_COMM,
                "%s: process %d was forked from MPI process %d and cannot use its "
                "communicators",
                what, (int)getpid(), (int)bound_pid);
done:
    return status;
}

bool plait_mpi_lock(void)
{
    bool is_up = (atomic_load_explicit(&state, memory_order_relaxed) == UP);

    if (is_up) {
        (void)pthread_mutex_lock(&mpi_lock);
        is_up = (atomic_load_explicit(&state, memory_order_relaxed) == UP);
        if (!is_up) {
            (void)pthread_mutex_unlock(&mpi_lock);
        }
    }
    return is_up;
}

plait_status_t plait_mpi_unlock(int rank, const char *what, int code)
{
    plait_status_t status = PLAIT_OK;
    char text[PLAIT_MPI_TEXT_BYTES];

    if (code != 0) {
        plait_mpi_started()->error_text(code, text);
        status =
            plait_fail(plait_mpi_started()->is_truncation(code) ? PLAIT_ERR_MISMATCH
                                                                : PLAIT_ERR_TRANSPORT,
                       "rank %d %s: MPI: %s", rank, what, text);
    }
    (void)pthread_mutex_unlock(&mpi_lock);
    return status;
}

/* A duplicate that is not freed while the lock around MPI is held; or MPI_COMM_NULL. */
static uint64_t any_duplicate(const plait_mpi_backend_t *mpi)
{
    (void)pthread_mutex_lock(&watch_lock);
    const plait_mpi_link_t *link = watched;
    while (link != NULL && !link->is_open) {
        link = link->next;
    }
    const uint64_t comm = (link != NULL) ? link->control : mpi->comm_null();
    (void)pthread_mutex_unlock(&watch_lock);
    return comm;
}

/* Probes for a message that never comes: MPI would find an existing message at once, without moving others. */
void plait_mpi_look(void)
{
    const plait_mpi_backend_t *mpi = plait_mpi_started();
    plait_mpi_envelope_t envelope;
    bool is_there = false;

    if (mpi == NULL || pthread_mutex_trylock(&mpi_lock) != 0) {
        return;
    }
    if (atomic_load_explicit(&state, memory_order_relaxed) == UP) {
        const uint64_t comm = any_duplicate(mpi);
        if (comm != mpi->comm_null()) {
            (void)mpi->iprobe(comm, PLAIT_MPI_TAG_NONE, &is_there, &envelope);
        }
    }
    (void)pthread_mutex_unlock(&mpi_lock);
}

void plait_mpi_set_open(plait_mpi_link_t *link, bool has_own)
{
    (void)pthread_mutex_lock(&watch_lock);
    link->is_open = true;
    has_messages = has_messages || has_own;
    is_one_node = is_one_node || link->card.node_size >= world_size;
    plait_wait_set_errand((has_messages || !is_one_node) ? plait_mpi_look : NULL);
    (void)pthread_mutex_unlock(&watch_lock);
}

plait_status_t plait_mpi_poll(const plait_mpi_link_t *link, const char *what,
                              uint64_t *request_p, bool *is_done_p,
                              plait_mpi_envelope_t *envelope_p)
{
    plait_status_t status = PLAIT_OK;

    *is_done_p = false;
    status = PLAIT_MPI_CALL(link->rank, what,
                            link->mpi->test(request_p, is_done_p, envelope_p));
    if (status == PLAIT_ERR_TRANSPORT || status == PLAIT_ERR_MISMATCH) {
        *is_done_p = true;
    }
    return status;
}

/* Checks a receive that has ended with this status and, if it is OK, with this envelope. Ranks that differ in
 * calls which have all run before do not meet before their messages do: then the lengths of the messages show
 * it. Empty messages are from a rank that has failed, which says so at the next fence. */
static plait_status_t check_length(const plait_mpi_link_t *link, const char *what,
                                   plait_status_t status,
                                   const plait_mpi_envelope_t *came, int64_t expected)
{
    static const char why[] =
        "the ranks call operations that differ, or that differ in size, and have all "
        "run before; set PLAIT_CHECK=full to compare each call";

    if (status == PLAIT_ERR_MISMATCH) {
        status = plait_fail(status, "rank %d %s: more than %lld bytes came: %s",
                            link->rank, what, (long long)expected, why);
    } else if (status == PLAIT_OK && came->n_bytes != 0 && came->n_bytes != expected) {
        status = plait_fail(
            PLAIT_ERR_MISMATCH, "rank %d %s: %lld bytes came, expected %lld: %s",
            link->rank, what, (long long)came->n_bytes, (long long)expected, why);
    }
    return status;
}

plait_status_t plait_mpi_wait(plait_mpi_link_t *link, const char *what, int peer,
                              int64_t n_receives, const int64_t lengths[], int64_t n,
                              uint64_t requests[])
{
    plait_status_t status = PLAIT_OK;
    plait_wait_t wait = plait_wait_begin(what, peer);
    int64_t i = 0;

    while (i < n) {
        const bool is_message = i < n_receives;
        plait_mpi_envelope_t came = {0};
        bool is_done = false;
        plait_status_t now = plait_mpi_poll(link, what, &requests[i], &is_done,
                                            is_message ? &came : NULL);

        if (!is_done && (now == PLAIT_OK)) {
            now = plait_wait_turn(&wait);
            if (now == PLAIT_OK) {
                continue;
            }
        } else if (is_done && is_message) {
            now = check_length(link, what, now, &came, lengths[i]);
        }
        i += is_done;
        status = (status != PLAIT_OK) ? status : now;
        if (!is_done || now == PLAIT_ERR_MISMATCH) { /* the rest may never come */
            atomic_store(&link->is_broken, true);
            int64_t n_left = (n_receives > i) ? n_receives - i : 0;
            plait_mpi_give_up(link, what, n_left, n - i, requests + i);
            break;
        }
    }
    return status;
}

/* These two report no error: the reason for giving up is reported already. */
static void try_cancel(const plait_mpi_link_t *link, uint64_t *request_p)
{
    if (plait_mpi_lock()) {
        (void)link->mpi->cancel(request_p);
        (void)pthread_mutex_unlock(&mpi_lock);
    }
}

static bool try_end(const plait_mpi_link_t *link, uint64_t *request_p)
{
    bool is_done = false;

    if (plait_mpi_lock()) {
        is_done = (link->mpi->test(request_p, &is_done, NULL) != 0) || is_done;
        (void)pthread_mutex_unlock(&mpi_lock);
    }
    return is_done;
}

void plait_mpi_give_up(plait_mpi_link_t *link, const char *what, int64_t n_receives,
                       int64_t n, uint64_t requests[])
{
    const struct timespec nap = {.tv_nsec = LAST_NAP_NS};
    int64_t i = 0;

    for (int64_t k = 0; k < n_receives; k++) {
        try_cancel(link, &requests[k]);
    }
    for (int polls = 0; (i < n) && (polls < LAST_POLLS);) {
        if (try_end(link, &requests[i])) {
            i++;
        } else {
            (void)nanosleep(&nap, NULL);
            polls++;
        }
    }
    if (i < n) {
        atomic_store(&link->is_stuck, true);
        atomic_store(&keeps_memory, true);
        plait_log(
            PLAIT_LOG_ERROR,
            "rank %d %s: gave up with %lld requests active, %lld of them receives; MPI "
            "may still read or write their buffers",
            link->rank, what, (long long)(n - i),
            (long long)((n_receives > i) ? n_receives - i : 0));
    }
}

bool plait_mpi_keeps_memory(void)
{
    return atomic_load(&keeps_memory);
}

plait_status_t plait_mpi_watch(plait_mpi_link_t *link)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_backend_t *mpi = link->mpi;

    (void)pthread_mutex_lock(&watch_lock);
    link->number = ++last_number;
    link->next = watched;
    watched = link;
    (void)pthread_mutex_unlock(&watch_lock);

    PLAIT_TRY(PLAIT_MPI_CALL(link->rank, "open",
                             mpi->keyval_create(on_deleted, &link->keyval)));
    link->has_keyval = true;
    PLAIT_TRY(
        PLAIT_MPI_CALL(link->rank, "open",
                       mpi->attribute_set(link->user, link->keyval, link->number)));
    link->has_attribute = true;
done:
    return status;
}

void plait_mpi_give_up_user(const plait_mpi_link_t *link)
{
    if (!atomic_load(&link->is_freed)) {
        (void)PLAIT_MPI_CALL(
            link->rank, "open",
            link->mpi->attribute_set(link->user, given_up_keyval, GIVEN_UP_NUMBER));
    }
}

plait_status_t plait_mpi_check_user(uint64_t comm, int rank)
{
    plait_status_t status = PLAIT_OK;
    bool is_given_up = false;

    PLAIT_TRY(PLAIT_MPI_CALL(
        rank, "open",
        plait_mpi_started()->attribute_has(comm, given_up_keyval, &is_given_up)));
    PLAIT_CHECK(
        !is_given_up, PLAIT_ERR_COMM,
        "rank %d has given up this communicator: other ranks were missing when it was "
        "first used; make a new one of comm.Dup() on all ranks, or restart the job",
        rank);
done:
    return status;
}

void plait_mpi_unwatch(plait_mpi_link_t *link)
{
    plait_mpi_link_t **at = &watched;

    /* Removed from the list first: the callback then finds nobody to tell. */
    (void)pthread_mutex_lock(&watch_lock);
    while ((*at != NULL) && (*at != link)) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = (*at)->next;
    }
    bool has_attribute = link->has_attribute;
    (void)pthread_mutex_unlock(&watch_lock);

    if (has_attribute) {
        (void)PLAIT_MPI_CALL(link->rank, "close",
                             link->mpi->attribute_delete(link->user, link->keyval));
    }
    if (link->has_keyval) {
        (void)PLAIT_MPI_CALL(link->rank, "close", link->mpi->keyval_free(link->keyval));
    }
}
