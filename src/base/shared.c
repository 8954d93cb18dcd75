#include "base/shared.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, PATH_BYTES = 64 };

/* Seals that only a file made for this purpose has. */
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

/* An address at which a mapping can use huge pages. */
static void *aligned_room(size_t n_bytes)
{
    char *room = mmap(NULL, n_bytes + HUGE_PAGE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const size_t skip = (HUGE_PAGE - (size_t)((uintptr_t)room % HUGE_PAGE)) % HUGE_PAGE;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t end = (skip + n_bytes + page - 1) / page * page;

    if (room == MAP_FAILED) {
        return NULL;
    }
    if (skip > 0) {
        (void)munmap(room, skip);
    }
    (void)munmap(room + end, n_bytes + HUGE_PAGE - end);
    return room + skip;
}

static plait_status_t map(plait_shared_t *shared)
{
    plait_status_t status = PLAIT_OK;
    const size_t n_bytes = (size_t)shared->n_bytes;
    void *room = (shared->n_bytes >= HUGE_PAGE) ? aligned_room(n_bytes) : NULL;
    void *base = mmap(room, n_bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | ((room != NULL) ? MAP_FIXED : 0), shared->fd, 0);

    if (base == MAP_FAILED && room != NULL) {
        (void)munmap(room, n_bytes);
    }
    PLAIT_CHECK(base != MAP_FAILED, PLAIT_ERR_NO_MEMORY,
                "%lld shared bytes cannot be mapped: %s", (long long)shared->n_bytes,
                strerror(errno));
    shared->base = base;
done:
    return status;
}

plait_status_t plait_shared_create(const char *name, int64_t n_bytes,
                                   plait_shared_t *shared)
{
    plait_status_t status = PLAIT_OK;
    struct stat info;

    *shared = (plait_shared_t){.n_bytes = n_bytes};
    shared->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    PLAIT_CHECK(shared->fd >= 0, PLAIT_ERR_UNSUPPORTED, "memfd_create: %s",
                strerror(errno));
    PLAIT_CHECK(fchmod(shared->fd, 0600) == 0 && ftruncate(shared->fd, n_bytes) == 0 &&
                    fcntl(shared->fd, F_ADD_SEALS, SEALS) == 0 &&
                    fstat(shared->fd, &info) == 0,
                PLAIT_ERR_NO_MEMORY, "%lld shared bytes: %s", (long long)n_bytes,
                strerror(errno));
    shared->inode = (uint64_t)info.st_ino;
    PLAIT_TRY(map(shared));
done:
    if (status != PLAIT_OK) {
        plait_shared_destroy(shared);
    }
    return status;
}

bool plait_shared_compact(const plait_shared_t *shared)
{
    enum { COLLAPSE = 25 }; /* MADV_COLLAPSE, in newer headers */

    /* a huge page of a file is only made where the file has data */
    for (int64_t at = 0; at < shared->n_bytes; at += HUGE_PAGE) {
        shared->base[at] = 0;
    }
    return madvise(shared->base, (size_t)shared->n_bytes, COLLAPSE) == 0;
}

static void path_of(pid_t pid, int fd, char path[PATH_BYTES])
{
    (void)snprintf(path, PATH_BYTES, "/proc/%d/fd/%d", (int)pid, fd);
}

plait_status_t plait_shared_attach(pid_t pid, int fd, plait_shared_t *shared)
{
    plait_status_t status = PLAIT_OK;
    struct stat info;
    char path[PATH_BYTES];

    *shared = (plait_shared_t){.n_bytes = 0};
    path_of(pid, fd, path);
    shared->fd = open(path, O_RDWR | O_CLOEXEC);
    PLAIT_CHECK(shared->fd >= 0, PLAIT_ERR_UNSUPPORTED, "%s: %s", path,
                strerror(errno));
    const int seals = fcntl(shared->fd, F_GET_SEALS); /* -1: it cannot have seals */
    PLAIT_CHECK(fstat(shared->fd, &info) == 0 && info.st_uid == geteuid() &&
                    info.st_size > 0 && seals >= 0 && (seals & SEALS) == SEALS,
                PLAIT_ERR_UNSUPPORTED, "%s is not the shared memory that it should be",
                path);
    shared->n_bytes = info.st_size;
    shared->inode = (uint64_t)info.st_ino;
    PLAIT_TRY(map(shared));
done:
    if (status != PLAIT_OK) {
        plait_shared_destroy(shared);
    }
    return status;
}

bool plait_shared_is_held(pid_t pid, int fd, const plait_shared_t *attached)
{
    struct stat info;
    char path[PATH_BYTES];

    path_of(pid, fd, path);
    return stat(path, &info) == 0 && (uint64_t)info.st_ino == attached->inode;
}

void plait_shared_close(plait_shared_t *shared)
{
    if (shared->fd >= 0) {
        (void)close(shared->fd);
        shared->fd = -1;
    }
}

void plait_shared_destroy(plait_shared_t *shared)
{
    plait_shared_close(shared);
    if (shared->base != NULL) {
        (void)munmap(shared->base, (size_t)shared->n_bytes);
        shared->base = NULL;
    }
}
