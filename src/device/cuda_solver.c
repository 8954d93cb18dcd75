/* Factorizations and eigenvalues by cuSOLVER: one handle per device.
 *
 * A tile's work memory begins with the word in which cuSOLVER reports its outcome, for LU followed by its
 * pivots of 64 bits. A kernel converts both to the form of the device's table. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "device/cuda_state.h"

#include <stdbool.h>

enum {
    GRAIN = 256,
    SIZES_AT = 8,
    INVALID_VALUE = 3 /* CUSOLVER_STATUS_INVALID_VALUE */
};

/* Host memory that cuSOLVER needs in a call and does not read afterwards: JAX frees its own then. Kept for
 * later calls until the device is released. */
struct plait_cuda_room {
    plait_cuda_room_t *next;
    void *memory;
    size_t n_bytes;
};

typedef int (*ormqr_size_fn_t)(plait_cusolver_t, int, int, int, int, int, const void *,
                               int, const void *, const void *, int, int *);
typedef int (*ormqr_fn_t)(plait_cusolver_t, int, int, int, int, int, const void *, int,
                          const void *, void *, int, void *, int, int *);

/* cusolverStatus_t. */
static const char *const names[] = {
    "success",          "not initialized",       "allocation failed",
    "invalid value",    "architecture mismatch", "mapping error",
    "execution failed", "internal error",        "matrix type not supported",
    "not supported"};
#define RESULTS(_library)                                                             \
    {                                                                                 \
        .library = (_library), .names = names,                                        \
        .n_names = sizeof(names) / sizeof(names[0]), .no_memory = 2, .unsupported = { \
            8,                                                                        \
            9                                                                         \
        }                                                                             \
    }
const plait_cuda_results_t plait_cuda_solver_results = RESULTS("cuSOLVER");
const plait_cuda_results_t plait_cuda_mg_results = RESULTS("cuSolverMg");

const plait_cuda_results_t plait_cuda_mp_results = RESULTS("cuSOLVERMp");

static plait_status_t must(const plait_cuda_state_t *state, int result,
                           const char *what)
{
    return plait_cuda_library_must(&state->device, &plait_cuda_solver_results, result,
                                   what);
}

static const char *what_of(const plait_device_tile_t *t)
{
    return (t->op == PLAIT_TILE_POTRF)   ? "potrf"
           : (t->op == PLAIT_TILE_GETRF) ? "getrf"
           : (t->op == PLAIT_TILE_GEQRF) ? "geqrf"
           : (t->op == PLAIT_TILE_ORMQR) ? "ormqr"
                                         : "syevd";
}

/* ---- How much memory ------------------------------------------------------------------------- */

typedef struct {
    size_t n_device, n_host; /* bytes that cuSOLVER asks for */
    int n_ormqr;             /* the same for ormqr, in elements */
} sizes_t;

/* Bytes of outcome, sizes and pivots, which come before cuSOLVER's part. */
static int64_t head_bytes(const plait_device_tile_t *t)
{
    const int64_t n_pivots = (t->op == PLAIT_TILE_GETRF) ? plait_min(t->m, t->n) : 0;
    const int64_t n_bytes = n_pivots * (int64_t)sizeof(int64_t);

    return GRAIN + (n_bytes + GRAIN - 1) / GRAIN * GRAIN;
}

/* ormqr takes extents of 32 bits. */
typedef struct {
    int m, n, k, lda, ldc, index;
} ormqr_t;

static plait_status_t ormqr_of(const plait_device_tile_t *t, ormqr_t *o)
{
    plait_status_t status = PLAIT_OK;

    o->index = (t->dtype == PLAIT_F32)   ? 0
               : (t->dtype == PLAIT_F64) ? 1
               : (t->dtype == PLAIT_C64) ? 2
                                         : 3;
    PLAIT_TRY(plait_int_of(t->m, &o->m));
    PLAIT_TRY(plait_int_of(t->n, &o->n));
    PLAIT_TRY(plait_int_of(t->k, &o->k));
    PLAIT_TRY(plait_int_of(t->lda, &o->lda));
    PLAIT_TRY(plait_int_of(t->ldc, &o->ldc));
done:
    return status;
}

