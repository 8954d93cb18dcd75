/* NCCL between threads of one process, whose devices are check devices (check_device.h): what is sent
 * goes through memory when the stream comes to it, and a group waits for its peers there. Before it comes to
 * a stream two ranks connect, at their first message in a direction: until both have come to that, a group is
 * in progress. After ten seconds without them it has failed. Who aborts waits for all others to do so, as
 * between processes of one node.
 *
 * PLAIT_FAKE_NCCL_VERSION   what it says it is
 * PLAIT_FAKE_NCCL_FAIL      the name of a function that fails; from then on all of that communicator's
 * PLAIT_FAKE_NCCL_LATE      so many questions are answered by "in progress" after each call */
#include "device/device.h"
#include "fake_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };
enum { IN_PROGRESS = 7, MAX_GROUP = 64, CONFIG_BYTES = 24, MAX_WAIT = 10 /* s */ };

typedef struct letter {
    int from, to;
    size_t n;
    struct letter *next;
    char data[];
} letter_t;

/* The ranks with one id. */
typedef struct world {
    uint64_t id;
    int n_ranks, n_joined, n_leaving, n_left;
    letter_t *letters; /* oldest first */
    bool *has_come; /* by sender, receiver, and which of them: to their first message */
    struct world *next;
} world_t;

typedef struct {
    bool is_send;
    int peer;
    void *data;
    size_t n;
} part_t;

/* A group of calls, in the order of its stream; lives until the stream has run it. */
typedef struct {
    plait_nccl_comm_t comm;
    int n_parts;
    part_t parts[MAX_GROUP];
} group_t;

