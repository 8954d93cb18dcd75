/* Eigenvalues, Cholesky factors, and solutions and inverses from them, by several CUDA devices as one:
 * cuSolverMg. One thread calls it for all devices; a call changes the current device. The data that it needs
 * for a set of devices is made once and stays. Only one call of all sets is under way at a time. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "device/cuda_state.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PLACE_BYTES = 256 };

/* A set of devices, in their order. */
typedef struct set {
    const plait_cuda_t *cuda;
    int n;
    plait_device_t *devices[PLAIT_MAX_JOINT];
    plait_cusolver_mg_t solver;
    plait_cusolver_mg_grid_t grid;
    /* An address on each device that stands for the matrix when the library is asked how much memory it needs:
     * there is no matrix yet. */
    plait_cu_address_t places[PLAIT_MAX_JOINT];
    struct set *next;
} set_t;

static set_t *sets;
static pthread_mutex_t sets_lock = PTHREAD_MUTEX_INITIALIZER;

static plait_cuda_state_t *state_of(const set_t *set, int i)
{
    return plait_cuda_state(set->devices[i]);
}

static plait_status_t must(const set_t *set, int result, const char *what)
{
    return plait_cuda_library_must(set->devices[0], &plait_cuda_mg_results, result,
                                   what);
}

/* With a device current. */
typedef plait_status_t (*on_device_fn_t)(set_t *set, int i);

static plait_status_t on_one(set_t *set, int i, on_device_fn_t fn)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = set->devices[i];

    PLAIT_TRY(device->table->enter(device));
    status = fn(set, i);
    device->table->leave(device);
done:
    return status;
}

/* Stops at the first device that fails. */
static plait_status_t on_each(set_t *set, on_device_fn_t fn)
{
    plait_status_t status = PLAIT_OK;

    for (int i = 0; i < set->n && status == PLAIT_OK; i++) {
        status = on_one(set, i, fn);
    }
    return status;
}

static plait_status_t wait_for(set_t *set, int i)
{
    return plait_cuda_must(state_of(set, i), set->cuda->cuCtxSynchronize(),
                           "waiting for it");
}

/* Waits for all devices, even if one fails. */
static plait_status_t wait_for_all(set_t *set)
{
    plait_status_t status = PLAIT_OK;
    char why[256];

    for (int i = 0; i < set->n; i++) {
        plait_status_t waited = on_one(set, i, wait_for);
        if (status == PLAIT_OK && waited != PLAIT_OK) {
            status = waited;
            (void)snprintf(why, sizeof(why), "%s", plait_error_text());
        }
    }
    return (status == PLAIT_OK) ? status : plait_fail(status, "%s", why);
}

/* ---- Sets ----------------------------------------------------------------------------------- */

static plait_status_t reach_others(set_t *set, int i)
{
    plait_status_t status = PLAIT_OK;

    for (int k = 0; k < set->n; k++) {
        bool can = false;
        PLAIT_TRY(plait_cuda_reach(state_of(set, i), state_of(set, k), &can));
        PLAIT_CHECK(can, PLAIT_ERR_UNSUPPORTED,
                    "CUDA device %d does not reach the memory of device %d",
                    set->devices[i]->ordinal, set->devices[k]->ordinal);
    }
done:
    return status;
}

static plait_status_t take_place(set_t *set, int i)
{
    return plait_cuda_must(state_of(set, i),
                           set->cuda->cuMemAlloc_v2(&set->places[i], PLACE_BYTES),
                           "allocating memory");
}

static plait_status_t give_place(set_t *set, int i)
{
    return plait_cuda_must(state_of(set, i), set->cuda->cuMemFree_v2(set->places[i]),
                           "freeing memory");
}

