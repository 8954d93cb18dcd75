/* The record of operations: rings, texts, files that survive, and lines of the log. */
#include "base/flight.h"
#include "base/trace.h"
#include "check.h"
#include "folder.h"
#include "guard/sight.h"
#include "plan/describe.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_BYTES = 8192 };

static char folder[256];

/* Signals that arrive while a file is extended. */
static int n_signals;
int __real_posix_fallocate(int fd, off_t offset, off_t n_bytes);
int __wrap_posix_fallocate(int fd, off_t offset, off_t n_bytes);

int __wrap_posix_fallocate(int fd, off_t offset, off_t n_bytes)
{
    return (n_signals > 0 && n_signals-- > 0)
               ? EINTR
               : __real_posix_fallocate(fd, offset, n_bytes);
}

static plait_flight_entry_t *begin_on(int64_t comm, int track, uint32_t sequence,
                                      uint32_t title)
{
    const plait_trace_call_t call = {.title = title,
                                     .comm = comm,
                                     .sequence = sequence,
                                     .rank = track,
                                     .track = track,
                                     .peer = -1,
                                     .n_bytes = 8};

    return plait_trace_begin(&call);
}

static plait_flight_entry_t *begin(int track, uint32_t sequence, uint32_t title)
{
    return begin_on(3, track, sequence, title);
}

/* The ring keeps the last operations, each in its place. */
static void check_ring(void)
{
    uint32_t title = plait_trace_text("allreduce(float64[1], SUM)");
    const plait_ring_t *ring = plait_flight_ring(0);
    uint64_t n = PLAIT_RING_ROOM + 10;

    for (uint32_t i = 0; i < n; i++) {
        plait_trace_end(begin(0, i, title), NULL, PLAIT_OK);
    }
    CHECK(ring->n == n, "%llu entries", (unsigned long long)ring->n);
    for (uint64_t k = n - PLAIT_RING_ROOM; k < n; k++) {
        const plait_flight_entry_t *e = &ring->entries[k % PLAIT_RING_ROOM];
        CHECK(e->number == k + 1 && e->sequence == k && e->title == title &&
                  e->status == PLAIT_OK,
              "entry %llu", (unsigned long long)k);
    }
    CHECK(plait_flight_is_well(), "all ended well");
    plait_flight_entry_t *last = begin(0, 7, title);
    CHECK(last->status == PLAIT_STATUS_UNDER_WAY && !plait_flight_is_well(),
          "under way");
    plait_trace_end(last, NULL, PLAIT_ERR_PEER);
    CHECK(!plait_flight_is_well(), "failed");
}

/* An operation keeps its entry, however many begin meanwhile, and the entry records its end. For its
 * communicator it is then unknown what was done since. */
static void check_long_operation(void)
{
    enum { TRACK = 9, N = PLAIT_RING_ROOM + 10 };
    const plait_peer_t self = {.process = plait_process_card(), .track = TRACK};
    uint32_t title = plait_trace_text("recv");
    const plait_ring_t *ring = plait_flight_ring(TRACK);
    plait_sight_t sight;

    plait_flight_entry_t *first = begin_on(4, TRACK, 1, title);
    plait_guard_see(&self, 4, &sight);
    CHECK(sight.knows_done && sight.here.number == 1, "not the only one");
    for (uint32_t i = 0; i < N; i++) {
        plait_flight_entry_t *e = begin(TRACK, 2 + i, title);
        CHECK(e != first, "operation %u has its entry", i);
        plait_trace_end(e, NULL, PLAIT_OK);
    }
    CHECK(first->number == 1 && first->sequence == 1 && first->comm == 4 &&
              first->status == PLAIT_STATUS_UNDER_WAY,
          "number %llu is there", (unsigned long long)first->number);
    plait_guard_see(&self, 4, &sight);
    CHECK(!sight.knows_done && sight.here.number == 0, "done: %u", sight.n_done);
    plait_trace_end(first, NULL, PLAIT_ERR_PEER);
    CHECK(ring->entries[0].number == 1 && ring->entries[0].status == PLAIT_ERR_PEER,
          "not ended with its own entry");
    CHECK(ring->entries[1].number > PLAIT_RING_ROOM &&
              ring->entries[1].status == PLAIT_OK,
          "ended another one");
}

