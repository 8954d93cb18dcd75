/* What check devices do as one, on the gathered matrix: eigenvalues by LAPACK, Cholesky factors by a loop. The caller's thread does it at once:
 * so it sees whatever a stream has not come to. */
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

static int64_t work_bytes_of(const plait_joint_problem_t *h)
{
    return 16 * h->n + 48 * h->n_devices;
}

static uint64_t hash_of(const plait_joint_problem_t *h)
{
    const uint64_t words[] = {77 + (uint64_t)h->op, (uint64_t)h->n,
                              (uint64_t)h->block,   (uint64_t)h->dtype,
                              h->has_vectors,       (uint64_t)h->n_devices};
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
        plait_dealt_n_blocks(&d) < h->n_devices) {
        check_device_fault(first, "a device without a block");
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

/* What the library may take for granted. */
static void judge(const plait_joint_problem_t *h, int64_t work_bytes, void *const a[],
                  void *const work[], const void *w)
{
    const plait_dealt_t d = deal_of(h);

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
                               plait_dealt_stored(&d) * plait_dealt_ld_bytes(&d));
        check_device_need_live(device, "work of several", work[i], work_bytes);
        lock(device);
        if (state_of(device)->n_pending > 0) {
            check_device_fault(device, "is not idle when several work");
        }
        unlock(device);
    }
}

/* Columns between the devices and a matrix that is whole. */
static void transfer(const plait_joint_problem_t *h, char *const view[], char *whole,
                     bool is_back)
{
    const plait_dealt_t d = deal_of(h);
    const int64_t ld = plait_dealt_ld_bytes(&d);

    for (int64_t k = 0; k < plait_dealt_n_blocks(&d); k++) {
        char *there = view[plait_dealt_owner(&d, k)] + plait_dealt_at(&d, k, 0);
        char *here = whole + plait_dealt_column(&d, k) * ld;
        memcpy(is_back ? there : here, is_back ? here : there,
               (size_t)(plait_dealt_width(&d, k) * ld));
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

static int64_t by_loop(const plait_joint_problem_t *h, void *a)
{
    const int64_t n_all = h->n * h->n;
    double complex *m = plait_alloc(n_all, sizeof(*m));

    for (int64_t i = 0; i < n_all; i++) {
        m[i] = plait_scalar_get(h->dtype, a, i);
    }
    const int64_t info = cholesky_passing(h->n, m);
    for (int64_t i = 0; i < n_all; i++) {
        plait_scalar_put(h->dtype, a, i, m[i]);
    }
    plait_free(m);
    return info;
}

/* Work and what is behind the columns are the library's; so is everything where it finds none. */
static void spoil(const plait_joint_problem_t *h, int64_t work_bytes,
                  char *const view[], void *const work[], bool is_all)
{
    const plait_dealt_t d = deal_of(h);
    const int64_t ld = plait_dealt_ld_bytes(&d);

    for (int i = 0; i < h->n_devices; i++) {
        const int64_t first = is_all ? 0 : plait_dealt_owned(&d, i);
        memset(check_device_view(h->devices[i], work[i]), 0xa7, (size_t)work_bytes);
        memset(view[i] + first * ld, 0xa7,
               (size_t)((plait_dealt_stored(&d) - first) * ld));
    }
}

plait_status_t check_device_joint_run(const plait_joint_problem_t *h,
                                      int64_t work_bytes, void *const a[],
                                      void *const work[], void *w, int32_t *info_p)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n = h->n, item = plait_dtype_bytes(h->dtype);
    const int32_t ordered = atomic_load(&ordered_info);
    char *view[PLAIT_MAX_JOINT] = {NULL}, *whole = NULL;

    PLAIT_TRY(check_device_count_free_call(h->devices[0], "call of several"));
    judge(h, work_bytes, a, work, w);
    for (int i = 0; i < h->n_devices; i++) {
        view[i] = check_device_view(h->devices[i], a[i]);
    }
    whole = plait_alloc(n * n, item);
    transfer(h, view, whole, false);
    const bool has_result = h->op == PLAIT_JOINT_POTRF || h->has_vectors;
    const int64_t info =
        (h->op == PLAIT_JOINT_POTRF) ? by_loop(h, whole) : by_lapack(h, whole, w);
    *info_p = (ordered != 0) ? ordered : (int32_t)info;
    spoil(h, work_bytes, view, work, !has_result || *info_p != 0);
    if (has_result && *info_p == 0) {
        transfer(h, view, whole, true);
    }
done:
    plait_free(whole);
    return status;
}
