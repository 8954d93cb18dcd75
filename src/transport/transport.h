/* The functions of a transport: a const table behind every communicator.
 *
 * An endpoint is one rank's end of one communicator. One operation on it is a session: begin, any number of
 * fences, reads, exchanges and native collectives, end. All ranks make collective calls in the same order.
 * Only the two partners make matched transfers (sendrecv, send), outside any fence.
 *
 * Between two fences no rank leaves: a rank that fails goes on to the next fence with its status in its record,
 * and every rank learns of the failure there. */
#ifndef PLAIT_TRANSPORT_H
#define PLAIT_TRANSPORT_H

#include "base/process.h"
#include "device/device.h"
#include "plait/coll.h"
#include "plait/dtype.h"
#include "plait/reduce.h"
#include "plait/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

enum { PLAIT_MAX_SLOTS = 8, PLAIT_ANY = -1, PLAIT_NO_RANK = -2 };

/* Most bytes that a rank may publish at a fence. */
enum { PLAIT_PUBLISH_BYTES = 16 << 10 };

/* Most memory that buffered sends of one rank on one communicator may hold. */
enum { PLAIT_BUFFERED_BYTES = 16 << 20 };

/* How a rank reaches a peer's memory. */
typedef enum {
    PLAIT_DIRECT_NONE,   /* not at all: messages */
    PLAIT_DIRECT_READ,   /* one-copy reads into its own memory */
    PLAIT_DIRECT_POINTER /* the peer's addresses are valid here (threads) */
} plait_direct_t;

/* Which ways to peers' devices may be taken (device_link.h). */
typedef enum {
    PLAIT_REACH_ANY,  /* the first in the order of links that all ranks can take */
    PLAIT_REACH_NODE, /* by memory that peers show */
    PLAIT_REACH_NCCL,
    PLAIT_REACH_NVSHMEM,
    PLAIT_REACH_MPI,    /* by the transport's messages */
    PLAIT_REACH_BESIDE, /* of ANY and NODE: links that started operations may take */
    PLAIT_REACH_COUNT
} plait_reach_t;

/* What planning may count on; plain data, so that one process can plan for any rank of any transport. */
typedef struct {
    plait_device_t *device; /* where arrays and kernels are; NULL: the host */
    /* The devices of all ranks, by rank, if each rank has a device of this process; NULL: not so, or not known.
     * Borrowed while planning. */
    plait_device_t *const *devices;
    /* The device's grid among the devices of all ranks, which are processes with one each; NULL: they do not
     * work as one, or were not asked (process_grid.h). Borrowed while planning. */
    plait_process_grid_t *grid;
    plait_reach_t reach; /* to peers' devices */
    plait_direct_t direct;
    bool can_write;        /* peers' memory, too: by write() if direct is READ */
    int64_t publish_bytes; /* most bytes a fence takes along; -1: none, not even 0 */
    bool is_far;           /* fences send messages to other nodes: only where needed */
    int n_threads;         /* threads that a rank may compute with; 0: one */
    bool has_company; /* other ranks of this process, in their own communicators, have
                         the same calls at the same time */
    bool has_native;  /* allreduce, bcast, barrier below */
    uint32_t
        native_reduce[PLAIT_REDUCE_COUNT]; /* bit = dtype code that allreduce takes */
} plait_caps_t;

/* Whether allreduce below takes this operation and dtype. */
static inline bool plait_caps_reduce(const plait_caps_t *caps, plait_reduce_t op,
                                     plait_dtype_t dtype)
{
    return caps->has_native && (caps->native_reduce[op] >> dtype & 1) != 0;
}

/* What a rank shows its peers at a fence: where its buffers are, or what it publishes. */
typedef struct {
    int32_t status;  /* plait_status_t of this rank so far */
    int32_t n_slots; /* number of addresses; 0 or less: minus the number of published
                        bytes, which take the addresses' place, and go on after them */
    uint64_t agree;  /* hash of the plan: must be equal on all ranks */
    uint64_t agree_some;            /* equal on all ranks where it is not 0 */
    uint64_t slot[PLAIT_MAX_SLOTS]; /* addresses of its buffers, in its own memory */
} plait_record_t;

