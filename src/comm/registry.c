#include "comm/registry.h"

#include "base/alloc.h"
#include "base/status.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Ids count up; an entry of a freed communicator stays, for its message. Two levels, so that
 * look-ups need no lock while the table grows. */
enum { PAGE = 256, N_PAGES = 256 };

typedef struct {
    int n; /* handles: 1, or one per device; 0 after a free */
    bool is_by_device;
    plait_comm_t **comms;
    int32_t *ordinals;
    char label[96];
} entry_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(entry_t *) *pages[N_PAGES];
static int64_t next_id = 1;

static _Atomic(entry_t *) *place_of(int64_t id)
{
    bool is_in_range = id > 0 && id < (int64_t)PAGE * N_PAGES;

    return (is_in_range && pages[id / PAGE] != NULL) ? &pages[id / PAGE][id % PAGE]
                                                     : NULL;
}

static const entry_t *entry_of(int64_t id)
{
    _Atomic(entry_t *) *place = place_of(id);

    return (place != NULL) ? atomic_load_explicit(place, memory_order_acquire) : NULL;
}

plait_status_t plait_registry_find(int64_t id, int32_t ordinal, plait_comm_t **comm_p)
{
    plait_status_t status = PLAIT_OK;
    const entry_t *entry = entry_of(id);
    plait_comm_t *comm = NULL;

    PLAIT_CHECK(entry != NULL, PLAIT_ERR_COMM,
                "communicator #%lld is unknown to this process", (long long)id);
    PLAIT_CHECK(entry->n > 0, PLAIT_ERR_COMM,
                "communicator #%lld (made at %s) was freed", (long long)id,
                entry->label);
    if (!entry->is_by_device) {
        comm = entry->comms[0];
    }
    for (int i = 0; i < entry->n && comm == NULL; i++) {
        comm = (entry->ordinals[i] == ordinal) ? entry->comms[i] : NULL;
    }
    PLAIT_CHECK(comm != NULL, PLAIT_ERR_COMM,
                "device %d is no rank of communicator #%lld (made at %s)", ordinal,
                (long long)id, entry->label);
    PLAIT_TRY(plait_comm_usable(comm));
    *comm_p = comm;
done:
    return status;
}

bool plait_registry_is_by_device(int64_t id)
{
    const entry_t *entry = entry_of(id);

    return entry != NULL && entry->is_by_device;
}

static void entry_destroy(entry_t *entry)
{
    if (entry != NULL) {
        for (int i = 0; i < entry->n; i++) {
            plait_comm_destroy(&entry->comms[i]);
        }
        plait_free(entry->comms);
        plait_free(entry->ordinals);
        plait_free(entry);
    }
}

static entry_t *entry_create(int n, const char *label)
{
    entry_t *entry = plait_alloc(1, sizeof(*entry));

    if (entry != NULL) {
        (void)snprintf(entry->label, sizeof(entry->label), "%s", label);
        entry->comms = plait_alloc(n, sizeof(plait_comm_t *));
        entry->ordinals = plait_alloc(n, sizeof(int32_t));
        if (entry->comms == NULL || entry->ordinals == NULL) {
            entry_destroy(entry);
            entry = NULL;
        }
    }
    return entry;
}

/* Takes the entry; its handles learn their id. */
static plait_status_t put(entry_t *entry, int64_t id)
{
    plait_status_t status = PLAIT_OK;

    (void)pthread_mutex_lock(&mutex);
    PLAIT_CHECK(id < (int64_t)PAGE * N_PAGES, PLAIT_ERR_NO_MEMORY,
                "more than %d communicators", PAGE * N_PAGES - 1);
    if (pages[id / PAGE] == NULL) {
        pages[id / PAGE] = plait_alloc(PAGE, sizeof(*pages[0]));
        PLAIT_CHECK(pages[id / PAGE] != NULL, PLAIT_ERR_NO_MEMORY,
                    "no memory for the registry");
    }
    for (int i = 0; i < entry->n; i++) {
        entry->comms[i]->id = id;
        entry->comms[i]->track = entry->is_by_device ? entry->ordinals[i] : 0;
        (void)snprintf(entry->comms[i]->label, sizeof(entry->label), "%s",
                       entry->label);
    }
    atomic_store_explicit(&pages[id / PAGE][id % PAGE], entry, memory_order_release);
    next_id = (id >= next_id) ? id + 1 : next_id;
done:
    (void)pthread_mutex_unlock(&mutex);
    return status;
}

