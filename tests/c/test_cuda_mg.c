/* Eigenvalues, Cholesky factors, and solutions and inverses by these, by several CUDA devices at once, judged by their residuals: all dtypes, blocks that do not
 * divide the extent, 1 to 4 devices. On GPUs that reach each other, of which one is taken several times
 * where there are no more, or with the argument `host` on stand-ins of CUDA's libraries, where every
 * call fails in its turn. Without a GPU: skipped, with the reason. */
#include "cuda_arrays.h"
#include "dense/dealt.h"
#include "elements.h"
#include "fakes.h"

#include <dlfcn.h>
#include <math.h>

enum { MOST = 4, FILL = 0x5a };

static const plait_dtype_t dtypes[] = {PLAIT_F32, PLAIT_F64, PLAIT_C64, PLAIT_C128};

/* The stand-in's device 2 reaches no other one. */
static const int ids_of_host[] = {0, 1, 3, 4};

/* One device's part. */
typedef struct {
    plait_device_t *device;
    plait_stream_t stream;
    char *matrix, *rhs, *work;
    char *host, *host_rhs; /* pinned: the matrix, and the right-hand side */
} part_t;

typedef struct {
    plait_joint_problem_t h;
    plait_dealt_t d, rhs;
    int64_t n_bytes, rhs_bytes, work_bytes; /* of a part */
    part_t parts[MOST];
    void *w; /* pinned */
    const char *text;
} case_t;

static bool says(const char *word)
{
    return strstr(plait_error_text(), word) != NULL;
}

/* A number of the stand-in of the driver. */
static int ask_fake(const char *name)
{
    int (*ask)(void) = NULL;
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *address = dlsym(handle, name);

    memcpy((void *)&ask, (const void *)&address, sizeof(ask));
    (void)dlclose(handle);
    return ask();
}

/* ---- One case ------------------------------------------------------------------------------- */

static void take(part_t *p, int64_t n_bytes, char **memory_p)
{
    void *memory = NULL;

    good(p->device->table->take(p->device, p->stream, n_bytes, &memory), "take");
    *memory_p = memory;
}

/* Not yet planned. */
static case_t case_of(int n_devices, const int ids[], plait_dtype_t dtype, int64_t n,
                      int64_t block, bool has_vectors, plait_joint_op_t op)
{
    static const char *const names[] = {"heevd", "potrf", "potrs", "potri"};
    static char text[120];
    case_t c = {
        .h = {.op = op,
              .n_devices = n_devices,
              .dtype = dtype,
              .has_vectors = has_vectors,
              .n = n,
              .block = block,
              .n_rhs = (op == PLAIT_JOINT_POTRS) ? 1 + (n + block) % 7 : 0},
        .d = {.m = n, .n = n, .block = block, .n_ranks = n_devices, .dtype = dtype},
        .text = text};

    (void)snprintf(text, sizeof(text),
                   "%s of %s %lld in blocks of %lld on %d, vectors %d", names[op],
                   plait_dtype_name(dtype), (long long)n, (long long)block, n_devices,
                   (int)has_vectors);
    if (n <= INT32_MAX) { /* what is longer is planned only */
        c.n_bytes = plait_dealt_stored(&c.d) * plait_dealt_ld_bytes(&c.d);
    }
    c.rhs = c.d;
    c.rhs.n = c.h.n_rhs;
    c.rhs_bytes = plait_dealt_stored(&c.rhs) * plait_dealt_ld_bytes(&c.rhs);
    for (int i = 0; i < n_devices; i++) {
        good(plait_cuda_device(ids[i], &c.h.devices[i]), "device");
        c.parts[i].device = c.h.devices[i];
    }
    return c;
}

/* Definite for potrf; its lower triangle is the factor that potrs and potri have. */
static double complex element(const case_t *c, int64_t i, int64_t j)
{
    const double complex z =
        element_sample(c->d.dtype, 31, (i > j) ? i * 1000 + j : j * 1000 + i);
    const double more =
        (c->h.op != PLAIT_JOINT_HEEVD && i == j) ? 2 * (double)c->d.n : 0;

    return (i == j) ? creal(z) + more : (i > j) ? z : conj(z);
}

static double complex rhs_element(const case_t *c, int64_t i, int64_t j)
{
    return element_sample(c->d.dtype, 32, j * 1000 + i);
}

