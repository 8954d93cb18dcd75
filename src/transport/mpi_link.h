/* What the files behind transport/mpi.h share: the lock around MPI, an endpoint's
 * state, and waiting for requests. */
#ifndef PLAIT_TRANSPORT_MPI_LINK_H
#define PLAIT_TRANSPORT_MPI_LINK_H

#include "base/status.h"
#include "transport/mpi.h"
#include "transport/mpi_backend.h"
#include "transport/node_segment.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Tags on the control duplicate. A transfer's answer and bulk data have the sender's number in the tag, so that
 * transfers which are under way at once cannot take each other's messages. A transfer that has not ended keeps
 * its number, however many go on meanwhile. */
enum {
    PLAIT_MPI_TAG_NONE = 0, /* no message has it */
    PLAIT_MPI_TAG_FENCE = 1,
    PLAIT_MPI_TAG_EXCHANGE = 2,
    PLAIT_MPI_TAG_REDUCE = 3,
    PLAIT_MPI_TAG_FAREWELL = 4,
    PLAIT_MPI_TAG_SEATS = 0x40,
    PLAIT_MPI_TAG_ANSWER = 0x2000,
    PLAIT_MPI_TAG_BULK = 0x4000,
    PLAIT_MPI_N_NUMBERS = 0x2000
};

/* Most ranks of one process in one communicator: a message between two ranks that are threads has both their
 * slots in its tag. */
enum { PLAIT_MPI_SEATS = 64 };
_Static_assert(PLAIT_MPI_TAG_SEATS + PLAIT_MPI_SEATS * PLAIT_MPI_SEATS <=
                   PLAIT_MPI_TAG_ANSWER,
               "tags");

/* Where a rank is that is a thread. */
typedef struct {
    int process; /* its rank in the communicator of the processes */
    int slot;    /* among the ranks of that process */
} plait_mpi_seat_t;

/* Up to this size two ranks reduce by swapping; an eager message in every MPI. */
enum { PLAIT_MPI_SMALL_BYTES = 2048 };

typedef struct plait_mpi_transfer plait_mpi_transfer_t;

/* What a rank says about itself while a link is opened. */
typedef struct {
    int64_t id;
    int32_t status;     /* plait_status_t: whether it can take part at all */
    char said[116];     /* why it cannot                                   */
    int32_t is_off;     /* PLAIT_DIRECT=off */
    int32_t is_apart;   /* PLAIT_SHARED=off */
    int32_t node_size;  /* ranks that share memory with it, itself included */
    int32_t node_first; /* the first of them */
    plait_process_card_t process;
    int32_t unreadable;   /* the first rank whose memory it cannot read, or -1 */
    int32_t error;        /* and errno; 0: read, but not what it should be     */
    int32_t is_read_only; /* it cannot write to all others, or PLAIT_DIRECT=read */
    int32_t fd;           /* a node's first rank: of the segment; -1: there is none */
    int32_t is_missing;   /* this rank does not have the segment */
    uint64_t nonce;
    uint64_t nonce_address;
    uint64_t mark_address;               /* where peers try to write its nonce */
    uint32_t native[PLAIT_REDUCE_COUNT]; /* reductions that its MPI does as it should */
} plait_mpi_card_t;

/* A record with bytes, which go on beyond its declared end. */
enum { PLAIT_MPI_SAID_BYTES = 256 };

typedef struct {
    plait_record_t record;
    char more[PLAIT_MPI_SAID_BYTES];
} plait_mpi_said_t;

/* Whether MPI reads and writes the memory of a link's device. */
enum { PLAIT_MPI_NOT_ASKED, PLAIT_MPI_UNAWARE, PLAIT_MPI_AWARE };

/* State of an endpoint. All buffers of plait's own messages are in here or in a transfer, never on a stack: a
 * wait that was given up leaves messages in flight. */