struct plait_nccl_comm {
    world_t *world;
    int rank, n_late, n_running;
    bool is_aborted, has_failed, is_blocking;
    bool is_connecting; /* the group waits for peers, before it comes to the stream */
    time_t since;       /* when it began to */
    group_t group;
    void *stream;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static world_t *worlds;
static uint64_t n_ids;

static _Thread_local group_t group;
static _Thread_local void *group_stream;
static _Thread_local int depth;

/* Functions of the test's check device. */
static void *(*view_of)(const plait_device_t *, const void *);
static void (*enqueue)(void *, void (*)(plait_device_t *, void *), const void *,
                       size_t);

static void find(const char *name, void *function_p)
{
    void *address = dlsym(RTLD_DEFAULT, name);

    memcpy(function_p, &address, sizeof(address));
}

static void find_test(void)
{
    find("check_device_view", &view_of);
    find("check_device_enqueue", &enqueue);
}

static int fails(plait_nccl_comm_t comm, const char *name)
{
    const char *which = getenv("PLAIT_FAKE_NCCL_FAIL");
    bool fails = (which != NULL && strcmp(which, name) == 0) ||
                 (comm != NULL && comm->has_failed);

    if (comm != NULL) {
        comm->has_failed = fails;
    }
    return fails ? SYSTEM_ERROR : SUCCESS;
}

uint64_t fake_nccl_seat(plait_nccl_comm_t comm, int *rank, int *n_ranks);

int ncclGetVersion(int *version)
{
    *version = number_of_environment("PLAIT_FAKE_NCCL_VERSION", 22902);
    return SUCCESS;
}

const char *ncclGetErrorString(int result)
{
    return (result == SYSTEM_ERROR) ? "system error" : "some error";
}

const char *ncclGetLastError(plait_nccl_comm_t comm)
{
    return (comm != NULL && comm->has_failed) ? "as it was told to" : "";
}

int ncclGetUniqueId(plait_nccl_unique_t *id)
{
    int result = fails(NULL, "ncclGetUniqueId");

    (void)pthread_mutex_lock(&mutex);
    uint64_t number = ++n_ids;
    (void)pthread_mutex_unlock(&mutex);
    memset(id, 0, sizeof(*id));
    memcpy(id, &number, sizeof(number));
    return result;
}

int ncclCommInitRankConfig(plait_nccl_comm_t *comm_p, int n_ranks,
                           plait_nccl_unique_t id, int rank,
                           plait_nccl_config_t *config)
{
    plait_nccl_comm_t comm = calloc(1, sizeof(*comm));
    struct {
        size_t n_bytes;
        unsigned magic, version;
        int blocking;
    } asked;
    uint64_t number = 0;
    world_t *world = NULL;

    memcpy(&asked, config, sizeof(asked));
    memcpy(&number, &id, sizeof(number));
    if (asked.n_bytes != CONFIG_BYTES || asked.magic != 0xcafebeef ||
        asked.version < 21400 || asked.blocking < 0 || asked.blocking > 1 ||
        number == 0 || comm == NULL ||
        fails(comm, "ncclCommInitRankConfig") != SUCCESS) {
        free(comm);
        return INVALID_ARGUMENT;
    }
    (void)pthread_once(&once, find_test);
    (void)pthread_mutex_lock(&mutex);
    for (world = worlds; world != NULL && world->id != number; world = world->next) {
    }
    if (world == NULL) {
        world = calloc(1, sizeof(*world));
        *world = (world_t){.id = number, .n_ranks = n_ranks, .next = worlds};
        world->has_come = calloc((size_t)n_ranks * (size_t)n_ranks * 2, sizeof(bool));
        worlds = world;
    }
    world->n_joined++;
    comm->world = world;
    comm->rank = rank;
    comm->is_blocking = asked.blocking != 0;
    comm->n_late =
        comm->is_blocking ? 0 : number_of_environment("PLAIT_FAKE_NCCL_LATE", 0);
    (void)pthread_cond_broadcast(&changed);
    while (comm->is_blocking && world->n_joined < n_ranks) {
        (void)pthread_cond_wait(&changed, &mutex);
    }
    (void)pthread_mutex_unlock(&mutex);
    *comm_p = comm;
    return comm->is_blocking ? SUCCESS : IN_PROGRESS;
}

/* For the stand-in of cuSOLVERMp: a number that is unique to the communicator, or 0 if the communicator does
 * not block; and this rank's place in it. */
uint64_t fake_nccl_seat(plait_nccl_comm_t comm, int *rank, int *n_ranks)
{
    *rank = comm->rank;
    *n_ranks = comm->world->n_ranks;
    return comm->is_blocking ? comm->world->id : 0;
}

static void go_on(plait_nccl_comm_t comm);

int ncclCommGetAsyncError(plait_nccl_comm_t comm, int *result)
{
    go_on(comm);
    (void)pthread_mutex_lock(&mutex);
    bool is_late = comm->world->n_joined < comm->world->n_ranks || comm->n_late > 0 ||
                   comm->is_connecting;
    comm->n_late -= comm->n_late > 0;
    comm->has_failed = comm->has_failed ||
                       (comm->is_connecting && time(NULL) > comm->since + MAX_WAIT);
    *result = (fails(comm, "async") != SUCCESS) ? SYSTEM_ERROR
              : is_late                         ? IN_PROGRESS
                                                : SUCCESS;
    (void)pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

/* Under the mutex: frees the world once all its ranks have left. */
static void leave_world(world_t *world)
{
    world_t **place = &worlds;

    if (++world->n_left == world->n_ranks) {
        while (*place != world) {
            place = &(*place)->next;
        }
        *place = world->next;
        while (world->letters != NULL) {
            letter_t *next = world->letters->next;
            free(world->letters);
            world->letters = next;
        }
        free(world->has_come);
        free(world);
    }
}

/* Work on streams ends first, with or without success. */
static int end_comm(plait_nccl_comm_t comm, bool is_abort)
{
    (void)pthread_mutex_lock(&mutex);
    comm->is_aborted = comm->is_aborted || is_abort;
    (void)pthread_cond_broadcast(&changed);
    while (comm->n_running > 0) {
        (void)pthread_cond_wait(&changed, &mutex);
    }
    comm->world->n_leaving++;
    (void)pthread_cond_broadcast(&changed);
    while (is_abort && comm->world->n_leaving < comm->world->n_ranks) {
        (void)pthread_cond_wait(&changed, &mutex);
    }
    leave_world(comm->world);
    (void)pthread_mutex_unlock(&mutex);
    free(comm);
    return SUCCESS;
}

int ncclCommAbort(plait_nccl_comm_t comm)
{
    return end_comm(comm, true);
}

int ncclCommDestroy(plait_nccl_comm_t comm)
{
    return end_comm(comm, false);
}

int ncclGroupStart(void)
{
    depth++;
    group.n_parts = 0;
    group.comm = NULL;
    return SUCCESS;
}

static int add(bool is_send, void *data, size_t n, int type, int peer,
               plait_nccl_comm_t comm, plait_cu_stream_t stream)
{
    int result = fails(comm, is_send ? "ncclSend" : "ncclRecv");
    const bool is_good = depth == 1 && type == 1 && group.n_parts < MAX_GROUP &&
                         peer != comm->rank && peer < comm->world->n_ranks &&
                         !comm->is_connecting;

    if (result == SUCCESS && !is_good) {
        result = INVALID_USAGE;
    }
    if (result == SUCCESS) {
        group.comm = comm;
        group_stream = stream;
        group.parts[group.n_parts++] = (part_t){is_send, peer, data, n};
    }
    return result;
}

int ncclSend(const void *data, size_t n, int type, int peer, plait_nccl_comm_t comm,
             plait_cu_stream_t stream)
{
    return add(true, (void *)(uintptr_t)data, n, type, peer, comm, stream);
}

int ncclRecv(void *data, size_t n, int type, int peer, plait_nccl_comm_t comm,
             plait_cu_stream_t stream)
{
    return add(false, data, n, type, peer, comm, stream);
}

/* Under the mutex. */
static void post(const group_t *g, const part_t *part, const void *data)
{
    letter_t **last = &g->comm->world->letters;
    letter_t *letter = malloc(sizeof(*letter) + part->n);

    while (*last != NULL) {
        last = &(*last)->next;
    }
    *letter = (letter_t){.from = g->comm->rank, .to = part->peer, .n = part->n};
    memcpy(letter->data, data, part->n);
    *last = letter;
    (void)pthread_cond_broadcast(&changed);
}

/* Under the mutex: whether the message was there. */
static bool fetch(const group_t *g, const part_t *part, void *data)
{
    letter_t **place = &g->comm->world->letters;

    while (*place != NULL &&
           ((*place)->from != part->peer || (*place)->to != g->comm->rank)) {
        place = &(*place)->next;
    }
    letter_t *letter = *place;
    if (letter != NULL) {
        memcpy(data, letter->data, (letter->n < part->n) ? letter->n : part->n);
        *place = letter->next;
        free(letter);
    }
    return letter != NULL;
}

static void run_group(plait_device_t *device, void *argument)
{
    group_t *g = argument;

    (void)pthread_mutex_lock(&mutex);
    for (int i = 0; i < g->n_parts; i++) {
        if (g->parts[i].is_send) {
            post(g, &g->parts[i], view_of(device, g->parts[i].data));
        }
    }
    for (int i = 0; i < g->n_parts; i++) {
        part_t *part = &g->parts[i];
        while (!part->is_send && !g->comm->is_aborted &&
               !fetch(g, part, view_of(device, part->data))) {
            (void)pthread_cond_wait(&changed, &mutex);
        }
    }
    g->comm->n_running--;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&mutex);
}

/* Under the mutex: whether one end of a part has reached its first message. */
static bool *has_come(const group_t *g, const part_t *part, bool is_peer)
{
    const world_t *world = g->comm->world;
    const int from = part->is_send ? g->comm->rank : part->peer;
    const int to = part->is_send ? part->peer : g->comm->rank;
    const bool is_sender = part->is_send != is_peer;

    return &world->has_come[(from * world->n_ranks + to) * 2 + is_sender];
}

/* Enqueues the group on its stream, if its peers are there. */
static void go_on(plait_nccl_comm_t comm)
{
    bool is_connected = comm->is_connecting;

    (void)pthread_mutex_lock(&mutex);
    for (int i = 0; i < comm->group.n_parts && is_connected; i++) {
        is_connected = *has_come(&comm->group, &comm->group.parts[i], true);
    }
    comm->is_connecting = comm->is_connecting && !is_connected;
    comm->n_running += is_connected;
    (void)pthread_mutex_unlock(&mutex);
    if (is_connected) {
        enqueue(comm->stream, run_group, &comm->group, sizeof(comm->group));
    }
}

int ncclGroupEnd(void)
{
    plait_nccl_comm_t comm = group.comm;
    int result = fails(comm, "ncclGroupEnd");

    depth--;
    if (result == SUCCESS && comm != NULL) {
        (void)pthread_mutex_lock(&mutex);
        for (int i = 0; i < group.n_parts; i++) {
            *has_come(&group, &group.parts[i], false) = true;
        }
        comm->group = group;
        comm->stream = group_stream;
        comm->is_connecting = true;
        comm->since = time(NULL);
        comm->n_late = number_of_environment("PLAIT_FAKE_NCCL_LATE", 0);
        (void)pthread_mutex_unlock(&mutex);
        go_on(comm);
        result = (comm->n_late > 0 || comm->is_connecting) ? IN_PROGRESS : SUCCESS;
    }
    return result;
}
