/* Ranks that fail where no fence tells the others: the others learn of it, and no earlier message is taken for
 * a later one. Two ranks that share nothing. tests/c/run_mpi.py runs it with the guard, and with an allocator
 * that fails on demand. */
#include "base/alloc.h"
#include "base/clock.h"
#include "comm/comm.h"
#include "device/pool.h"
#include "library.h"
#include "mpi_world.h"
#include "observed.h"
#include "plait/coll.h"
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void *__real_plait_alloc(int64_t n, int64_t size);
void *__wrap_plait_alloc(int64_t n, int64_t size);

/* Bytes of the next allocation that fails; 0: none. */
static int64_t failing;

void *__wrap_plait_alloc(int64_t n, int64_t size)
{
    bool fails = failing != 0 && n * size == failing;

    failing = fails ? 0 : failing;
    return fails ? NULL : __real_plait_alloc(n, size);
}

/* A setting is wrong on one rank: no rank gets a communicator. */
static void check_setting(uint64_t world, int rank)
{
    plait_comm_t *comm = NULL;

    if (rank == 1) {
        (void)setenv("PLAIT_THREADS", "many", 1);
    }
    plait_status_t status = plait_comm_mpi(world, &comm);
    CHECK(status == ((rank == 1) ? PLAIT_ERR_INVALID : PLAIT_ERR_PEER) && comm == NULL,
          "rank %d: %s", rank, plait_status_name(status));
    CHECK(strstr(plait_error_text(), "PLAIT_THREADS is 'many'") != NULL, "rank %d: %s",
          rank, plait_error_text());
    (void)unsetenv("PLAIT_THREADS");
}

/* Rank 0 has no memory to receive a message, which is sent nevertheless; the next operation, of another dtype,
 * must not receive it. */
static void check_stale(uint64_t world, int rank)
{
    const int64_t words[4] = {1000 * rank, 1, 2, 3};
    const double numbers[4] = {0.5, 1, 2, 3};
    int64_t got_words[8];
    double got[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    plait_comm_t *comm = NULL;

    CHECK(plait_comm_mpi(world, &comm) == PLAIT_OK, "open: %s", plait_error_text());
    const int64_t request = 2 * (int64_t)(sizeof(uint64_t) + sizeof(int64_t));
    failing = (rank == 0) ? request : 0; /* and its length */
    plait_status_t status = plait_gather(comm, 0, PLAIT_S64, 4, words, got_words);
    CHECK(status == ((rank == 0) ? PLAIT_ERR_NO_MEMORY : PLAIT_OK), "rank %d: %s", rank,
          plait_status_name(status));
    nap(200);
    status = plait_gather(comm, 0, PLAIT_F64, 4, numbers, got);
    CHECK(status == ((rank == 0) ? PLAIT_ERR_COMM : PLAIT_ERR_PEER), "rank %d: %s %s",
          rank, plait_status_name(status), plait_error_text());
    CHECK(got[4] == -1, "rank %d: %g was received", rank, got[4]);
    plait_comm_destroy(&comm);
}

enum { SIDE = 512, HALF = SIDE / 2 };

/* The right half of a matrix's columns, from rank 0 to rank 1: packed, because the rows are apart. */
static plait_plan_t *plan_columns(const plait_comm_t *comm)
{
    const int64_t whole[] = {SIDE, SIDE}, half[] = {SIDE, HALF};
    const plait_array_t arg = {.dtype = PLAIT_F64, .ndim = 2, .dims = whole};
    const plait_array_t ret = {.dtype = PLAIT_F64, .ndim = 2, .dims = half};
    const plait_problem_t problem = {.n_ranks = 2,
                                     .rank = plait_comm_rank(comm),
                                     .caps = comm->end.caps,
                                     .n_args = 1,
                                     .n_rets = 1,
                                     .args = &arg,
                                     .rets = &ret};
    plait_block_t block = {.peer = 1 - problem.rank,
                           .src_offset = HALF * (int64_t)sizeof(double),
                           .box = {.n_dims = 1,
                                   .row_bytes = HALF * (int64_t)sizeof(double),
                                   .count = {SIDE},
                                   .src_stride = {SIDE * (int64_t)sizeof(double)},
                                   .dst_stride = {HALF * (int64_t)sizeof(double)}}};
    plait_plan_t *plan = NULL;
    plait_move_t move = {0};

    CHECK(plait_plan_create(&problem, &plan, "columns") == PLAIT_OK, "%s",
          plait_error_text());
    block.src_slot = plait_slot_arg(plan, 0);
    block.dst_slot = plait_slot_ret(plan, 0);
    CHECK(((problem.rank == 0) ? plait_move_add_out(&move, &block)
                               : plait_move_add_in(&move, &block)) == PLAIT_OK &&
              plait_plan_move(plan, &move) == PLAIT_OK,
          "%s", plait_error_text());
    plait_move_clear(&move);
    return plan;
}

static int64_t count_wrong(const double *got)
{
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < SIDE * HALF; i++) {
        n_wrong += got[i] != (double)(i / HALF * SIDE + HALF + i % HALF);
    }
    return n_wrong;
}