static plait_status_t ormqr_size(const plait_cuda_state_t *state,
                                 const plait_device_tile_t *t, sizes_t *sizes)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *cuda = state->cuda;
    const ormqr_size_fn_t fn[] = {
        cuda->cusolverDnSormqr_bufferSize, cuda->cusolverDnDormqr_bufferSize,
        cuda->cusolverDnCunmqr_bufferSize, cuda->cusolverDnZunmqr_bufferSize};
    ormqr_t o = {.index = 0};

    PLAIT_TRY(ormqr_of(t, &o));
    PLAIT_TRY(must(state,
                   fn[o.index](state->solver, PLAIT_CUBLAS_LEFT,
                               plait_cuda_trans(t->dtype, t->trans), o.m, o.n, o.k,
                               t->a, o.lda, t->extra, t->c, o.ldc, &sizes->n_ormqr),
                   "memory for ormqr"));
    sizes->n_device = (size_t)sizes->n_ormqr * (size_t)plait_dtype_bytes(t->dtype);
done:
    return status;
}

static int size_of(const plait_cuda_state_t *state, const plait_device_tile_t *t,
                   sizes_t *sizes)
{
    const plait_cuda_t *cuda = state->cuda;
    const int type = plait_cuda_type(t->dtype);
    size_t *device = &sizes->n_device, *host = &sizes->n_host;

    return (t->op == PLAIT_TILE_POTRF)
               ? cuda->cusolverDnXpotrf_bufferSize(state->solver, state->solver_params,
                                                   PLAIT_CUBLAS_LOWER, t->n, type, t->c,
                                                   t->ldc, type, device, host)
           : (t->op == PLAIT_TILE_GETRF)
               ? cuda->cusolverDnXgetrf_bufferSize(state->solver, state->solver_params,
                                                   t->m, t->n, type, t->c, t->ldc, type,
                                                   device, host)
           : (t->op == PLAIT_TILE_GEQRF)
               ? cuda->cusolverDnXgeqrf_bufferSize(state->solver, state->solver_params,
                                                   t->m, t->n, type, t->c, t->ldc, type,
                                                   t->extra, type, device, host)
               : cuda->cusolverDnXsyevd_bufferSize(
                     state->solver, state->solver_params, t->k != 0, PLAIT_CUBLAS_LOWER,
                     t->n, type, t->c, t->ldc, plait_cuda_real_type(t->dtype), t->extra,
                     type, device, host);
}

/* Before CUDA 13, syevd takes an extent of 64 bits but refuses more than about 25000 when it is asked for its
 * memory size (CUDALibrarySamples, issue 246). */
static plait_status_t say_limit(const plait_cuda_state_t *state,
                                const plait_device_tile_t *t)
{
    int version[] = {0, 0, 0};

    for (int i = 0; i < 3; i++) {
        (void)state->cuda->cusolverGetProperty(i, &version[i]);
    }
    return plait_fail(
        PLAIT_ERR_UNSUPPORTED,
        "CUDA device %d: cuSOLVER %d.%d.%d: syevd refuses a %lld x %lld matrix "
        "of %s: before CUDA 13 it takes about 25000 rows at most; invalid "
        "value (%d)",
        state->device.ordinal, version[0], version[1], version[2], (long long)t->n,
        (long long)t->n, plait_dtype_name(t->dtype), INVALID_VALUE);
}

static plait_status_t ask(const plait_cuda_state_t *state, const plait_device_tile_t *t,
                          sizes_t *sizes)
{
    plait_status_t status = PLAIT_OK;

    if (t->op == PLAIT_TILE_ORMQR) {
        PLAIT_TRY(ormqr_size(state, t, sizes));
    } else {
        int result = size_of(state, t, sizes);
        PLAIT_TRY((t->op == PLAIT_TILE_HEEVD && result == INVALID_VALUE)
                      ? say_limit(state, t)
                      : must(state, result, what_of(t)));
    }
done:
    return status;
}

/* The memory that cuSOLVER asked for when a call was planned. */
struct plait_cuda_planned {
    plait_device_tile_t what; /* without addresses */
    sizes_t sizes;
    plait_cuda_planned_t *next;
};

