/* What a C program does with arrays on devices, by public functions alone: every collective, messages and one
 * plan of each kind. Ranks are threads; results are compared with the same calls on arrays in host memory.
 * Operands come late on the stream, so only its order makes results right. Runs on the GPUs that there are;
 * with the argument `host` on stand-ins of CUDA's libraries, with `device` on check devices. */
#include "base/status.h"
#include "cuda_stand_in.h"
#include "device/find.h"
#include "device/pool.h"
#include "kernel/blas.h"
#include "parts.h"
#include "plait/coll.h"
#include "plait/cuda.h"
#include "plait/dense.h"
#include "plait/fft.h"
#include "plait/halo.h"
#include "plait/redist.h"
#include "plan/plan.h"
#include "rank_device.h"
#include "transport/device_link.h"

#include <math.h>

enum { SKIPPED = 77, N = 5000, N_ITEMS = 4 * N * TEAM_MAX };

typedef struct {
    plait_comm_t *on_host, *on_device;
    plait_device_t *device;
    int rank, size;
} rank_t;

typedef plait_status_t (*call_fn_t)(plait_comm_t *comm, const double *x, double *y);

static int64_t n_items(int64_t n, int size)
{
    return (n < 0) ? -n * size : n;
}

static double *numbers(const rank_t *r, int64_t n)
{
    double *x = plait_alloc(n, sizeof(*x));

    for (int64_t i = 0; i < n; i++) {
        x[i] = (double)((i * 7 + 31 * r->rank) % 101 - 50);
    }
    return x;
}

/* Compares with the host's results; tolerance is relative to their largest number. */
static void compare(const rank_t *r, const char *what, const double *got,
                    const double *want, int64_t n, double tolerance)
{
    double most = 0;
    double error = 0;

    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(want[i]));
        error = (got[i] == want[i]) ? error : fmax(error, fabs(got[i] - want[i]));
        error = isnan(got[i]) == isnan(want[i]) ? error : INFINITY;
    }
    CHECK(error <= tolerance * most, "%s, rank %d of %d: %g of %g", what, r->rank,
          r->size, error, most);
}

static void *arrives(const rank_t *r, double *x, int64_t n)
{
    void *there = on_device_alloc(r->device, r->rank, n * 8);

    if (n > 0) {
        on_device_move(r->device, r->rank, there, x, n * 8, false);
    }
    return there;
}

static void fetch(const rank_t *r, double *y, void *there, int64_t n)
{
    on_device_drain(r->device, r->rank);
    if (n > 0) {
        on_device_move(r->device, r->rank, there, y, n * 8, true);
    }
    on_device_free(r->device, r->rank, there);
}

/* ---------------------------------------------------------------- collectives */

static plait_status_t call_allreduce(plait_comm_t *comm, const double *x, double *y)
{
    return plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, N, x, y);
}

static plait_status_t call_reduce(plait_comm_t *comm, const double *x, double *y)
{
    return plait_reduce(comm, PLAIT_MAX, plait_comm_size(comm) - 1, PLAIT_F64, N, x, y);
}

static plait_status_t call_scan(plait_comm_t *comm, const double *x, double *y)
{
    return plait_scan(comm, PLAIT_SUM, PLAIT_SCAN_EXCLUSIVE, PLAIT_F64, N, x, y);
}

static plait_status_t call_reduce_scatter(plait_comm_t *comm, const double *x,
                                          double *y)
{
    return plait_reduce_scatter(comm, PLAIT_SUM, PLAIT_F64, N, x, y);
}

static plait_status_t call_bcast(plait_comm_t *comm, const double *x, double *y)
{
    return plait_bcast(comm, 0, PLAIT_F64, N, x, y);
}

static plait_status_t call_allgather(plait_comm_t *comm, const double *x, double *y)
{
    return plait_allgather(comm, PLAIT_F64, N, x, y);
}

/* Rank r gives 100 r elements; rank 0 gives none. */
static plait_status_t call_allgatherv(plait_comm_t *comm, const double *x, double *y)
{
    int64_t counts[TEAM_MAX];

    for (int r = 0; r < plait_comm_size(comm); r++) {
        counts[r] = 100 * r;
    }
    return plait_allgatherv(comm, PLAIT_F64, counts, x, y);
}

static plait_status_t call_alltoall(plait_comm_t *comm, const double *x, double *y)
{
    return plait_alltoall(comm, PLAIT_F64, N, x, y);
}

static plait_status_t call_gather(plait_comm_t *comm, const double *x, double *y)
{
    return plait_gather(comm, 0, PLAIT_F64, N, x, y);
}