static void fill_rhs(case_t *c, int device)
{
    char *host = c->parts[device].host_rhs;

    memset(host, 0xff, (size_t)c->rhs_bytes);
    for (int64_t k = device; k < plait_dealt_n_blocks(&c->rhs); k += c->rhs.n_ranks) {
        for (int64_t j = 0; j < plait_dealt_width(&c->rhs, k); j++) {
            char *at = host + plait_dealt_at(&c->rhs, k, 0) +
                       j * plait_dealt_ld_bytes(&c->rhs);
            for (int64_t i = 0; i < c->rhs.m; i++) {
                plait_scalar_put(c->rhs.dtype, at, i,
                                 rhs_element(c, i, plait_dealt_column(&c->rhs, k) + j));
            }
        }
    }
}

/* The lower triangle; the rest is not to be read. */
static void fill(case_t *c, int device)
{
    char *host = c->parts[device].host;

    fill_rhs(c, device);
    memset(host, 0xff, (size_t)c->n_bytes); /* NaN */
    for (int64_t k = device; k < plait_dealt_n_blocks(&c->d); k += c->d.n_ranks) {
        for (int64_t j = 0; j < plait_dealt_width(&c->d, k); j++) {
            const int64_t column = plait_dealt_column(&c->d, k) + j;
            char *at =
                host + plait_dealt_at(&c->d, k, 0) + j * plait_dealt_ld_bytes(&c->d);
            for (int64_t i = column; i < c->d.n; i++) {
                plait_scalar_put(c->d.dtype, at, i, element(c, i, column));
            }
        }
    }
}

/* With work memory and matrices on all devices, which are idle then. */
static void open_case(case_t *c)
{
    void *memory = NULL;

    for (int i = 0; i < c->h.n_devices; i++) {
        part_t *p = &c->parts[i];
        const plait_device_table_t *call = p->device->table;
        good(call->enter(p->device), "enter");
        good(call->stream_create(p->device, &p->stream), "stream");
        take(p, c->n_bytes, &p->matrix);
        take(p, c->rhs_bytes + 1, &p->rhs);
        take(p, c->work_bytes + 1, &p->work);
        good(call->host_take(p->device, c->n_bytes, &memory), "host_take");
        p->host = memory;
        good(call->host_take(p->device, c->rhs_bytes + 1, &memory), "host_take");
        p->host_rhs = memory;
        fill(c, i);
        good(call->to_device(p->device, p->stream, p->rhs, p->host_rhs,
                             c->rhs_bytes + 1),
             "to_device");
        good(call->to_device(p->device, p->stream, p->matrix, p->host, c->n_bytes),
             "to_device");
        good(call->stream_wait(p->device, p->stream), "wait");
        if (i == 0) {
            good(call->host_take(p->device, 16 * c->d.n, &c->w), "host_take");
            memset(c->w, FILL, (size_t)(16 * c->d.n));
        }
        call->leave(p->device);
    }
}

/* Also of devices that have failed, which nothing enters any more. */
static void close_case(case_t *c)
{
    for (int i = 0; i < c->h.n_devices; i++) {
        part_t *p = &c->parts[i];
        const plait_device_table_t *call = p->device->table;
        const bool is_inside = call->enter(p->device) == PLAIT_OK;
        call->give(p->device, p->stream, p->matrix);
        call->give(p->device, p->stream, p->rhs);
        call->host_give(p->device, p->host_rhs);
        call->give(p->device, p->stream, p->work);
        call->host_give(p->device, p->host);
        if (i == 0) {
            call->host_give(p->device, c->w);
        }
        call->stream_destroy(p->device, p->stream);
        if (is_inside) {
            call->leave(p->device);
        }
    }
}

/* The devices' parts to host memory. */
static void fetch(case_t *c)
{
    for (int i = 0; i < c->h.n_devices; i++) {
        part_t *p = &c->parts[i];
        const plait_device_table_t *call = p->device->table;
        good(call->enter(p->device), "enter");
        good(call->to_host(p->device, p->stream, p->host, p->matrix, c->n_bytes),
             "to_host");
        good(call->to_host(p->device, p->stream, p->host_rhs, p->rhs, c->rhs_bytes + 1),
             "to_host");
        good(call->stream_wait(p->device, p->stream), "wait");
        call->leave(p->device);
    }
}

