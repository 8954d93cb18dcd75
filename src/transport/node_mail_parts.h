/* Shared by the files of the mail: see node_mail.h. */
#ifndef PLAIT_TRANSPORT_NODE_MAIL_PARTS_H
#define PLAIT_TRANSPORT_NODE_MAIL_PARTS_H

#include "transport/matched.h"
#include "transport/mpi_link.h"
#include "transport/node_mail.h"

enum { PLAIT_CELL_BYTES = 64, PLAIT_NO_ANSWER = 0xffff, PLAIT_NOTHING = -1 };

typedef enum {
    PLAIT_MAIL_INLINE = 1, /* the bytes follow the header */
    PLAIT_MAIL_COPY,  /* in the sender's copy, read once the message leaves the ring */
    PLAIT_MAIL_AT,    /* in their own place until the answer */
    PLAIT_MAIL_PAD,   /* no message: fills the ring up to its end */
    PLAIT_MAIL_OFFER, /* in a device's memory; their place follows the header */
    PLAIT_MAIL_KIND_BITS = 3
} plait_mail_kind_t;

typedef struct {
    int32_t tag;
    plait_content_t content;
    int64_t n_bytes;
    uint64_t address; /* of the bytes that are not in the ring */
    /* The sender's answer cell, in 16 bits, if it waits for an answer, and the answer's number above them. */
    uint64_t answer;
    /* What the sender expects from this receiver in the same call; expects_bytes NOTHING: no message. */
    int64_t expects_bytes;
    int32_t expects_tag;
    plait_content_t expects_content;
} plait_mail_header_t;

enum { PLAIT_ANSWER_CELL_BITS = 16 };

static inline int plait_mail_answer_cell(const plait_mail_header_t *header)
{
    return (int)(header->answer & ((1U << PLAIT_ANSWER_CELL_BITS) - 1));
}

static inline uint64_t plait_mail_answer_number(const plait_mail_header_t *header)
{
    return header->answer >> PLAIT_ANSWER_CELL_BITS;
}

/* The start of a message in a ring, in as many cells of a cache line as its bytes need. */
typedef struct {
    _Atomic uint64_t first; /* number << KIND_BITS | kind; 0: nothing has come yet */
    plait_mail_header_t header;
    char bytes[];
} plait_mail_cell_t;

/* A message taken out of its ring. */
typedef struct plait_node_letter {
    plait_mail_kind_t kind;
    int source;
    plait_mail_header_t header;
    char *data; /* bytes from the ring or from a copy */
    struct plait_node_letter *next;
} plait_node_letter_t;

/* A receiving half that waits, on the stack of its call. A thread that delivers to it takes it out of the list
 * first; the call may look at is_done without the mutex. */
typedef struct plait_posted {
    const plait_half_t *recv;
    /* The message is here, but only the thread of the call may bring its bytes. */
    _Atomic bool has_come;
    plait_node_letter_t letter; /* if has_come */
    plait_offer_t offer;        /* and its offer, if it has one */
    bool is_wanted;             /* the bytes are wanted, and the sender knows */
    _Atomic bool is_done;
    plait_status_t status;
    plait_matched_t matched;
    plait_matched_fault_t fault;
    char text[160];              /* of a failure that is no verdict */
    plait_mail_header_t partner; /* the message's header: what its sender expects */
    struct plait_posted *next;
} plait_posted_t;

/* A message that this rank sent in a copy. */
typedef struct plait_mail_copy {
    int dest;
    uint64_t end; /* cell of the ring after the message */
    int64_t n_bytes;
    struct plait_mail_copy *next;
    char data[];
} plait_mail_copy_t;

/* Where a rank is in a ring to a dest. */
typedef struct {
    uint64_t n_cells;    /* written */
    uint64_t n_consumed; /* given back by the dest, as last seen */
    uint64_t number;     /* of the last message */
} plait_mail_place_t;

/* Where a rank is in a ring from a source: written under the mutex, read without it (plait_mail_has_come). */
typedef struct {
    _Atomic uint64_t n_cells; /* given back */
    _Atomic uint64_t number;  /* of the last message */
} plait_mail_taken_t;

