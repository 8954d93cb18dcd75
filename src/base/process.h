/* The processes that this one communicates with, as far as they can be seen from here: whether they live,
 * and what they do, as read from their flight recorders (base/record.h). The processes themselves are not
 * asked. */
#ifndef PLAIT_BASE_PROCESS_H
#define PLAIT_BASE_PROCESS_H

#include "base/record.h"

#include <stdbool.h>
#include <stdint.h>

/* How one rank tells others of its process. */
typedef struct {
    int32_t pid;
    int32_t flight_fd; /* of its flight recorder, in that process; -1: it has none */
    uint64_t flight_key;
} plait_process_card_t;

typedef struct plait_process plait_process_t;

plait_process_card_t plait_process_card(void);

/* The process of a card, which may be this one; kept until this process ends. NULL: it cannot be seen (another
 * node, another user, a container). */
const plait_process_t *plait_process_find(const plait_process_card_t *card);

/* All processes found so far, one after the other: NULL gives the first, the last gives NULL. */
const plait_process_t *plait_process_next(const plait_process_t *process);

int32_t plait_process_pid(const plait_process_t *process);

/* A zombie is gone. */
bool plait_process_is_gone(const plait_process_t *process);

/* Reads the header, also after the process has gone. */
bool plait_process_header(const plait_process_t *process,
                          plait_record_header_t *header);

/* Copies the ring of a track to the caller's, 33 KiB; empty if the track has begun no operation. False if the
 * ring cannot be known. */
bool plait_process_ring(const plait_process_t *process, int track, plait_ring_t *ring);

/* A text of its recorder; "" if there is none. */
void plait_process_text(const plait_process_t *process, uint32_t number, char *text,
                        int n_bytes);

/* The last operation of the process on a communicator that has not ended well: "send(...) at a.py:3"; "" if
 * there is none. */
void plait_process_call(const plait_process_card_t *card, int track, int64_t comm,
                        char *text, int n_bytes);

/* Operation and line of an entry of its recorder. */
void plait_process_entry(const plait_process_t *process, const plait_flight_entry_t *e,
                         char *text, int n_bytes);

/* Time that the threads of the process have spent on processors; 0 if it cannot be read. */
int64_t plait_process_cpu_ns(const plait_process_t *process);

#endif
