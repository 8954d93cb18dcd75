/* Eigenvalues by CUDA devices of several processes: cuSOLVERMp. Every process calls it for its own device, on
 * a blocking NCCL communicator, as the library expects. The grid has one row, so that a process has whole
 * columns, which is the layout of a dealt matrix.
 *
 * The library also computes on the host, and waits there for the device and for peers. None of its calls can
 * be ended from outside. */
#include "device/cuda_mp.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "device/cuda_nccl.h"
#include "device/cuda_state.h"

#include <stdbool.h>

/* 0.9.1, as the library counts: 0.7.0 to 0.9.0 had races, and silently wrong vectors. */
enum { OLDEST = 901 };

/* Work memory begins with the word in which the library reports its outcome. */
enum { HEAD_BYTES = 256, PLACE_BYTES = 256 };

/* The library's one handle for a device. */
typedef struct handle {
    const plait_device_t *device;
    plait_cusolver_mp_t solver;
    struct handle *next;
} handle_t;

static handle_t *handles;
static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;

/* A call's arguments. */
typedef struct {
    char job[2];
    int type;
    plait_cusolver_mp_matrix_t matrix;
    size_t n_device, n_host; /* bytes of work */
} syevd_t;

struct plait_process_grid {
    const plait_cuda_t *cuda;
    plait_device_t *device;
    plait_cusolver_mp_t solver;
    plait_nccl_t *nccl; /* NULL: not yet joined */
    plait_cusolver_mp_grid_t grid;
    /* Its address stands for a matrix when the library is asked how much memory it needs. Pinned, so that
     * devices reach it. */
    void *place;
    void *room; /* host memory for the library */
    size_t room_bytes;
    /* the call that has begun */
    plait_joint_problem_t heevd;
    plait_grid_part_t part;
    plait_stream_t stream;
    syevd_t syevd;
};

static plait_status_t must(const plait_device_t *device, int result, const char *what)
{
    return plait_cuda_library_must(device, &plait_cuda_mp_results, result, what);
}

/* ---- Handles -------------------------------------------------------------------------------- */

/* Under the lock. */
static handle_t *find_handle(const plait_device_t *device)
{
    handle_t *h = handles;

    while (h != NULL && h->device != device) {
        h = h->next;
    }
    return h;
}

static plait_status_t check_version(const plait_cuda_t *cuda,
                                    const plait_device_t *device,
                                    plait_cusolver_mp_t solver)
{
    plait_status_t status = PLAIT_OK;
    int version = 0;

    PLAIT_TRY(must(device, cuda->cusolverMpGetVersion(solver, &version),
                   "asking its version"));
    PLAIT_CHECK(version >= OLDEST, PLAIT_ERR_UNSUPPORTED,
                "cuSOLVERMp %d.%d.%d of %s is too old, 0.9.1 is the least",
                version / 10000, version / 100 % 100, version % 100,
                plait_cuda_path(PLAIT_CUDA_CUSOLVER_MP));
done:
    return status;
}

/* Under the lock. */
static plait_status_t add_handle(const plait_cuda_t *cuda, const plait_device_t *device,
                                 plait_stream_t stream, handle_t **handle_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cusolver_mp_t solver = NULL;
    handle_t *h = plait_alloc(1, sizeof(*h));

    PLAIT_CHECK(h != NULL, PLAIT_ERR_NO_MEMORY, "no memory for cuSOLVERMp");
    PLAIT_TRY(must(device, cuda->cusolverMpCreate(&solver, device->ordinal, stream),
                   "making a handle"));
    PLAIT_TRY(check_version(cuda, device, solver));
    *h = (handle_t){.device = device, .solver = solver, .next = handles};
    handles = h;
    *handle_p = h;
    h = NULL;
    solver = NULL;
done:
    if (solver != NULL) {
        (void)cuda->cusolverMpDestroy(solver);
    }
    plait_free(h);
    return status;
}

static plait_status_t handle_of(const plait_device_t *device, plait_stream_t stream,
                                const plait_cuda_t **cuda_p,
                                plait_cusolver_mp_t *solver_p)
{
    plait_status_t status = PLAIT_OK;
    handle_t *h = NULL;

    PLAIT_TRY(plait_cuda_require(PLAIT_CUDA_CUSOLVER_MP, cuda_p));
    (void)pthread_mutex_lock(&handles_lock);
    h = find_handle(device);
    if (h == NULL) {
        status = add_handle(*cuda_p, device, stream, &h);
    }
    *solver_p = (h != NULL) ? h->solver : NULL;
    (void)pthread_mutex_unlock(&handles_lock);
done:
    return status;
}