/* Inside of the last device, which is current before and after. */
static plait_status_t solve(case_t *c, int32_t *info_p)
{
    const int n = c->h.n_devices;
    plait_device_t *last = c->parts[n - 1].device;
    void *a[MOST] = {NULL}, *b[MOST] = {NULL}, *work[MOST] = {NULL};

    for (int i = 0; i < n; i++) {
        a[i] = c->parts[i].matrix;
        b[i] = c->parts[i].rhs;
        work[i] = c->parts[i].work;
    }
    good(last->table->enter(last), "enter");
    const plait_status_t status =
        last->table->joint->run(&c->h, c->work_bytes, a, b, work, c->w, info_p);
    last->table->leave(last);
    return status;
}

static plait_status_t plan(case_t *c)
{
    return c->h.devices[0]->table->joint->plan(&c->h, &c->work_bytes);
}

/* ---- What comes out ------------------------------------------------------------------------- */

static double complex number_at(const plait_dealt_t *d, const char *part, int64_t i,
                                int64_t j)
{
    const char *at = part + plait_dealt_at(d, j / d->block, 0) +
                     j % d->block * plait_dealt_ld_bytes(d);

    return plait_scalar_get(d->dtype, at, i);
}

static double complex vector_of(const case_t *c, int64_t i, int64_t j)
{
    const int owner = plait_dealt_owner(&c->d, j / c->d.block);

    return number_at(&c->d, c->parts[owner].host, i, j);
}

static double complex solution(const case_t *c, int64_t i, int64_t j)
{
    const int owner = plait_dealt_owner(&c->rhs, j / c->rhs.block);

    return number_at(&c->rhs, c->parts[owner].host_rhs, i, j);
}

/* Of L L^H, L being the lower triangle that was given. */
static double complex square(const case_t *c, int64_t i, int64_t j)
{
    double complex sum = 0;

    for (int64_t k = 0; k <= i && k <= j; k++) {
        sum += element(c, i, k) * conj(element(c, j, k));
    }
    return sum;
}

/* A x - b of all columns; or of the inverse, of which the lower triangle is there, A y - 1. */
static void judge_solution(case_t *c)
{
    const int64_t n = c->d.n;
    const bool is_inverse = c->h.op == PLAIT_JOINT_POTRI;
    const int64_t n_columns = is_inverse ? n : c->rhs.n;
    double error = 0, norm = 0;
    bool is_kept = true;

    fetch(c);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n_columns; j++) {
            double complex sum = !is_inverse ? -rhs_element(c, i, j)
                                 : (i == j)  ? -1
                                             : 0;
            for (int64_t k = 0; k < n; k++) {
                const double complex y = !is_inverse ? solution(c, k, j)
                                         : (k >= j)  ? vector_of(c, k, j)
                                                     : conj(vector_of(c, j, k));
                const double complex a = square(c, i, k);
                sum += a * y;
                norm = fmax(norm, cabs(a) * cabs(y));
            }
            error = (cabs(sum) > error || isnan(cabs(sum))) ? cabs(sum) : error;
        }
        for (int64_t j = 0; j <= i && !is_inverse; j++) {
            const double complex l = vector_of(c, i, j) - element(c, i, j);
            is_kept = is_kept && cabs(l) <= element_unit(c->d.dtype) * 4 * (double)n;
        }
    }
    const double bound = 40 * (double)n * element_unit(c->d.dtype) * norm;
    CHECK(error <= bound, "%s: residual %g of %g", c->text, error, bound);
    CHECK(is_kept, "%s: the factor has changed", c->text);
}

/* Of the lower triangle of a factor. */
static void judge_factor(case_t *c)
{
    const int64_t n = c->d.n;
    double error = 0;

    fetch(c);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j; i < n; i++) {
            double complex sum = -element(c, i, j);
            for (int64_t k = 0; k <= j; k++) {
                sum += vector_of(c, i, k) * conj(vector_of(c, j, k));
            }
            error = (cabs(sum) > error || isnan(cabs(sum))) ? cabs(sum) : error;
        }
    }
    const double bound = 40 * (double)n * (double)n * element_unit(c->d.dtype);
    CHECK(error <= bound, "%s: L L^H - A %g of %g", c->text, error, bound);
}