/* Rank 0 gives up a message that rank 1 takes later: the memory in which it was packed must not be reused. */
static void check_kept(uint64_t world, int rank)
{
    static double from[SIDE * SIDE], to[SIDE * HALF];
    void *other = NULL;
    plait_comm_t *comm = NULL;
    uint64_t meanwhile = 0;

    CHECK(plait_comm_mpi(world, &comm) == PLAIT_OK, "open: %s", plait_error_text());
    plait_plan_t *plan = plan_columns(comm);
    const int64_t n_bytes = plan->scratch_bytes;
    for (int64_t i = 0; i < SIDE * SIDE; i++) {
        from[i] = (double)i;
    }
    CHECK(observed_execute(plan, comm, from, to) == PLAIT_OK, "%s", plait_error_text());
    memset(to, 0, sizeof(to));
    if (rank == 1) {
        nap(2500);
    }
    plait_status_t status = observed_execute(plan, comm, from, to);
    if (rank == 0) {
        CHECK(status == PLAIT_ERR_TIMEOUT, "rank 0: %s", plait_status_name(status));
        CHECK(plait_pool_take(n_bytes, &other) == PLAIT_OK, "pool");
        memset(other, 0x55, (size_t)n_bytes);
    } else {
        CHECK(status != PLAIT_OK || count_wrong(to) == 0, "%lld wrong elements",
              (long long)count_wrong(to));
    }
    (void)host.comm_split(world, 0, rank,
                          &meanwhile); /* MPI sends what it has to send */
    (void)host.comm_free(&meanwhile);
    plait_pool_give(other);
    plait_plan_destroy(&plan);
    plait_comm_destroy(&comm);
}

/* A buffered message is received long after its sender has closed the communicator; closing waits for a second.
 * If the message is in the sender's memory, other data is there by then, but not in the message's place. */
static void check_late(uint64_t world, int rank)
{
    enum { N = 1000, OTHERS = 100 };
    double numbers[N], *others[OTHERS];
    plait_comm_t *comm = NULL, *next = NULL;
    int n_wrong = 0;

    for (int i = 0; i < N; i++) {
        numbers[i] = rank == 0 ? i : -1;
    }
    (void)unsetenv("PLAIT_SHARED");
    CHECK(plait_comm_mpi(world, &comm) == PLAIT_OK, "open: %s", plait_error_text());
    if (rank == 0) {
        CHECK(plait_send(comm, 1, 3, PLAIT_F64, N, numbers) == PLAIT_OK, "%s",
              plait_error_text());
        plait_comm_destroy(&comm);
        for (int i = 0; i < OTHERS; i++) {
            others[i] = malloc(sizeof(numbers));
            memset(others[i], 0x55, sizeof(numbers));
        }
    }
    (void)host.barrier(world);
    if (rank == 1) {
        CHECK(plait_recv(comm, 0, 3, PLAIT_F64, N, numbers, NULL) == PLAIT_OK, "%s",
              plait_error_text());
        plait_comm_destroy(&comm);
        for (int i = 0; i < N; i++) {
            n_wrong += numbers[i] != i;
        }
        CHECK(n_wrong == 0, "%d numbers are wrong, the first is %g", n_wrong,
              numbers[0]);
    } else {
        for (int i = 0; i < OTHERS; i++) {
            free(others[i]);
        }
    }
    (void)host.barrier(world);
    CHECK(plait_comm_mpi(world, &next) == PLAIT_OK, "open: %s", plait_error_text());
    plait_comm_destroy(&next); /* and what was kept for the receiver */
    (void)setenv("PLAIT_SHARED", "off", 1);
}