void plait_cuda_grid_release(void)
{
    const plait_cuda_t *cuda = NULL;

    (void)pthread_mutex_lock(&handles_lock);
    while (handles != NULL) {
        handle_t *h = handles;

        handles = h->next;
        if (plait_cuda_require(PLAIT_CUDA_CUSOLVER_MP, &cuda) == PLAIT_OK) {
            (void)cuda->cusolverMpDestroy(h->solver);
        }
        plait_free(h);
    }
    (void)pthread_mutex_unlock(&handles_lock);
}

/* ---- Grids ---------------------------------------------------------------------------------- */

static plait_status_t grid_id(plait_nccl_id_t *id_p)
{
    return plait_cuda_nccl.id(id_p);
}

static void forget(const plait_process_grid_t *g, syevd_t *s)
{
    if (s->matrix != NULL) {
        (void)g->cuda->cusolverMpDestroyMatrixDesc(s->matrix);
        s->matrix = NULL;
    }
}

static void destroy(plait_process_grid_t *g)
{
    if (g->place != NULL) {
        g->device->table->host_give(g->device, g->place);
    }
    plait_free(g->room);
    plait_free(g);
}

/* Destroying a grid needs the peers, which do not come: it stays. */
static void grid_abort(plait_process_grid_t *g)
{
    forget(g, &g->syevd);
    if (g->nccl != NULL) {
        plait_cuda_nccl.abort(g->nccl);
    }
    destroy(g);
}

static void grid_close(plait_process_grid_t *g)
{
    forget(g, &g->syevd);
    (void)g->cuda->cusolverMpDestroyGrid(g->grid);
    plait_cuda_nccl.close(g->nccl);
    destroy(g);
}

static plait_status_t grid_create(plait_device_t *device, plait_stream_t stream,
                                  plait_process_grid_t **grid_p)
{
    plait_status_t status = PLAIT_OK;
    plait_process_grid_t *g = plait_alloc(1, sizeof(*g));

    PLAIT_CHECK(g != NULL, PLAIT_ERR_NO_MEMORY, "no memory for cuSOLVERMp");
    g->device = device;
    PLAIT_TRY(plait_cuda_nccl.can());
    PLAIT_TRY(handle_of(device, stream, &g->cuda, &g->solver));
    PLAIT_TRY(device->table->host_take(device, PLACE_BYTES, &g->place));
    *grid_p = g;
    g = NULL;
done:
    if (g != NULL) {
        destroy(g);
    }
    return status;
}

static plait_status_t grid_join(plait_process_grid_t *g, const plait_nccl_id_t *id,
                                int n_ranks, int rank)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(plait_cuda_nccl_open(id, n_ranks, rank, true, &g->nccl));
    PLAIT_TRY(must(g->device,
                   g->cuda->cusolverMpCreateDeviceGrid(
                       g->solver, &g->grid, plait_cuda_nccl_comm(g->nccl), 1, n_ranks,
                       PLAIT_CUSOLVER_MP_COLUMNS),
                   "making a grid"));
done:
    return status;
}

/* ---- Eigenvalues ---------------------------------------------------------------------------- */

/* Blocks are square. Their height does not matter, since all rows are on this process. */
static plait_status_t describe(const plait_process_grid_t *g,
                               const plait_joint_problem_t *h, syevd_t *s)
{
    plait_status_t status = PLAIT_OK;

    s->job[0] = h->has_vectors ? 'V' : 'N';
    s->type = plait_cuda_type(h->dtype);
    PLAIT_TRY(
        must(g->device,
             g->cuda->cusolverMpCreateMatrixDesc(&s->matrix, g->grid, s->type, h->n,
                                                 h->n, h->block, h->block, 0, 0, h->n),
             "describing a matrix"));
done:
    return status;
}

/* work_bytes_p: including the head. */
static plait_status_t ask(const plait_process_grid_t *g, const plait_joint_problem_t *h,
                          const plait_grid_part_t *part, syevd_t *s,
                          int64_t *work_bytes_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(must(g->device,
                   g->cuda->cusolverMpSyevd_bufferSize(
                       g->solver, s->job, PLAIT_CUBLAS_LOWER, h->n, part->matrix, 1, 1,
                       s->matrix, part->w, part->vectors, 1, 1, s->matrix, s->type,
                       &s->n_device, &s->n_host),
                   "memory for syevd"));
    PLAIT_CHECK(s->n_device <= INT64_MAX - HEAD_BYTES && s->n_host <= INT64_MAX,
                PLAIT_ERR_OVERFLOW, "cuSOLVERMp: syevd wants %zu bytes and %zu",
                s->n_device, s->n_host);
    *work_bytes_p = HEAD_BYTES + (int64_t)s->n_device;
done:
    return status;
}

