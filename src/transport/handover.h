/* An exchange in which receivers copy from their senders' memory on their own streams. Ranks tell each other
 * where the data are and which event says that they are ready, and later that the data were taken. Threads
 * meet for this, devices do not: no thread waits for a stream. */
#ifndef PLAIT_TRANSPORT_HANDOVER_H
#define PLAIT_TRANSPORT_HANDOVER_H

#include "transport/device_link.h"

typedef struct {
    /* Fills the offer of a message that this rank sends; may enqueue work. */
    plait_status_t (*offer)(plait_device_run_t *run, const plait_message_t *message,
                            plait_offer_t *offer);

    /* Records this rank's event, which says that everything it offers is there. */
    plait_status_t (*ready)(plait_device_run_t *run);

    /* Enqueues the copy of a message that a peer has offered, and what must come before the copy. */
    plait_status_t (*take)(plait_device_run_t *run, int peer,
                           const plait_offer_t *offer, void *dst, int64_t n_bytes);

    /* `receipt` records this rank's event, which says that it has taken everything, and returns it in a word.
     * `settle` lets the stream go on after a peer's event or, if it cannot wait, this thread. */
    plait_status_t (*receipt)(plait_device_run_t *run, uint64_t *word_p);
    plait_status_t (*settle)(plait_device_run_t *run, int peer, uint64_t word);

    /* Called last, also after a failure. NULL: nothing to do. */
    void (*finish)(plait_device_run_t *run);
} plait_handover_t;

/* Records an event of this rank after its last record, which may be on another stream. So records come in
 * order, and a wait for the last record is a wait for all. */
plait_status_t plait_handover_record(const plait_device_run_t *run,
                                     plait_event_t *event, bool *is_recorded);

/* Like a link's exchange. */
plait_status_t plait_handover(plait_device_run_t *run, const plait_handover_t *by,
                              int n_sends, const plait_message_t sends[], int n_recvs,
                              const plait_message_t recvs[]);

#endif
