/* Threads of one process. A collective session is a meeting. A rank joins the first open meeting of its launch
 * that it has not joined yet. So ranks that run ahead open the next meeting, and launches from different
 * Python threads never mix. Fences are counters on which threads spin, then sleep (base/bell.h). */
#include "transport/local.h"

#include "base/alloc.h"
#include "base/bell.h"
#include "base/status.h"
#include "transport/local_mail.h"
#include "transport/node_map.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* Flags beside the count of fences: GIVEN_UP: a rank has left a fence that was not over, so its memory no
 * longer is what it showed; TOO_LATE: all ranks have come to that fence since then. */
#define GIVEN_UP (UINT32_C(1) << 31)
#define TOO_LATE (UINT32_C(1) << 30)
#define COUNTED  (TOO_LATE - 1)

/* A record with its published bytes, on its own cache lines. */
enum {
    RECORD_STRIDE =
        (offsetof(plait_record_t, slot) + PLAIT_PUBLISH_BYTES + 63) / 64 * 64
};

typedef struct meeting {
    int64_t run;
    int n_joined;
    int n_left;
    bool *has_joined;          /* by rank */
    _Atomic uint32_t given_up; /* the first rank: 1 + rank, status << 24 */
    char *records; /* two sets of n: a fence fills one while the other is read */
    _Atomic int n_arrived;
    _Atomic uint32_t
        n_fences;      /* completed, and the flags above: then the next never is */
    plait_bell_t bell; /* rung at each fence */
    plait_mail_t mail; /* messages of exchange, when direct access is off */
    struct meeting *next;
} meeting_t;

/* Meetings made at the beginning: as many as are open at once if ranks follow each other. A rank that found no
 * memory for a meeting would be missed in it, and come to the next meeting too early. */
enum { N_SPARE = 2 };

typedef struct {
    int n;
    int n_open; /* endpoints not yet closed */
    pthread_mutex_t mutex;
    meeting_t *open;         /* oldest first: ranks may still join */
    meeting_t *spare;        /* for reuse */
    plait_mail_t mail;       /* matched transfers */
    plait_node_maps_t *maps; /* of memory that ranks show; NULL: not needed yet */
} group_t;

typedef struct {
    group_t *group;
} local_t;

static group_t *group_of(const plait_endpoint_t *end)
{
    return ((local_t *)end->state)->group;
}

static void meeting_destroy(meeting_t *meeting)
{
    if (meeting != NULL) {
        plait_mail_clear(&meeting->mail);
        plait_free(meeting->has_joined);
        plait_free(meeting->records);
        plait_free(meeting);
    }
}

static void meetings_destroy(meeting_t *list)
{
    while (list != NULL) {
        meeting_t *next = list->next;
        meeting_destroy(list);
        list = next;
    }
}

static meeting_t *meeting_create(int n)
{
    meeting_t *meeting = plait_alloc(1, sizeof(*meeting));

    if (meeting != NULL) {
        meeting->has_joined = plait_alloc(n, sizeof(bool));
        meeting->records = plait_alloc(2 * (int64_t)n, RECORD_STRIDE);
        if (plait_mail_init(&meeting->mail, n) != PLAIT_OK ||
            meeting->has_joined == NULL || meeting->records == NULL) {
            meeting_destroy(meeting);
            meeting = NULL;
        }
    }
    return meeting;
}

/* Under the mutex. The meeting leaves the open list when no other rank can join. */
static meeting_t *join(group_t *group, int64_t run, int rank)
{
    meeting_t **place = &group->open;

    while (*place != NULL && ((*place)->run != run || (*place)->has_joined[rank])) {
        place = &(*place)->next;
    }
    if (*place == NULL) {
        meeting_t *fresh = group->spare;
        if (fresh != NULL) {
            group->spare = fresh->next;
        } else {
            fresh = meeting_create(group->n);
        }
        if (fresh == NULL) {
            return NULL;
        }
        fresh->run = run;
        fresh->n_joined = 0;
        fresh->n_left = 0;
        fresh->next = NULL;
        memset(fresh->has_joined, 0, (size_t)group->n * sizeof(bool));
        *place = fresh;
    }
    meeting_t *meeting = *place;
    meeting->has_joined[rank] = true;
    meeting->n_joined++;
    if (meeting->n_joined == group->n) {
        *place = meeting->next;
    }
    return meeting;
}

