/* Joint calls of check devices, on the gathered matrix: eigenvalues by LAPACK, Cholesky factors and results
 * from them by loops. The caller's thread computes at once, so it sees whatever a stream has not done yet. */
#include "base/alloc.h"
#include "base/status.h"
#include "check_device_parts.h"
#include "check_device_state.h"
#include "cholesky.h"
#include "dense/dealt.h"
#include "dense/scalar.h"
#include "kernel/blas.h"

#include <stdatomic.h>
#include <string.h>

static _Atomic int32_t ordered_info;

void check_device_order_joint(int32_t info)
{
    atomic_store(&ordered_info, info);
}

static plait_dealt_t deal_of(const plait_joint_problem_t *h)
{
    return (plait_dealt_t){.m = h->n,
                           .n = h->n,
                           .block = h->block,
                           .n_ranks = h->n_devices,
                           .dtype = h->dtype};
}

/* The layout of the right-hand side. */
static plait_dealt_t deal_of_rhs(const plait_joint_problem_t *h)
{
    plait_dealt_t d = deal_of(h);

    d.n = h->n_rhs;
    return d;
}

static int64_t work_bytes_of(const plait_joint_problem_t *h)
{
    return 16 * h->n + 48 * h->n_devices;
}

static uint64_t hash_of(const plait_joint_problem_t *h)
{
    const uint64_t words[] = {77 + (uint64_t)h->op, (uint64_t)h->n,
                              (uint64_t)h->block,   (uint64_t)h->dtype,
                              h->has_vectors,       (uint64_t)h->n_devices,
                              (uint64_t)h->n_rhs};
    uint64_t hash = 0;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

plait_status_t check_device_joint_plan(const plait_joint_problem_t *h,
                                       int64_t *work_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *first = h->devices[0];
    const plait_dealt_t d = deal_of(h);

    PLAIT_TRY(check_device_count_free_call(first, "plan of several"));
    PLAIT_TRY(plait_blas_require());
    if (h->n_devices > PLAIT_MAX_JOINT || h->n < 1 ||
        plait_dealt_n_blocks(&d) < h->n_devices ||
        (h->op == PLAIT_JOINT_POTRS) != (h->n_rhs > 0)) {
        check_device_fault(first, "a device without a block, or no right-hand side");
    }
    for (int i = 0; i < h->n_devices; i++) {
        for (int k = 0; k < i; k++) {
            if (h->devices[i] == h->devices[k]) {
                check_device_fault(first, "twice among several");
            }
        }
    }
    (void)check_device_mark(first, hash_of(h));
    *work_bytes_p = work_bytes_of(h);
done:
    return status;
}

/* Checks what the library takes for granted. */
static void judge(const plait_joint_problem_t *h, int64_t work_bytes, void *const a[],
                  void *const b[], void *const work[], const void *w)
{
    const plait_dealt_t d = deal_of(h), rhs = deal_of_rhs(h);

    if (!check_device_mark(h->devices[0], hash_of(h)) ||
        work_bytes < work_bytes_of(h)) {
        check_device_fault(h->devices[0], "a call of several without its plan");
    }
    if (h->op == PLAIT_JOINT_HEEVD) {
        check_device_need_pinned(h->devices[0], w,
                                 h->n * plait_dtype_bytes(plait_real_of(h->dtype)));
    }
    for (int i = 0; i < h->n_devices; i++) {
        plait_device_t *device = h->devices[i];
        check_device_need_live(device, "a matrix of several", a[i],
                               plait_dealt_bytes(&d));
        check_device_need_live(device, "work of several", work[i], work_bytes);
        if (h->op == PLAIT_JOINT_POTRS) {
            check_device_need_live(device, "a right-hand side of several", b[i],
                                   plait_dealt_bytes(&rhs));
        }
        lock(device);
        if (state_of(device)->n_pending > 0) {
            check_device_fault(device, "is not idle when several work");
        }
        unlock(device);
    }
}

/* Moves columns between the devices and a whole matrix. */
static void transfer(const plait_dealt_t *d, char *const view[], char *whole,
                     bool is_back)
{
    const int64_t ld = plait_dealt_ld_bytes(d);

    for (int64_t k = 0; k < plait_dealt_n_blocks(d); k++) {
        char *there = view[plait_dealt_owner(d, k)] + plait_dealt_at(d, k, 0);
        char *here = whole + plait_dealt_column(d, k) * ld;
        memcpy(is_back ? there : here, is_back ? here : there,
               (size_t)(plait_dealt_width(d, k) * ld));
    }
}

static int64_t by_lapack(const plait_joint_problem_t *h, void *a, void *w)
{
    const int64_t item = plait_dtype_bytes(h->dtype);
    const char what = h->has_vectors ? 'V' : 'N';
    plait_blas_work_t work = {.n = -1};

    (void)plait_blas_heevd(h->dtype, what, 'L', h->n, a, h->n, w, &work);
    work.work = plait_alloc(work.n + 1, item);
    work.real = plait_alloc(work.n_real + 1, item);
    work.ints = plait_alloc(work.n_ints + 1, 8);
    const int64_t info = plait_blas_heevd(h->dtype, what, 'L', h->n, a, h->n, w, &work);
    plait_free(work.work);
    plait_free(work.real);
    plait_free(work.ints);
    return info;
}

static double complex *matrix_of_numbers(plait_dtype_t dtype, int64_t n, const void *x)
{
    double complex *z = plait_alloc(n + 1, sizeof(*z));

    for (int64_t i = 0; i < n; i++) {
        z[i] = plait_scalar_get(dtype, x, i);
    }
    return z;
}

static void put_numbers(plait_dtype_t dtype, int64_t n, const double complex *z,
                        void *x)
{
    for (int64_t i = 0; i < n; i++) {
        plait_scalar_put(dtype, x, i, z[i]);
    }
}

/* potrf, potri or, with b, potrs. */
static int64_t by_loop(const plait_joint_problem_t *h, void *a, void *b)
{
    const int64_t n = h->n, n_all = n * n;
    double complex *m = matrix_of_numbers(h->dtype, n_all, a);
    double complex *x = matrix_of_numbers(h->dtype, n * h->n_rhs, b);
    double complex *inverse = plait_alloc(n_all, sizeof(*inverse));
    int64_t info = 0;

    if (h->op == PLAIT_JOINT_POTRF) {
        info = cholesky_passing(n, m);
        put_numbers(h->dtype, n_all, m, a);
    } else if (h->op == PLAIT_JOINT_POTRI) {
        info = cholesky_invert(n, m, inverse);
        put_numbers(h->dtype, n_all, inverse, a);
    }
    for (int64_t j = 0; j < h->n_rhs; j++) {
        cholesky_solve(n, m, x + j * n);
    }
    put_numbers(h->dtype, n * h->n_rhs, x, b);
    plait_free(m);
    plait_free(x);
    plait_free(inverse);
    return info;
}

/* Overwrites the memory behind the columns, which is the library's; all memory if the library finds nothing. */
static void spoil(const plait_dealt_t *d, char *const view[], bool is_all)
{
    const int64_t ld = plait_dealt_ld_bytes(d);

    for (int i = 0; i < d->n_ranks; i++) {
        const int64_t first = is_all ? 0 : plait_dealt_owned(d, i);
        memset(view[i] + first * ld, 0xa7,
               (size_t)((plait_dealt_stored(d) - first) * ld));
    }
}

/* Reads a factor, or replaces a matrix by its result. */
static int64_t work_on(const plait_joint_problem_t *h, char *const a[], char *const b[],
                       void *w)
{
    const plait_dealt_t d = deal_of(h), rhs = deal_of_rhs(h);
    const bool is_potrs = h->op == PLAIT_JOINT_POTRS;
    const bool has_result = h->op != PLAIT_JOINT_HEEVD || h->has_vectors;
    const int32_t ordered = atomic_load(&ordered_info);
    char *whole = plait_alloc(h->n * h->n, plait_dealt_item(&d));
    char *whole_rhs = plait_alloc(h->n * h->n_rhs + 1, plait_dealt_item(&d));

    transfer(&d, a, whole, false);
    transfer(&rhs, b, whole_rhs, false);
    int64_t info = (h->op == PLAIT_JOINT_HEEVD) ? by_lapack(h, whole, w)
                                                : by_loop(h, whole, whole_rhs);
    info = (ordered != 0) ? ordered : info;
    const bool is_found = has_result && info == 0;
    if (is_potrs) {
        spoil(&rhs, b, !is_found);
        transfer(&rhs, b, whole_rhs, true);
    } else {
        spoil(&d, a, !is_found);
    }
    if (is_found && !is_potrs) {
        transfer(&d, a, whole, true);
    }
    plait_free(whole);
    plait_free(whole_rhs);
    return info;
}

plait_status_t check_device_joint_run(const plait_joint_problem_t *h,
                                      int64_t work_bytes, void *const a[],
                                      void *const b[], void *const work[], void *w,
                                      int32_t *info_p)
{
    plait_status_t status = PLAIT_OK;
    char *view[PLAIT_MAX_JOINT] = {NULL}, *rhs[PLAIT_MAX_JOINT] = {NULL};

    PLAIT_TRY(check_device_count_free_call(h->devices[0], "call of several"));
    judge(h, work_bytes, a, b, work, w);
    for (int i = 0; i < h->n_devices; i++) {
        view[i] = check_device_view(h->devices[i], a[i]);
        rhs[i] = (b[i] != NULL) ? check_device_view(h->devices[i], b[i]) : NULL;
        memset(check_device_view(h->devices[i], work[i]), 0xa7, (size_t)work_bytes);
    }
    *info_p = (int32_t)work_on(h, view, rhs, w);
done:
    return status;
}
