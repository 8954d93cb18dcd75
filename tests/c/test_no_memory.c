/* Each allocation of one thread's rank fails, one after another, in each collective. That rank gets the error,
 * the other ranks learn of its failure at once, and the next call works on all ranks. */
#include "check.h"
#include "device/pool.h"
#include "plait/coll.h"
#include "team.h"

enum { MAX_N = 5000, MAX_RANKS = 3 };

/* On the failing thread: allocations until one fails; negative: none fails. */
static _Thread_local int64_t n_until = -1;
static _Thread_local bool has_failed;

void *__real_plait_alloc(int64_t n, int64_t size);
void *__wrap_plait_alloc(int64_t n, int64_t size);
void *__real_plait_alloc_aligned(int64_t n_bytes);
void *__wrap_plait_alloc_aligned(int64_t n_bytes);

static bool fails_now(void)
{
    const bool is_now = n_until == 0;

    n_until -= (n_until >= 0);
    has_failed = has_failed || is_now;
    return is_now;
}

void *__wrap_plait_alloc(int64_t n, int64_t size)
{
    return fails_now() ? NULL : __real_plait_alloc(n, size);
}

void *__wrap_plait_alloc_aligned(int64_t n_bytes)
{
    return fails_now() ? NULL : __real_plait_alloc_aligned(n_bytes);
}

/* ---- collectives of n numbers of each rank, all of them rank + 1, and what of y is right ---- */

typedef struct {
    const char *name;
    plait_status_t (*call)(plait_comm_t *comm, int64_t n, const double *x, double *y);
    double (*want)(int rank, int size, int64_t i, int64_t n);
    int64_t (*length)(int size, int64_t n);
} kind_t;

static int64_t one(int size, int64_t n)
{
    (void)size;
    return n;
}

static int64_t each(int size, int64_t n)
{
    return size * n;
}

static double of_all(int rank, int size, int64_t i, int64_t n)
{
    (void)rank, (void)i, (void)n;
    return size * (size + 1) / 2.0;
}

static double of_block(int rank, int size, int64_t i, int64_t n)
{
    (void)rank, (void)size;
    const int64_t from = i / n;

    return (double)from + 1;
}

static double of_first(int rank, int size, int64_t i, int64_t n)
{
    (void)rank, (void)size, (void)i, (void)n;
    return 1;
}

static double of_those_before(int rank, int size, int64_t i, int64_t n)
{
    (void)size, (void)i, (void)n;
    return (rank + 1) * (rank + 2) / 2.0;
}

static plait_status_t allreduce(plait_comm_t *c, int64_t n, const double *x, double *y)
{
    return plait_allreduce(c, PLAIT_SUM, PLAIT_F64, n, x, y);
}

static plait_status_t reduce_scatter(plait_comm_t *c, int64_t n, const double *x,
                                     double *y)
{
    return plait_reduce_scatter(c, PLAIT_SUM, PLAIT_F64, n, x, y);
}

static plait_status_t bcast(plait_comm_t *c, int64_t n, const double *x, double *y)
{
    return plait_bcast(c, 0, PLAIT_F64, n, x, y);
}

static plait_status_t allgather(plait_comm_t *c, int64_t n, const double *x, double *y)
{
    return plait_allgather(c, PLAIT_F64, n, x, y);
}

static plait_status_t alltoall(plait_comm_t *c, int64_t n, const double *x, double *y)
{
    return plait_alltoall(c, PLAIT_F64, n, x, y);
}

static plait_status_t scan(plait_comm_t *c, int64_t n, const double *x, double *y)
{
    return plait_scan(c, PLAIT_SUM, 0, PLAIT_F64, n, x, y);
}

static const kind_t kinds[] = {
    {"allreduce", allreduce, of_all, one},
    {"reduce_scatter", reduce_scatter, of_all, one},
    {"bcast", bcast, of_first, one},
    {"allgather", allgather, of_block, each},
    {"alltoall", alltoall, of_block, each},
    {"scan", scan, of_those_before, one},
};