typedef struct plait_mpi_link {
    const plait_mpi_backend_t *mpi;
    uint64_t user;    /* borrowed; not touched after it was freed         */
    uint64_t matched; /* duplicate: headers of transfers, collectives     */
    uint64_t control; /* duplicate: fences, exchanges, answers, bulk data */
    uint64_t slot;    /* where MPI puts a duplicate                       */
    int rank;
    int size;
    /* For a rank that is a thread: the link of its process, whose duplicates are used, and the places of all
     * ranks. NULL: the rank is a process. */
    struct plait_mpi_link *process;
    const plait_mpi_seat_t *seats;
    int max_tag;                  /* of a matched transfer: MPI's, or any int */
    int64_t chunk_bytes;          /* longest single message */
    bool is_node;                 /* peers' memory can be read */
    bool can_write;               /* and written */
    plait_node_segment_t segment; /* base NULL: there is none */
    uint64_t n_fences;            /* in the segment */
    struct plait_node_maps *maps; /* if is_node */
    struct plait_node_mail *mail;
    struct plait_cluster *cluster; /* NULL: the ranks with a segment are on one node */
    _Atomic bool is_broken; /* ranks left a collective phase at different places    */
    _Atomic bool is_stuck;  /* a request never ended: the memory here is not freed  */
    bool has_lost; /* a message may come that nobody receives: duplicates are kept */
    _Atomic int
        is_aware; /* PLAIT_MPI_AWARE, ...: of the device's memory, for matched transfers */

    int keyval; /* of the attribute on `user` */
    bool has_keyval;
    bool has_attribute;
    uintptr_t number;            /* the attribute's value: unique in the process */
    _Atomic bool is_freed;       /* the user has freed `user` */
    struct plait_mpi_link *next; /* in the list of watched links */
    bool is_open;                /* under watch_lock: has duplicates */

    plait_record_t mine;
    plait_record_t *peers; /* one per rank */
    plait_mpi_said_t
        *said; /* with bytes, one per rank and this rank's; NULL until needed */
    plait_mpi_card_t card;
    plait_mpi_card_t *cards; /* one per rank; kept for the process numbers */
    plait_peer_t *processes; /* the same, for observers */
    uint64_t nonce;          /* what peers look for in this process's memory */
    _Atomic uint64_t mark;   /* and what they write there: the same value */

    /* sent, received: for an allreduce of two ranks */
    char small[2][PLAIT_MPI_SMALL_BYTES];

    uint64_t *requests; /* of the exchange under way */
    int64_t *lengths;   /* of its receives, bytes; behind the requests */
    int64_t n_requests_room;

    _Atomic uint32_t n_transfers; /* numbers them */
    /* Numbers, as in tags, of sends that have not ended: a bit each. */
    _Atomic uint64_t held_numbers[PLAIT_MPI_N_NUMBERS / 64];
    plait_mpi_transfer_t *idle; /* under transfer_lock, like all below */
    plait_mpi_transfer_t
        *buffered; /* sends under way that nobody waits for, oldest first */
    plait_mpi_transfer_t *buffered_last;
    int64_t held_bytes;     /* of these sends */
    plait_status_t refused; /* status of the first of them that failed */
    char refused_text[512]; /* as in a transfer */
    _Atomic int n_pending;  /* buffered sends under way, plus one for a refusal */
    pthread_mutex_t transfer_lock;

    int64_t id;             /* the communicator's number */
    plait_farewell_t heard; /* the last farewell that came; under MPI's lock */

    char why[256];
} plait_mpi_link_t;

/* From now on calls go to this MPI: attribute on COMM_SELF, handler for forks. */
plait_status_t plait_mpi_start(const plait_mpi_backend_t *mpi);

/* The MPI that was started; NULL before. */
const plait_mpi_backend_t *plait_mpi_started(void);

/* The largest tag of a message, in every communicator of this MPI (MPI_TAG_UB). */
int plait_mpi_max_tag(void);

