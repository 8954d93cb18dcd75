/* What a rank does, as another rank sees it. */
#ifndef PLAIT_GUARD_SIGHT_H
#define PLAIT_GUARD_SIGHT_H

#include "base/process.h"
#include "transport/transport.h"

/* A waiting rank shows it by its beat, at least every 50 ms; on a busy machine later. */
#define PLAIT_GUARD_BEAT_NS INT64_C(400000000)

typedef enum {
    PLAIT_SIGHT_NONE,  /* cannot be seen from here */
    PLAIT_SIGHT_RUNS,  /* in its program, in none of plait's waits */
    PLAIT_SIGHT_WAITS, /* in an operation */
    PLAIT_SIGHT_ENDED, /* left its program, or MPI, and perhaps waits for others in MPI_Finalize */
    PLAIT_SIGHT_RAISED,
    PLAIT_SIGHT_GONE
} plait_sight_kind_t;

typedef struct {
    plait_sight_kind_t kind;
    const plait_process_t *process;
    uint64_t n_operations;     /* begun, on all communicators */
    bool has_given_up;         /* the communicator asked for */
    uint32_t n_done;           /* collectives that are over on that communicator */
    bool knows_done;           /* n_done is exact: nothing was overwritten */
    plait_flight_entry_t last; /* latest of all operations; number 0: none */
    plait_flight_entry_t here; /* latest on the communicator; number 0: none */
    plait_flight_entry_t
        waits; /* WAITS: the operation that waits, on the communicator if there is one */
    char why[256];   /* RAISED */
    int making_size; /* of the communicator that one of its threads makes; 0: none does */
    int64_t making_ns; /* since */
} plait_sight_t;

/* Looks at a rank of communicator `comm`. */
void plait_guard_see(const plait_peer_t *peer, int64_t comm, plait_sight_t *sight);

/* The same for a process that was found before. */
void plait_guard_see_process(const plait_process_t *process, int track, int64_t comm,
                             plait_sight_t *sight);

/* One line of the wait table about a rank. */
void plait_guard_say(const plait_sight_t *sight, int rank, char *text, int n_bytes);

#endif