static void judge_values(case_t *c)
{
    const plait_dtype_t dtype = c->d.dtype, real = plait_real_of(dtype);
    const int64_t n = c->d.n;
    double error = 0, unit = 0, trace = 0;
    double before = -INFINITY;

    fetch(c);
    for (int64_t j = 0; j < n; j++) {
        const double w = creal(plait_scalar_get(real, c->w, j));
        CHECK(w >= before, "%s: value %lld", c->text, (long long)j);
        before = w;
        trace += w - creal(element(c, j, j));
        for (int64_t i = 0; i < n && c->h.has_vectors; i++) {
            double complex sum = -w * vector_of(c, i, j), dot = (i == j) ? -1 : 0;
            for (int64_t l = 0; l < n; l++) {
                sum += element(c, i, l) * vector_of(c, l, j);
                dot += conj(vector_of(c, l, i)) * vector_of(c, l, j);
            }
            error = fmax(error, cabs(sum));
            unit = fmax(unit, cabs(dot));
        }
    }
    const double bound = 40 * (double)n * element_unit(dtype);
    CHECK(error <= bound, "%s: A V - V w %g of %g", c->text, error, bound);
    CHECK(unit <= bound, "%s: V^H V - 1 %g of %g", c->text, unit, bound);
    CHECK(fabs(trace) <= bound * (double)n, "%s: trace %g", c->text, trace);
}

static void judge(case_t *c)
{
    switch (c->h.op) {
    case PLAIT_JOINT_HEEVD:
        judge_values(c);
        break;
    case PLAIT_JOINT_POTRF:
        judge_factor(c);
        break;
    default:
        judge_solution(c);
    }
}

static void check_case(int n_devices, const int ids[], plait_dtype_t dtype, int64_t n,
                       int64_t block, bool has_vectors, plait_joint_op_t op,
                       bool is_host)
{
    case_t c = case_of(n_devices, ids, dtype, n, block, has_vectors, op);
    int32_t info = -1;

    good(plan(&c), c.text);
    open_case(&c);
    const int n_before = is_host ? ask_fake("fake_cuda_n_synchronized") : 0;
    good(solve(&c, &info), c.text);
    CHECK(info == 0, "%s: info %d", c.text, info);
    if (is_host) {
        CHECK(ask_fake("fake_cuda_n_synchronized") == n_before + n_devices,
              "%s: not all devices were waited for", c.text);
        CHECK(ask_fake("fake_cuda_n_current") == 0, "%s: a context was left", c.text);
    }
    judge(&c);
    close_case(&c);
}

static void check_all(int n_devices, const int ids[], bool is_host)
{
    const int64_t sizes[] = {n_devices, 7, 13, is_host ? 24 : 200};
    const int64_t blocks[] = {1, 2, 3, is_host ? 5 : 32};

    for (int i = 0; i < 16; i++) {
        check_case(n_devices, ids, dtypes[i % 4], sizes[i / 4], blocks[i / 4],
                   i % 3 != 0, PLAIT_JOINT_HEEVD, is_host);
        for (int op = PLAIT_JOINT_POTRF; op <= PLAIT_JOINT_POTRI; op++) {
            check_case(n_devices, ids, dtypes[i % 4], sizes[i / 4], blocks[i / 4],
                       false, (plait_joint_op_t)op, is_host);
        }
    }
}

/* ---- Refusals and failures, on stand-ins ---------------------------------------------------- */

static void check_refusals(void)
{
    static const int apart[] = {0, 1, 2};
    int32_t info = 0;
    case_t c = case_of(3, apart, PLAIT_F64, 12, 2, true, PLAIT_JOINT_HEEVD);

    CHECK(plan(&c) == PLAIT_ERR_UNSUPPORTED &&
              says("CUDA device 0 does not reach the memory of device 2"),
          "%s", plait_error_text());
    c = case_of(2, ids_of_host, PLAIT_F64, INT64_C(1) << 31, 1024, true,
                PLAIT_JOINT_HEEVD);
    CHECK(plan(&c) == PLAIT_ERR_UNSUPPORTED && says("2147483648 columns"), "%s",
          plait_error_text());
    c = case_of(2, ids_of_host, PLAIT_F64, 12, 2048, true, PLAIT_JOINT_HEEVD);
    CHECK(plan(&c) == PLAIT_ERR_TRANSPORT &&
              says("cuSolverMg: describing a matrix: invalid value (3)"),
          "%s", plait_error_text());
    static const int other_order[] = {4, 1};
    c = case_of(2, other_order, PLAIT_F64, 12, 2, true, PLAIT_JOINT_HEEVD);
    open_case(&c);
    CHECK(solve(&c, &info) == PLAIT_ERR_INTERNAL && says("was not planned"), "%s",
          plait_error_text());
    close_case(&c);
}