struct plait_node_mail {
    plait_mpi_link_t *link;
    pthread_mutex_t mutex;
    int64_t inline_bytes; /* longest message in a ring */
    uint64_t ring_cells;
    plait_mail_place_t *out; /* by dest   */
    plait_mail_taken_t *in;  /* by source */
    plait_node_letter_t *letters;
    plait_node_letter_t **letters_end; /* place of the next letter */
    plait_posted_t *posted;
    plait_mail_copy_t *copies;
    int64_t copies_bytes;
    uint32_t answers_taken; /* one bit per cell */
    uint64_t n_answers;
};

/* One call of sendrecv. */
typedef struct {
    plait_node_mail_t *mail;
    const plait_half_t *send; /* NULL: nothing to send */
    bool is_buffered;         /* nobody waits for the verdict */
    bool is_written;
    bool is_sent;          /* there is nothing left to wait for */
    uint64_t end;          /* cell of the ring after the message */
    int answer;            /* cell, or NO_ANSWER */
    uint64_t number;       /* of the answer */
    bool has_brought;      /* the bytes that the receiver wanted */
    plait_posted_t posted; /* recv NULL: nothing to receive */
} plait_mail_call_t;

static inline plait_node_ring_t *plait_mail_ring(const plait_node_mail_t *mail,
                                                 int from, int to)
{
    return plait_node_ring(&mail->link->segment, from, to);
}

static inline plait_mail_cell_t *plait_mail_cell(const plait_node_mail_t *mail,
                                                 plait_node_ring_t *ring, uint64_t n)
{
    void *cell = ring->cells + n % mail->ring_cells * PLAIT_CELL_BYTES;

    return cell;
}

static inline uint64_t plait_mail_cells_of(int64_t n_bytes)
{
    return (sizeof(plait_mail_cell_t) + (uint64_t)n_bytes + PLAIT_CELL_BYTES - 1) /
           PLAIT_CELL_BYTES;
}

static inline void plait_mail_wake(const plait_node_mail_t *mail, int rank)
{
    plait_bell_ring(&plait_node_rank(&mail->link->segment, rank)->bell);
}

static inline uint64_t plait_mail_word(uint64_t number, int state)
{
    return number << PLAIT_ANSWER_STATE_BITS | (uint64_t)state;
}

static inline plait_node_answer_t *plait_mail_answer(const plait_node_mail_t *mail,
                                                     int rank, int cell)
{
    return &plait_node_rank(&mail->link->segment, rank)->answers[cell];
}

/* All functions below are called under the mutex. */

/* Puts the call's message into its ring, in the way that suits its size; false: no room yet. */
bool plait_mail_write(plait_mail_call_t *call);

/* Frees copies whose messages have left their rings. */
void plait_mail_release(plait_node_mail_t *mail);

/* Whether a source's next message is in its ring; also without the mutex, as a hint. */
bool plait_mail_has_come(const plait_node_mail_t *mail, int source);

/* Takes the message in: gives it to the half that waits for it, or puts it aside. */
plait_status_t plait_mail_take(plait_node_mail_t *mail, int source);

/* Finds a message that was put aside for this half. If there is none, the half waits, until it gets its message
 * or unpost takes it out of the list. */
void plait_mail_post(plait_node_mail_t *mail, plait_posted_t *posted);
void plait_mail_unpost(plait_node_mail_t *mail, const plait_posted_t *posted);

/* ---- without the mutex, by the thread of the call, of a half whose message has come ---- */

/* Whether plait_mail_fetch gets further now. */
bool plait_mail_can_fetch(const plait_node_mail_t *mail, const plait_posted_t *posted);

/* Brings the message to its place, and answers; or says that its bytes are wanted. */
void plait_mail_fetch(plait_node_mail_t *mail, plait_posted_t *posted);

/* The call has failed: the sender gets a refusal. */
void plait_mail_refuse(plait_node_mail_t *mail, plait_posted_t *posted);

#endif