static plait_status_t local_begin(plait_session_t *session, bool is_collective)
{
    plait_status_t status = PLAIT_OK;
    group_t *group = group_of(session->end);

    session->meeting = NULL;
    if (is_collective) {
        (void)pthread_mutex_lock(&group->mutex);
        session->meeting = join(group, session->run, session->end->rank);
        (void)pthread_mutex_unlock(&group->mutex);
        PLAIT_CHECK(session->meeting != NULL, PLAIT_ERR_NO_MEMORY,
                    "no memory for a meeting");
    }
done:
    return status;
}

/* The last rank to leave puts the meeting aside for reuse. */
static void local_end(plait_session_t *session)
{
    group_t *group = group_of(session->end);
    meeting_t *meeting = session->meeting;

    if (meeting != NULL) {
        (void)pthread_mutex_lock(&group->mutex);
        meeting->n_left++;
        if (meeting->n_left == group->n) {
            atomic_store(&meeting->n_arrived, 0);
            (void)atomic_fetch_and(&meeting->n_fences, COUNTED);
            atomic_store(&meeting->given_up, 0);
            meeting->next = group->spare;
            group->spare = meeting;
        }
        (void)pthread_mutex_unlock(&group->mutex);
    }
}

typedef struct {
    meeting_t *meeting;
    uint32_t before;
} fence_wait_t;

static bool is_over(void *context)
{
    const fence_wait_t *fence = context;
    uint32_t now = atomic_load(&fence->meeting->n_fences);

    return (now & TOO_LATE) != 0 || (now & COUNTED) != fence->before;
}

/* The rank that gave up may be unknown: two ranks at once have taken each other's note for their own. */
static plait_status_t fail_late(meeting_t *meeting, int rank)
{
    const uint32_t word = atomic_load(&meeting->given_up);

    return (word == 0)
               ? plait_fail(PLAIT_ERR_PEER,
                            "rank %d comes too late: another rank has given up waiting",
                            rank)
               : plait_fail((plait_status_t)(word >> 24),
                            "rank %d comes too late: rank %d has given up waiting",
                            rank, (int)(word & 0xffffff) - 1);
}

/* Either a rank gives up the fence, or the fence is over for all. Then it is also over for a rank that is slow
 * to see it, although the next fence may have been given up meanwhile. Ranks that have come go on waiting for
 * the others, each as long as it wants to. */
static plait_status_t wait_for_fence(meeting_t *meeting, int rank, uint32_t number)
{
    plait_status_t status = PLAIT_OK;
    fence_wait_t fence = {meeting, number};
    uint32_t before = number;
    plait_wait_t wait = plait_wait_begin(PLAIT_WAIT_FENCE, -1);
    uint32_t nobody = 0;

    while (status == PLAIT_OK && !is_over(&fence)) {
        status = plait_bell_turn(&meeting->bell, &wait, is_over, &fence);
    }
    if (status != PLAIT_OK) {
        uint32_t mine = (uint32_t)status << 24 | (uint32_t)(rank + 1);
        (void)atomic_compare_exchange_strong(&meeting->given_up, &nobody, mine);
        if (!atomic_compare_exchange_strong(&meeting->n_fences, &before,
                                            before | GIVEN_UP) &&
            (before & COUNTED) != number) {
            if ((before & GIVEN_UP) == 0) {
                (void)atomic_compare_exchange_strong(&meeting->given_up, &mine, 0);
            }
            status = PLAIT_OK; /* the fence is over by now */
        }
    }
    const uint32_t now = atomic_load(&meeting->n_fences);
    if (status == PLAIT_OK && (now & GIVEN_UP) != 0 && (now & COUNTED) == number) {
        status = fail_late(meeting, rank);
    }
    return status;
}