/* The library does not find them, or wants more than it did. */
static void check_outcomes(plait_joint_op_t op)
{
    case_t c = case_of(2, ids_of_host, PLAIT_C64, 9, 2, true, op);
    int32_t info = 0;

    good(plan(&c), c.text);
    open_case(&c);
    setenv("PLAIT_FAKE_MG_INFO", "5", 1);
    good(solve(&c, &info), c.text);
    CHECK(info == 5, "info %d", info);
    setenv("PLAIT_FAKE_MG_INFO", "-4", 1);
    CHECK(solve(&c, &info) == PLAIT_ERR_INTERNAL && says("argument 4 is wrong"), "%s",
          plait_error_text());
    unsetenv("PLAIT_FAKE_MG_INFO");
    setenv("PLAIT_FAKE_MG_MORE", "1", 1);
    CHECK(solve(&c, &info) == PLAIT_ERR_INTERNAL && says("when it was planned"), "%s",
          plait_error_text());
    unsetenv("PLAIT_FAKE_MG_MORE");
    close_case(&c);
}

/* One function of the library fails: while planning, when nothing of it is left, or in the call. */
static void check_failing(plait_joint_op_t op, const int ids[])
{
    static const char *const calls[] = {"cusolverMgSyevd", "cusolverMgPotrf",
                                        "cusolverMgPotrs", "cusolverMgPotri"};
    static const char *const sizes[] = {
        "cusolverMgSyevd_bufferSize", "cusolverMgPotrf_bufferSize",
        "cusolverMgPotrs_bufferSize", "cusolverMgPotri_bufferSize"};
    const char *const asks = sizes[op];
    const char *const of_plan[] = {"cusolverMgCreate", "cusolverMgDeviceSelect",
                                   "cusolverMgCreateDeviceGrid",
                                   "cusolverMgCreateMatrixDesc", asks};
    const char *const of_call[] = {"cusolverMgCreateMatrixDesc", asks, calls[op]};
    case_t c = case_of(3, ids, PLAIT_F32, 10, 3, true, op);
    char fails[80], first[40];
    int32_t info = 0;

    (void)snprintf(first, sizeof(first), "CUDA device %d: cuSolverMg: ", ids[0]);
    for (size_t i = 0; i < sizeof(of_plan) / sizeof(of_plan[0]); i++) {
        (void)snprintf(fails, sizeof(fails), "%s:2", of_plan[i]);
        setenv("PLAIT_FAKE_MG_FAIL", fails, 1);
        CHECK(plan(&c) == PLAIT_ERR_NO_MEMORY && says(first) &&
                  says("allocation failed (2)"),
              "%s: %s", fails, plait_error_text());
    }
    unsetenv("PLAIT_FAKE_MG_FAIL");
    good(plan(&c), c.text);
    open_case(&c);
    for (size_t i = 0; i < sizeof(of_call) / sizeof(of_call[0]); i++) {
        (void)snprintf(fails, sizeof(fails), "%s:6", of_call[i]);
        setenv("PLAIT_FAKE_MG_FAIL", fails, 1);
        const int n_before = ask_fake("fake_cuda_n_synchronized");
        CHECK(solve(&c, &info) == PLAIT_ERR_TRANSPORT && says("execution failed (6)"),
              "%s: %s", fails, plait_error_text());
        CHECK(ask_fake("fake_cuda_n_synchronized") == n_before + ((i == 2) ? 3 : 0),
              "%s: devices that may be at it are waited for", fails);
    }
    unsetenv("PLAIT_FAKE_MG_FAIL");
    good(solve(&c, &info), "after failures");
    judge(&c);
    close_case(&c);
}

