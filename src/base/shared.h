/* Memory that other processes of the node can map: a file without a name, which they open through /proc.
 * Nothing is left behind however a process ends. The size is fixed before any process maps the file. */
#ifndef PLAIT_BASE_SHARED_H
#define PLAIT_BASE_SHARED_H

#include "plait/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct {
    char *base; /* NULL: there is none */
    int64_t n_bytes;
    int fd;         /* -1: closed */
    uint64_t inode; /* by which it is known to be the same */
} plait_shared_t;

/* Zeros. From 2 MiB on it begins with a huge page. name: as /proc/self/maps has it. */
plait_status_t plait_shared_create(const char *name, int64_t n_bytes,
                                   plait_shared_t *shared);

/* Puts all of it in huge pages, which the system does on request only, whatever its settings for
 * shared memory (Linux 6.1). False: some of it is in small ones. */
bool plait_shared_compact(const plait_shared_t *shared);

/* Maps what a process of the same user has created, whole; fd: its descriptor there. */
plait_status_t plait_shared_attach(pid_t pid, int fd, plait_shared_t *shared);

/* Whether a process still has under this descriptor what was attached. */
bool plait_shared_is_held(pid_t pid, int fd, const plait_shared_t *attached);

/* The descriptor alone: nobody can attach any more. */
void plait_shared_close(plait_shared_t *shared);

void plait_shared_destroy(plait_shared_t *shared);

#endif
