/* Matched transfers under way: their messages, and the steps of mpi_match.c and mpi_buffered.c. */
#ifndef PLAIT_TRANSPORT_MPI_TRANSFER_H
#define PLAIT_TRANSPORT_MPI_TRANSFER_H

#include "transport/mpi_link.h"

/* A header must stay below the eager limit of every MPI: Open MPI's shared memory takes 4096 bytes, its own
 * header included. */
enum { PLAIT_MPI_MESSAGE_BYTES = 4032, PLAIT_MPI_MAGIC = 0x706c6169 };

/* Where the bytes of a transfer are. */
enum {
    PLAIT_MPI_AT_SENDER, /* at the sender: asked for */
    PLAIT_MPI_INLINE,    /* behind the header */
    PLAIT_MPI_IN_PIECES, /* already on their way, in messages as long as a header's */
    PLAIT_MPI_OFFERED,   /* in a device's memory; their place is behind the header */
    PLAIT_MPI_STAGED     /* in a device's memory: asked for, and come in chunks */
};

/* What a receiver asks for. */
enum {
    PLAIT_MPI_SEND_NOTHING,
    PLAIT_MPI_SEND_WHOLE, /* in messages as long as possible */
    PLAIT_MPI_SEND_CHUNKS /* of staged.h */
};

typedef struct {
    uint32_t magic;
    uint32_t number; /* the sender's number of the transfer */
    int64_t n_bytes;
    plait_content_t content;
    int32_t form; /* PLAIT_MPI_AT_SENDER, ... */
} plait_mpi_header_t;

enum {
    PLAIT_MPI_INLINE_BYTES = PLAIT_MPI_MESSAGE_BYTES - sizeof(plait_mpi_header_t),
    PLAIT_MPI_MAX_PIECES = PLAIT_SEND_BYTES / PLAIT_MPI_MESSAGE_BYTES + 1
};

typedef struct {
    plait_mpi_header_t header;
    char payload[PLAIT_MPI_INLINE_BYTES];
} plait_mpi_message_t;

typedef struct {
    uint32_t magic;
    uint32_t number;
    int32_t status;  /* verdict: the sender ends with it */
    int32_t send_it; /* PLAIT_MPI_SEND_NOTHING, ... */
    int64_t n_bytes; /* what the receiver expected */
    plait_content_t content;
    int32_t rank;
    plait_receipt_t receipt; /* for what was offered and taken */
} plait_mpi_answer_t;

/* Requests of a transfer, receives first. */
enum {
    PLAIT_MPI_HEADER_IN,
    PLAIT_MPI_ANSWER_IN,
    PLAIT_MPI_BULK_IN,
    PLAIT_MPI_HEADER_OUT,
    PLAIT_MPI_ANSWER_OUT,
    PLAIT_MPI_BULK_OUT,
    PLAIT_MPI_PIECES_OUT,
    PLAIT_MPI_N_REQUESTS = PLAIT_MPI_PIECES_OUT + PLAIT_MPI_MAX_PIECES,
    PLAIT_MPI_N_RECEIVES = PLAIT_MPI_HEADER_OUT
};

/* Stages of either half: it awaits the header or the answer; bulk data are under way; its own last message is
 * under way. */
typedef enum {
    PLAIT_MPI_AWAITS,
    PLAIT_MPI_MOVES_BULK,
    PLAIT_MPI_CLOSES,
    PLAIT_MPI_ENDED
} plait_mpi_stage_t;

/* One call of sendrecv, or a buffered send after its call. */
struct plait_mpi_transfer {
    struct plait_mpi_transfer *next; /* among idle or buffered transfers */
    plait_mpi_link_t *link;
    const plait_half_t *send; /* NULL: nothing to send */
    const plait_half_t *recv;
    plait_half_t buffered; /* `send` of a buffered send points to this */
    char *
        copy; /* PLAIT_SEND_BYTES, once needed: a buffered send's data, or refused pieces */
    plait_mpi_stage_t send_stage;
    plait_mpi_stage_t recv_stage;
    plait_status_t status; /* the first failure */
    char why[512];         /* its text: another thread may report it */
    bool is_active[PLAIT_MPI_N_REQUESTS];
    uint64_t requests[PLAIT_MPI_N_REQUESTS];
    int64_t n_sent; /* bulk bytes that have been sent */
    char *bulk_in;  /* place of bulk without a parcel; how much, in what messages */
    int64_t n_received, n_bulk_in, bulk_chunk;
    bool is_in_chunks;         /* bulk data that come */
    plait_mpi_envelope_t from; /* of the header that came */
    plait_mpi_envelope_t bulk; /* of the bulk that came last */
    plait_mpi_answer_t answer_in;
    plait_mpi_answer_t answer_out;
    plait_mpi_message_t out;
    plait_mpi_message_t in;
};

/* An idle transfer, or a new one; NULL: no memory. */
plait_mpi_transfer_t *plait_mpi_transfer_take(plait_mpi_link_t *link);
void plait_mpi_transfer_give(plait_mpi_transfer_t *transfer);

void plait_mpi_transfer_reset(plait_mpi_transfer_t *t, plait_mpi_link_t *link,
                              const plait_half_t *send, const plait_half_t *recv);

/* The next number that no other send of the link has in its tags. */
plait_status_t plait_mpi_number_take(plait_mpi_link_t *link, uint32_t *number_p);

/* For a send whose receiver has answered and has everything. A send that ends in another way keeps its number:
 * later messages of its receiver would be taken for those of the next send with this number. */
void plait_mpi_number_give(plait_mpi_link_t *link, uint32_t number);

/* Makes sure that it has its own PLAIT_SEND_BYTES; false: no memory. */
bool plait_mpi_transfer_has_copy(plait_mpi_transfer_t *t);

plait_status_t plait_mpi_check_half(const plait_mpi_link_t *link,
                                    const plait_half_t *half, bool is_recv);

/* Posts the first messages of the sending half. A failure ends the half. */
void plait_mpi_start_send(plait_mpi_transfer_t *t);

/* One step of the sending half, if what it waits for is there; whether it was. */
bool plait_mpi_advance_send(plait_mpi_transfer_t *t);

/* Whether the messages that the sending half sent unasked (header and pieces) have left. */
plait_status_t plait_mpi_poll_out(plait_mpi_transfer_t *t, bool *is_done_p);

/* After a failure: active requests come to an end, or the link is stuck. */
void plait_mpi_end_requests(plait_mpi_transfer_t *t);

#endif