/* The driver fails: at each function, from its first call on. */
static void check_failing_driver(void)
{
    static const char *const functions[] = {"cuDeviceCanAccessPeer:101:0",
                                            "cuCtxEnablePeerAccess:101:0",
                                            "cuMemAlloc_v2:2:0", "cuMemAlloc_v2:2:1"};
    plait_device_t *device = NULL;

    setenv("PLAIT_FAKE_FORGIVES", "1", 1);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        look_in(FAKES_DIR);
        setenv("PLAIT_FAKE_FAIL", functions[i], 1);
        case_t c = case_of(2, ids_of_host, PLAIT_F64, 6, 2, true, PLAIT_JOINT_HEEVD);
        CHECK(plan(&c) != PLAIT_OK && says("CUDA device "), "%s: %s", functions[i],
              plait_error_text());
        unsetenv("PLAIT_FAKE_FAIL");
    }
    look_in(FAKES_DIR);
    setenv("PLAIT_FAKE_FAIL", "cuCtxSynchronize:719:1", 1);
    case_t c = case_of(2, ids_of_host, PLAIT_F64, 6, 2, true, PLAIT_JOINT_HEEVD);
    int32_t info = 0;
    good(plan(&c), c.text);
    open_case(&c);
    CHECK(solve(&c, &info) == PLAIT_ERR_TRANSPORT &&
              says("CUDA device 1: waiting for it"),
          "%s", plait_error_text());
    unsetenv("PLAIT_FAKE_FAIL");
    close_case(&c);
    look_in(FAKES_DIR); /* gives back all that is left of the device that failed */
    unsetenv("PLAIT_FAKE_FORGIVES");
    good(plait_cuda_device(0, &device), "device");
}

/* A toolkit without it. */
static void check_absent(void)
{
    static const char *const there[] = {"libcuda.so.1", "libnvrtc.so.13",
                                        "libcublas.so.13", "libcusolver.so.12"};

    look_in(folder_of("without"));
    for (int i = 0; i < 4; i++) {
        put_fake(there[i], folder_of("without"), there[i]);
    }
    case_t c = case_of(2, ids_of_host, PLAIT_F64, 6, 2, true, PLAIT_JOINT_HEEVD);
    CHECK(plan(&c) == PLAIT_ERR_UNSUPPORTED && says("cuSolverMg was not found"), "%s",
          plait_error_text());
    look_in(NULL);
    remove_fakes();
}

/* ---- Real devices --------------------------------------------------------------------------- */

/* As many as there are; of one GPU the library makes several. */
static void check_here(void)
{
    plait_device_t *device = NULL;
    int ids[MOST] = {0}, n_found = 0;

    while (n_found < MOST && plait_cuda_device(n_found, &device) == PLAIT_OK) {
        n_found++;
    }
    for (int n_devices = 1; n_devices <= MOST; n_devices++) {
        ids[n_devices - 1] = (n_devices - 1) % n_found;
        case_t c = case_of(n_devices, ids, PLAIT_F64, 64, 8, true, PLAIT_JOINT_HEEVD);
        if (plan(&c) == PLAIT_ERR_UNSUPPORTED) {
            printf("%d devices: %s\n", n_devices, plait_error_text());
        } else {
            check_all(n_devices, ids, false);
        }
    }
}

int main(int n_arguments, char **arguments)
{
    const machine_t m = machine_of(n_arguments, arguments);
    plait_device_t *device = NULL;

    if (m.is_host) {
        setenv("PLAIT_FAKE_DEVICES", "5", 1);
    }
    if (plait_cuda_device(0, &device) == PLAIT_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    if (m.is_host) {
        for (int n_devices = 1; n_devices <= MOST; n_devices++) {
            check_all(n_devices, ids_of_host, true);
        }
        check_refusals();
        for (int op = PLAIT_JOINT_HEEVD; op <= PLAIT_JOINT_POTRI; op++) {
            static const int sets[][3] = {{3, 0, 4}, {4, 0, 3}, {0, 4, 3}, {0, 3, 4}};
            check_outcomes((plait_joint_op_t)op);
            check_failing((plait_joint_op_t)op, sets[op]); /* each one's is another */
        }
        check_failing_driver();
        check_absent();
    } else {
        check_here();
    }
    plait_cuda_release();
    return report("test_cuda_mg");
}
