/* The only record of executed operations. Every operation leaves an entry in the flight recorder, which has
 * a ring for each rank of the process in a file that outlives the process (base/record.h). Two logs copy
 * each entry while they are on: the trace, a file named by PLAIT_TRACE, and a log in memory with which tests
 * observe program order. */
#ifndef PLAIT_BASE_TRACE_H
#define PLAIT_BASE_TRACE_H

#include "base/record.h"
#include "plait/status.h"

#include <stdbool.h>
#include <stdint.h>

/* What is known when an operation begins. */
typedef struct {
    uint32_t title; /* of plait_trace_text */
    int64_t comm;
    uint32_t sequence; /* on this communicator */
    int rank;
    int track; /* which of the ranks of this process; 0 if it has one */
    int peer;  /* root or partner; -1 */
    bool is_collective;
    bool is_started;        /* plait.start: the program goes on meanwhile */
    uint32_t n_collectives; /* on this communicator, including this one */
    int64_t n_bytes;
} plait_trace_call_t;

/* Filled only while plait_trace_is_timed(). */
typedef struct {
    int64_t start_ns, end_ns; /* monotonic */
    int64_t wait_ns; /* for peers: fences, messages, the transport's collectives */
    int64_t copy_ns; /* moving, reducing and computing */
} plait_trace_times_t;

/* The number of a text; made once, for all operations that have this text. */
uint32_t plait_trace_text(const char *text);

/* A new entry, under way from now on. Never NULL. Takes 18 ns together with plait_trace_end, of which 6 for the
 * time. */
plait_flight_entry_t *plait_trace_begin(const plait_trace_call_t *call);

/* Ends an entry. times: NULL if not timed. */
void plait_trace_end(plait_flight_entry_t *entry, const plait_trace_times_t *times,
                     plait_status_t status);

/* The operation that this thread runs; NULL: none. */
plait_flight_entry_t *plait_trace_current(void);

/* This process takes no further part in operations on this communicator, where others may wait for it. */
void plait_trace_give_up(int64_t comm);

/* This thread makes a communicator of n_ranks ranks, and may wait for them; 0: no longer. */
void plait_trace_make(int n_ranks);

/* The exception that ends this process, shown to those who wait for it. */
PLAIT_EXPORT void plait_trace_set_why(const char *why);

/* Whether somebody wants times or lines now: one load. */
bool plait_trace_is_timed(void);

/* Lines on standard output before and after each operation, first set by PLAIT_DEBUG. */
PLAIT_EXPORT void plait_trace_set_lines(int is_on);
PLAIT_EXPORT int plait_trace_has_lines(void);

/* This process's rank in the whole job, for readers of the files. */
PLAIT_EXPORT void plait_trace_set_world(int rank, int size);

/* A name that is equal on all ranks of the job, and different from the names of other jobs. */
PLAIT_EXPORT void plait_trace_set_job(const char *job);

/* This process's clock plus the offset is rank 0's clock; measured between nodes. */
PLAIT_EXPORT void plait_trace_set_offset(int64_t offset_ns);

/* Whether this process has records: there were operations, or somebody asked for a record. */
PLAIT_EXPORT int plait_trace_is_open(void);

/* The name of the part of the trace that this process writes; "" if it writes none. */
PLAIT_EXPORT const char *plait_trace_part(void);

/* Header of the flight recorder in this process's memory, and its path; "" if it has none. */
PLAIT_EXPORT const void *plait_trace_flight(int64_t *n_bytes_p);
PLAIT_EXPORT const char *plait_trace_flight_path(void);

/* The process ends: closes the files, and removes the flight recorder's file if all went well. */
PLAIT_EXPORT void plait_trace_close(int is_well);

/* The process takes part in nothing more that others wait for, but may go on: others see that. Files stay
 * open. */
void plait_trace_leave(void);

/* The log in memory: empties and starts it (1), or stops it (0). */
PLAIT_EXPORT void plait_trace_start(int is_on);

/* Number of entries since the start; entries beyond the room of the log are lost. */
PLAIT_EXPORT int plait_trace_count(void);

/* Entry i as text "thread rank status title"; empty if there is none. Writes n_bytes at most. */
PLAIT_EXPORT void plait_trace_read(int i, char *text, int n_bytes);

#endif