static char *records_of(const plait_session_t *session)
{
    const meeting_t *meeting = session->meeting;

    return meeting->records +
           (int64_t)(session->fence % 2) * session->end->size * RECORD_STRIDE;
}

static void show(plait_session_t *session, const plait_record_t *mine,
                 const void *bytes, int64_t n_bytes)
{
    const plait_endpoint_t *end = session->end;
    meeting_t *meeting = session->meeting;

    uint32_t before = atomic_load(&meeting->n_fences) & COUNTED;

    session->fence = before; /* no fence ends without this rank */
    plait_record_write(records_of(session) + (int64_t)end->rank * RECORD_STRIDE, mine,
                       bytes, n_bytes);
    if (atomic_fetch_add(&meeting->n_arrived, 1) == end->size - 1) {
        atomic_store(&meeting->n_arrived, 0);
        if (!atomic_compare_exchange_strong(&meeting->n_fences, &before,
                                            (before + 1) & COUNTED)) {
            (void)atomic_fetch_or(&meeting->n_fences, TOO_LATE);
        }
        plait_bell_ring(&meeting->bell);
    }
}

static void local_arrive(plait_session_t *session, const plait_record_t *mine)
{
    show(session, mine, NULL, 0);
}

static plait_status_t local_wait(plait_session_t *session)
{
    plait_status_t status =
        wait_for_fence(session->meeting, session->end->rank, (uint32_t)session->fence);

    session->peers = records_of(session);
    session->peer_stride = RECORD_STRIDE;
    return status;
}

static plait_status_t local_fence(plait_session_t *session, const plait_record_t *mine,
                                  const void *bytes, int64_t n_bytes)
{
    show(session, mine, bytes, n_bytes);
    return local_wait(session);
}

static void copy_ranges(const struct iovec *to, int64_t n_to, const struct iovec *from,
                        int64_t n_from)
{
    int64_t f = 0;
    size_t f_at = 0;

    for (int64_t i = 0; i < n_to; i++) {
        size_t at = 0;
        while (at < to[i].iov_len && f < n_from) {
            size_t n = to[i].iov_len - at;
            n = (n < from[f].iov_len - f_at) ? n : from[f].iov_len - f_at;
            memcpy((char *)to[i].iov_base + at, (char *)from[f].iov_base + f_at, n);
            at += n;
            f_at += n;
            if (f_at == from[f].iov_len) {
                f++;
                f_at = 0;
            }
        }
    }
}

static plait_status_t local_read(plait_session_t *session, int peer,
                                 const struct iovec *local, int64_t n_local,
                                 const struct iovec *remote, int64_t n_remote)
{
    (void)session;
    (void)peer;
    copy_ranges(local, n_local, remote, n_remote);
    return PLAIT_OK;
}

static plait_status_t local_write(plait_session_t *session, int peer,
                                  const struct iovec *local, int64_t n_local,
                                  const struct iovec *remote, int64_t n_remote)
{
    (void)session;
    (void)peer;
    copy_ranges(remote, n_remote, local, n_local);
    return PLAIT_OK;
}

static char *local_map(plait_session_t *session, int peer, uint64_t token)
{
    group_t *group = group_of(session->end);

    (void)pthread_mutex_lock(&group->mutex);
    if (group->maps == NULL) {
        (void)plait_node_maps_create(group->n, &group->maps);
    }
    (void)pthread_mutex_unlock(&group->mutex);
    return (group->maps != NULL) ? plait_node_map(group->maps, peer, getpid(), token)
                                 : NULL;
}