/* ---- one run ---- */

typedef struct {
    const kind_t *kind;
    int64_t n, place; /* of the allocation that fails */
    int failing;      /* on this rank */
    atomic_bool has_failed;
} case_t;

static void check_result(const case_t *c, const plait_comm_t *comm, const double *y)
{
    const int rank = plait_comm_rank(comm), size = plait_comm_size(comm);
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < c->kind->length(size, c->n); i++) {
        n_wrong += y[i] != c->kind->want(rank, size, i, c->n);
    }
    CHECK(n_wrong == 0, "%s of %lld, place %lld, rank %d: %lld wrong", c->kind->name,
          (long long)c->n, (long long)c->place, rank, (long long)n_wrong);
}

static void run_rank(plait_comm_t *comm, void *context)
{
    case_t *c = context;
    const int rank = plait_comm_rank(comm), size = plait_comm_size(comm);
    double *x = calloc((size_t)(size * c->n), sizeof(*x));
    double *y = calloc((size_t)(size * c->n), sizeof(*y));

    if (x == NULL || y == NULL) {
        abort();
    }
    for (int64_t i = 0; i < size * c->n; i++) {
        x[i] = rank + 1;
    }
    n_until = (rank == c->failing) ? c->place : -1;
    has_failed = false;
    plait_status_t status = c->kind->call(comm, c->n, x, y);
    n_until = -1;
    if (rank == c->failing) {
        atomic_store(&c->has_failed, has_failed);
        CHECK(status == PLAIT_OK || (has_failed && status == PLAIT_ERR_NO_MEMORY),
              "%s of %lld, place %lld: %s", c->kind->name, (long long)c->n,
              (long long)c->place, plait_status_name(status));
    } else {
        CHECK(status == PLAIT_OK || status == PLAIT_ERR_PEER,
              "%s of %lld, place %lld, rank %d: %s", c->kind->name, (long long)c->n,
              (long long)c->place, rank, plait_status_name(status));
    }
    if (status == PLAIT_OK) {
        check_result(c, comm, y);
    }
    memset(y, 0, (size_t)(size * c->n) * sizeof(*y));
    status = c->kind->call(comm, c->n, x, y);
    CHECK(status == PLAIT_OK, "%s of %lld after place %lld, rank %d: %s", c->kind->name,
          (long long)c->n, (long long)c->place, rank, plait_status_name(status));
    check_result(c, comm, y);
    free(x);
    free(y);
}

/* Runs until no allocation is left to fail. */
static void run_places(int n_ranks, plait_direct_t direct, case_t *c)
{
    enum { MANY = 400 };
    (void)plait_pool_trim();
    const int64_t before = plait_alloc_balance();

    atomic_store(&c->has_failed, true);
    for (c->place = 0; atomic_load(&c->has_failed) && c->place < MANY; c->place++) {
        team_run(n_ranks, direct, run_rank, c);
    }
    CHECK(c->place < MANY, "%s: no end of allocations", c->kind->name);
    (void)plait_pool_trim();
    CHECK(plait_alloc_balance() == before, "%s: %lld blocks are left", c->kind->name,
          (long long)(plait_alloc_balance() - before));
}

int main(void)
{
    static const plait_direct_t directs[] = {PLAIT_DIRECT_POINTER, PLAIT_DIRECT_NONE};
    static const int64_t lengths[] = {1, MAX_N};

    (void)setenv("PLAIT_TIMEOUT", "5", 1);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (int d = 0; d < 2; d++) {
            for (int n_ranks = 1; n_ranks <= MAX_RANKS; n_ranks++) {
                for (int l = 0; l < 2; l++) {
                    case_t c = {
                        .kind = &kinds[k], .n = lengths[l], .failing = n_ranks - 1};
                    run_places(n_ranks, directs[d], &c);
                }
            }
        }
    }
    return report("test_no_memory");
}