typedef struct plait_transport plait_transport_t;

/* Where a rank runs, for observers: its process, and which of the process's ranks it is. */
typedef struct {
    plait_process_card_t process;
    int track;
} plait_peer_t;

typedef struct {
    const plait_transport_t *transport;
    int rank;
    int size;
    plait_caps_t caps;
    const plait_peer_t
        *peers;      /* one per rank; NULL: one rank, or threads of one process */
    const char *why; /* how peers' memory is reached, in words; NULL: not said */
    char *entered;   /* an _Atomic uint32_t for each rank, for upper layers, in memory
                        that all ranks share; NULL: none */
    int64_t entered_stride;
    const _Atomic bool *
        freed_p; /* whether the user has freed the MPI communicator; NULL: there is none */
    bool
        moves_chunks; /* matched transfers are messages, in chunks if a partner wants */
    void *state;      /* the transport's own */
    /* The ways to peers' devices; NULL: no operation was on a device yet. Set by the thread that calls
     * operations, read by the threads of started operations. */
    struct plait_device_ways *_Atomic ways;
    struct plait_grid_seat *seat; /* process_grid.h; NULL: nobody has asked yet */
} plait_endpoint_t;

typedef struct {
    plait_endpoint_t *end;
    int64_t run;         /* launch to which the call belongs: threads of different
                            launches never meet; 0 outside XLA */
    const char *peers;   /* set by fence: one record per rank, until the next one */
    int64_t peer_stride; /* bytes from one rank's record to the next one's */
    void *meeting;       /* the transport's own */
    uint64_t fence; /* the transport's own: the fence at which this rank has arrived */
} plait_session_t;

static inline const plait_record_t *plait_peer_record(const plait_session_t *session,
                                                      int rank)
{
    const void *record = session->peers + rank * session->peer_stride;

    return record;
}

/* Puts a record where peers read it; for the transports. */
static inline void plait_record_write(void *to, const plait_record_t *mine,
                                      const void *bytes, int64_t n_bytes)
{
    plait_record_t *record = to;
    bool has_slots = mine->n_slots > 0;
    size_t n =
        has_slots ? (size_t)mine->n_slots * sizeof(mine->slot[0]) : (size_t)n_bytes;

    record->status = mine->status;
    record->n_slots = has_slots ? mine->n_slots : -(int32_t)n_bytes;
    record->agree = mine->agree;
    record->agree_some = mine->agree_some;
    if (n > 0) {
        memcpy(record->slot, has_slots ? mine->slot : bytes, n);
    }
}

/* The bytes that a rank published at the last fence. */
static inline const char *plait_peer_bytes(const plait_session_t *session, int rank)
{
    return session->peers + rank * session->peer_stride +
           offsetof(plait_record_t, slot);
}

/* One contiguous message of an exchange. */
typedef struct {
    int peer;
    void *data;
    int64_t n_bytes;
} plait_message_t;

/* An offer says where a message in a device's memory is, in words from the sender's link to the receiver's. A
 * receipt says by which event it was taken, in words to the sender's link (device_link.h). */
typedef struct {
    uint64_t words[20];
} plait_offer_t;

typedef struct {
    uint64_t words[8];
} plait_receipt_t;

/* Belongs to a half whose array is in a device's memory: its message may describe that memory instead of having
 * the bytes. The thread that has called the transport calls the functions, and holds no lock then. */
typedef struct plait_parcel {
    bool is_offered; /* of a sending half: */
    plait_offer_t offer;

    /* Receiving half: brings the message that a source has offered to its place; `receipt` says when it is
     * there. Not OK: the source has its memory back. */
    plait_status_t (*take)(struct plait_parcel *parcel, int source,
                           const plait_offer_t *offer); /* NULL: it cannot */

    /* Host memory with the bytes of the message, or for them. */
    plait_status_t (*stage)(struct plait_parcel *parcel, void **data_p);

    /* The same for the next chunk (staged.h), if the endpoint moves chunks. The chunk before has gone, or come.
     * A receiving half that has failed gets memory all the same. */
    plait_status_t (*next)(struct plait_parcel *parcel, void **data_p);

    plait_receipt_t receipt; /* of a sending half: the receiver's */
    bool is_taken;           /* and it is there */
} plait_parcel_t;

