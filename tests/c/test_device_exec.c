/* The cases of exec_cases.h and exec_halo.h with arrays on a device. */
#include "base/clock.h"
#include "base/status.h"
#include "device/cuda_nccl.h"
#include "device/find.h"
#include "exec_cases.h"
#include "exec_halo.h"
#include "nvshmem.h"
#include "on_device.h"
#include "plait/config.h"

/* ---- what the halved numbers of a real transform are multiplied by ---- */

typedef struct {
    plait_layout_t from, to;
    plait_fft_problem_t problem;
    char text[100];
} weighted_t;

/* Both directions give the results of the host. */
static void weighted_rank(plait_comm_t *comm, void *context)
{
    const weighted_t *t = context;
    const int rank = plait_comm_rank(comm);
    plait_device_t *device = comm->end.caps.device;
    const bool to_real = t->problem.kind == PLAIT_FFT_COMPLEX_TO_REAL;
    const int64_t n_x = n_local(&t->from, rank) * (to_real ? 2 : 1); /* reals */
    const int64_t n_y = n_local(&t->to, rank) * (to_real ? 1 : 2);
    double *x = plait_alloc(n_x + 1, sizeof(*x));
    double *y[2] = {plait_alloc(n_y + 1, sizeof(double)),
                    plait_alloc(n_y + 1, sizeof(double))};
    double error = 0;
    double norm = 0;

    for (int64_t i = 0; i < n_x; i++) {
        x[i] = sample((uint64_t)rank, (uint64_t)i);
    }
    for (int i = 0; i < 2; i++) {
        plait_plan_t *plan = NULL;
        comm->end.caps.device = (i == 0) ? NULL : device;
        CHECK(plait_fft_plan(comm, &t->problem, &plan) == PLAIT_OK, "%s", t->text);
        CHECK(plait_plan_execute(plan, comm, (const void *[]){x}, (void *[]){y[i]}) ==
                  PLAIT_OK,
              "%s", t->text);
        plait_plan_destroy(&plan);
    }
    for (int64_t i = 0; i < n_y; i++) {
        error += pow(y[0][i] - y[1][i], 2);
        norm += pow(y[0][i], 2);
    }
    CHECK(sqrt(error) <= 1e-13 * sqrt(norm) + 1e-300, "%s rank %d: %g of %g", t->text,
          rank, sqrt(error), sqrt(norm));
    plait_free(x);
    plait_free(y[0]);
    plait_free(y[1]);
}

static void check_weighted(int n_ranks)
{
    static const int64_t lengths[] = {1, 2, 7, 8};

    for (int i = 0; i < 4 * 2 * 2 * 3 * 2; i++) {
        const int half = i / 16 % 3;
        const bool to_real = i / 8 % 2 != 0;
        const int axes[] = {(half + 1) % 3, half};
        const int grid[] = {n_ranks};
        int64_t shape[] = {5, 3, 4};
        weighted_t t = {.problem = {.dtype = PLAIT_C128,
                                    .n_axes = 2,
                                    .axes = axes,
                                    .sign = (i / 4 % 2 != 0) ? 1 : -1,
                                    .scale = 0.5,
                                    .weight = 0.7}};
        shape[half] = lengths[i % 4];
        if (!layout_of(1, 3, shape, 1, grid, PLAIT_SPLIT_EVEN, false, &t.from) ||
            !layout_of((i / 48 != 0) ? 2 : 1, 3, shape, 1, grid, PLAIT_SPLIT_EVEN,
                       i % 3 == 0, &t.to)) {
            continue;
        }
        *(to_real ? &t.from.shape[half] : &t.to.shape[half]) = shape[half] / 2 + 1;
        t.problem.kind =
            to_real ? PLAIT_FFT_COMPLEX_TO_REAL : PLAIT_FFT_REAL_TO_COMPLEX;
        t.problem.from = &t.from;
        t.problem.to = &t.to;
        (void)snprintf(t.text, sizeof(t.text), "weighted %s, axis %d of %d, sign %d",
                       to_real ? "to real" : "from real", half, (int)shape[half],
                       t.problem.sign);
        team_run(n_ranks, PLAIT_DIRECT_POINTER, weighted_rank, &t);
    }
}

/* ---- calls of the library that lines along an axis take ---- */

typedef struct {
    plait_layout_t from, to;
    plait_fft_problem_t problem;
    const char *steps[4]; /* in the plan's text, in this order */
    int64_t scratch_bytes;
} called_t;

