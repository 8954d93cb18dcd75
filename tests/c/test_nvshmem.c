/* The link `nvshmem`, beyond test_device: which ranks are the PEs, what fails before they are reached, how the
 * pool is shared, and streams that wait for a rank which has failed. */
#include "base/status.h"
#include "base/wait.h"
#include "coll_cases.h"
#include "device/pool.h"
#include "nvshmem.h"
#include "on_device.h"
#include "plait/coll.h"
#include "transport/nvshmem_pool.h"

#include <stdlib.h>
#include <string.h>

static plait_status_t sum_of(plait_comm_t *comm, double x, double *sum_p)
{
    return plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &x, sum_p);
}

/* context: part of the reason why the link is not usable; NULL: it is usable. */
static void reach_rank(plait_comm_t *comm, void *context)
{
    const char *why = context;
    double sum = 0;

    if (why == NULL) {
        CHECK(sum_of(comm, 1, &sum) == PLAIT_OK && sum == plait_comm_size(comm),
              "%g, %s", sum, plait_error_text());
        case_movement(comm, PLAIT_F64, 777);
        case_movement(comm, PLAIT_S16, 9001);
    } else {
        for (int i = 0; i < 2; i++) { /* and it stays so */
            CHECK(sum_of(comm, 1, &sum) == PLAIT_ERR_UNSUPPORTED &&
                      strstr(plait_error_text(), why) != NULL,
                  "not '%s': %s", why, plait_error_text());
        }
    }
}

static void reach(int n_ranks, const char *why)
{
    char text[200];

    (void)snprintf(text, sizeof(text), "%s", (why != NULL) ? why : "");
    team_run(n_ranks, PLAIT_DIRECT_NONE, reach_rank, (why != NULL) ? text : NULL);
}

static void end(int n_ranks)
{
    nvshmem_end(n_ranks, team_devices);
    on_device_end(n_ranks);
}

/* ---- on the way there ---- */

static void check_failing(void)
{
    static const struct {
        const char *what, *why;
    } failing[] = {
        {"id", "rank 0: NVSHMEM: making an id failed (1)"},
        {"attr", "NVSHMEM does not start (1, status 0): NVSHMEM_DEBUG=INFO"},
        {"init:1", "rank 1: NVSHMEM does not start (1, status 0)"},
        {"device:1", "rank 1: NVSHMEM does not start (0, status 1)"},
        {"limited:0", "rank 0: NVSHMEM: several processes share a GPU"},
        {"pe:1", "rank 1: NVSHMEM: PE 2 of 3, and not 1 of 3"},
        {"malloc", "rank 0: NVSHMEM has no 999936 bytes (PLAIT_NVSHMEM_BYTES"},
        {"malloc:1", "rank 1: NVSHMEM has no 999936 bytes (PLAIT_NVSHMEM_BYTES"},
    };

    for (size_t i = 0; i < sizeof(failing) / sizeof(failing[0]); i++) {
        on_device_begin(3);
        (void)setenv("PLAIT_FAKE_NVSHMEM_FAIL", failing[i].what, 1);
        reach(3, failing[i].why);
        (void)unsetenv("PLAIT_FAKE_NVSHMEM_FAIL");
        if (i == 0) {
            reach(3, NULL); /* nothing was started */
        }
        end(3);
    }
}

static void check_settings(void)
{
    static const char *const wrong[] = {"many", "1000", "100000 bytes"};
    char why[100];

    for (int i = 0; i < 3; i++) {
        on_device_begin(2);
        (void)setenv("PLAIT_NVSHMEM_BYTES", wrong[i], 1);
        (void)snprintf(why, sizeof(why),
                       "PLAIT_NVSHMEM_BYTES is '%s': expected a number", wrong[i]);
        reach(2, why);
        (void)setenv("PLAIT_NVSHMEM_BYTES", "1000000", 1);
        reach(2, NULL);
        end(2);
    }
    (void)unsetenv("PLAIT_NVSHMEM_BYTES");
    int64_t n_bytes = 0;
    CHECK(plait_nvshmem_bytes(&n_bytes) == PLAIT_OK && n_bytes == 64 << 20, "%lld",
          (long long)n_bytes);
    (void)setenv("PLAIT_NVSHMEM_BYTES", "1000000", 1);
}