/* As many operations as the ring has entries: another operation gets no entry until one of them ends. */
static void check_full_ring(void)
{
    enum { TRACK = 10, ENDS = 77 };
    uint32_t title = plait_trace_text("recv");
    plait_ring_t *ring = plait_flight_ring(TRACK);

    for (uint32_t i = 0; i < PLAIT_RING_ROOM; i++) {
        (void)begin(TRACK, i, title);
    }
    plait_trace_end(begin(TRACK, PLAIT_RING_ROOM, title), NULL, PLAIT_ERR_PEER);
    for (uint32_t i = 0; i < PLAIT_RING_ROOM; i++) {
        CHECK(ring->entries[i].number == i + 1 && ring->entries[i].sequence == i &&
                  ring->entries[i].status == PLAIT_STATUS_UNDER_WAY,
              "entry %u", i);
    }
    plait_trace_end(&ring->entries[ENDS], NULL, PLAIT_OK);
    CHECK(begin(TRACK, 1, title) == &ring->entries[ENDS], "takes the free entry");
    for (uint32_t i = 0; i < PLAIT_RING_ROOM; i++) {
        plait_trace_end(&ring->entries[i], NULL, PLAIT_OK);
    }
}

static void check_texts(void)
{
    char text[64];
    uint32_t first = plait_trace_text("one");
    uint32_t last = 1;

    CHECK(first != 0 && plait_trace_text("one") == first, "same text, same number");
    CHECK(strcmp(plait_flight_text_at(first), "one") == 0, "text of a number");
    CHECK(plait_trace_text("") == 0 && plait_flight_text_at(0)[0] == '\0', "empty");
    for (int i = 0; last != 0 && i < 1 << 15; i++) { /* until there is no room */
        (void)snprintf(text, sizeof(text), "%050d", i);
        last = plait_trace_text(text);
        CHECK(last == 0 || strcmp(plait_flight_text_at(last), text) == 0, "text %d", i);
    }
    CHECK(last == 0 && plait_trace_text("one") == first, "full, and still known");
}

static void *run_many(void *track)
{
    uint32_t title = plait_trace_text("barrier()");

    for (uint32_t i = 0; i < 80; i++) {
        plait_trace_end(begin(*(int *)track, i, title), NULL, PLAIT_OK);
    }
    return NULL;
}

/* Two threads on the same ring, two threads on other rings: no entry is lost while it counts. */
static void check_threads(void)
{
    int tracks[] = {5, 5, 6, 5 + PLAIT_RINGS};
    pthread_t threads[4];

    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, run_many, &tracks[i]) == 0, "thread");
    }
    for (int i = 0; i < 4; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    const plait_ring_t *ring = plait_flight_ring(5);
    CHECK(ring->n == 240 && plait_flight_ring(6)->n == 80, "%llu",
          (unsigned long long)ring->n);
    for (uint64_t k = 0; k < 240; k++) {
        const plait_flight_entry_t *e = &ring->entries[k];
        CHECK(e->number == k + 1 && e->track % PLAIT_RINGS == 5, "entry %d", (int)k);
    }
}

/* A killed process leaves its file, with the operation that it was in; only the owner can read the file. A
 * process that ends well leaves no file. */