static plait_status_t call_scatter(plait_comm_t *comm, const double *x, double *y)
{
    return plait_scatter(comm, 0, PLAIT_F64, N, x, y);
}

static plait_status_t call_route(plait_comm_t *comm, const double *x, double *y)
{
    const int size = plait_comm_size(comm);
    plait_edge_t edges[TEAM_MAX];

    for (int r = 0; r < size; r++) { /* block 1 to block 0 of the next one */
        edges[r] = (plait_edge_t){
            .source = r, .source_block = 1, .dest = (r + 1) % size, .dest_block = 0};
    }
    return plait_route(comm, size, edges, PLAIT_F64, N, 2, x, 2, y);
}

/* A ring: send to the next rank, receive from the rank before. */
static plait_status_t ring(plait_comm_t *comm, int64_t n, const double *x, double *y)
{
    const int size = plait_comm_size(comm);
    const int rank = plait_comm_rank(comm);
    const int from = (rank + size - 1) % size;
    plait_envelope_t envelope = {.source = -7};
    plait_status_t status = plait_sendrecv(comm, (rank + 1) % size, 3, PLAIT_F64, n, x,
                                           PLAIT_ANY, 3, PLAIT_F64, n, y, &envelope);

    CHECK(envelope.source == from && envelope.tag == 3, "from %d", envelope.source);
    return status;
}

static plait_status_t call_ring(plait_comm_t *comm, const double *x, double *y)
{
    return ring(comm, 10, x, y);
}

static plait_status_t call_long_ring(plait_comm_t *comm, const double *x, double *y)
{
    return ring(comm, 4 * N, x, y);
}

/* A message from the first rank to the last. */
static plait_status_t call_message(plait_comm_t *comm, const double *x, double *y)
{
    plait_status_t status = PLAIT_OK;
    const int rank = plait_comm_rank(comm);
    const int last = plait_comm_size(comm) - 1;

    if (rank == 0) {
        status = plait_send(comm, last, 5, PLAIT_F64, N / 10, x);
    }
    if (status == PLAIT_OK && rank == last) {
        status = plait_recv(comm, 0, 5, PLAIT_F64, N / 10, y, NULL);
    }
    return status;
}

/* Elements of x and y; negative: for each rank. Results that a rank does not get stay as they were. */
static const struct {
    const char *name;
    call_fn_t call;
    int64_t n_x, n_y;
} calls[] = {
    {"allreduce", call_allreduce, N, N},
    {"reduce", call_reduce, N, N},
    {"scan", call_scan, N, N},
    {"reduce_scatter", call_reduce_scatter, -N, N},
    {"bcast", call_bcast, N, N},
    {"allgather", call_allgather, N, -N},
    {"allgatherv", call_allgatherv, -100, -100 * TEAM_MAX},
    {"alltoall", call_alltoall, -N, -N},
    {"gather", call_gather, N, -N},
    {"scatter", call_scatter, -N, N},
    {"route", call_route, 2 * N, 2 * N},
    {"sendrecv", call_ring, 10, 10},
    {"long sendrecv", call_long_ring, 4 * N, 4 * N},
    {"send and recv", call_message, N, N},
};

static void check_call(const rank_t *r, int i)
{
    const int64_t n_x = n_items(calls[i].n_x, r->size);
    const int64_t n_y = n_items(calls[i].n_y, r->size);
    double *x = numbers(r, n_x);
    double *y = numbers(r, n_y);
    double *got = numbers(r, n_y);
    void *x_there = arrives(r, x, n_x);
    void *y_there = arrives(r, got, n_y);

    check_good(calls[i].call(r->on_host, x, y));
    check_good(calls[i].call(r->on_device, x_there, y_there));
    fetch(r, got, y_there, n_y);
    compare(r, calls[i].name, got, y, n_y, 0);
    on_device_free(r->device, r->rank, x_there);
    plait_free(x);
    plait_free(y);
    plait_free(got);
    check_good(plait_barrier(r->on_device));
}

/* ---------------------------------------------------------------- plans */

typedef plait_status_t (*plan_fn_t)(plait_comm_t *comm, plait_plan_t **plan_p);

static const int64_t shape[] = {12, 9, 10}, half_shape[] = {12, 9, 6};

static plait_status_t plan_redist(plait_comm_t *comm, plait_plan_t **plan_p)
{
    const plait_layout_t from = split_along(0, shape, plait_comm_size(comm));
    const plait_layout_t to = split_along(2, shape, plait_comm_size(comm));

    return plait_redist_plan(comm, PLAIT_F64, &from, &to, plan_p);
}