/* Collective, while a link is opened: every rank gets what each rank says. what: of the wait. */
plait_status_t plait_mpi_show(plait_mpi_link_t *link, const char *what,
                              const void *mine, void *every, int64_t n_bytes);

/* Collective, while a link is opened, before anything large is sent: an error on all ranks if MPI moves large
 * arrays wrongly. node_first: of the ranks that share memory with this one; is_off: this rank reads no memory
 * of others. */
plait_status_t plait_mpi_prove(plait_mpi_link_t *link, int node_first, bool is_off);

/* A function that the library has beyond the standard; or NULL. */
void *plait_mpi_symbol(const char *name);

/* Takes the lock. False, and not locked, if MPI must not be called. */
bool plait_mpi_lock(void);

/* Gives back the lock and turns the result of the call made under it into a status. */
plait_status_t plait_mpi_unlock(int rank, const char *what, int code);

/* One short call of MPI: PLAIT_MPI_CALL(rank, "barrier", mpi->ibarrier(comm, &r)). */
#define PLAIT_MPI_CALL(_rank, _what, _call)                         \
    (plait_mpi_lock() ? plait_mpi_unlock((_rank), (_what), (_call)) \
                      : plait_mpi_usable(_what))

/* Lets MPI move messages, which it does only while it is called. If another thread is in MPI, that thread does
 * so. */
void plait_mpi_look(void);

/* The link is open. From now on every wait of this process looks into MPI now and then, if messages may have to
 * move meanwhile: those of a link whose messages go through MPI (has_own), or the program's own to other
 * nodes. */
void plait_mpi_set_open(plait_mpi_link_t *link, bool has_own);

/* One poll. After an error of MPI the request is done; not done and not OK: refused. */
plait_status_t plait_mpi_poll(const plait_mpi_link_t *link, const char *what,
                              uint64_t *request_p, bool *is_done_p,
                              plait_mpi_envelope_t *envelope_p);

/* Waits for n requests, also for the rest after one has failed. The first n_receives are receives, of the given
 * lengths in bytes: MISMATCH if other lengths come. After a MISMATCH, or when the wait hook gives up, this
 * gives up, too: see plait_mpi_give_up. */
plait_status_t plait_mpi_wait(plait_mpi_link_t *link, const char *what, int peer,
                              int64_t n_receives, const int64_t lengths[], int64_t n,
                              uint64_t requests[]);

/* Ends requests that nobody waits for any more: receives are cancelled (MPI cancels nothing else), and all
 * requests get a last moment to complete. A request that is still active then cannot be ended: the link is
 * marked stuck and this is logged; a longer wait would hang the rank. The error text is left alone. */
void plait_mpi_give_up(plait_mpi_link_t *link, const char *what, int64_t n_receives,
                       int64_t n, uint64_t requests[]);

/* Whether a link was ever stuck, so that not all memory of this process will be freed; for tests. */
bool plait_mpi_keeps_memory(void);

/* The attribute on the user's communicator that tells when it is freed. */
plait_status_t plait_mpi_watch(plait_mpi_link_t *link);
void plait_mpi_unwatch(plait_mpi_link_t *link);

/* A wait for others was ended while a link was opened on the user's communicator. A duplication may be under
 * way in MPI; the next duplication would be paired with that of a rank that comes late. So there is no next
 * one: the check returns COMM. */
void plait_mpi_give_up_user(const plait_mpi_link_t *link);
plait_status_t plait_mpi_check_user(uint64_t comm, int rank);

/* Finds out which reductions this library does with plait's meaning; once, at bind. */
void plait_mpi_native_probe(const plait_mpi_backend_t *mpi);

/* This rank's findings for a communicator of that size, as plait_caps_t has them. */
void plait_mpi_native_masks(int size, uint32_t masks[PLAIT_REDUCE_COUNT]);

/* MPI's operation for an operation of plait. */
plait_reduce_t plait_mpi_op(plait_reduce_t op, plait_dtype_t dtype);