static void check_killed(bool is_killed)
{
    struct stat info;
    plait_record_header_t header;
    char path[512] = "";
    int channel[2];
    int code = 0;

    CHECK(pipe(channel) == 0, "pipe");
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) { /* the first use is here: the parent has no file yet */
        plait_flight_entry_t *e = begin(0, 0, plait_trace_text("bcast"));
        (void)!write(channel[1], plait_trace_flight_path(), sizeof(path));
        if (is_killed) {
            (void)kill(getpid(), SIGKILL);
        }
        plait_trace_end(e, NULL, PLAIT_OK);
        exit(0);
    }
    CHECK(read(channel[0], path, sizeof(path)) == (ssize_t)sizeof(path), "path");
    (void)close(channel[0]);
    (void)close(channel[1]);
    (void)waitpid(child, &code, 0);
    FILE *file = fopen(path, "rb");
    CHECK((file != NULL) == is_killed, "%s", path);
    if (file != NULL) {
        plait_flight_entry_t entry;
        CHECK(fstat(fileno(file), &info) == 0 && (info.st_mode & 0777) == 0600, "mode");
        CHECK(fread(&header, sizeof(header), 1, file) == 1 && header.pid == child &&
                  header.state == PLAIT_RECORD_RUNS,
              "header");
        (void)fseek(file,
                    PLAIT_RECORD_HEADER_BYTES + (long)offsetof(plait_ring_t, entries),
                    SEEK_SET);
        CHECK(fread(&entry, sizeof(entry), 1, file) == 1 && entry.number == 1 &&
                  entry.status == PLAIT_STATUS_UNDER_WAY,
              "entry");
        (void)fclose(file);
        (void)unlink(path);
    }
}

/* Removes the file of a process whose last operation failed, which is kept for users to read. */
static void remove_flight(void)
{
    plait_trace_close(plait_flight_is_well());
    if (folder[0] != '\0') {
        (void)unlink(folder);
    }
}

/* Records in a process whose limit for file sizes is too small for its files. */
static int run_limited(plait_status_t status)
{
    const struct rlimit limit = {LIMIT_BYTES, LIMIT_BYTES};
    int code = 0;

    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        (void)setrlimit(RLIMIT_FSIZE, &limit);
        plait_trace_end(begin(0, 0, plait_trace_text("bcast")), NULL, status);
        (void)strncpy(folder, plait_trace_flight_path(), sizeof(folder) - 1);
        (void)atexit(remove_flight);
        exit(0);
    }
    (void)waitpid(child, &code, 0);
    return code;
}

/* Records beyond the limit are left out, in a file and in memory. */
static void check_limited(void)
{
    CHECK(run_limited(PLAIT_OK) == 0, "in %s", folder);
    CHECK(run_limited(PLAIT_ERR_PEER) == 0, "in %s, failed", folder);
    (void)setenv("PLAIT_FLIGHT", "0", 1);
    CHECK(run_limited(PLAIT_OK) == 0, "without a file");
    CHECK(run_limited(PLAIT_ERR_PEER) == 0, "without a file, failed");
    (void)setenv("PLAIT_FLIGHT", folder, 1);
}

/* The folder if users name none. */
static void check_folders(void)
{
    const char *tmp = getenv("TMPDIR");
    char *kept = (tmp != NULL) ? strdup(tmp) : NULL;
    char path[300], want[300];

    (void)unsetenv("PLAIT_FLIGHT");
    (void)unsetenv("XDG_RUNTIME_DIR");
    (void)setenv("TMPDIR", "", 1);
    (void)snprintf(want, sizeof(want), "%s/plait-", P_tmpdir);
    CHECK(plait_record_folder(0, path, sizeof(path)) &&
              strncmp(path, want, strlen(want)) == 0,
          "%s", path);
    (void)setenv("TMPDIR", folder, 1);
    (void)snprintf(want, sizeof(want), "%s/plait-", folder);
    CHECK(plait_record_folder(0, path, sizeof(path)) &&
              strncmp(path, want, strlen(want)) == 0,
          "%s", path);
    (void)((kept != NULL) ? setenv("TMPDIR", kept, 1) : unsetenv("TMPDIR"));
    (void)setenv("PLAIT_FLIGHT", folder, 1);
    free(kept);
}

typedef struct {
    int64_t reduce, root, dest;
} params_t;

static const plait_attr_t attrs[] = {PLAIT_ATTR(params_t, reduce),
                                     PLAIT_ATTR(params_t, root),
                                     PLAIT_ATTR(params_t, dest), PLAIT_ATTR_END};