/* A library's work takes twice as long as ranks wait for each other. */
static void check_library(uint64_t world, int rank)
{
    plait_comm_t *comm = NULL;

    (void)unsetenv("PLAIT_SHARED");
    CHECK(plait_comm_mpi(world, &comm) == PLAIT_OK, "open: %s", plait_error_text());
    CHECK(library_work(comm, true, 2.0) == PLAIT_OK, "rank %d: %s", rank,
          plait_error_text());
    CHECK(library_work(comm, false, 2.0) == PLAIT_ERR_TIMEOUT &&
              strstr(plait_error_text(), "a library: no other rank came for 1") != NULL,
          "rank %d: %s", rank, plait_error_text());
    plait_comm_destroy(&comm);
    (void)setenv("PLAIT_SHARED", "off", 1);
}

/* The folder in which the launcher notes ended ranks; the ranks have one parent. */
static char notes[64];

static void make_notes(void)
{
    char wrapper[16];

    (void)snprintf(notes, sizeof(notes), "%s/mpi_left-%d", P_tmpdir, (int)getppid());
    (void)mkdir(notes, 0700);
    (void)snprintf(wrapper, sizeof(wrapper), "%d", (int)getppid());
    (void)setenv("PLAIT_RUN_FOLDER", notes, 1);
    (void)setenv("PLAIT_RUN_WRAPPER", wrapper, 1);
}

/* Rank 0 makes a communicator with a rank that is noted to have ended. Rank 1 plays the ended rank: it calls
 * nothing more of MPI, except MPI_Finalize. */
static void check_absent(uint64_t world, int rank)
{
    char path[96];
    plait_comm_t *comm = NULL;

    (void)snprintf(path, sizeof(path), "%s/1.ended", notes);
    if (rank == 1) {
        FILE *note = fopen(path, "w");
        CHECK(note != NULL && fclose(note) == 0, "%s", path);
        nap(2500);
        (void)unlink(path);
        (void)rmdir(notes);
    } else {
        CHECK(plait_comm_mpi(world, &comm) == PLAIT_ERR_PEER &&
                  strstr(plait_error_text(), "rank 1 of MPI_COMM_WORLD has ended") !=
                      NULL,
              "rank 0: %s", plait_error_text());
    }
}

int main(int argc, char **argv)
{
    make_notes();
    (void)setenv("PLAIT_SHARED", "off", 1);
    (void)setenv("PLAIT_TIMEOUT", "1", 1);
    (void)alarm(60);
    const uint64_t world = mpi_world(argc, argv);
    plait_comm_t *comm = NULL;

    CHECK(plait_comm_mpi(world, &comm) == PLAIT_OK, "open: %s", plait_error_text());
    const int rank = plait_comm_rank(comm);
    CHECK(plait_comm_size(comm) == 2, "%d ranks", plait_comm_size(comm));
    plait_comm_destroy(&comm);
    check_setting(world, rank);
    check_stale(world, rank);
    check_kept(world, rank);
    check_late(world, rank);
    check_library(world, rank);
    check_absent(world, rank);
    (void)host.finalize();
    (void)plait_pool_trim();
    return mpi_report("mpi_left");
}