static plait_status_t plan_fft_of(plait_comm_t *comm, plait_fft_kind_t kind,
                                  plait_plan_t **plan_p)
{
    static const int axes[] = {0, 1, 2};
    const plait_layout_t from = split_along(0, shape, plait_comm_size(comm));
    const plait_layout_t to = split_along(
        1, (kind == PLAIT_FFT_COMPLEX) ? shape : half_shape, plait_comm_size(comm));
    const plait_fft_problem_t problem = {.dtype = PLAIT_C128,
                                         .from = &from,
                                         .to = &to,
                                         .n_axes = 3,
                                         .axes = axes,
                                         .sign = -1,
                                         .scale = 0.5,
                                         .kind = kind};

    return plait_fft_plan(comm, &problem, plan_p);
}

static plait_status_t plan_fft(plait_comm_t *comm, plait_plan_t **plan_p)
{
    return plan_fft_of(comm, PLAIT_FFT_COMPLEX, plan_p);
}

static plait_status_t plan_rfft(plait_comm_t *comm, plait_plan_t **plan_p)
{
    return plan_fft_of(comm, PLAIT_FFT_REAL_TO_COMPLEX, plan_p);
}

static plait_status_t plan_halo(plait_comm_t *comm, plait_plan_t **plan_p)
{
    static const int64_t before[] = {2, 1, 0}, after[] = {1, 0, 3};
    const plait_layout_t cells = split_along(0, shape, plait_comm_size(comm));
    const plait_halo_problem_t problem = {
        .dtype = PLAIT_F64, .cells = &cells, .before = before, .after = after};

    return plait_halo_pad_plan(comm, &problem, plan_p);
}

static plait_status_t plan_fold(plait_comm_t *comm, plait_plan_t **plan_p)
{
    static const int64_t before[] = {2, 1, 0}, after[] = {1, 0, 3};
    const plait_layout_t cells = split_along(0, shape, plait_comm_size(comm));
    const plait_halo_problem_t problem = {
        .dtype = PLAIT_F64, .cells = &cells, .before = before, .after = after};

    return plait_halo_fold_plan(comm, &problem, plan_p);
}

static const struct {
    const char *name;
    plan_fn_t plan;
    double tolerance;
} plans[] = {
    {"redistribution", plan_redist, 0}, {"fft", plan_fft, 1e-13},
    {"rfft", plan_rfft, 1e-13},         {"halo", plan_halo, 0},
    {"halo's adjoint", plan_fold, 0},
};

static void check_plan(const rank_t *r, int i)
{
    plait_plan_t *here = NULL;
    plait_plan_t *there = NULL;
    plait_request_t request;

    check_good(plans[i].plan(r->on_host, &here));
    check_good(plans[i].plan(r->on_device, &there));
    const int64_t n_x = here->slot_bytes[0] / 8;
    const int64_t n_y = here->slot_bytes[1] / 8;
    double *x = numbers(r, n_x);
    double *y = numbers(r, n_y);
    double *got = numbers(r, n_y);
    void *x_there = arrives(r, x, n_x);
    void *y_there = arrives(r, got, n_y);
    check_good(
        plait_plan_execute(here, r->on_host, (const void *[]){x}, (void *[]){y}));
    check_good(plait_plan_execute(there, r->on_device, (const void *[]){x_there},
                                  (void *[]){y_there}));
    check_refused(plait_plan_execute(here, r->on_device, (const void *[]){x_there},
                                     (void *[]){y_there}),
                  PLAIT_ERR_INVALID,
                  "for arrays in host memory, those of the communicator are on device");
    check_refused(plait_plan_start(there, r->on_device, (const void *[]){x_there},
                                   (void *[]){y_there}, &request),
                  PLAIT_ERR_UNSUPPORTED,
                  "plait_plan_start takes no arrays on a device");
    check_refused(
        plait_plan_execute(there, r->on_host, (const void *[]){x}, (void *[]){y}),
        PLAIT_ERR_INVALID, "those of the communicator are in host memory");
    fetch(r, got, y_there, n_y);
    compare(r, plans[i].name, got, y, n_y, plans[i].tolerance);
    on_device_free(r->device, r->rank, x_there);
    plait_plan_destroy(&here);
    plait_plan_destroy(&there);
    plait_free(x);
    plait_free(y);
    plait_free(got);
}

/* A = L L^T of small integers, so that the factor is exactly L; and the order of a minor that is not
 * positive. */