static void called_rank(plait_comm_t *comm, void *context)
{
    const called_t *t = context;
    plait_plan_t *plan = NULL;
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);

    if (plait_comm_rank(comm) == 0 && file != NULL) {
        CHECK(plait_fft_plan(comm, &t->problem, &plan) == PLAIT_OK, "%s",
              plait_error_text());
        plait_plan_print(plan, file);
        (void)fflush(file);
        const char *at = text;
        for (int i = 0; i < 4 && t->steps[i] != NULL && at != NULL; i++) {
            at = strstr(at + (i > 0), t->steps[i]);
            CHECK(at != NULL, "\"%s\" is not in\n%s", t->steps[i], text);
        }
        CHECK(plan != NULL &&
                  (t->scratch_bytes == 0 || plan->scratch_bytes == t->scratch_bytes),
              "scratch: expected %lld\n%s", (long long)t->scratch_bytes, text);
        CHECK(plan != NULL && plan->n_work == 0, "a buffer beside the scratch\n%s",
              text);
        plait_plan_destroy(&plan);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    free(text);
}

static void check_calls(void)
{
    static const int all[] = {0, 1, 2}, middle[] = {1};
    static const int64_t cube[] = {256, 256, 256}, deep[] = {512, 64, 64},
                         large[] = {8, 1024, 1024};
    called_t pencils = {.steps = {"1 of 16384 transforms of 256, complex (",
                                  "1 of 16384 transforms of 256, complex (",
                                  "1 of 16384 transforms of 256, complex ("},
                        .scratch_bytes = 128 * 128 * 256 * 8}; /* all of an exchange */
    called_t short_lines = {
        .steps = {"1 of 32768 transforms of 64, complex, by way of scratch ("},
        .scratch_bytes = 512 * 64 * 64 * 8 + 768}; /* behind the library's, by grains */
    called_t long_lines = {.steps = {"8 of 1024 transforms of 1024, complex ("}};
    called_t *cases[] = {&pencils, &short_lines, &long_lines};
    const int64_t *shapes[] = {cube, deep, large};

    for (int i = 0; i < 3; i++) {
        called_t *t = cases[i];
        const int grid[] = {(i == 0) ? 2 : 1, (i == 0) ? 2 : 1};
        t->problem = (plait_fft_problem_t){.dtype = PLAIT_C64,
                                           .n_axes = (i == 0) ? 3 : 1,
                                           .axes = (i == 0) ? all : middle,
                                           .sign = -1,
                                           .scale = 1,
                                           .from = &t->from,
                                           .to = &t->to};
        /* split (0, 1) to (1, 2): first axis 1, between others, then axis 0 */
        CHECK(layout_of((i == 0) ? 7 : 0, 3, shapes[i], 2, grid, PLAIT_SPLIT_EVEN,
                        false, &t->from) &&
                  layout_of((i == 0) ? 21 : 0, 3, shapes[i], 2, grid, PLAIT_SPLIT_EVEN,
                            false, &t->to),
              "layouts");
        team_run((i == 0) ? 4 : 1, PLAIT_DIRECT_NONE, called_rank, t);
    }
}

/* All cases by one link. */
static void check_link(const plait_device_link_t *link, int n_ranks)
{
    team_link = link;
    on_device_begin(n_ranks);
    exec_cases(n_ranks);
    exec_halo_cases(n_ranks);
    nvshmem_end(n_ranks, team_devices);
    on_device_end(n_ranks);
}

/* ---- links that a program chooses ---- */

static void choose(const char *backend)
{
    CHECK(plait_config_set("transpose_comm_backend", backend) == PLAIT_OK, "%s",
          backend);
}

/* Every rank gets all parts of six numbers; or all ranks learn what is missing, and why. */
static void moved_rank(plait_comm_t *comm, void *context)
{
    const char *why = context;
    const int rank = plait_comm_rank(comm);
    const int64_t shape[] = {6};
    const int grid[] = {2};
    plait_layout_t from, to;
    plait_plan_t *plan = NULL;
    double x[3] = {3 * rank, 3 * rank + 1, 3 * rank + 2};
    double y[6] = {0};

    CHECK(layout_of(1, 1, shape, 1, grid, PLAIT_SPLIT_EVEN, false, &from) &&
              layout_of(0, 1, shape, 1, grid, PLAIT_SPLIT_EVEN, false, &to),
          "layouts");
    CHECK(plait_redist_plan(comm, PLAIT_F64, &from, &to, &plan) == PLAIT_OK, "plan");
    plait_status_t status =
        plait_plan_execute(plan, comm, (const void *[]){x}, (void *[]){y});
    CHECK(status == ((why == NULL) ? PLAIT_OK : PLAIT_ERR_UNSUPPORTED), "%d", status);
    CHECK(why == NULL || strstr(plait_error_text(), why) != NULL, "%s",
          plait_error_text());
    for (int i = 0; i < 6 && why == NULL; i++) {
        CHECK(y[i] == i, "y[%d] %g", i, y[i]);
    }
    plait_plan_destroy(&plan);
}