static int64_t peek_id(void)
{
    (void)pthread_mutex_lock(&mutex);
    int64_t id = next_id;
    (void)pthread_mutex_unlock(&mutex);
    return id;
}

plait_status_t plait_registry_add_self(const char *label, int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    entry_t *entry = entry_create(1, label);
    int64_t id = peek_id();

    PLAIT_CHECK(entry != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    PLAIT_TRY(plait_comm_self(&entry->comms[0]));
    entry->n = 1;
    PLAIT_TRY(put(entry, id));
    entry = NULL;
    *id_p = id;
done:
    entry_destroy(entry);
    return status;
}

/* Makes the communicator of the devices in the group of device `first`. `handles` has room
 * for all devices. */
static plait_status_t open_group(entry_t *entry, const int32_t groups[], int first,
                                 plait_comm_t *handles[])
{
    plait_status_t status = PLAIT_OK;
    int n_members = 0, n_placed = 0;

    for (int i = first; i < entry->n; i++) {
        n_members += groups[i] == groups[first];
    }
    PLAIT_TRY(plait_comm_threads(n_members, handles));
    for (int i = first; i < entry->n; i++) {
        if (groups[i] == groups[first]) {
            entry->comms[i] = handles[n_placed++];
            entry->comms[i]->end.caps.has_company = n_members < entry->n;
        }
    }
done:
    return status;
}

plait_status_t plait_registry_add_local_groups(int n, const int32_t ordinals[],
                                               const int32_t groups[],
                                               const char *label, int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    entry_t *entry = NULL;
    plait_comm_t **handles = NULL;
    int64_t id = peek_id();

    PLAIT_CHECK(n >= 1, PLAIT_ERR_INVALID, "a communicator over %d devices", n);
    entry = entry_create(n, label);
    handles = plait_alloc(n, sizeof(*handles));
    PLAIT_CHECK(entry != NULL && handles != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for a communicator");
    entry->is_by_device = true;
    entry->n = n;
    memcpy(entry->ordinals, ordinals, (size_t)n * sizeof(*ordinals));
    for (int i = 0; i < n; i++) {
        if (entry->comms[i] == NULL) {
            PLAIT_TRY(open_group(entry, groups, i, handles));
        }
    }
    PLAIT_TRY(put(entry, id));
    entry = NULL;
    *id_p = id;
done:
    plait_free(handles);
    entry_destroy(entry);
    return status;
}

plait_status_t plait_registry_add_local(int n, const int32_t ordinals[],
                                        const char *label, int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    int32_t *groups = plait_alloc(n, sizeof(*groups)); /* all zero: one group */

    PLAIT_CHECK(groups != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    PLAIT_TRY(plait_registry_add_local_groups(n, ordinals, groups, label, id_p));
done:
    plait_free(groups);
    return status;
}

plait_status_t plait_registry_add_mpi(uint64_t mpi_comm_bits, int size, int rank,
                                      const char *label, int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    entry_t *entry = entry_create(1, label);
    int64_t id = peek_id();

    PLAIT_CHECK(entry != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    PLAIT_TRY(
        plait_comm_open_mpi(mpi_comm_bits, size, rank, label, &id, &entry->comms[0]));
    entry->n = 1;
    PLAIT_TRY(put(entry, id));
    entry = NULL;
    *id_p = id;
done:
    entry_destroy(entry);
    return status;
}

/* The entry itself stays for its label: a few dozen bytes. */
plait_status_t plait_registry_free(int64_t id)
{
    plait_status_t status = PLAIT_OK;
    _Atomic(entry_t *) *place = place_of(id);
    entry_t *entry = (place != NULL) ? atomic_load(place) : NULL;

    PLAIT_CHECK(entry != NULL && entry->n > 0, PLAIT_ERR_COMM,
                "communicator #%lld is unknown or was freed before", (long long)id);
    int n = entry->n;
    entry->n = 0;
    for (int i = 0; i < n; i++) {
        plait_comm_destroy(&entry->comms[i]);
    }
done:
    return status;
}

plait_comm_t *plait_registry_comm(int64_t id)
{
    const entry_t *entry = entry_of(id);

    return (entry != NULL && entry->n > 0) ? entry->comms[0] : NULL;
}