static plait_status_t need_room(plait_process_grid_t *g, size_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    void *room = NULL;

    if (n_bytes > g->room_bytes) {
        room = plait_alloc((int64_t)n_bytes, 1);
        PLAIT_CHECK(room != NULL, PLAIT_ERR_NO_MEMORY,
                    "no memory for cuSOLVERMp, which wants %zu bytes on the host",
                    n_bytes);
        plait_free(g->room);
        g->room = room;
        g->room_bytes = n_bytes;
    }
done:
    return status;
}

static plait_status_t heevd_plan(plait_process_grid_t *g,
                                 const plait_joint_problem_t *h, int64_t *work_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_grid_part_t places = {
        .matrix = g->place, .vectors = h->has_vectors ? g->place : NULL, .w = g->place};
    bool is_inside = false;
    syevd_t s = {.matrix = NULL};

    PLAIT_TRY(g->device->table->enter(g->device));
    is_inside = true;
    PLAIT_TRY(describe(g, h, &s));
    PLAIT_TRY(ask(g, h, &places, &s, work_bytes_p));
    PLAIT_TRY(need_room(g, s.n_host));
done:
    forget(g, &s);
    if (is_inside) {
        g->device->table->leave(g->device);
    }
    return status;
}

static plait_status_t heevd_begin(plait_process_grid_t *g, plait_stream_t stream,
                                  const plait_joint_problem_t *h,
                                  const plait_grid_part_t *part)
{
    plait_status_t status = PLAIT_OK;
    int64_t needed = 0;

    forget(g, &g->syevd); /* of a call that did not happen because of peers */
    g->heevd = *h;
    g->part = *part;
    g->stream = stream;
    PLAIT_TRY(describe(g, h, &g->syevd));
    PLAIT_TRY(ask(g, h, part, &g->syevd, &needed));
    PLAIT_CHECK(
        needed <= part->work_bytes, PLAIT_ERR_INTERNAL,
        "cuSOLVERMp: syevd wants %lld bytes on the device, and wanted %lld when "
        "it was planned",
        (long long)needed, (long long)part->work_bytes);
    PLAIT_TRY(need_room(g, g->syevd.n_host));
    PLAIT_TRY(must(g->device, g->cuda->cusolverMpSetStream(g->solver, stream),
                   "setting the stream"));
done:
    return status;
}

static plait_status_t heevd(plait_process_grid_t *g)
{
    plait_status_t status = PLAIT_OK;
    syevd_t *s = &g->syevd;
    const plait_grid_part_t *part = &g->part;
    char *head = part->work;

    PLAIT_TRY(must(g->device,
                   g->cuda->cusolverMpSyevd(g->solver, s->job, PLAIT_CUBLAS_LOWER,
                                            g->heevd.n, part->matrix, 1, 1, s->matrix,
                                            part->w, part->vectors, 1, 1, s->matrix,
                                            s->type, head + HEAD_BYTES, s->n_device,
                                            g->room, s->n_host, (int *)(void *)head),
                   "syevd"));
done:
    return status;
}

static plait_status_t heevd_end(plait_process_grid_t *g, int32_t *info_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = g->device->table;
    void *host = NULL;

    PLAIT_TRY(table->host_take(g->device, sizeof(*info_p), &host));
    PLAIT_TRY(
        table->to_host(g->device, g->stream, host, g->part.work, sizeof(*info_p)));
    PLAIT_TRY(table->stream_wait(g->device, g->stream));
    *info_p = *(const int32_t *)host;
    PLAIT_CHECK(*info_p >= 0, PLAIT_ERR_INTERNAL,
                "cuSOLVERMp: syevd: argument %d is wrong", -*info_p);
done:
    forget(g, &g->syevd);
    if (host != NULL) {
        table->host_give(g->device, host);
    }
    return status;
}

const plait_device_grid_t plait_cuda_grid = {
    .create = grid_create,
    .id = grid_id,
    .join = grid_join,
    .heevd_plan = heevd_plan,
    .heevd_begin = heevd_begin,
    .heevd = heevd,
    .heevd_end = heevd_end,
    .close = grid_close,
    .abort = grid_abort,
};
