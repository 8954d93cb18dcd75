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
    uint64_t inode; /* identifies the memory */
} plait_shared_t;

/* Zeros. Memory of 2 MiB or more begins with a huge page. name: as /proc/self/maps shows it. */
plait_status_t plait_shared_create(const char *name, int64_t n_bytes,
                                   plait_shared_t *shared);

/* Puts all of the memory in huge pages (Linux 6.1), which the system does on request only, whatever its
 * settings for shared memory. False: some of the memory is in small pages. */
bool plait_shared_compact(const plait_shared_t *shared);

/* Maps all the memory that a process of the same user has created; fd: its descriptor in that process. */
plait_status_t plait_shared_attach(pid_t pid, int fd, plait_shared_t *shared);

/* Whether a process still has the attached memory under this descriptor. */
bool plait_shared_is_held(pid_t pid, int fd, const plait_shared_t *attached);

/* Closes the descriptor alone: no other process can attach any more. */
void plait_shared_close(plait_shared_t *shared);

void plait_shared_destroy(plait_shared_t *shared);

#endif