static plait_status_t open_library(set_t *set)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *cuda = NULL;
    int ids[PLAIT_MAX_JOINT];

    for (int i = 0; i < set->n; i++) {
        ids[i] = state_of(set, i)->id;
    }
    PLAIT_TRY(plait_cuda_require(PLAIT_CUDA_CUSOLVER_MG, &cuda));
    PLAIT_TRY(must(set, cuda->cusolverMgCreate(&set->solver), "making a handle"));
    PLAIT_TRY(must(set, cuda->cusolverMgDeviceSelect(set->solver, set->n, ids),
                   "choosing devices"));
    PLAIT_TRY(must(set,
                   cuda->cusolverMgCreateDeviceGrid(&set->grid, 1, set->n, ids,
                                                    PLAIT_CUSOLVER_MG_COLUMNS),
                   "making a grid"));
done:
    return status;
}

static void destroy(set_t **set_p)
{
    set_t *set = *set_p;

    if (set == NULL) {
        return;
    }
    if (set->grid != NULL) {
        (void)set->cuda->cusolverMgDestroyGrid(set->grid);
    }
    if (set->solver != NULL) {
        (void)set->cuda->cusolverMgDestroy(set->solver);
    }
    for (int i = 0; i < set->n; i++) {
        if (set->places[i] != 0) {
            (void)on_one(set, i, give_place);
        }
    }
    plait_free(set);
    *set_p = NULL;
}

static plait_status_t create(const plait_joint_problem_t *p, set_t **set_p)
{
    plait_status_t status = PLAIT_OK;
    set_t *set = plait_alloc(1, sizeof(*set));

    PLAIT_CHECK(set != NULL, PLAIT_ERR_NO_MEMORY, "no memory for cuSolverMg");
    set->n = p->n_devices;
    memcpy(set->devices, p->devices, sizeof(set->devices));
    set->cuda = state_of(set, 0)->cuda;
    PLAIT_TRY(on_each(set, reach_others));
    PLAIT_TRY(open_library(set));
    PLAIT_TRY(on_each(set, take_place));
    *set_p = set;
    set = NULL;
done:
    destroy(&set);
    return status;
}

static set_t *find(const plait_joint_problem_t *p)
{
    set_t *set = sets;

    while (set != NULL && !(set->n == p->n_devices &&
                            memcmp(set->devices, p->devices,
                                   (size_t)set->n * sizeof(set->devices[0])) == 0)) {
        set = set->next;
    }
    return set;
}

/* ---- Calls ---------------------------------------------------------------------------------- */

/* A call's arguments. Extents have 32 bits. */
typedef struct {
    int n, n_rhs, type, type_w;
    plait_cusolver_mg_matrix_t matrix, rhs; /* rhs: for potrs */
    void **a, **b, *w;
    int64_t n_work; /* elements on each device */
} call_t;

static const char *name_of(const plait_joint_problem_t *p)
{
    static const char *const names[] = {[PLAIT_JOINT_HEEVD] = "syevd",
                                        [PLAIT_JOINT_POTRF] = "potrf",
                                        [PLAIT_JOINT_POTRS] = "potrs",
                                        [PLAIT_JOINT_POTRI] = "potri"};

    return names[p->op];
}

static plait_status_t describe_one(const set_t *set, const plait_joint_problem_t *p,
                                   int64_t n_columns, const call_t *c,
                                   plait_cusolver_mg_matrix_t *matrix_p)
{
    return must(set,
                set->cuda->cusolverMgCreateMatrixDesc(matrix_p, p->n, n_columns, p->n,
                                                      p->block, c->type, set->grid),
                "describing a matrix");
}

static plait_status_t describe(const set_t *set, const plait_joint_problem_t *p,
                               call_t *c)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n_most = plait_max(p->n, p->n_rhs);

    PLAIT_CHECK(n_most <= INT_MAX, PLAIT_ERR_UNSUPPORTED,
                "cuSolverMg: %lld columns, which 32 bits do not hold",
                (long long)n_most);
    PLAIT_TRY(plait_int_of(p->n, &c->n));
    PLAIT_TRY(plait_int_of(p->n_rhs, &c->n_rhs));
    c->type = plait_cuda_type(p->dtype);
    c->type_w = plait_cuda_real_type(p->dtype);
    PLAIT_TRY(describe_one(set, p, p->n, c, &c->matrix));
    if (p->op == PLAIT_JOINT_POTRS) {
        PLAIT_TRY(describe_one(set, p, p->n_rhs, c, &c->rhs));
    }
