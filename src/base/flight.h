/* The flight recorder: the last operations of each rank of this process, in a file that survives the process
 * if it is killed. It is always on. Only trace.c uses it, and process.c, which tells other processes where
 * it is. */
#ifndef PLAIT_BASE_FLIGHT_H
#define PLAIT_BASE_FLIGHT_H

#include "base/record.h"

#define PLAIT_TEXT_BYTES ((int64_t)1 << 20)
#define PLAIT_FLIGHT_TEXTS \
    (PLAIT_RECORD_HEADER_BYTES + PLAIT_RINGS * (int64_t)sizeof(plait_ring_t))
#define PLAIT_FLIGHT_BYTES (PLAIT_FLIGHT_TEXTS + PLAIT_TEXT_BYTES)

/* Once, before the other functions. Without a file the recorder is in memory. */
void plait_flight_open(void);

/* The ring of a rank; never NULL. */
plait_ring_t *plait_flight_ring(int track);

/* A text's number; the same text has the same number. 0: empty, or no room. */
uint32_t plait_flight_text(const char *text);
const char *plait_flight_text_at(uint32_t number);

/* The file; its header is NULL if there is not even memory. */
plait_record_file_t *plait_flight_file(void);

/* In a forked child: nothing that it does is recorded. */
void plait_flight_forget(void);

/* Whether the last operation of every rank ended well. */
bool plait_flight_is_well(void);

#endif
