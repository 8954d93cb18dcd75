/* Arrays of more than 2^31 elements on two ranks; every byte is checked. Each rank has one array of 2 GiB at a
 * time. */
#ifndef PLAIT_TESTS_LARGE_CASES_H
#define PLAIT_TESTS_LARGE_CASES_H

#include "check.h"
#include "plait/coll.h"

#include <inttypes.h>
#include <string.h>

#define LARGE_N ((INT64_C(1) << 31) + 9)

enum { LARGE_WORD = 8, SKIPPED = 77 };

/* The number in the first line of a file; INT64_MAX if there is none. */
static inline int64_t large_number(const char *path, const char *format)
{
    char line[128];
    int64_t number = INT64_MAX;
    FILE *file = fopen(path, "r");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL &&
           sscanf(line, format, &number) != 1) {
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return number;
}

/* Whether two of these arrays and their transport fit into the machine and into a container's share, with room
 * for everybody else. */
static inline bool large_fits(void)
{
    const int64_t n_wanted = INT64_C(7) << 30;
    int64_t n_kib = large_number("/proc/meminfo", "MemAvailable: %" SCNd64 " kB");
    int64_t n_most = large_number("/sys/fs/cgroup/memory.max", "%" SCNd64);
    int64_t n_used = large_number("/sys/fs/cgroup/memory.current", "%" SCNd64);

    return n_kib >= n_wanted / 1024 &&
           (n_most == INT64_MAX || n_used == INT64_MAX || n_most - n_used >= n_wanted);
}

/* The number at byte i, a multiple of 8. It is not random, so that making 2 GiB takes no time. */
static inline uint64_t large_word(uint64_t seed, int64_t i)
{
    return ((uint64_t)i << 8) ^ (seed * UINT64_C(0x9e3779b97f4a7c15));
}

/* Whole words from the start, then the rest of the last word. */
static inline void large_fill(unsigned char *x, int64_t n, uint64_t seed)
{
    int64_t end = n - n % LARGE_WORD;
    uint64_t last = large_word(seed, end);

    for (int64_t i = 0; i < end; i += LARGE_WORD) {
        uint64_t word = large_word(seed, i);
        memcpy(x + i, &word, LARGE_WORD);
    }
    memcpy(x + end, &last, (size_t)(n - end));
}

/* Words of x that are not those of `seed`, exclusive or those of `other` if it is not 0. */
static inline int64_t large_wrong(const unsigned char *x, int64_t n, uint64_t seed,
                                  uint64_t other)
{
    int64_t n_wrong = 0;
    int64_t end = n - n % LARGE_WORD;
    uint64_t last =
        large_word(seed, end) ^ ((other > 0) ? large_word(other, end) : UINT64_C(0));

    for (int64_t i = 0; i < end; i += LARGE_WORD) {
        uint64_t want = large_word(seed, i);
        uint64_t got = 0;
        memcpy(&got, x + i, LARGE_WORD);
        want ^= (other > 0) ? large_word(other, i) : UINT64_C(0);
        n_wrong += got != want;
    }
    return n_wrong + (memcmp(x + end, &last, (size_t)(n - end)) != 0);
}

static inline void large_bcast(plait_comm_t *comm, unsigned char *x)
{
    int me = plait_comm_rank(comm);

    large_fill(x, LARGE_N, (me == 0) ? 1 : 2);
    CHECK(plait_bcast(comm, 0, PLAIT_U8, LARGE_N, x, x) == PLAIT_OK, "bcast");
    CHECK(large_wrong(x, LARGE_N, 1, 0) == 0, "bcast, rank %d", me);
}

static inline void large_reduce(plait_comm_t *comm, unsigned char *x)
{
    int me = plait_comm_rank(comm);

    large_fill(x, LARGE_N, 3 + (uint64_t)me);
    CHECK(plait_reduce(comm, PLAIT_BXOR, 1, PLAIT_U8, LARGE_N, x, x) == PLAIT_OK,
          "reduce");
    CHECK(large_wrong(x, LARGE_N, 3, (me == 1) ? 4 : 0) == 0, "reduce, rank %d", me);
}

static inline void large_send(plait_comm_t *comm, unsigned char *x)
{
    int me = plait_comm_rank(comm);

    large_fill(x, LARGE_N, 5 + (uint64_t)me);
    CHECK((me == 0 ? plait_send(comm, 1, 4, PLAIT_U8, LARGE_N, x)
                   : plait_recv(comm, 0, 4, PLAIT_U8, LARGE_N, x, NULL)) == PLAIT_OK,
          "rank %d", me);
    CHECK(large_wrong(x, LARGE_N, 5, 0) == 0, "send and recv, rank %d", me);
}

/* The last rank's rows go behind those of the first one, beyond 2^31. */
static inline void large_gatherv(plait_comm_t *comm, unsigned char *x)
{
    const int64_t counts[] = {LARGE_N - 8, 8};
    const uint64_t tail = large_word(9, 0);
    int me = plait_comm_rank(comm);
    plait_status_t status = PLAIT_OK;

    if (me == 0) {
        large_fill(x, counts[0], 7);
        status = plait_gatherv(comm, 1, PLAIT_U8, counts, x, NULL);
    } else {
        status = plait_gatherv(comm, 1, PLAIT_U8, counts, &tail, x);
    }
    CHECK(status == PLAIT_OK, "gatherv");
    CHECK(large_wrong(x, counts[0], 7, 0) == 0 &&
              (me == 0 || memcmp(x + counts[0], &tail, sizeof(tail)) == 0),
          "gatherv, rank %d", me);
}

static inline void large_scatterv(plait_comm_t *comm, unsigned char *x)
{
    const int64_t counts[] = {8, LARGE_N - 8};
    int me = plait_comm_rank(comm);
    uint64_t head = 0;
    plait_status_t status = PLAIT_OK;

    if (me == 0) {
        large_fill(x + 8, counts[1], 11);
        memset(x, 0x77, 8);
        status = plait_scatterv(comm, 0, PLAIT_U8, counts, x, &head);
        CHECK(head == UINT64_C(0x7777777777777777), "scatterv, rank 0");
    } else {
        status = plait_scatterv(comm, 0, PLAIT_U8, counts, NULL, x);
        CHECK(large_wrong(x, counts[1], 11, 0) == 0, "scatterv, rank 1");
    }
    CHECK(status == PLAIT_OK, "scatterv");
}

typedef void large_fn_t(plait_comm_t *comm, unsigned char *x);

/* Every step-th of the operations, from number `first` on, in LARGE_N bytes at x. */
static inline void large_some(plait_comm_t *comm, unsigned char *x, int first, int step)
{
    static large_fn_t *const operations[] = {large_gatherv, large_send, large_bcast,
                                             large_reduce, large_scatterv};

    for (int i = first; i < 5; i += step) {
        operations[i](comm, x);
    }
    CHECK(plait_barrier(comm) == PLAIT_OK, "barrier");
}

#endif