static void check_line(const char *line, const char *expected)
{
    const plait_op_t op = {.n_args = 1, .n_rets = 1, .attrs = attrs, .line = line};
    const params_t params = {.reduce = PLAIT_MAX, .root = -2, .dest = 4};
    const int64_t dims[] = {2, 3};
    const plait_array_t x = {.dtype = PLAIT_F32, .ndim = 2, .dims = dims};
    const plait_array_t y = {.dtype = PLAIT_F32, .ndim = 1, .dims = dims};
    plait_about_t about;

    plait_about_op(&op, &params, &x, &y, "a title", &about);
    CHECK(strcmp(about.line, expected) == 0, "%s", about.line);
    CHECK(about.peer == 4, "peer %d", about.peer);
}

static void check_lines(void)
{
    char line[300];

    check_line(NULL, "a title");
    check_line("MPI_X", "MPI_X");
    check_line("MPI_X with {items} items {dtype} {reduce}",
               "MPI_X with 6 items float32 MAX");
    check_line("MPI_X ({result} items, root={root})", "MPI_X (2 items, root=-2)");
    check_line("{nothing}{", "nothing{");
    memset(line, 'x', sizeof(line));
    line[299] = '\0';
    plait_about_t about;
    const plait_op_t op = {.attrs = attrs, .line = line};
    plait_about_op(&op, &(params_t){0}, NULL, NULL, "", &about);
    CHECK(strlen(about.line) == PLAIT_LINE_BYTES - 1, "a line that is too long");
}

/* A folder that the user names may be readable by others. */
static void check_named_folder(void)
{
    plait_record_file_t file = {.fd = PLAIT_RECORD_CLOSED};
    char path[400];

    (void)snprintf(path, sizeof(path), "%s/open", folder);
    CHECK(mkdir(path, 0755) == 0, "%s", path);
    (void)setenv("PLAIT_FLIGHT", path, 1);
    CHECK(plait_record_open_flight(&file, 1 << 20) &&
              strncmp(file.path, path, strlen(path)) == 0,
          "%s is in %s", file.path, path);
    file.header->pid = (int32_t)getpid();
    plait_record_close(&file, PLAIT_RECORD_ENDED_WELL, 0);
    CHECK(rmdir(path) == 0, "nothing is left in %s", path);
    (void)setenv("PLAIT_FLIGHT", folder, 1);
}

/* A file is made although signals arrive meanwhile, unless they do not end. */
static void check_signals(void)
{
    plait_record_file_t file = {.fd = PLAIT_RECORD_CLOSED};

    n_signals = 3;
    CHECK(plait_record_open_flight(&file, 1 << 20) && file.path[0] != '\0' &&
              n_signals == 0,
          "%d signals are left", n_signals);
    n_signals = 1 << 20;
    CHECK(!plait_record_reserve(&file, 4096, 4096) && n_signals > 0, "without end");
    n_signals = 0;
    if (file.header != NULL) {
        file.header->pid = (int32_t)getpid();
    }
    plait_record_close(&file, PLAIT_RECORD_ENDED_WELL, 0);
}

/* Words that switch off may be in upper or lower case; "./off" is a name. */
static void check_switched(void)
{
    static const char *const off[] = {"0", "off", "False"};
    char path[400], usual[400];

    (void)unsetenv("PLAIT_FLIGHT");
    CHECK(plait_record_folder(0, usual, (int)sizeof(usual)), "there is a folder");
    for (int i = 0; i < 3; i++) {
        (void)setenv("PLAIT_FLIGHT", off[i], 1);
        CHECK(!plait_record_folder(0, path, (int)sizeof(path)), "%s", off[i]);
    }
    (void)setenv("PLAIT_FLIGHT", "ON", 1);
    CHECK(plait_record_folder(0, path, (int)sizeof(path)) && strcmp(path, usual) == 0,
          "%s, not %s", path, usual);
    (void)setenv("PLAIT_FLIGHT", "./off", 1);
    CHECK(plait_record_folder(0, path, (int)sizeof(path)) && strcmp(path, "./off") == 0,
          "%s", path);
    (void)setenv("PLAIT_FLIGHT", folder, 1);
}