/* Which ranks may be asked at all; before a start, and after. */
static void can_rank(plait_comm_t *comm, void *context)
{
    const char *why = context;
    plait_device_t *device = comm->end.caps.device;

    CHECK(plait_link_nvshmem.can(&comm->end, device) == PLAIT_ERR_UNSUPPORTED &&
              strstr(plait_error_text(), "not MPI processes with a device each") !=
                  NULL,
          "%s", plait_error_text());
    plait_status_t status = plait_cuda_nvshmem.can(device);
    CHECK((status == PLAIT_OK) == (why == NULL) &&
              (why == NULL || strstr(plait_error_text(), why) != NULL),
          "not '%s': %s", (why != NULL) ? why : "OK", plait_error_text());
}

static void check_can(void)
{
    static char old[] = "is too old, 3.2 is the least";
    static char other[] = "NVSHMEM takes one device of a process, here device ";

    on_device_begin(2);
    team_run(2, PLAIT_DIRECT_NONE, can_rank, NULL);
    (void)setenv("PLAIT_FAKE_NVSHMEM_VERSION", "3010", 1);
    team_run(2, PLAIT_DIRECT_NONE, can_rank, old);
    (void)unsetenv("PLAIT_FAKE_NVSHMEM_VERSION");
    check_device_use_nvshmem(NULL);
    CHECK(plait_link_nvshmem.can(NULL, team_devices[0]) == PLAIT_ERR_UNSUPPORTED &&
              strstr(plait_error_text(), "NVSHMEM knows no check devices") != NULL,
          "%s", plait_error_text());
    check_device_use_nvshmem(&plait_cuda_nvshmem);
    reach(2, NULL);
    team_run(2, PLAIT_DIRECT_NONE, can_rank, other);
    end(2);
}

/* ---- who the PEs are ---- */

typedef struct {
    plait_nvshmem_id_t id;
    int shift;      /* PE (rank + shift) mod size */
    bool is_single; /* each rank is the only one of its own job */
} started_t;

static void start_rank(plait_comm_t *comm, void *context)
{
    const started_t *s = context;
    plait_device_t *device = comm->end.caps.device;
    plait_nvshmem_id_t id = s->id;
    const int rank = plait_comm_rank(comm);
    const int n = s->is_single ? 1 : plait_comm_size(comm);

    CHECK(device->table->enter(device) == PLAIT_OK, "enter");
    if (s->is_single) {
        CHECK(plait_cuda_nvshmem.id(&id) == PLAIT_OK, "id");
    }
    CHECK(plait_cuda_nvshmem.start(device, &id, n, (rank + s->shift) % n) == PLAIT_OK,
          "%s", plait_error_text());
    device->table->leave(device);
}

/* Another library starts NVSHMEM, and tells plait nothing. */
static void start_elsewhere(int n_ranks, int shift, bool is_single)
{
    started_t s = {.shift = shift, .is_single = is_single};

    CHECK(plait_cuda_nvshmem.id(&s.id) == PLAIT_OK, "id");
    team_run(n_ranks, PLAIT_DIRECT_NONE, start_rank, &s);
    plait_cuda_nvshmem_forget();
}

static void turn_devices(int n_ranks)
{
    plait_device_t *first = team_devices[0];

    for (int r = 0; r + 1 < n_ranks; r++) {
        team_devices[r] = team_devices[r + 1];
    }
    team_devices[n_ranks - 1] = first;
}

static void check_pes(void)
{
    on_device_begin(3);
    for (int i = 0; i < 3; i++) { /* of all, and of a part of them, in any order */
        reach(3, NULL);
        reach(2, NULL);
        turn_devices(3);
    }
    end(3);

    on_device_begin(3);
    reach(2, NULL);
    reach(3, "NVSHMEM's PEs are the ranks that first asked for it: rank 0 is one of 2, "
             "rank 2 one of 0");
    reach(2, NULL);
    end(3);

    on_device_begin(4); /* two pairs */
    for (int i = 0; i < 2; i++) {
        reach(2, NULL);
        turn_devices(4);
        turn_devices(4);
    }
    reach(4, "first asked for it: rank 0 is one of 2, rank 2 one of 2 others");
    end(4);
}

static void check_elsewhere(void)
{
    for (int shift = 0; shift < 2; shift++) {
        on_device_begin(3);
        start_elsewhere(3, shift, false);
        reach(3, NULL);
        reach(2, NULL);
        end(3);
    }
    on_device_begin(3);
    start_elsewhere(3, 0, false);
    reach(2, "somebody else has started it with: rank 0 is one of 3, rank 1 one of 3");
    reach(3, NULL);
    end(3);
    on_device_begin(2);
    start_elsewhere(2, 0, true);
    reach(2, "somebody else has started it with: rank 0 is one of 1, rank 1 one of 1");
    end(2);
}