static bool is_same(const plait_device_tile_t *a, const plait_device_tile_t *b)
{
    return a->op == b->op && a->dtype == b->dtype && a->trans == b->trans &&
           a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda &&
           a->ldc == b->ldc;
}

static const plait_cuda_planned_t *find(const plait_cuda_state_t *state,
                                        const plait_device_tile_t *tile)
{
    const plait_cuda_planned_t *p = state->planned;

    while (p != NULL && !is_same(&p->what, tile)) {
        p = p->next;
    }
    return p;
}

/* ---- Planning -------------------------------------------------------------------------------- */

static plait_status_t open_solver(plait_cuda_state_t *state)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *cuda = NULL;

    PLAIT_TRY(plait_cuda_require(PLAIT_CUDA_CUSOLVER, &cuda));
    if (state->solver == NULL) {
        PLAIT_TRY(
            must(state, cuda->cusolverDnCreate(&state->solver), "making a handle"));
    }
    if (state->solver_params == NULL) {
        PLAIT_TRY(must(state, cuda->cusolverDnCreateParams(&state->solver_params),
                       "making parameters"));
    }
done:
    return status;
}

static plait_status_t need_room(plait_cuda_state_t *state, size_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_room_t *room = NULL;

    if (n_bytes == 0 || (state->rooms != NULL && state->rooms->n_bytes >= n_bytes)) {
        goto done;
    }
    room = plait_alloc(1, sizeof(*room));
    PLAIT_CHECK(room != NULL, PLAIT_ERR_NO_MEMORY, "no memory for cuSOLVER");
    room->memory = plait_alloc((int64_t)n_bytes, 1);
    PLAIT_CHECK(room->memory != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for cuSOLVER, which wants %zu bytes on the host", n_bytes);
    room->n_bytes = n_bytes;
    room->next = state->rooms;
    state->rooms = room;
    room = NULL;
done:
    plait_free(room);
    return status;
}

static plait_status_t add(plait_cuda_state_t *state, const plait_device_tile_t *tile,
                          const plait_cuda_planned_t **planned_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_planned_t *p = plait_alloc(1, sizeof(*p));

    PLAIT_CHECK(p != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    *p = (plait_cuda_planned_t){.what = *tile, .next = state->planned};
    p->what.a = p->what.b = NULL;
    p->what.c = p->what.extra = NULL;
    p->what.info = NULL;
    PLAIT_TRY(ask(state, &p->what, &p->sizes));
    PLAIT_TRY(need_room(state, p->sizes.n_host));
    state->planned = p;
    *planned_p = p;
    p = NULL;
done:
    plait_free(p);
    return status;
}

plait_status_t plait_cuda_solver_plan(plait_cuda_state_t *state,
                                      const plait_device_tile_t *tile,
                                      int64_t *work_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_planned_t *planned = find(state, tile);

    if (planned == NULL) {
        PLAIT_TRY(open_solver(state));
        PLAIT_TRY(add(state, tile, &planned));
    }
    *work_bytes_p = head_bytes(tile) + (int64_t)planned->sizes.n_device;
done:
    return status;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

typedef struct {
    int32_t *found;  /* the outcome, on the device */
    int32_t *sizes;  /* what a matrix was stretched by, on the device */
    int64_t *pivots; /* 64 bits, on the device */
    char *work;      /* cuSOLVER's, on the device */
    void *room;      /* cuSOLVER's, on the host */
} places_t;

static places_t places_of(const plait_cuda_state_t *state, const plait_device_tile_t *t,
                          void *work)
{
    return (places_t){.found = work,
                      .sizes = (int32_t *)(void *)((char *)work + SIZES_AT),
                      .pivots = (int64_t *)(void *)((char *)work + GRAIN),
                      .work = (char *)work + head_bytes(t),
                      .room = (state->rooms != NULL) ? state->rooms->memory : NULL};
}

static plait_status_t ormqr(const plait_cuda_state_t *state,
                            const plait_device_tile_t *t, const sizes_t *sizes,
                            const places_t *p)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *cuda = state->cuda;
    const ormqr_fn_t fn[] = {cuda->cusolverDnSormqr, cuda->cusolverDnDormqr,
                             cuda->cusolverDnCunmqr, cuda->cusolverDnZunmqr};
    ormqr_t o = {.index = 0};

    PLAIT_TRY(ormqr_of(t, &o));
    PLAIT_TRY(must(state,
                   fn[o.index](state->solver, PLAIT_CUBLAS_LEFT,
                               plait_cuda_trans(t->dtype, t->trans), o.m, o.n, o.k,
                               t->a, o.lda, t->extra, t->c, o.ldc, p->work,
                               sizes->n_ormqr, p->found),
                   "ormqr"));
done:
    return status;
}

static int call(const plait_cuda_state_t *state, const plait_device_tile_t *t,
                const sizes_t *sizes, const places_t *p)
{
    const plait_cuda_t *cuda = state->cuda;
    const int type = plait_cuda_type(t->dtype);

    return (t->op == PLAIT_TILE_POTRF)
               ? cuda->cusolverDnXpotrf(state->solver, state->solver_params,
                                        PLAIT_CUBLAS_LOWER, t->n, type, t->c, t->ldc,
                                        type, p->work, sizes->n_device, p->room,
                                        sizes->n_host, p->found)
           : (t->op == PLAIT_TILE_GETRF)
               ? cuda->cusolverDnXgetrf(state->solver, state->solver_params, t->m, t->n,
                                        type, t->c, t->ldc, p->pivots, type, p->work,
                                        sizes->n_device, p->room, sizes->n_host,
                                        p->found)
           : (t->op == PLAIT_TILE_GEQRF)
               ? cuda->cusolverDnXgeqrf(state->solver, state->solver_params, t->m, t->n,
                                        type, t->c, t->ldc, type, t->extra, type,
                                        p->work, sizes->n_device, p->room,
                                        sizes->n_host, p->found)
               : cuda->cusolverDnXsyevd(
                     state->solver, state->solver_params, t->k != 0, PLAIT_CUBLAS_LOWER,
                     t->n, type, t->c, t->ldc, plait_cuda_real_type(t->dtype), t->extra,
                     type, p->work, sizes->n_device, p->room, sizes->n_host, p->found);
}

plait_status_t plait_cuda_solver(plait_cuda_state_t *state, plait_stream_t stream,
                                 const plait_device_tile_t *tile, void *work)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_planned_t *planned = find(state, tile);
    places_t places;

    PLAIT_CHECK(planned != NULL, PLAIT_ERR_INTERNAL,
                "CUDA: a factorization that was not planned");
    places = places_of(state, tile, work);
    PLAIT_TRY(must(state, state->cuda->cusolverDnSetStream(state->solver, stream),
                   "setting the stream"));
    if (tile->op == PLAIT_TILE_ORMQR) {
        PLAIT_TRY(ormqr(state, tile, &planned->sizes, &places));
    } else {
        PLAIT_TRY(plait_cuda_before(state, stream, tile, places.sizes));
        PLAIT_TRY(
            must(state, call(state, tile, &planned->sizes, &places), what_of(tile)));
        PLAIT_TRY(plait_cuda_after(state, stream, tile, places.sizes));
    }
    if (tile->info != NULL) {
        PLAIT_TRY(plait_cuda_judge(state, stream, tile, places.found, places.pivots));
    }
done:
    return status;
}

void plait_cuda_solver_release(plait_cuda_state_t *state)
{
    while (state->planned != NULL) {
        plait_cuda_planned_t *planned = state->planned;

        state->planned = planned->next;
        plait_free(planned);
    }
    while (state->rooms != NULL) {
        plait_cuda_room_t *room = state->rooms;

        state->rooms = room->next;
        plait_free(room->memory);
        plait_free(room);
    }
    if (state->solver_params != NULL) {
        (void)state->cuda->cusolverDnDestroyParams(state->solver_params);
        state->solver_params = NULL;
    }
    if (state->solver != NULL) {
        (void)state->cuda->cusolverDnDestroy(state->solver);
        state->solver = NULL;
    }
}
