#include "base/record.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/setting.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files of processes that died are kept for a day, so that somebody can look at them; for ten minutes if there
 * are many files. */
enum { KEEP_S = 24 * 3600, MANY_FILES = 512, KEEP_MANY_S = 600 };

/* Of "/PID-TIME.flight". */
enum { FILE_BYTES = 40 };

static void read_line(const char *path, char *text, size_t n_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = (fd >= 0) ? read(fd, text, n_bytes - 1) : 0;

    text[(n > 0) ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* What the ranks of one job, and no others, have in common, as far as the environment tells; see
 * plait_trace_set_job. */
static void name_job(int rank, char *text, size_t n_bytes)
{
    const char *run = getenv("PLAIT_RUN_JOB");
    const char *pmix = getenv("PMIX_NAMESPACE");
    const char *slurm = getenv("SLURM_JOB_ID");
    const char *step = getenv("SLURM_STEP_ID");

    if (run != NULL) {
        (void)snprintf(text, n_bytes, "run %s", run);
    } else if (slurm != NULL && step != NULL) {
        (void)snprintf(text, n_bytes, "slurm %s.%s", slurm, step);
    } else if (pmix != NULL) {
        (void)snprintf(text, n_bytes, "pmix %s", pmix);
    } else if (rank >= 0) {
        (void)snprintf(text, n_bytes, "parent %d", (int)getppid());
    } else {
        (void)snprintf(text, n_bytes, "process %d", (int)getpid());
    }
}

static void name_program(char *text, size_t n_bytes)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = (fd >= 0) ? read(fd, text, n_bytes - 1) : 0;

    n = (n > 0) ? n : 0;
    for (ssize_t i = 0; i + 1 < n; i++) {
        if (text[i] == '\0' || text[i] == '\n') {
            text[i] = ' ';
        }
    }
    text[n] = '\0';
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* All processes of one boot share one monotonic clock, unless containers have shifted it. */
static void name_clock(char *text, size_t n_bytes)
{
    char space[40] = "";
    size_t length = 0;

    read_line("/proc/sys/kernel/random/boot_id", text, 40);
    length = strlen(text);
    if (readlink("/proc/self/ns/time", space, sizeof(space) - 1) > 0) {
        (void)snprintf(text + length, n_bytes - length, " %s", space);
    }
}

static int rank_of_launcher(const char *const names[])
{
    const char *text = NULL;

    for (int i = 0; names[i] != NULL && text == NULL; i++) {
        text = getenv(names[i]);
    }
    return (text != NULL) ? (int)strtol(text, NULL, 10) : -1;
}

void plait_record_begin(plait_record_header_t *header)
{
    static const char *const ranks[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                        "SLURM_PROCID", NULL};
    static const char *const sizes[] = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE",
                                        "SLURM_STEP_NUM_TASKS", NULL};

    memcpy(header->magic, "plaitrec", sizeof(header->magic));
    header->version = PLAIT_RECORD_VERSION;
    header->header_bytes = PLAIT_RECORD_HEADER_BYTES;
    header->pid = (int32_t)getpid();
    header->rank = rank_of_launcher(ranks);
    header->size = rank_of_launcher(sizes);
    header->wall_ns = plait_clock_of(CLOCK_REALTIME);
    header->start_ns = plait_clock_ns();
    name_clock(header->clock, sizeof(header->clock));
    (void)gethostname(header->host, sizeof(header->host) - 1);
    name_job(header->rank, header->job, sizeof(header->job));
    name_program(header->program, sizeof(header->program));
    header->key =
        plait_hash_word((uint64_t)header->start_ns, (uint64_t)header->pid) | 1;
}

/* NULL: any folder will do. */
static const char *named_folder(void)
{
    const char *path = getenv("PLAIT_FLIGHT");
    bool is_named = path != NULL && path[0] != '\0' && !plait_setting_means_on(path);

    return is_named ? path : NULL;
}

bool plait_record_folder(int i, char *path, int n_bytes)
{
    const char *own = named_folder();
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    const char *tmp = getenv("TMPDIR");
    unsigned uid = (unsigned)geteuid();
    size_t room = (size_t)n_bytes;
    bool is_there = true;
    int length = 0;

    if (own != NULL) {
        is_there = i == 0 && !plait_setting_means_off(own);
        length = snprintf(path, room, "%s", own);
    } else if (i == 0 && runtime != NULL && runtime[0] != '\0') {
        length = snprintf(path, room, "%s/plait", runtime);
    } else if (i <= 1) {
        length = snprintf(path, room, "%s/plait-%u",
                          (tmp != NULL && tmp[0] != '\0') ? tmp : "/tmp", uid);
    } else {
        is_there = false;
    }
    if (!is_there || length >= n_bytes) {
        path[0] = '\0'; /* not a cut name, which is another folder */
    }
    return is_there;
}

/* A folder that the user has named may be any folder. Another folder must be ours alone, so that nobody else
 * can have put a link or a file there. */
static bool make_folder(const char *path)
{
    struct stat info;

    (void)mkdir(path, S_IRWXU);
    return (named_folder() != NULL)
               ? stat(path, &info) == 0 && S_ISDIR(info.st_mode)
               : lstat(path, &info) == 0 && S_ISDIR(info.st_mode) &&
                     info.st_uid == geteuid() &&
                     (info.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

/* Writes to mapped memory need not change a file's time: the file of a process that ran for a day looks old. So
 * the time to keep a file begins when it is first found without its process; from then on its mode says so. */
static void remove_if_dead(int folder, const char *name, time_t keep_s)
{
    struct stat info;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd >= 0) {
        if (fstat(fd, &info) == 0 && time(NULL) - info.st_mtime > keep_s &&
            flock(fd, LOCK_EX | LOCK_NB) == 0) {
            if ((info.st_mode & S_IXUSR) != 0) {
                (void)unlinkat(folder, name, 0);
            } else if (futimens(fd, NULL) == 0) {
                (void)fchmod(fd, (info.st_mode & 0777) | S_IXUSR);
            }
        }
        (void)close(fd);
    }
}

static bool is_flight(const char *name)
{
    size_t length = strlen(name);

    return length > 7 && strcmp(name + length - 7, ".flight") == 0;
}

static void clean_folder(const char *path)
{
    DIR *folder = opendir(path);
    int n_files = 0;

    if (folder != NULL) {
        for (struct dirent *d = readdir(folder); d != NULL; d = readdir(folder)) {
            n_files += is_flight(d->d_name);
        }
        rewinddir(folder);
        for (struct dirent *d = readdir(folder); d != NULL; d = readdir(folder)) {
            if (is_flight(d->d_name)) {
                remove_if_dead(dirfd(folder), d->d_name,
                               (n_files > MANY_FILES) ? KEEP_MANY_S : KEEP_S);
            }
        }
        (void)closedir(folder);
    }
}

/* Beyond that size a write would end the process by a signal. */
static bool may_have(int64_t n_bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY || (uint64_t)n_bytes <= limit.rlim_cur);
}

/* A signal ends the allocation of memory, with nothing allocated. The number of tries is limited: signals may
 * come faster than the allocation is done. */
static bool allocate(int fd, int64_t offset, int64_t n_bytes)
{
    enum { TRIES = 100 };
    int code = EINTR;

    for (int i = 0; i < TRIES && code == EINTR; i++) {
        code = posix_fallocate(fd, offset, n_bytes);
    }
    return code == 0;
}

bool plait_record_reserve(plait_record_file_t *file, int64_t offset, int64_t n_bytes)
{
    return file->fd >= 0 && may_have(offset + n_bytes) &&
           allocate(file->fd, offset, n_bytes);
}

static void unlink_path(const plait_record_file_t *file)
{
    if (file->path[0] != '\0') {
        (void)unlink(file->path);
    }
}

/* The path is set, or empty for a file without a name; this process may read all of it. Nothing is left open on
 * a failure. */
static bool map_file(plait_record_file_t *file, int64_t room)
{
    void *memory = MAP_FAILED;
    bool is_named = file->path[0] != '\0';

    file->fd =
        is_named ? open(file->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                        S_IRUSR | S_IWUSR)
                 : memfd_create("plait-flight", MFD_CLOEXEC);
    if (file->fd >= 0) {
        (void)flock(file->fd, LOCK_EX | LOCK_NB);
        if (plait_record_reserve(file, 0, PLAIT_RECORD_HEADER_BYTES) &&
            (is_named || (may_have(room) && ftruncate(file->fd, room) == 0))) {
            memory = mmap(NULL, (size_t)room, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_NORESERVE, file->fd, 0);
        }
        if (memory == MAP_FAILED) {
            unlink_path(file);
            (void)close(file->fd);
            file->fd = PLAIT_RECORD_CLOSED;
        }
    }
    file->room = room;
    file->header = (memory != MAP_FAILED) ? memory : NULL;
    return file->header != NULL;
}

/* The prefix with which a relative name stays valid when the program changes its folder: the folder and a
 * slash. "" if the name is absolute, or if there is no folder with a name this short. */
static const char *folder_of(const char *name, char *folder, size_t n_bytes)
{
    bool is_needed = name[0] != '/' && getcwd(folder, n_bytes - 1) != NULL;
    size_t length = is_needed ? strlen(folder) : 0;

    (void)snprintf(folder + length, n_bytes - length, "%s", is_needed ? "/" : "");
    return folder;
}

/* False if the name is too long. */
static bool name_flight(plait_record_file_t *file, const char *folder)
{
    char current[400];
    const char *above = folder_of(folder, current, sizeof(current));
    int n = snprintf(file->path, sizeof(file->path), "%s%s/%d-%llx.flight", above,
                     folder, (int)getpid(), (unsigned long long)plait_clock_ns());

    return n > 0 && (size_t)n < sizeof(file->path);
}

bool plait_record_open_flight(plait_record_file_t *file, int64_t room)
{
    char folder[sizeof(file->path) - FILE_BYTES];

    for (int i = 0;
         file->header == NULL && plait_record_folder(i, folder, (int)sizeof(folder));
         i++) {
        if (make_folder(folder)) {
            clean_folder(folder);
            (void)(name_flight(file, folder) && map_file(file, room));
        }
    }
    if (file->header == NULL) {
        if (plait_record_folder(0, folder, (int)sizeof(folder)) &&
            named_folder() != NULL) {
            plait_log(PLAIT_LOG_WARN,
                      "no flight recorder in %s (PLAIT_FLIGHT), which %s",
                      named_folder(),
                      (folder[0] != '\0') ? "is no folder that can be written"
                                          : "is too long a name");
        }
        file->path[0] = '\0';
        (void)map_file(file, room);
    }
    return file->header != NULL;
}

/* Why the file that a trace is to become cannot be replaced; NULL if it can, or is not there. */
static const char *why_not_replaced(const char *trace)
{
    struct stat info;
    bool is_free = stat(trace, &info) != 0 || S_ISREG(info.st_mode);

    return is_free                 ? NULL
           : S_ISDIR(info.st_mode) ? "is a folder"
                                   : "is no regular file";
}

bool plait_record_open_part(plait_record_file_t *file, const char *trace, int64_t room)
{
    char folder[400];
    bool is_open = false;
    const char *strange = why_not_replaced(trace);

    if (strange != NULL) {
        plait_log(PLAIT_LOG_WARN, "no trace: %s %s", trace, strange);
        return false;
    }
    const char *above = folder_of(trace, folder, sizeof(folder));
    int n = snprintf(file->path, sizeof(file->path), "%s%s.%d-%llx.part", above, trace,
                     (int)getpid(), (unsigned long long)plait_clock_ns());
    is_open = n > 0 && (size_t)n < sizeof(file->path) && map_file(file, room);
    if (!is_open) {
        plait_log(PLAIT_LOG_WARN, "no trace: %s cannot be written", file->path);
    }
    return is_open;
}

void plait_record_close(plait_record_file_t *file, plait_end_t end, int64_t used)
{
    if (file->header != NULL && file->fd >= 0 &&
        file->header->pid == (int32_t)getpid()) {
        atomic_store(&file->header->state, end);
        if (used == 0) {
            unlink_path(file);
        } else if (may_have(used)) {
            (void)!ftruncate(file->fd, used);
        }
        (void)close(file->fd);
        file->fd = PLAIT_RECORD_CLOSED;
        file->path[0] = '\0';
    }
}

void plait_record_forget(plait_record_file_t *file)
{
    if (file->header != NULL && file->fd >= 0) {
        (void)mmap(file->header, (size_t)file->room, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file->fd, 0);
        (void)close(file->fd);
        file->fd = PLAIT_RECORD_CLOSED;
        file->path[0] = '\0';
    }
}