/* ---- several communicators ---- */

enum { MANY = 12 };

typedef struct {
    plait_comm_t *comms[MANY][TEAM_MAX];
    int n;           /* of them */
    const char *why; /* the last one finds no part of the pool */
} many_t;

static void many_open(many_t *m, int n, int n_ranks)
{
    *m = (many_t){.n = n};
    for (int i = 0; i < n; i++) {
        CHECK(plait_comm_threads(n_ranks, m->comms[i]) == PLAIT_OK, "threads");
        for (int r = 0; r < n_ranks; r++) {
            plait_endpoint_t *end_point = &m->comms[i][r]->end;
            end_point->caps.direct = PLAIT_DIRECT_NONE;
            end_point->caps.device = team_devices[r];
            CHECK(plait_device_force_link(end_point, team_link) == PLAIT_OK, "link");
        }
    }
}

static void many_close(many_t *m, int n_ranks)
{
    for (int i = 0; i < m->n; i++) {
        for (int r = 0; r < n_ranks; r++) {
            plait_comm_destroy(&m->comms[i][r]);
        }
    }
}

static void many_rank(plait_comm_t *comm, void *context)
{
    const many_t *m = context;
    const int rank = plait_comm_rank(comm);
    double sum = 0;

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < m->n; i++) {
            plait_status_t status = sum_of(m->comms[i][rank], i, &sum);
            bool is_refused = m->why != NULL && i == m->n - 1;
            CHECK(is_refused ? status == PLAIT_ERR_UNSUPPORTED &&
                                   strstr(plait_error_text(), m->why) != NULL
                             : status == PLAIT_OK && sum == i * plait_comm_size(comm),
                  "communicator %d: %g, %s", i, sum, plait_error_text());
        }
    }
    case_movement(m->comms[0][rank], PLAIT_F32, 5000);
}

/* A failed communicator leaves the parts of others alone, and finds a part again. */
static void failing_rank(plait_comm_t *comm, void *context)
{
    const many_t *m = context;
    const int rank = plait_comm_rank(comm);
    plait_device_t *device = comm->end.caps.device;
    static double x[3][4096], y[3][4096];
    double sum = 0;

    CHECK(sum_of(m->comms[1][rank], 1, &sum) == PLAIT_OK, "%s", plait_error_text());
    /* to enter, two copies for each peer, boxes of its own, an event */
    for (int n = 1; n <= 7; n++) {
        CHECK(sum_of(m->comms[0][rank], 1, &sum) == PLAIT_OK && sum == 3, "%s",
              plait_error_text());
        if (rank == n % 3) {
            check_device_fail_at(device, n, false);
        }
        plait_status_t status =
            plait_alltoall(m->comms[0][rank], PLAIT_F64, 1000, x[rank], y[rank]);
        CHECK(status == ((rank == n % 3) ? PLAIT_ERR_INTERNAL : PLAIT_ERR_PEER) &&
                  strstr(plait_error_text(), "check device") != NULL,
              "call %d, rank %d: %d, %s", n, rank, (int)status, plait_error_text());
        check_device_fail_at(device, 0, false);
        CHECK(sum_of(m->comms[1][rank], 1, &sum) == PLAIT_OK && sum == 3, "%s",
              plait_error_text());
    }
    case_movement(m->comms[0][rank], PLAIT_F64, 3000);
    case_movement(m->comms[1][rank], PLAIT_F64, 3000);
}

static void check_many(void)
{
    many_t m;

    on_device_begin(3);
    many_open(&m, 3, 3);
    team_run(3, PLAIT_DIRECT_NONE, many_rank, &m);
    many_close(&m, 3);
    many_open(&m, 2, 3);
    team_run(3, PLAIT_DIRECT_NONE, failing_rank, &m);
    many_close(&m, 3);
    end(3);

    (void)setenv("PLAIT_NVSHMEM_BYTES", "65536", 1); /* of slots of 4096: for three */
    on_device_begin(2);
    many_open(&m, 4, 2);
    m.why = "of 65536 bytes left in one piece, 12544 are needed";
    team_run(2, PLAIT_DIRECT_NONE, many_rank, &m);
    many_close(&m, 2);
    many_open(&m, 1, 2); /* they have given it back */
    team_run(2, PLAIT_DIRECT_NONE, many_rank, &m);
    many_close(&m, 2);
    end(2);
    (void)setenv("PLAIT_NVSHMEM_BYTES", "1000000", 1);
}

