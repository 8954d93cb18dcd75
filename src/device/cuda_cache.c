#include "device/cuda_cache.h"

#include "base/alloc.h"
#include "base/cache.h"
#include "base/hash.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = {'p', 'l', 'a', 'i', 't', 'c', 'u', '1'};

typedef struct {
    char magic[8];
    uint64_t key;
    int64_t n_bytes;
    uint64_t hash; /* of the bytes behind the header */
} header_t;

enum { MAX_BYTES = 1 << 26 };

static uint64_t hash_of(const void *data, int64_t n_bytes)
{
    return plait_hash_bytes(PLAIT_HASH_SEED, data, (size_t)n_bytes);
}

/* The folder's path; false if there is to be no cache. */
static bool name_folder(char path[PATH_MAX])
{
    const char *own = getenv("PLAIT_CUDA_CACHE");
    bool has_own = own != NULL && own[0] != '\0';

    return has_own
               ? strcmp(own, "0") != 0 && snprintf(path, PATH_MAX, "%s", own) < PATH_MAX
               : plait_cache_path("cuda", path, PATH_MAX);
}

/* Makes and opens the folder and its missing parents. Code that is run later must belong to this user alone. */
static int open_folder(void)
{
    char path[PATH_MAX];
    struct stat info;
    int folder = -1;

    if (!name_folder(path)) {
        return -1;
    }
    for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(path, S_IRWXU);
        *at = '/';
    }
    (void)mkdir(path, S_IRWXU);
    folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (folder >= 0 && (fstat(folder, &info) != 0 || info.st_uid != geteuid() ||
                        (info.st_mode & (S_IRWXG | S_IRWXO)) != 0)) {
        (void)close(folder);
        folder = -1;
    }
    return folder;
}

static bool read_all(int fd, void *to, int64_t n_bytes)
{
    char *at = to;
    ssize_t n = 1;

    while (n_bytes > 0 && n > 0) {
        n = read(fd, at, (size_t)n_bytes);
        at += (n > 0) ? n : 0;
        n_bytes -= (n > 0) ? n : 0;
    }
    return n_bytes == 0;
}

static bool write_all(int fd, const void *from, int64_t n_bytes)
{
    const char *at = from;
    ssize_t n = 1;

    while (n_bytes > 0 && n > 0) {
        n = write(fd, at, (size_t)n_bytes);
        at += (n > 0) ? n : 0;
        n_bytes -= (n > 0) ? n : 0;
    }
    return n_bytes == 0;
}

enum { NAME_BYTES = 64 };

static void name_file(uint64_t key, char name[NAME_BYTES])
{
    (void)snprintf(name, NAME_BYTES, "%016llx", (unsigned long long)key);
}

bool plait_cuda_cache_read(uint64_t key, void **data_p, int64_t *n_bytes_p)
{
    header_t header;
    char name[NAME_BYTES];
    char *data = NULL;
    bool is_whole = false;
    int folder = open_folder();

    name_file(key, name);
    int fd =
        (folder >= 0) ? openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;

    if (fd >= 0 && read_all(fd, &header, sizeof(header)) &&
        memcmp(header.magic, magic, sizeof(magic)) == 0 && header.key == key &&
        header.n_bytes > 0 && header.n_bytes <= MAX_BYTES) {
        data = plait_alloc(header.n_bytes, 1);
        is_whole = data != NULL && read_all(fd, data, header.n_bytes) &&
                   hash_of(data, header.n_bytes) == header.hash;
    }
    if (is_whole) {
        *data_p = data;
        *n_bytes_p = header.n_bytes;
    } else {
        plait_free(data);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (folder >= 0) {
        (void)close(folder);
    }
    return is_whole;
}

/* The file is renamed when it is whole: a reader sees all of it or nothing. */
void plait_cuda_cache_write(uint64_t key, const void *data, int64_t n_bytes)
{
    header_t header = {.key = key, .n_bytes = n_bytes, .hash = hash_of(data, n_bytes)};
    char name[NAME_BYTES], unfinished[NAME_BYTES + 16];
    int folder = open_folder();

    memcpy(header.magic, magic, sizeof(magic));
    name_file(key, name);
    (void)snprintf(unfinished, sizeof(unfinished), "%s.%ld", name, (long)getpid());
    int fd = (folder >= 0)
                 ? openat(folder, unfinished,
                          O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                          S_IRUSR | S_IWUSR)
                 : -1;

    if (fd >= 0) {
        bool is_whole =
            write_all(fd, &header, sizeof(header)) && write_all(fd, data, n_bytes);
        is_whole = close(fd) == 0 && is_whole;
        if (!is_whole || renameat(folder, unfinished, folder, name) != 0) {
            (void)unlinkat(folder, unfinished, 0);
        }
    }
    if (folder >= 0) {
        (void)close(folder);
    }
}