/* A trace could not replace the thing at its path: no part is begun. */
static void check_strange_trace(void)
{
    plait_record_file_t file = {.fd = PLAIT_RECORD_CLOSED};
    char path[400], pattern[500];
    glob_t found;

    (void)snprintf(path, sizeof(path), "%s/strange", folder);
    for (int i = 0; i < 2; i++) {
        CHECK(((i == 0) ? mkdir(path, 0700) : mkfifo(path, 0600)) == 0, "%s", path);
        CHECK(!plait_record_open_part(&file, path, 1 << 20), "%s", file.path);
        (void)snprintf(pattern, sizeof(pattern), "%s.*", path);
        CHECK(glob(pattern, 0, NULL, &found) == GLOB_NOMATCH, "%s", pattern);
        CHECK(remove(path) == 0, "%s", path);
    }
}

/* A folder whose name does not fit is not used: a part of the name would be another folder. */
static void check_long_folder(void)
{
    plait_record_file_t file = {.fd = PLAIT_RECORD_CLOSED};
    char path[600] = "", found[512];

    (void)snprintf(path, sizeof(path), "%s/", folder);
    memset(path + strlen(path), 'x', sizeof(path) - 1 - strlen(path));
    (void)setenv("PLAIT_FLIGHT", path, 1);
    CHECK(plait_record_folder(0, found, (int)sizeof(found)) && found[0] == '\0', "%s",
          found);
    CHECK(plait_record_open_flight(&file, 1 << 20) && file.path[0] == '\0', "%s",
          file.path);
    (void)close(file.fd);
    (void)setenv("PLAIT_FLIGHT", folder, 1);
}

/* Files belong to the process that opened them. */
static void check_forked(void)
{
    const plait_ring_t *ring = plait_flight_ring(0);
    plait_record_header_t *header = plait_flight_file()->header;
    const uint64_t n = ring->n;
    const uint32_t n_given_up = header->n_given_up;
    const uint32_t title = plait_trace_text("allgather");
    int code = 0;

    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        bool knows = strcmp(plait_flight_text_at(title), "allgather") == 0 &&
                     plait_trace_text("allgather") == title;
        for (uint32_t i = 0; i < 2 * PLAIT_RING_ROOM; i++) {
            plait_trace_end(begin((int)i % 3, i, title), NULL, PLAIT_ERR_PEER);
        }
        plait_trace_give_up(3);
        plait_trace_set_why("an exception of the child's");
        plait_trace_close(1);
        _exit(knows ? 0 : 1);
    }
    (void)waitpid(child, &code, 0);
    CHECK(code == 0, "the child ended with %d", code);
    CHECK(ring->n == n && header->n_given_up == n_given_up && header->has_why == 0,
          "the child wrote to the parent's record: %llu entries, %u given up",
          (unsigned long long)ring->n, header->n_given_up);
    CHECK(access(plait_trace_flight_path(), F_OK) == 0, "and removed it");
}

static bool is_said(const plait_peer_t *self, const char *what)
{
    plait_sight_t sight;
    char text[400];

    plait_guard_see(self, 1, &sight);
    plait_guard_say(&sight, 5, text, (int)sizeof(text));
    return strstr(text, "rank 5: ") != NULL && strstr(text, what) != NULL;
}

/* What other ranks say of a rank that waits for the ranks with which it makes a communicator. */
static void check_making(void)
{
    static const char making[] = "has been making a communicator of 7 ranks for 0.";
    const plait_peer_t self = {.process = plait_process_card()};

    plait_trace_make(3);
    plait_trace_make(7);
    CHECK(is_said(&self, making), "by two threads");
    plait_trace_make(0);
    CHECK(is_said(&self, making), "by one of them");
    plait_trace_make(0);
    CHECK(is_said(&self, "in no operation; its last"), "by none");
}

int main(void)
{
    make_folder("plait-test", folder, sizeof(folder));
    (void)setenv("PLAIT_FLIGHT", folder, 1);
    check_killed(true);
    check_killed(false);
    check_limited();
    check_folders();
    check_named_folder();
    check_signals();
    check_switched();
    check_strange_trace();
    check_long_folder();
    check_ring();
    check_long_operation();
    check_full_ring();
    check_making();
    check_forked();
    check_threads();
    check_lines();
    check_texts();
    plait_trace_close(1);
    CHECK(rmdir(folder) == 0, "nothing is left in %s", folder);
    return report("test_trace");
}