/* Bytes that came across, up from the host, or by NCCL alone, except those by which NCCL proves itself. */
static void check_backend(const char *backend, bool is_across, bool is_up)
{
    const int64_t n_bytes = 3 * (int64_t)sizeof(double);
    check_device_counts_t before, after;

    choose(backend);
    on_device_begin(2);
    before = check_device_counts(team_devices[1]);
    team_run(2, PLAIT_DIRECT_NONE, moved_rank, NULL);
    after = check_device_counts(team_devices[1]);
    CHECK((after.across_bytes > before.across_bytes) == is_across, "%s: across",
          backend);
    CHECK((after.up_bytes - before.up_bytes >= n_bytes) == is_up, "%s: up", backend);
    on_device_end(2);
    choose("auto");
}

static void check_refused_backend(const char *backend, char *why)
{
    choose(backend);
    on_device_begin(2);
    team_run(2, PLAIT_DIRECT_NONE, moved_rank, why);
    on_device_end(2);
    choose("auto");
}

static void check_backends(void)
{
    static char no_nccl[] = "nccl: rank 0: NCCL knows no check devices";
    static char no_nvshmem[] = "nvshmem: rank 0: NVSHMEM knows no check devices";
    static char no_processes[] =
        "nvshmem: rank 0: ranks are not MPI processes with a device each";

    team_link = NULL;
    CHECK(plait_config_set("transpose_comm_backend", "NCCL") == PLAIT_ERR_UNSUPPORTED &&
              strstr(plait_error_text(), "no device") != NULL,
          "%s", plait_error_text());
    on_device_pretend();
    check_device_use_nccl(&plait_cuda_nccl);
    check_backend("NCCL", false, false);
    check_backend("NODE", true, false);
    check_backend("MPI", false, true);
    check_device_use_nccl(NULL);
    check_refused_backend("NCCL", no_nccl);
    check_refused_backend("nvshmem", no_nvshmem);
    check_device_use_nvshmem(&plait_cuda_nvshmem);
    check_refused_backend("NVSHMEM", no_processes);
    check_device_use_nvshmem(NULL);
    plait_device_set_finder(NULL);
}

/* ---- an event that does not come ---- */

static plait_status_t ask_never(plait_device_t *device, plait_event_t *event,
                                bool *is_over_p)
{
    (void)device;
    (void)event;
    *is_over_p = false;
    return PLAIT_OK;
}

/* The wait ends at its time limit, which is no error. */
static void check_patience(void)
{
    const plait_device_table_t table = {.event_ask = ask_never};
    plait_device_t device = {.table = &table};
    const int64_t begin = plait_clock_ns(), patience = 30 * 1000 * 1000;

    CHECK(plait_device_await(&device, NULL, "what does not come", begin + patience) ==
              PLAIT_OK,
          "%s", plait_error_text());
    CHECK(plait_clock_ns() - begin >= patience, "too early");
}

int main(void)
{
    const int most = is_quick() ? 3 : 4;

    (void)setenv("PLAIT_CUDA_DIR", FAKES_DIR, 1);
    check_backends();
    check_patience();
    on_device_begin(4);
    check_calls();
    on_device_end(4);
    for (int n_ranks = 1; n_ranks <= most; n_ranks += is_quick() ? 2 : 1) {
        check_link(NULL, n_ranks); /* peers by address */
        on_device_begin(n_ranks);
        check_weighted(n_ranks);
        on_device_end(n_ranks);
    }
    check_link(&plait_link_staged, 3);
    (void)setenv("PLAIT_NVSHMEM_BYTES", "65536", 1);
    check_device_use_nvshmem(&plait_cuda_nvshmem);
    check_link(&plait_link_nvshmem, 3);
    check_link(&plait_link_ipc, 3);
    on_device_begin(3);
    check_turned_large(2, PLAIT_C128);
    check_turned_large(3, PLAIT_F32);
    team_run(3, PLAIT_DIRECT_NONE, halo_defaults, NULL);
    on_device_end(3);
    oracles_forget();
    (void)plait_pool_trim();
    return report("test_device_exec");
}