/* Fills in the open links, at most `room`; returns how many there are. For a process that is ending, where
 * nobody closes a link meanwhile. */
int plait_mpi_open_links(int room, plait_mpi_link_t *links[]);

/* Collective over the communicator: a link with its duplicates and cards, and the number that all ranks agree
 * on, see plait_mpi_open. */
plait_status_t plait_mpi_link_open(uint64_t comm_bits, int size, int rank,
                                   int64_t *id_p, plait_mpi_link_t **link_p);
void plait_mpi_link_destroy(plait_mpi_link_t **link_p);

/* An exchange under way: requests of the link, receives first. */
typedef struct {
    int64_t n_receives, n;
} plait_mpi_posted_t;

/* The two halves of an exchange; messages between threads of this process are left out. A message sent without
 * data is empty, whatever room its receiver has. */
plait_status_t plait_mpi_post(plait_mpi_link_t *link, int n_sends,
                              const plait_message_t *sends, int n_recvs,
                              const plait_message_t *recvs, plait_mpi_posted_t *posted);
plait_status_t plait_mpi_finish(plait_mpi_link_t *link,
                                const plait_mpi_posted_t *posted);

/* Functions of the transports' tables, and what they need elsewhere. */
extern const plait_transport_t plait_mpi_transport;
extern const plait_transport_t plait_node_transport;
extern const plait_transport_t plait_cluster_transport;
void plait_mpi_close(plait_endpoint_t *end);
plait_status_t plait_mpi_begin(plait_session_t *session, bool is_collective);
void plait_mpi_end(plait_session_t *session);
void plait_mpi_abandon(plait_session_t *session);
bool plait_mpi_is_stuck(const plait_endpoint_t *end);
plait_status_t plait_mpi_exchange(plait_session_t *session, int n_sends,
                                  const plait_message_t *sends, int n_recvs,
                                  const plait_message_t *recvs);
plait_status_t plait_mpi_allreduce(plait_session_t *session, plait_reduce_t op,
                                   plait_dtype_t dtype, int64_t n, const void *x,
                                   void *y);
plait_status_t plait_mpi_bcast(plait_session_t *session, int root, void *data,
                               int64_t n_bytes);
plait_status_t plait_mpi_barrier(plait_session_t *session);
plait_status_t plait_mpi_sendrecv(plait_session_t *session, const plait_half_t *send,
                                  const plait_half_t *recv, plait_matched_t *matched_p);
plait_status_t plait_mpi_send(plait_session_t *session, const plait_half_t *send);
bool plait_mpi_is_leaving(const plait_endpoint_t *end);
plait_status_t plait_mpi_refusal(plait_session_t *session);
bool plait_mpi_has_left(const plait_mpi_link_t *link,
                        int rank); /* as far as the rank said so */
bool plait_mpi_farewell(const plait_endpoint_t *end, int peer,
                        plait_farewell_t *farewell_p);

/* Waits for the receivers of buffered sends, until a time of plait_clock_ns; logs refusals and remaining
 * sends. */
void plait_mpi_drain(plait_mpi_link_t *link, int64_t until_ns);

/* Time that close and the end of the process give receivers: long enough for a rank that is about to receive,
 * short for a human. */
#define PLAIT_MPI_DRAIN_NS INT64_C(2000000000)

void plait_mpi_transfers_free(plait_mpi_link_t *link);

/* MPI's number of a rank's process. */
static inline int plait_mpi_process_of(const plait_mpi_link_t *link, int rank)
{
    return (link->seats != NULL) ? link->seats[rank].process : rank;
}

/* Whether a rank is in this process (a thread of it, or this rank itself). */
static inline bool plait_mpi_is_near(const plait_mpi_link_t *link, int rank)
{
    return link->seats != NULL &&
           link->seats[rank].process == link->seats[link->rank].process;
}

static inline plait_mpi_link_t *plait_mpi_link_of(const plait_session_t *session)
{
    return session->end->state;
}

#endif