done:
    return status;
}

static void forget(const set_t *set, call_t *c)
{
    plait_cusolver_mg_matrix_t *all[] = {&c->matrix, &c->rhs};

    for (int i = 0; i < 2; i++) {
        if (*all[i] != NULL) {
            (void)set->cuda->cusolverMgDestroyMatrixDesc(*all[i]);
            *all[i] = NULL;
        }
    }
}

static int size_of(const set_t *set, const plait_joint_problem_t *p, call_t *c)
{
    const plait_cuda_t *cuda = set->cuda;
    const int uplo = PLAIT_CUBLAS_LOWER;

    return (p->op == PLAIT_JOINT_POTRF)
               ? cuda->cusolverMgPotrf_bufferSize(set->solver, uplo, c->n, c->a, 1, 1,
                                                  c->matrix, c->type, &c->n_work)
           : (p->op == PLAIT_JOINT_POTRS)
               ? cuda->cusolverMgPotrs_bufferSize(set->solver, uplo, c->n, c->n_rhs,
                                                  c->a, 1, 1, c->matrix, c->b, 1, 1,
                                                  c->rhs, c->type, &c->n_work)
           : (p->op == PLAIT_JOINT_POTRI)
               ? cuda->cusolverMgPotri_bufferSize(set->solver, uplo, c->n, c->a, 1, 1,
                                                  c->matrix, c->type, &c->n_work)
               : cuda->cusolverMgSyevd_bufferSize(set->solver, p->has_vectors, uplo,
                                                  c->n, c->a, 1, 1, c->matrix, c->w,
                                                  c->type_w, c->type, &c->n_work);
}

/* Bytes that the library needs on each device. */
static plait_status_t ask(const set_t *set, const plait_joint_problem_t *p, call_t *c,
                          int64_t *work_bytes_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(must(set, size_of(set, p, c), "asking for the size of work memory"));
    PLAIT_CHECK(c->n_work >= 0 &&
                    plait_mul(c->n_work, plait_dtype_bytes(p->dtype), work_bytes_p),
                PLAIT_ERR_OVERFLOW, "cuSolverMg: %s wants %lld numbers", name_of(p),
                (long long)c->n_work);
done:
    return status;
}

static plait_status_t plan_on(const set_t *set, const plait_joint_problem_t *p,
                              int64_t *work_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    void *places[PLAIT_MAX_JOINT];
    double w = 0;
    call_t c = {.a = places, .b = places, .w = &w};

    for (int i = 0; i < set->n; i++) {
        places[i] = (void *)(uintptr_t)set->places[i];
    }
    PLAIT_TRY(describe(set, p, &c));
    PLAIT_TRY(ask(set, p, &c, work_bytes_p));
done:
    forget(set, &c);
    return status;
}

static int call(const set_t *set, const plait_joint_problem_t *p, const call_t *c,
                void *work[], int *info_p)
{
    const plait_cuda_t *cuda = set->cuda;
    const int uplo = PLAIT_CUBLAS_LOWER;

    return (p->op == PLAIT_JOINT_POTRF)
               ? cuda->cusolverMgPotrf(set->solver, uplo, c->n, c->a, 1, 1, c->matrix,
                                       c->type, work, c->n_work, info_p)
           : (p->op == PLAIT_JOINT_POTRS)
               ? cuda->cusolverMgPotrs(set->solver, uplo, c->n, c->n_rhs, c->a, 1, 1,
                                       c->matrix, c->b, 1, 1, c->rhs, c->type, work,
                                       c->n_work, info_p)
           : (p->op == PLAIT_JOINT_POTRI)
               ? cuda->cusolverMgPotri(set->solver, uplo, c->n, c->a, 1, 1, c->matrix,
                                       c->type, work, c->n_work, info_p)
               : cuda->cusolverMgSyevd(set->solver, p->has_vectors, uplo, c->n, c->a, 1,
                                       1, c->matrix, c->w, c->type_w, c->type, work,
                                       c->n_work, info_p);
}