static void check_potrf(const rank_t *r)
{
    enum { SIZE = 23, BLOCK = 4 };
    const plait_potrf_problem_t problem = {
        .dtype = PLAIT_F64, .n = SIZE, .block = BLOCK, .grid = 1};
    const int64_t n_columns = plait_dense_columns(SIZE, BLOCK, r->size);
    double l[SIZE][SIZE] = {{0}}; /* by columns */
    double *a = plait_alloc(n_columns * SIZE + 1, sizeof(*a));
    double *want = plait_alloc(n_columns * SIZE + 1, sizeof(*want));
    int32_t info = -1;
    plait_plan_t *plan = NULL;

    for (int j = 0; j < SIZE; j++) {
        for (int i = j; i < SIZE; i++) {
            l[j][i] = (i == j) ? 3 + j % 4 : (i * 5 + j * 3) % 7 - 3;
        }
    }
    for (int64_t c = 0; c < n_columns; c++) {
        const int64_t j = ((c / BLOCK) * r->size + r->rank) * BLOCK + c % BLOCK;
        for (int64_t i = 0; i < SIZE && j < SIZE; i++) {
            want[c * SIZE + i] = l[j][i];
            for (int k = 0; k < SIZE; k++) {
                a[c * SIZE + i] += l[k][i] * l[k][j];
            }
        }
    }
    void *a_there = arrives(r, a, n_columns * SIZE);
    void *info_there = on_device_alloc(r->device, r->rank, 8);
    check_good(plait_potrf_plan(r->on_device, &problem, &plan));
    check_good(plait_plan_execute(plan, r->on_device, (const void *[]){a_there},
                                  (void *[]){a_there, info_there}));
    on_device_drain(r->device, r->rank);
    on_device_move(r->device, r->rank, info_there, &info, 4, true);
    fetch(r, a, a_there, n_columns * SIZE);
    CHECK(info == 0, "info %d", info);
    compare(r, "potrf", a, want, n_columns * SIZE, 1e-13);
    on_device_free(r->device, r->rank, info_there);
    plait_plan_destroy(&plan);
    plait_free(a);
    plait_free(want);
}

/* ---------------------------------------------------------------- places */

static plait_stream_t own_stream(const rank_t *r)
{
    plait_stream_t stream = NULL;

    check_good(r->device->table->enter(r->device));
    check_good(r->device->table->stream_create(r->device, &stream));
    r->device->table->leave(r->device);
    return stream;
}

/* A call on a second stream sees the results of the first stream, even after a call on the host in between. The
 * second stream is destroyed at the end. */
static void check_streams(const rank_t *r)
{
    double *x = numbers(r, N);
    double *want = numbers(r, N);
    double *got = numbers(r, N);
    plait_stream_t mine = on_device_stream(r->device, r->rank);
    plait_stream_t other = own_stream(r);
    void *x_there = arrives(r, x, N);
    void *y_there = on_device_alloc(r->device, r->rank, N * 8);
    void *z_there = on_device_alloc(r->device, r->rank, N * 8);

    check_good(call_allreduce(r->on_host, x, want));
    check_good(call_allreduce(r->on_host, want, x));
    check_good(call_allreduce(r->on_device, x_there, y_there));
    check_good(plait_comm_on_host(r->on_device));
    check_good(call_allreduce(r->on_device, want, got)); /* on the host */
    compare(r, "host again", got, x, N, 0);
    check_good(plait_comm_on_cuda(r->on_device, r->device->ordinal, other));
    check_good(call_allreduce(r->on_device, y_there, z_there));
    check_good(plait_comm_on_cuda(r->on_device, r->device->ordinal, mine));
    fetch(r, got, z_there, N);
    compare(r, "streams", got, x, N, 0);
    on_device_free(r->device, r->rank, x_there);
    on_device_free(r->device, r->rank, y_there);
    check_good(r->device->table->enter(r->device));
    r->device->table->stream_destroy(r->device, other);
    r->device->table->leave(r->device);
    plait_free(x);
    plait_free(want);
    plait_free(got);
}

/* The last rank's arrays are on the host: it can send a message, but all ranks refuse a collective. */
static void check_mixed(const rank_t *r)
{
    const bool is_here = r->rank == r->size - 1;
    double *x = numbers(r, 4 * N);
    double *want = numbers(r, 4 * N);
    double *got = numbers(r, 4 * N);
    void *x_there = arrives(r, x, 4 * N);
    void *y_there = arrives(r, got, 4 * N);

    check_good(ring(r->on_host, 4 * N, x, want));
    if (is_here) {
        check_good(plait_comm_on_host(r->on_device));
    }
    check_good(
        ring(r->on_device, 4 * N, is_here ? x : x_there, is_here ? got : y_there));
    if (!is_here) {
        on_device_drain(r->device, r->rank);
        on_device_move(r->device, r->rank, y_there, got, 4 * N * 8, true);
    }
    compare(r, "a message between places", got, want, 4 * N, 0);
    check_refused(
        call_allreduce(r->on_device, is_here ? x : x_there, is_here ? got : y_there),
        PLAIT_ERR_MISMATCH, "allreduce");
    on_device_drain(r->device, r->rank);
    on_device_free(r->device, r->rank, x_there);
    on_device_free(r->device, r->rank, y_there);
    plait_free(x);
    plait_free(want);
    plait_free(got);
}

