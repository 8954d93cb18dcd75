/* Files of entries about executed operations. They are mapped into memory, so that everything written
 * survives however the process ends. Python reads them (python/plait/_record.py declares the same
 * structures).
 *
 * A flight recorder has a header, PLAIT_RINGS rings, and texts. Part of a trace has a header and one entry
 * per operation. */
#ifndef PLAIT_BASE_RECORD_H
#define PLAIT_BASE_RECORD_H

#include "base/site.h"
#include "plait/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { PLAIT_TITLE_BYTES = 112, PLAIT_RING_ROOM = 256, PLAIT_RINGS = 64 };
enum { PLAIT_RECORD_VERSION = 2, PLAIT_RECORD_HEADER_BYTES = 4096 };
enum { PLAIT_STATUS_UNDER_WAY = -1, PLAIT_GIVEN_UP_ROOM = 16 };
enum { PLAIT_RECORD_CLOSED = -1 }; /* instead of a file */

/* An operation in a flight recorder: one cache line, and another that only slow waits touch. */
typedef struct {
    _Atomic uint64_t number; /* from 1, in order of begin; 0: none, or half written */
    int64_t start_ns;        /* monotonic, to the kernel's tick */
    int64_t n_bytes;
    int32_t comm;
    uint32_t sequence; /* on this communicator */
    int32_t rank;
    int16_t track;
    uint8_t is_collective; /* all ranks of the communicator take part */
    uint8_t is_started;    /* the program goes on meanwhile */
    int32_t peer;
    int32_t thread;
    uint32_t title; /* texts: offsets behind the header's text_offset */
    uint32_t where;
    _Atomic int32_t status; /* plait_status_t, or PLAIT_STATUS_UNDER_WAY */
    uint32_t n_collectives; /* on this communicator so far, including this one */

    _Atomic int64_t beat_ns; /* when it was last seen to wait; other times: not now */
    int64_t since_ns;        /* beginning of that wait */
    uint64_t agree, agree_some; /* of the plan, see transport.h */
    int32_t waits_for;          /* rank of the communicator, or -1 */
    uint8_t is_leaving; /* messages that it has sent to others are on their way */
    char unused[27];
} plait_flight_entry_t;

typedef struct {
    _Atomic uint64_t
        n; /* entries so far; number k is in place (k - 1) % PLAIT_RING_ROOM */
    char unused[56]; /* to a whole cache line */
    plait_flight_entry_t entries[PLAIT_RING_ROOM];
} plait_ring_t;

/* An operation in a trace, with its texts. */
typedef struct {
    _Atomic uint64_t number;  /* from 1; 0: none, or half written */
    int64_t start_ns, end_ns; /* monotonic */
    int64_t wait_ns, copy_ns;
    int64_t n_bytes;
    int32_t comm;
    uint32_t sequence;
    int32_t rank;
    int32_t track;
    int32_t peer;
    int32_t thread;
    int32_t status;
    int32_t is_collective;
    char title[PLAIT_TITLE_BYTES];
    char where[PLAIT_SITE_TEXT_BYTES + 8];
} plait_entry_t;

typedef enum {
    PLAIT_RECORD_RUNS,
    PLAIT_RECORD_ENDED_WELL,
    PLAIT_RECORD_FAILED
} plait_end_t;

typedef struct {
    char magic[8];
    int32_t version;
    int32_t header_bytes;
    int32_t entry_bytes;
    int32_t n_rings; /* 0: part of a trace */
    int32_t ring_room;
    int32_t text_offset; /* bytes from the start of the file; text 0 is empty */
    int32_t text_bytes;
    int32_t pid;
    int32_t rank; /* in the whole job; -1: unknown */
    int32_t size;
    _Atomic int32_t state; /* plait_end_t */
    int32_t has_offset;
    int64_t offset_ns; /* this clock + offset = rank 0's clock */
    int64_t wall_ns;   /* both clocks, read at the same time */
    int64_t start_ns;
    char clock[96]; /* equal if the monotonic clocks are the same */
    char host[64];
    char job[128]; /* equal on the ranks of a job */
    char program[256];
    uint64_t key; /* shows others that the file is the one they were told of */
    _Atomic uint32_t n_given_up;
    _Atomic int32_t given_up[PLAIT_GIVEN_UP_ROOM]; /* communicators, the last ones */
    _Atomic int32_t has_why;
    char why[256];               /* the exception that ends the process */
    _Atomic int32_t lacks_rings; /* some rings found no memory: not all is recorded */
    _Atomic int32_t n_making; /* threads that make a communicator; of the last one: */
    int32_t making_size;
    int64_t making_ns; /* since */
} plait_record_header_t;

typedef struct {
    plait_record_header_t *header; /* NULL: not open */
    int fd;
    int64_t room; /* bytes of address space, file and mapping */
    char path[512];
} plait_record_file_t;

/* Name of the i-th folder that may hold a flight recorder, in the order in which they are tried; false if there
 * are no more. Empty: the name is too long. PLAIT_FLIGHT names the only folder; if it is "0", "off" or "false",
 * there is none. */
PLAIT_EXPORT bool plait_record_folder(int i, char *path, int n_bytes);

/* A new file of this process, for `room` bytes at most, with its header. The file is locked as long as the
 * process lives. False if the file cannot be made (logged if the user asked for the file). A flight recorder
 * that has no folder is in memory, as a file without a name. */
bool plait_record_open_flight(plait_record_file_t *file, int64_t room);
bool plait_record_open_part(plait_record_file_t *file, const char *trace, int64_t room);

/* Makes sure that the bytes exist: touching them cannot fail afterwards. */
bool plait_record_reserve(plait_record_file_t *file, int64_t offset, int64_t n_bytes);

/* Ends the file; used: bytes to keep, 0: the file is removed. A forked child's copy is left alone. */
void plait_record_close(plait_record_file_t *file, plait_end_t end, int64_t used);

/* In a forked child: nothing that it writes from now on is kept. */
void plait_record_forget(plait_record_file_t *file);

/* Fills a header. */
void plait_record_begin(plait_record_header_t *header);

#endif
