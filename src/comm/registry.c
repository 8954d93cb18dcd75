#include "comm/registry.h"

#include "base/alloc.h"
#include "base/number.h"
#include "base/status.h"
#include "comm/mates.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Ids count up; the entry of a freed communicator stays, for its message. Two levels, so that look-ups need no
 * lock while the table grows. */
enum { PAGE = 1024, N_PAGES = 4096 };

typedef struct {
    int n; /* handles: 1, or one per device; 0 after a free */
    bool is_by_device;
    _Atomic uint32_t mark; /* 0: none */
    plait_comm_t **comms;
    int32_t *ordinals;
    char label[96];
} entry_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(entry_t *) *_Atomic pages[N_PAGES];

static _Atomic(entry_t *) *place_of(int64_t id)
{
    bool is_in_range = id > 0 && id < (int64_t)PAGE * N_PAGES;
    _Atomic(entry_t *) *page =
        is_in_range ? atomic_load_explicit(&pages[id / PAGE], memory_order_acquire)
                    : NULL;

    return (page != NULL) ? &page[id % PAGE] : NULL;
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

plait_status_t plait_registry_check_mark(int64_t id, uint32_t mark)
{
    plait_status_t status = PLAIT_OK;
    const entry_t *entry = entry_of(id);

    PLAIT_CHECK(entry == NULL || mark == 0 || entry->mark == mark, PLAIT_ERR_COMM,
                "communicator #%lld (made at %s) has other ranks than in the process "
                "that compiled the program; compile it in this process",
                (long long)id, entry->label);
done:
    return status;
}

plait_status_t plait_registry_set_mark(int64_t id, uint32_t mark)
{
    plait_status_t status = PLAIT_OK;
    _Atomic(entry_t *) *place = place_of(id);
    entry_t *entry = (place != NULL) ? atomic_load(place) : NULL;

    PLAIT_CHECK(entry != NULL, PLAIT_ERR_COMM,
                "communicator #%lld is unknown to this process", (long long)id);
    entry->mark = mark;
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

/* Takes the entry; its handles get their id. */
static plait_status_t put(entry_t *entry, int64_t id)
{
    plait_status_t status = PLAIT_OK;

    (void)pthread_mutex_lock(&mutex);
    PLAIT_CHECK(
        id < (int64_t)PAGE * N_PAGES, PLAIT_ERR_NO_MEMORY,
        "this process has made more than %d communicators; reuse them instead of "
        "making new ones",
        PAGE * N_PAGES - 1);
    _Atomic(entry_t *) *page =
        atomic_load_explicit(&pages[id / PAGE], memory_order_relaxed);
    if (page == NULL) {
        page = plait_alloc(PAGE, sizeof(*page));
        PLAIT_CHECK(page != NULL, PLAIT_ERR_NO_MEMORY, "no memory for the registry");
        atomic_store_explicit(&pages[id / PAGE], page, memory_order_release);
    }
    for (int i = 0; i < entry->n; i++) {
        entry->comms[i]->id = id;
        (void)snprintf(entry->comms[i]->label, sizeof(entry->label), "%s",
                       entry->label);
    }
    atomic_store_explicit(&page[id % PAGE], entry, memory_order_release);
done:
    (void)pthread_mutex_unlock(&mutex);
    return status;
}

plait_status_t plait_registry_add_self(const char *label, int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    entry_t *entry = entry_create(1, label);
    int64_t id = plait_number_take();

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

/* The devices of one group: their places, by rank, and those of this process. */
typedef struct {
    plait_comm_devices_t devices;
    plait_place_t *places;  /* of each rank; processes are numbered in the order in
                               which they come */
    int32_t *processes;     /* JAX's number of each */
    int32_t *ordinals;      /* of this process's devices */
    plait_comm_t **handles; /* and their handles         */
    int n_processes;
} group_t;

static void group_destroy(group_t *group)
{
    plait_free(group->places);
    plait_free(group->processes);
    plait_free(group->ordinals);
    plait_free(group->handles);
}

static plait_status_t group_create(int n, group_t *group)
{
    plait_status_t status = PLAIT_OK;

    *group = (group_t){.places = plait_alloc(n, sizeof(*group->places)),
                       .processes = plait_alloc(n, sizeof(*group->processes)),
                       .ordinals = plait_alloc(n, sizeof(*group->ordinals)),
                       .handles = plait_alloc(n, sizeof(plait_comm_t *))};
    PLAIT_CHECK(group->places != NULL && group->processes != NULL &&
                    group->ordinals != NULL && group->handles != NULL,
                PLAIT_ERR_NO_MEMORY, "no memory for a communicator of %d devices", n);
done:
    return status;
}

/* The position of the process in the group. */
static int number_process(group_t *group, int32_t process)
{
    int i = 0;

    while (i < group->n_processes && group->processes[i] != process) {
        i++;
    }
    if (i == group->n_processes) {
        group->processes[group->n_processes++] = process;
    }
    return i;
}

/* Fills the group with the devices that have this number. */
static void gather_group(int n, const plait_device_rank_t list[], int32_t here,
                         int32_t number, group_t *group)
{
    plait_comm_devices_t *devices = &group->devices;

    devices->n_ranks = 0;
    devices->n_members = 0;
    devices->n_here = 0;
    group->n_processes = 0;
    for (int i = 0; i < n; i++) {
        const plait_device_rank_t *device = &list[i];
        devices->n_here += device->process == here;
        if (device->group == number) {
            group->places[devices->n_ranks++] =
                (plait_place_t){number_process(group, device->process), device->track};
            if (device->process == here) {
                group->ordinals[devices->n_members++] = device->ordinal;
            }
        }
    }
    devices->places = group->places;
    devices->is_one_each = group->n_processes == devices->n_ranks;
}

/* If all ranks are of this process. */
static plait_status_t keep_ordinals(const group_t *group, plait_comm_t *comm)
{
    plait_status_t status = PLAIT_OK;
    const int n = group->devices.n_ranks;

    if (group->devices.n_members == n) {
        comm->ordinals = plait_alloc(n, sizeof(*comm->ordinals));
        PLAIT_CHECK(comm->ordinals != NULL, PLAIT_ERR_NO_MEMORY,
                    "no memory for a communicator of %d devices", n);
        memcpy(comm->ordinals, group->ordinals, (size_t)n * sizeof(*comm->ordinals));
    }
done:
    return status;
}

/* Opens the communicator of a group; then the entry has its handles. */
static plait_status_t open_group(group_t *group, int64_t id, entry_t *entry)
{
    plait_status_t status = PLAIT_OK;
    const plait_comm_devices_t *devices = &group->devices;

    PLAIT_CHECK(devices->n_members > 0, PLAIT_ERR_INVALID,
                "a communicator without a device of this process");
    PLAIT_TRY(plait_comm_open_devices(devices, id, group->handles));
    for (int i = 0; i < devices->n_members; i++) {
        group->handles[i]->end.caps.has_company = devices->n_members < devices->n_here;
        entry->ordinals[entry->n] = group->ordinals[i];
        entry->comms[entry->n++] = group->handles[i];
    }
    plait_mates_join(devices->n_members, entry->comms + entry->n - devices->n_members);
    for (int i = 0; i < devices->n_members; i++) {
        PLAIT_TRY(keep_ordinals(group, group->handles[i]));
    }
done:
    return status;
}

/* Whether a device is the first one of its group in the list. */
static bool is_first(const plait_device_rank_t list[], int i)
{
    int k = 0;

    while (list[k].group != list[i].group) {
        k++;
    }
    return k == i;
}

int64_t plait_registry_next(void)
{
    return plait_number_next();
}

plait_status_t plait_registry_add_devices(int n, const plait_device_rank_t list[],
                                          int32_t here, const uint64_t mpi_comms[],
                                          const char *label, int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    entry_t *entry = NULL;
    group_t group = {0};
    int64_t id = (*id_p != 0) ? *id_p : plait_number_take();
    int n_groups = 0;

    PLAIT_CHECK(n >= 1, PLAIT_ERR_INVALID, "a communicator over %d devices", n);
    PLAIT_CHECK(
        *id_p == 0 || plait_number_claim(id), PLAIT_ERR_COMM,
        "another thread has made communicator #%lld meanwhile: make communicators "
        "over devices of several processes in one thread at a time",
        (long long)id);
    entry = entry_create(n, label);
    PLAIT_CHECK(entry != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    PLAIT_TRY(group_create(n, &group));
    entry->is_by_device = true;
    for (int i = 0; i < n; i++) {
        if (is_first(list, i)) {
            gather_group(n, list, here, list[i].group, &group);
            group.devices.mpi_comm_bits = (mpi_comms != NULL) ? mpi_comms[n_groups] : 0;
            PLAIT_TRY(open_group(&group, id, entry));
            n_groups++;
        }
    }
    PLAIT_TRY(put(entry, id));
    entry = NULL;
    *id_p = id;
done:
    group_destroy(&group);
    entry_destroy(entry);
    return status;
}

plait_status_t plait_registry_add_local(int n, const int32_t ordinals[],
                                        const char *label, int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    plait_device_rank_t *list = plait_alloc((n > 0) ? n : 1, sizeof(*list));

    PLAIT_CHECK(list != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    for (int i = 0; i < n; i++) {
        list[i] = (plait_device_rank_t){.ordinal = ordinals[i], .track = ordinals[i]};
    }
    *id_p = 0;
    PLAIT_TRY(plait_registry_add_devices(n, list, 0, NULL, label, id_p));
done:
    plait_free(list);
    return status;
}

plait_status_t plait_registry_add_mpi(uint64_t mpi_comm_bits, int size, int rank,
                                      bool of_mesh, const char *label, int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    entry_t *entry = entry_create(1, label);
    int64_t id = PLAIT_NUMBER_NEW;

    PLAIT_CHECK(entry != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    PLAIT_TRY(
        plait_comm_open_mpi(mpi_comm_bits, size, rank, label, &id, &entry->comms[0]));
    entry->n = 1;
    if (of_mesh) {
        plait_mates_join(1, entry->comms);
    }
    PLAIT_TRY(put(entry, id));
    entry = NULL;
    *id_p = id;
done:
    entry_destroy(entry);
    return status;
}

bool plait_registry_is_orphaned(int64_t id)
{
    const plait_comm_t *comm = plait_registry_comm(id);

    return comm != NULL && plait_comm_is_freed(comm);
}

/* The entry itself stays, for its label: some dozens of bytes. */
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
    plait_free(entry->comms);
    plait_free(entry->ordinals);
    entry->comms = NULL;
    entry->ordinals = NULL;
done:
    return status;
}

plait_comm_t *plait_registry_comm(int64_t id)
{
    const entry_t *entry = entry_of(id);

    return (entry != NULL && entry->n > 0) ? entry->comms[0] : NULL;
}