/* One half of a matched transfer. tag and peer may be PLAIT_ANY on the receiving side; peer PLAIT_NO_RANK:
 * nothing is sent or received. A half with a parcel has more than PLAIT_SEND_BYTES and is not sent to this rank
 * itself. A message offered to a half that cannot take it is sent in bytes after all; a half with a parcel
 * takes bytes, too. If the endpoint moves chunks, a half that offers nothing or takes nothing may also have a
 * parcel, and `data` may be an address that only the transport's library may touch. */
typedef struct {
    int peer;
    int tag;
    void *data;
    int64_t n_bytes;
    plait_dtype_t dtype;
    uint32_t tree;          /* which arrays were joined in it (base/tree.h) */
    plait_parcel_t *parcel; /* NULL: the bytes are at `data` */
} plait_half_t;

/* What partners compare beside the length of a message: dtype, and a hash of its tree. One in 2^26 different
 * trees is not told apart. */
typedef uint32_t plait_content_t;

enum { PLAIT_CONTENT_DTYPES = 64, PLAIT_CONTENT_TREES = (1 << 26) - 1 };

static inline plait_content_t plait_half_content(const plait_half_t *half)
{
    const uint32_t tree = (half->tree != 0) ? half->tree % PLAIT_CONTENT_TREES + 1 : 0;

    return (plait_content_t)((uint32_t)half->dtype + tree * PLAIT_CONTENT_DTYPES);
}

static inline plait_dtype_t plait_content_dtype(plait_content_t content)
{
    return (plait_dtype_t)(content % PLAIT_CONTENT_DTYPES);
}

/* Host memory for the bytes of a half. */
static inline plait_status_t plait_half_bytes(const plait_half_t *half, void **data_p)
{
    *data_p = half->data;
    return (half->parcel != NULL) ? half->parcel->stage(half->parcel, data_p)
                                  : PLAIT_OK;
}

/* The half may be NULL or of no rank. */
static inline bool plait_half_is_given(const plait_half_t *half)
{
    return half != NULL && half->peer != PLAIT_NO_RANK;
}

typedef struct {
    int source; /* of the message received, PLAIT_NO_RANK if none */
    int tag;
    int64_t n_bytes;
} plait_matched_t;

/* What a rank that ends with an exception leaves behind. */
enum { PLAIT_FAREWELL_BYTES = 240 };

typedef struct {
    int64_t id; /* of the communicator */
    int32_t rank;
    char why[PLAIT_FAREWELL_BYTES];
} plait_farewell_t;

struct plait_transport {
    const char *name;

    /* Frees the endpoint's state. NULL-safe; the endpoint is dead afterwards. Waits a bounded time for
     * receivers of buffered sends. */
    void (*close)(plait_endpoint_t *end);

    /* For every session, collective or matched; `is_collective` sessions meet their peers. */
    plait_status_t (*begin)(plait_session_t *session, bool is_collective);
    void (*end)(plait_session_t *session);

    /* This rank leaves a collective without telling the others: they may be further on, and messages under way
     * must not be taken for later ones. No session of the endpoint begins any more. NULL if each session is
     * separate from those after it. */
    void (*abandon)(plait_session_t *session);

    /* Whether a message never ended: the library may read and write the memory that it was given at any time,
     * so this memory is not used for anything else. NULL: never. */
    bool (*is_stuck)(const plait_endpoint_t *end);

    /* Barrier that also shows `mine` to all; on return session->peers is filled. With mine->n_slots == 0, the
     * n_bytes at `bytes` are shown instead of addresses: at most caps.publish_bytes, and the number may differ
     * between ranks. OK even if a record carries a failure: the executor judges. Not OK only if the fence
     * itself failed (transport error, or the wait hook gave up). */
    plait_status_t (*fence)(plait_session_t *session, const plait_record_t *mine,
                            const void *bytes, int64_t n_bytes);

