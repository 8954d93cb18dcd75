#include "transport/node_map.h"

#include "base/alloc.h"
#include "base/shared.h"
#include "base/status.h"
#include "device/pool.h"

#include <pthread.h>
#include <stddef.h>

/* Mappings of one peer. A peer has a few work buffers at a time, of operations of different sizes. */
enum { N_MAPS = 8 };

typedef struct {
    uint64_t token;          /* 0: free */
    plait_shared_t attached; /* base NULL: mapping has failed */
    int n_users;
    uint64_t last_used;
} map_t;

struct plait_node_maps {
    pthread_mutex_t mutex;
    int n_ranks;
    uint64_t n_uses;
    map_t maps[]; /* N_MAPS for each rank */
};

plait_status_t plait_node_maps_create(int n_ranks, plait_node_maps_t **maps_p)
{
    plait_status_t status = PLAIT_OK;
    plait_node_maps_t *maps = plait_alloc(
        1, (int64_t)sizeof(*maps) + (int64_t)n_ranks * N_MAPS * (int64_t)sizeof(map_t));

    PLAIT_CHECK(maps != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    maps->n_ranks = n_ranks;
    for (int i = 0; i < n_ranks * N_MAPS; i++) {
        maps->maps[i].attached.fd = -1;
    }
    (void)pthread_mutex_init(&maps->mutex, NULL);
    *maps_p = maps;
done:
    return status;
}

void plait_node_maps_destroy(plait_node_maps_t **maps_p)
{
    plait_node_maps_t *maps = *maps_p;

    if (maps != NULL) {
        for (int i = 0; i < maps->n_ranks * N_MAPS; i++) {
            plait_shared_destroy(&maps->maps[i].attached);
        }
        (void)pthread_mutex_destroy(&maps->mutex);
        plait_free(maps);
        *maps_p = NULL;
    }
}

static map_t *find(plait_node_maps_t *maps, int peer, uint64_t token)
{
    map_t *map = &maps->maps[(ptrdiff_t)peer * N_MAPS];
    map_t *found = NULL;

    for (int i = 0; i < N_MAPS; i++) {
        found = (map[i].token == token) ? &map[i] : found;
    }
    return found;
}

static void drop(map_t *map)
{
    plait_shared_destroy(&map->attached);
    *map = (map_t){.attached = {.fd = -1}};
}

/* Drops mappings of memory that its process has given back: they would keep it alive. */
static void drop_stale(map_t map[N_MAPS], pid_t pid)
{
    for (int i = 0; i < N_MAPS; i++) {
        if (map[i].token != 0 && map[i].n_users == 0 &&
            !plait_shared_is_held(pid, plait_token_descriptor(map[i].token),
                                  &map[i].attached)) {
            drop(&map[i]);
        }
    }
}

/* A free place, or else the place that was used least recently; NULL if all are in use. */
static map_t *find_place(plait_node_maps_t *maps, int peer, pid_t pid)
{
    map_t *map = &maps->maps[(ptrdiff_t)peer * N_MAPS];
    map_t *oldest = NULL;

    drop_stale(map, pid);
    for (int i = 0; i < N_MAPS; i++) {
        if (map[i].n_users == 0 &&
            (oldest == NULL || map[i].last_used < oldest->last_used)) {
            oldest = &map[i];
        }
    }
    if (oldest != NULL) {
        drop(oldest);
    }
    return oldest;
}

static void attach(map_t *map, pid_t pid, uint64_t token)
{
    map->token = token;
    if (plait_shared_attach(pid, plait_token_descriptor(token), &map->attached) ==
        PLAIT_OK) {
        plait_shared_close(&map->attached);
        if ((uint32_t)map->attached.inode != plait_token_inode(token)) {
            plait_shared_destroy(&map->attached); /* of another process */
        }
    }
}

char *plait_node_map(plait_node_maps_t *maps, int peer, pid_t pid, uint64_t token)
{
    char *base = NULL;

    (void)pthread_mutex_lock(&maps->mutex);
    map_t *map = find(maps, peer, token);
    if (map == NULL) {
        map = find_place(maps, peer, pid);
        if (map != NULL) {
            attach(map, pid, token);
        }
    }
    if (map != NULL && map->attached.base != NULL) {
        base = map->attached.base;
        map->last_used = ++maps->n_uses;
        map->n_users++;
    }
    (void)pthread_mutex_unlock(&maps->mutex);
    return base;
}

void plait_node_unmap(plait_node_maps_t *maps, int peer, uint64_t token)
{
    (void)pthread_mutex_lock(&maps->mutex);
    map_t *map = find(maps, peer, token);
    if (map != NULL) {
        map->n_users--;
    }
    (void)pthread_mutex_unlock(&maps->mutex);
}
