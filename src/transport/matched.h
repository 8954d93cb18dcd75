/* What transports share about matched transfers: the verdict on a message, and where its source and tag are
 * reported.
 *
 * Source and tag of a received message are reported in the caller's MPI_Status objects. Compiled programs know
 * such an object by a small id: with an address in it, ranks would compile different programs. */
#ifndef PLAIT_TRANSPORT_MATCHED_H
#define PLAIT_TRANSPORT_MATCHED_H

#include "transport/transport.h"

/* The verdict on a message of so many bytes for the receiving half. */
static inline plait_status_t plait_matched_judge(int64_t n_bytes,
                                                 plait_content_t content,
                                                 int64_t n_expected,
                                                 plait_content_t expected)
{
    if (n_bytes > n_expected) {
        return PLAIT_ERR_TRUNCATION;
    }
    return (n_bytes < n_expected || content != expected) ? PLAIT_ERR_MISMATCH
                                                         : PLAIT_OK;
}

/* The content of a half whose rank has a failed device, as its partner sees it: no length and another dtype, so
 * that the half is refused, or refuses what it is sent. */
static inline plait_content_t plait_matched_refusing(plait_content_t content)
{
    return (content == PLAIT_U8) ? PLAIT_S8 : PLAIT_U8;
}

/* A note on arrays that have one dtype and length but still differ. */
static inline const char *plait_matched_note(plait_content_t sent,
                                             plait_content_t expected)
{
    return (sent != expected &&
            plait_content_dtype(sent) == plait_content_dtype(expected))
               ? ", of other arrays that were joined"
               : "";
}

/* A message and what its receiver expects; in arrays: sent, expected. */
typedef struct {
    int source, dest, tag;
    int64_t n_bytes[2];
    plait_content_t contents[2];
    const plait_peer_t *partner; /* of this rank; NULL: unknown */
} plait_matched_fault_t;

/* Records the text of a verdict other than OK, and what the partner is seen to run, and returns the verdict.
 * The text is the same on both sides. */
plait_status_t plait_matched_fail(plait_status_t verdict,
                                  const plait_matched_fault_t *fault);

/* Writes a matched message into an MPI_Status of the bound MPI. */
typedef void (*plait_status_fill_t)(void *mpi_status, const plait_matched_t *matched);

void plait_matched_set_fill(plait_status_fill_t fill);

/* mpi_status is kept until the process ends or plait_matched_forget; ids start at 1. */
PLAIT_EXPORT plait_status_t plait_matched_keep(void *mpi_status, int64_t *id_p);
PLAIT_EXPORT void plait_matched_forget(int64_t id);

void plait_matched_report(int64_t id, const plait_matched_t *matched);

#endif