/* c already has the addresses of the arrays. */
static plait_status_t run_on(set_t *set, const plait_joint_problem_t *p,
                             int64_t work_bytes, call_t *c, void *work[],
                             int32_t *info_p)
{
    plait_status_t status = PLAIT_OK, waited = PLAIT_OK;
    int64_t needed = 0;
    int info = 0, result = 0;

    PLAIT_TRY(describe(set, p, c));
    PLAIT_TRY(ask(set, p, c, &needed));
    PLAIT_CHECK(needed <= work_bytes, PLAIT_ERR_INTERNAL,
                "cuSolverMg: %s wants %lld bytes on each device, and wanted %lld "
                "when it was planned",
                name_of(p), (long long)needed, (long long)work_bytes);
    result = call(set, p, c, work, &info);
    /* even after an error: the caller then takes its memory back */
    waited = wait_for_all(set);
    PLAIT_TRY(must(set, result, name_of(p)));
    PLAIT_TRY(waited);
    PLAIT_CHECK(info >= 0, PLAIT_ERR_INTERNAL, "cuSolverMg: %s: argument %d is wrong",
                name_of(p), -info);
    *info_p = info;
done:
    forget(set, c);
    return status;
}

/* The library changes the current context, which here is the first device's. It was pushed here, so leave
 * removes whatever context is on top by then. */
static plait_status_t begin(const plait_joint_problem_t *p)
{
    plait_device_t *first = p->devices[0];
    plait_status_t status = first->table->enter(first);

    if (status == PLAIT_OK) {
        (void)pthread_mutex_lock(&sets_lock);
    }
    return status;
}

static void end(const plait_joint_problem_t *p)
{
    (void)pthread_mutex_unlock(&sets_lock);
    p->devices[0]->table->leave(p->devices[0]);
}

static plait_status_t joint_plan(const plait_joint_problem_t *p, int64_t *work_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    set_t *set = NULL;
    bool has_begun = false;

    PLAIT_TRY(begin(p));
    has_begun = true;
    set = find(p);
    if (set == NULL) {
        PLAIT_TRY(create(p, &set));
        set->next = sets;
        sets = set;
    }
    PLAIT_TRY(plan_on(set, p, work_bytes_p));
done:
    if (has_begun) {
        end(p);
    }
    return status;
}

static plait_status_t joint_run(const plait_joint_problem_t *p, int64_t work_bytes,
                                void *const a[], void *const b[], void *const work[],
                                void *w, int32_t *info_p)
{
    plait_status_t status = PLAIT_OK;
    /* the library takes these without const */
    void *matrix[PLAIT_MAX_JOINT], *rhs[PLAIT_MAX_JOINT], *room[PLAIT_MAX_JOINT];
    call_t c = {.a = matrix, .b = rhs, .w = w};
    set_t *set = NULL;
    bool has_begun = false;

    PLAIT_TRY(begin(p));
    has_begun = true;
    set = find(p);
    PLAIT_CHECK(set != NULL, PLAIT_ERR_INTERNAL,
                "cuSolverMg: a call that was not planned");
    memcpy(matrix, a, (size_t)set->n * sizeof(a[0]));
    memcpy(rhs, b, (size_t)set->n * sizeof(b[0]));
    memcpy(room, work, (size_t)set->n * sizeof(work[0]));
    PLAIT_TRY(run_on(set, p, work_bytes, &c, room, info_p));
done:
    if (has_begun) {
        end(p);
    }
    return status;
}

const plait_device_joint_t plait_cuda_joint = {
    .plan = joint_plan,
    .run = joint_run,
};

/* Called before the devices are released. */
void plait_cuda_joint_release(void)
{
    (void)pthread_mutex_lock(&sets_lock);
    while (sets != NULL) {
        set_t *set = sets;

        sets = set->next;
        destroy(&set);
    }
    (void)pthread_mutex_unlock(&sets_lock);
}
