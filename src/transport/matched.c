#include "transport/matched.h"

#include "base/status.h"
#include "base/trace.h"

#include <pthread.h>
#include <stddef.h>

enum { ROOM = 1024 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *kept[ROOM];
static plait_status_fill_t fill_status;

plait_status_t plait_matched_fail(plait_status_t verdict,
                                  const plait_matched_fault_t *fault)
{
    const plait_flight_entry_t *mine = plait_trace_current();
    char theirs[240] = "";

    if (fault->partner != NULL && mine != NULL) {
        plait_process_call(&fault->partner->process, fault->partner->track, mine->comm,
                           theirs, (int)sizeof(theirs));
    }
    return plait_fail(
        verdict,
        "message from rank %d to rank %d with tag %d: it has %lld bytes of %s, the "
        "receiver expects %lld bytes of %s%s%s%s",
        fault->source, fault->dest, fault->tag, (long long)fault->n_bytes[0],
        plait_dtype_name(plait_content_dtype(fault->contents[0])),
        (long long)fault->n_bytes[1],
        plait_dtype_name(plait_content_dtype(fault->contents[1])),
        plait_matched_note(fault->contents[0], fault->contents[1]),
        (theirs[0] != '\0') ? "; the partner is in " : "", theirs);
}

void plait_matched_set_fill(plait_status_fill_t fill)
{
    fill_status = fill;
}

plait_status_t plait_matched_keep(void *mpi_status, int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t id = 0;

    (void)pthread_mutex_lock(&mutex);
    for (int64_t i = 1; i < ROOM && id == 0; i++) {
        if (kept[i] == NULL || kept[i] == mpi_status) {
            kept[i] = mpi_status;
            id = i;
        }
    }
    (void)pthread_mutex_unlock(&mutex);
    PLAIT_CHECK(id != 0, PLAIT_ERR_NO_MEMORY, "more than %d status objects are in use",
                ROOM - 1);
    *id_p = id;
done:
    return status;
}

void plait_matched_forget(int64_t id)
{
    (void)pthread_mutex_lock(&mutex);
    if (id > 0 && id < ROOM) {
        kept[id] = NULL;
    }
    (void)pthread_mutex_unlock(&mutex);
}

void plait_matched_report(int64_t id, const plait_matched_t *matched)
{
    (void)pthread_mutex_lock(&mutex);
    if (id > 0 && id < ROOM && kept[id] != NULL && fill_status != NULL) {
        fill_status(kept[id], matched);
    }
    (void)pthread_mutex_unlock(&mutex);
}