static void local_unmap(plait_session_t *session, int peer, uint64_t token)
{
    plait_node_unmap(group_of(session->end)->maps, peer, token);
}

static plait_status_t local_exchange(plait_session_t *session, int n_sends,
                                     const plait_message_t *sends, int n_recvs,
                                     const plait_message_t *recvs)
{
    meeting_t *meeting = session->meeting;

    return plait_mail_exchange(&meeting->mail, session->end->rank, n_sends, sends,
                               n_recvs, recvs);
}

static plait_status_t local_sendrecv(plait_session_t *session, const plait_half_t *send,
                                     const plait_half_t *recv,
                                     plait_matched_t *matched_p)
{
    return plait_mail_sendrecv(&group_of(session->end)->mail, session->end->rank, send,
                               recv, matched_p);
}

static plait_status_t local_send(plait_session_t *session, const plait_half_t *send)
{
    return plait_mail_send(&group_of(session->end)->mail, session->end->rank, send);
}

static plait_status_t local_refusal(plait_session_t *session)
{
    return plait_mail_refusal(&group_of(session->end)->mail, session->end->rank);
}

static void local_close(plait_endpoint_t *end)
{
    local_t *local = end->state;

    if (local != NULL) {
        group_t *group = local->group;
        (void)pthread_mutex_lock(&group->mutex);
        int n_open = --group->n_open;
        (void)pthread_mutex_unlock(&group->mutex);
        if (n_open == 0) {
            meetings_destroy(group->open);
            meetings_destroy(group->spare);
            plait_mail_clear(&group->mail);
            plait_node_maps_destroy(&group->maps);
            (void)pthread_mutex_destroy(&group->mutex);
            plait_free(group);
        }
        plait_free(local);
        end->state = NULL;
    }
}

static const plait_transport_t local_transport = {
    .name = "local",
    .close = local_close,
    .begin = local_begin,
    .end = local_end,
    .fence = local_fence,
    .arrive = local_arrive,
    .wait = local_wait,
    .read = local_read,
    .write = local_write,
    .map = local_map,
    .unmap = local_unmap,
    .exchange = local_exchange,
    .sendrecv = local_sendrecv,
    .send = local_send,
    .refusal = local_refusal,
};

plait_status_t plait_local_open(int n, plait_endpoint_t ends[])
{
    plait_status_t status = PLAIT_OK;
    group_t *group = plait_alloc(1, sizeof(*group));
    bool has_mail = false;
    int n_made = 0;

    PLAIT_CHECK(group != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a group");
    group->n = n;
    PLAIT_TRY(plait_mail_init(&group->mail, n));
    (void)pthread_mutex_init(&group->mutex, NULL);
    has_mail = true;
    for (; n_made < n; n_made++) {
        local_t *local = plait_alloc(1, sizeof(*local));
        PLAIT_CHECK(local != NULL, PLAIT_ERR_NO_MEMORY, "no memory for an endpoint");
        local->group = group;
        group->n_open++;
        ends[n_made] =
            (plait_endpoint_t){.transport = &local_transport,
                               .rank = n_made,
                               .size = n,
                               .caps = {.direct = PLAIT_DIRECT_POINTER,
                                        .can_write = true,
                                        .publish_bytes = PLAIT_PUBLISH_BYTES},
                               .state = local};
    }
    for (int i = 0; i < N_SPARE; i++) {
        meeting_t *meeting = meeting_create(n);
        PLAIT_CHECK(meeting != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a meeting");
        meeting->next = group->spare;
        group->spare = meeting;
    }
done:
    if (status != PLAIT_OK) {
        for (int i = 0; i < n_made; i++) {
            local_close(&ends[i]); /* closing the last endpoint frees the group */
        }
        if (n_made == 0 && has_mail) {
            plait_mail_clear(&group->mail);
            (void)pthread_mutex_destroy(&group->mutex);
        }
        if (n_made == 0) {
            plait_free(group);
        }
    }
    return status;
}
