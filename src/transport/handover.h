/* An exchange in which receivers copy from their senders' memory on their own streams. Ranks tell each other
 * where the data are and which event says that they are ready, and later that the data were taken. Threads
 * meet for this, devices do not: no thread waits for a stream. */
#ifndef PLAIT_TRANSPORT_HANDOVER_H
#define PLAIT_TRANSPORT_HANDOVER_H

#include "transport/device_link.h"

typedef struct {
    /* Fills the offer of a message of this rank's; may enqueue work. */
    plait_status_t (*offer)(plait_device_run_t *run, const plait_message_t *message,
                            plait_offer_t *offer);

    /* Records this rank's event that says that all it offers is there. */
    plait_status_t (*ready)(plait_device_run_t *run);

    /* Enqueues the copy of what a peer has offered, and what must come before it. */
    plait_status_t (*take)(plait_device_run_t *run, int peer,
                           const plait_offer_t *offer, void *dst, int64_t n_bytes);

    /* Records the one that says that it has taken all, and gives it in a word; and the stream goes on
     * after a peer's, or, where it cannot, this thread. */
    plait_status_t (*receipt)(plait_device_run_t *run, uint64_t *word_p);
    plait_status_t (*settle)(plait_device_run_t *run, int peer, uint64_t word);

    /* After everything, also where something failed. NULL: nothing. */
    void (*finish)(plait_device_run_t *run);
} plait_handover_t;

/* Records an event of this rank's after its record before, which may be on another stream: records come in
 * their order, and who waits for the last one waits for all. */
plait_status_t plait_handover_record(const plait_device_run_t *run,
                                     plait_event_t *event, bool *is_recorded);

/* As a link's exchange. */
plait_status_t plait_handover(plait_device_run_t *run, const plait_handover_t *by,
                              int n_sends, const plait_message_t sends[], int n_recvs,
                              const plait_message_t recvs[]);

#endif