    /* The two halves of a fence that shows addresses: work of this rank between them keeps nobody waiting.
     * `peers` must not be read between them: a faster rank may be at the next fence. NULL if a fence needs all
     * ranks at once. */
    void (*arrive)(plait_session_t *session, const plait_record_t *mine);
    plait_status_t (*wait)(plait_session_t *session);

    /* One-copy gather from a peer's memory; NULL unless caps.direct is READ. Total bytes on
     * both sides are equal; any number of entries. */
    plait_status_t (*read)(plait_session_t *session, int peer,
                           const struct iovec *local, int64_t n_local,
                           const struct iovec *remote, int64_t n_remote);

    /* One-copy scatter into a peer's memory, the same; NULL unless caps.can_write and direct is READ. If a rank
     * has given up a fence, nothing is written, since memory may be gone: returns the status with which it gave
     * up. */
    plait_status_t (*write)(plait_session_t *session, int peer,
                            const struct iovec *local, int64_t n_local,
                            const struct iovec *remote, int64_t n_remote);

    /* The address in this process of memory that a peer shows by a token (device/pool.h), valid until unmap;
     * NULL: it cannot be mapped. Both NULL unless caps.direct is READ. */
    char *(*map)(plait_session_t *session, int peer, uint64_t token);
    void (*unmap)(plait_session_t *session, int peer, uint64_t token);

    /* Sends and receives at once, blocking until all are complete. Messages between a pair match in order;
     * sizes agree. NULL unless caps.direct is NONE (then it is always there). */
    plait_status_t (*exchange)(plait_session_t *session, int n_sends,
                               const plait_message_t *sends, int n_recvs,
                               const plait_message_t *recvs);

    /* Native collectives; NULL unless caps.has_native. allreduce: x may equal y. */
    plait_status_t (*allreduce)(plait_session_t *session, plait_reduce_t op,
                                plait_dtype_t dtype, int64_t n, const void *x, void *y);
    plait_status_t (*bcast)(plait_session_t *session, int root, void *data,
                            int64_t n_bytes);
    plait_status_t (*barrier)(plait_session_t *session);

    /* Matched transfer of both halves at once. A message that is longer than the receiving half, or of another
     * dtype, is TRUNCATION or MISMATCH on both partners, and no byte of the receiving half is written. A
     * shorter message of the same dtype is MISMATCH, too. */
    plait_status_t (*sendrecv)(plait_session_t *session, const plait_half_t *send,
                               const plait_half_t *recv, plait_matched_t *matched_p);

    /* The sending half alone, of at most PLAIT_SEND_BYTES: the data are copied and the call returns. The
     * receiver's refusal reaches this rank through `refusal`, or is logged by close. The order with other sends
     * is kept. Waits if the rank's buffered sends hold PLAIT_BUFFERED_BYTES already. */
    plait_status_t (*send)(plait_session_t *session, const plait_half_t *send);

    /* Whether messages of buffered sends have not left this rank yet: they leave meanwhile, and may end others'
     * waits. NULL if all have left when `send` returns. */
    bool (*is_leaving)(const plait_endpoint_t *end);

    /* A refusal, TRUNCATION or MISMATCH, of an earlier buffered send of this rank that is known by now, each
     * once; OK if there is none. Does not wait. Called at the end of every session, so that an operation which
     * fails for this reason has been carried out and leaves no partner waiting. */
    plait_status_t (*refusal)(plait_session_t *session);

    /* Whether `peer`, or any rank if PLAIT_ANY, has said that it ends with an exception, of the ranks that
     * cannot be seen from here: which rank, and the text. Does not wait. NULL if all ranks see each other. */
    bool (*farewell)(const plait_endpoint_t *end, int peer,
                     plait_farewell_t *farewell_p);
};

static inline bool plait_endpoint_is_stuck(const plait_endpoint_t *end)
{
    return end->transport->is_stuck != NULL && end->transport->is_stuck(end);
}

#endif