static void check_refusals(const rank_t *r)
{
    plait_device_t *other = NULL;

    check_refused(plait_comm_on_cuda(NULL, 0, NULL), PLAIT_ERR_COMM, "NULL");
    check_refused(plait_comm_on_host(NULL), PLAIT_ERR_COMM, "NULL");
    CHECK(plait_comm_on_cuda(r->on_host, 1000, NULL) == PLAIT_ERR_UNSUPPORTED, "%s",
          plait_error_text());
    CHECK(plait_comm_on_cuda(r->on_host, -1, NULL) == PLAIT_ERR_UNSUPPORTED, "%s",
          plait_error_text());
    if (plait_device_find(r->device->ordinal ^ 1, &other) == PLAIT_OK) {
        check_refused(plait_comm_on_cuda(r->on_device, r->device->ordinal ^ 1, NULL),
                      PLAIT_ERR_INVALID, "a communicator has one device");
    }
}

/* ---------------------------------------------------------------- ranks */

static plait_comm_t *host_comms[TEAM_MAX];
static bool has_dense;

static void run_rank(plait_comm_t *comm, void *context)
{
    const int rank = plait_comm_rank(comm);
    const rank_t r = {.on_host = host_comms[rank],
                      .on_device = comm,
                      .device = team_devices[rank],
                      .rank = rank,
                      .size = plait_comm_size(comm)};

    (void)context;
    check_good(
        plait_comm_on_cuda(comm, r.device->ordinal, on_device_stream(r.device, rank)));
    check_refusals(&r);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        check_call(&r, (int)i);
    }
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        check_plan(&r, (int)i);
    }
    if (has_dense) {
        check_potrf(&r);
    }
    check_streams(&r);
    if (r.size > 1) {
        check_mixed(&r);
    }
}

static void check_team(int n_ranks)
{
    plait_comm_t *comms[TEAM_MAX];
    team_rank_t ranks[TEAM_MAX];

    on_device_begin(n_ranks);
    check_good(plait_comm_threads(n_ranks, host_comms));
    check_good(plait_comm_threads(n_ranks, comms));
    for (int r = 0; r < n_ranks; r++) {
        ranks[r] = (team_rank_t){comms[r], run_rank, NULL};
    }
    team_work(n_ranks, ranks);
    for (int r = 0; r < n_ranks; r++) {
        plait_comm_destroy(&comms[r]);
        plait_comm_destroy(&host_comms[r]);
    }
    on_device_end(n_ranks);
}

static plait_status_t find_check_device(int ordinal, plait_device_t **device_p)
{
    const bool is_there =
        ordinal >= 0 && ordinal < TEAM_MAX && team_devices[ordinal] != NULL;

    *device_p = is_there ? team_devices[ordinal] : NULL;
    return is_there ? PLAIT_OK : plait_fail(PLAIT_ERR_UNSUPPORTED, "no such device");
}

static void check_not_asked_for(void)
{
    plait_comm_t *comm = NULL;
    double x = 2;
    double y = 0;

    (void)setenv("PLAIT_CUDA", "0", 1);
    check_good(plait_comm_self(&comm));
    check_refused(plait_comm_on_cuda(comm, 0, NULL), PLAIT_ERR_UNSUPPORTED,
                  "PLAIT_CUDA");
    check_good(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &x, &y));
    CHECK(y == 2, "%g", y); /* all is as before */
    plait_comm_destroy(&comm);
}

int main(int n_arguments, char **arguments)
{
    const bool is_host = cuda_stands_in(n_arguments, arguments, FAKES_DIR, "2");
    const bool is_check = n_arguments > 1 && strcmp(arguments[1], "device") == 0;

    if (is_check) {
        check_not_asked_for();
        plait_device_set_finder(find_check_device);
    } else if (!on_device_use_cuda()) {
        return SKIPPED;
    }
    has_dense = !is_check || plait_blas_require() == PLAIT_OK;
    for (int n_ranks = 1; n_ranks <= 4; n_ranks += is_host ? 2 : 1) {
        check_team(n_ranks);
    }
    if (!is_check) {
        plait_cuda_release();
    }
    (void)plait_pool_trim();
    return report("test_cuda_api");
}