/* ---- the pool ---- */

static void check_part(plait_nvshmem_job_t *job, int64_t least, int64_t offset,
                       int64_t n_bytes, plait_part_t *part)
{
    *part = (plait_part_t){0, 0};
    plait_status_t status = plait_part_take(job, least, part);
    CHECK(status == ((n_bytes > 0) ? PLAIT_OK : PLAIT_ERR_UNSUPPORTED) &&
              part->offset == offset && part->n_bytes == n_bytes,
          "%lld bytes at %lld", (long long)part->n_bytes, (long long)part->offset);
}

static void check_pool(void)
{
    plait_nvshmem_job_t job = {.n_pes = 4, .pool_bytes = 4096};
    plait_pes_t one = {{0}}, both = {{0}};
    plait_part_t parts[4];

    plait_pes_add(&one, 0);
    plait_pes_add(&both, 0);
    plait_pes_add(&both, 700);
    check_part(&job, 256, 0, 2048, &parts[0]);
    check_part(&job, 256, 2048, 1024, &parts[1]);
    check_part(&job, 1024, 3072, 1024, &parts[2]);
    check_part(&job, 256, 0, 0, &parts[3]);
    plait_part_give(&job, &parts[1]);
    check_part(&job, 768, 2048, 768, &parts[1]);
    plait_part_retire(&job, &parts[0], &both);
    plait_part_reclaim(&job, &one);
    check_part(&job, 512, 0, 0, &parts[3]);
    CHECK(plait_part_is_clean(&job), "clean");
    plait_part_reclaim(&job, &both);
    check_part(&job, 512, 0, 1024, &parts[0]);
    plait_part_retire(&job, &(plait_part_t){0, 0}, NULL); /* none: not the one there */
    CHECK(plait_part_is_clean(&job), "still");
    plait_part_retire(&job, &parts[1], NULL);
    plait_part_reclaim(&job, &both);
    CHECK(!plait_part_is_clean(&job), "not clean");
    check_part(&job, 1280, 0, 0, &parts[3]);
    plait_free(job.book);
}

/* ---- a start that does not end ---- */

static plait_status_t end_waits(const plait_wait_t *wait)
{
    return (strcmp(wait->what, "NVSHMEM") == 0)
               ? plait_fail(PLAIT_ERR_TIMEOUT, "given up: %s", wait->what)
               : PLAIT_OK;
}

static void hanging_rank(plait_comm_t *comm, void *context)
{
    double sum = 0;

    (void)context;
    CHECK(sum_of(comm, 1, &sum) == PLAIT_ERR_UNSUPPORTED &&
              strstr(plait_error_text(), "nvshmem: rank 0: given up: NVSHMEM") != NULL,
          "%s", plait_error_text());
    CHECK(sum_of(comm, 1, &sum) == PLAIT_ERR_UNSUPPORTED &&
              strstr(plait_error_text(), "has given up waiting for its start") != NULL,
          "%s", plait_error_text());
}

/* Runs last: nothing can start after it. */
static void check_hanging(void)
{
    const int64_t before = plait_alloc_balance();

    on_device_begin(2);
    (void)setenv("PLAIT_FAKE_NVSHMEM_FAIL", "hang", 1);
    plait_wait_set_hook(end_waits);
    team_run(2, PLAIT_DIRECT_NONE, hanging_rank, NULL);
    plait_wait_set_hook(NULL);
    (void)unsetenv("PLAIT_FAKE_NVSHMEM_FAIL"); /* the threads end */
    CHECK(balance_at_last(before) == before, "threads that go on");
    end(2);
}

int main(void)
{
    (void)setenv("PLAIT_CUDA_DIR", FAKES_DIR, 1);
    (void)setenv("PLAIT_NVSHMEM_BYTES", "1000000", 1);
    check_device_use_nvshmem(&plait_cuda_nvshmem);
    team_link = &plait_link_nvshmem;
    check_pool();
    check_failing();
    check_settings();
    check_can();
    check_pes();
    check_elsewhere();
    check_many();
    check_hanging();
    (void)plait_pool_trim();
    return report("test_nvshmem");
}
