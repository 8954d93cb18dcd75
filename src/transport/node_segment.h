/* Memory that all ranks of a node share (base/shared.h); the first rank of the node makes it. It has, for each
 * rank of the communicator, a bell to wait on, two boxes for the rank's records at fences, and cells for
 * answers to its messages; and for each pair of ranks a ring of messages, unless the communicator has ranks on
 * other nodes. Pages that no rank touches cost nothing. */
#ifndef PLAIT_TRANSPORT_NODE_SEGMENT_H
#define PLAIT_TRANSPORT_NODE_SEGMENT_H

#include "base/bell.h"
#include "base/shared.h"
#include "transport/transport.h"

#include <stddef.h>
#include <sys/types.h>

/* A rank's record at a fence, in the same cache line as its number: a few published bytes travel with both. The
 * record goes on beyond its declared end, to PLAIT_BOX_BYTES. */
typedef struct {
    _Alignas(64) _Atomic uint64_t number; /* of the last fence it was filled for */
    plait_record_t record;
} plait_node_box_t;

/* The box of a rank that publishes so many bytes, at least as many as addresses take. */
#define PLAIT_BOX_BYTES(_publish_bytes)                                          \
    ((int)(offsetof(plait_node_box_t, record) + offsetof(plait_record_t, slot) + \
           (size_t)(_publish_bytes) + 63) /                                      \
     64 * 64)

enum { PLAIT_NODE_BOX_BYTES = PLAIT_BOX_BYTES(PLAIT_PUBLISH_BYTES) };

/* How the receiver answers one message: the states of the lowest bits; above them the message's number. While a
 * message in a device's memory is being taken, or an answer is being written, the sender does not give up.
 * Bytes may also be wanted, and then brought to the sender's host memory. */
enum {
    PLAIT_ANSWER_AWAITED,
    PLAIT_ANSWER_GIVEN,
    PLAIT_ANSWER_GIVEN_UP,
    PLAIT_ANSWER_TAKING,
    PLAIT_ANSWER_WANTED,
    PLAIT_ANSWER_BROUGHT,
    PLAIT_ANSWER_STATE_BITS = 3
};

typedef struct {
    _Alignas(64) _Atomic uint64_t word;
    int32_t status;
    plait_content_t content; /* what the receiver expected */
    int64_t n_bytes;         /* and how much               */
    uint64_t address;        /* of the bytes brought; 0: they could not be */
    plait_receipt_t receipt; /* for what was taken */
} plait_node_answer_t;

/* A receiver's complaint about a message whose sender did not wait: the first complaint counts. */
enum { PLAIT_COMPLAINT_NONE, PLAIT_COMPLAINT_WRITES, PLAIT_COMPLAINT_MADE };

typedef struct {
    _Alignas(64) _Atomic uint32_t state;
    int32_t status;
    int32_t dest, tag;
    plait_content_t contents[2]; /* sent, expected */
    int64_t n_bytes[2];          /* sent, expected */
} plait_node_complaint_t;

enum { PLAIT_NODE_ANSWERS = 32 };

/* Why a rank gave up, for the ranks that waited with it. */
enum { PLAIT_REASON_BYTES = 240 };

typedef struct {
    _Alignas(64) plait_bell_t bell;
    _Atomic uint32_t n_writing;              /* threads that write to peers' memory */
    _Alignas(64) _Atomic uint32_t n_entered; /* endpoint.entered */
    plait_node_complaint_t complaint;
    plait_node_answer_t answers[PLAIT_NODE_ANSWERS];
} plait_node_rank_t;

/* Messages from one rank to another: cells of a cache line, see node_mail.c. */
typedef struct {
    _Alignas(64) _Atomic uint64_t
        n_consumed;             /* cells that the receiver has given back */
    _Atomic uint32_t is_closed; /* the receiver takes no more */
    _Alignas(64) char cells[];
} plait_node_ring_t;

typedef struct {
    uint64_t magic, nonce;
    int64_t n_bytes;
    int32_t n_ranks, box_bytes, ring_cells;
    _Alignas(64) _Atomic uint32_t n_asleep; /* ranks that sleep in a fence */
    /* Set by a rank that left a fence: 1 + rank, status << 24; on one node also the number of the fence <<
     * 32. */
    _Atomic uint64_t given_up;
    char reason[PLAIT_REASON_BYTES]; /* its text; only where there are several nodes */
} plait_node_header_t;

/* The contents of a segment, the same on all ranks of a node. */
typedef struct {
    int n_ranks;
    int box_bytes;
    int ring_cells; /* 0: no rings */
} plait_node_shape_t;

/* For ranks that are all on one node. */
plait_node_shape_t plait_node_shape(int n_ranks);

typedef struct {
    plait_shared_t memory; /* with its descriptor until all ranks have it */
    plait_node_shape_t shape;
} plait_node_segment_t;

/* Collective: no. Makes the memory; others attach by this process' number, the descriptor and the nonce. */
plait_status_t plait_node_segment_create(const plait_node_shape_t *shape,
                                         uint64_t nonce, plait_node_segment_t *segment);

/* The same for threads of this process alone: no other process can attach. */
plait_status_t plait_node_segment_own(const plait_node_shape_t *shape,
                                      plait_node_segment_t *segment);

/* Maps the memory that process `pid` made, if it is what it should be. */
plait_status_t plait_node_segment_attach(pid_t pid, int fd,
                                         const plait_node_shape_t *shape,
                                         uint64_t nonce, plait_node_segment_t *segment);

/* All ranks have the memory: the descriptor is no longer needed. */
void plait_node_segment_seal(plait_node_segment_t *segment);

void plait_node_segment_destroy(plait_node_segment_t *segment);

plait_node_header_t *plait_node_header(const plait_node_segment_t *segment);
plait_node_rank_t *plait_node_rank(const plait_node_segment_t *segment, int rank);

/* Sets endpoint.entered, for a segment of all ranks. */
void plait_node_show_entered(const plait_node_segment_t *segment,
                             plait_endpoint_t *end);

/* A rank's box for fences of this parity; the boxes of one parity are shape.box_bytes apart. */
plait_node_box_t *plait_node_box(const plait_node_segment_t *segment, int parity,
                                 int rank);

plait_node_ring_t *plait_node_ring(const plait_node_segment_t *segment, int from,
                                   int to);

#endif
