/* Wrong arguments of a C program: each gives a named error, on one rank, and nothing is touched. */
#include "check.h"
#include "device/pool.h"
#include "plait/coll.h"
#include "plait/config.h"
#include "plait/dense.h"
#include "plait/fft.h"
#include "plait/halo.h"
#include "plait/plan.h"
#include "plait/redist.h"
#include "plait/version.h"
#include "team.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void refused(plait_status_t status, plait_status_t wanted, const char *words)
{
    CHECK(status == wanted && strstr(plait_error_text(), words) != NULL,
          "%s, expected \"%s\": %s", plait_status_name(status), words,
          plait_error_text());
}

static void check_fft(plait_comm_t *comm, const plait_layout_t *layout)
{
    const int axes[] = {0};
    const plait_fft_problem_t good = {.dtype = PLAIT_C128,
                                      .sign = -1,
                                      .scale = 1,
                                      .weight = 1,
                                      .n_axes = 1,
                                      .axes = axes,
                                      .from = layout,
                                      .to = layout};
    plait_fft_problem_t bad = good;
    plait_plan_t *plan = NULL;
    double x[16] = {0};

    refused(plait_fft_plan(comm, NULL, &plan), PLAIT_ERR_INVALID, "problem or plan_p");
    refused(plait_fft_plan(comm, &good, NULL), PLAIT_ERR_INVALID, "problem or plan_p");
    refused(plait_fft_plan(NULL, &good, &plan), PLAIT_ERR_COMM, "communicator is NULL");
    bad.to = NULL;
    refused(plait_fft_plan(comm, &bad, &plan), PLAIT_ERR_INVALID,
            "to is NULL, expected a layout");
    bad = good;
    bad.axes = NULL;
    refused(plait_fft_plan(comm, &bad, &plan), PLAIT_ERR_INVALID, "axes is NULL");
    bad = good;
    bad.n_axes = layout->ndim + 1; /* of which there is a list of fewer */
    refused(plait_fft_plan(comm, &bad, &plan), PLAIT_ERR_INVALID, "n_axes is 2, expected 0 to 1");
    for (int kind = -2; kind < 7; kind++) {
        if (kind < 0 || kind > (int)PLAIT_FFT_REAL_TO_REAL) {
            bad = good;
            bad.kind = (plait_fft_kind_t)kind;
            refused(plait_fft_plan(comm, &bad, &plan), PLAIT_ERR_INVALID, "kind");
        }
    }
    const plait_wave_t waves[] = {{.type = 5}};
    bad = good;
    bad.waves = waves;
    refused(plait_fft_plan(comm, &bad, &plan), PLAIT_ERR_INVALID, "waves is given");
    bad.kind = PLAIT_FFT_REAL_TO_REAL;
    refused(plait_fft_plan(comm, &bad, &plan), PLAIT_ERR_INVALID, "type 5, expected");
    const plait_wave_t no_number[] = {{.type = 2, .edge_in = (double)NAN}};
    bad.waves = no_number;
    refused(plait_fft_plan(comm, &bad, &plan), PLAIT_ERR_INVALID, "expected finite");
    bad.waves = NULL;
    refused(plait_fft_plan(comm, &bad, &plan), PLAIT_ERR_INVALID, "waves is NULL");
    bad = good;
    bad.scale = (double)INFINITY;
    refused(plait_fft_plan(comm, &bad, &plan), PLAIT_ERR_INVALID, "scale is inf");
    bad = good;
    bad.weight = (double)NAN;
    refused(plait_fft_plan(comm, &bad, &plan), PLAIT_ERR_INVALID, "weight");
    CHECK(plan == NULL, "a plan came with an error");
    CHECK(plait_fft_plan(comm, &good, &plan) == PLAIT_OK, "%s", plait_error_text());
    refused(plait_plan_execute(plan, comm, NULL, (void *[]){x}), PLAIT_ERR_INVALID,
            "args is NULL");
    refused(plait_plan_execute(plan, comm, (const void *[]){x}, NULL),
            PLAIT_ERR_INVALID, "rets is NULL");
    refused(plait_plan_execute(plan, comm, (const void *[]){NULL}, (void *[]){x}),
            PLAIT_ERR_INVALID, "args[0] is NULL, expected 128 bytes");
    CHECK(plait_plan_execute(plan, comm, (const void *[]){x}, (void *[]){x}) ==
              PLAIT_OK,
          "%s", plait_error_text());
    plait_plan_destroy(&plan);
}

static void check_others(plait_comm_t *comm, const plait_layout_t *layout)
{
    plait_plan_t *plan = NULL;
    const plait_halo_problem_t halo = {.cells = layout, .dtype = PLAIT_F64};
    const plait_potrf_problem_t potrf = {.n = 4, .block = 2, .dtype = PLAIT_F64};

    refused(plait_halo_pad_plan(comm, NULL, &plan), PLAIT_ERR_INVALID,
            "problem or plan_p");
    const int64_t far[] = {INT64_C(1) << 40};
    const plait_halo_problem_t wide = {
        .cells = layout, .dtype = PLAIT_F64, .before = far};
    refused(plait_halo_pad_plan(comm, &wide, &plan), PLAIT_ERR_OVERFLOW,
            "halo_pad: widths 1099511627776 and");
    const int64_t minus[] = {-1};
    const plait_halo_problem_t negative = {
        .cells = layout, .dtype = PLAIT_F64, .before = minus};
    refused(plait_halo_pad_plan(comm, &negative, &plan), PLAIT_ERR_INVALID,
            "halo_pad: ");
    refused(plait_halo_fold_plan(comm, &negative, &plan), PLAIT_ERR_INVALID,
            "halo_fold: ");
    refused(plait_halo_reduce_plan(comm, &negative, &plan), PLAIT_ERR_INVALID,
            "halo_reduce: ");
    const int64_t beyond[] = {INT64_MAX};
    const plait_halo_problem_t wider = {
        .cells = layout, .dtype = PLAIT_F64, .before = beyond};
    refused(plait_halo_pad_plan(comm, &wider, &plan), PLAIT_ERR_OVERFLOW,
            "widths 9223372036854775807 and");
    refused(plait_halo_pad_plan(comm, &halo, &plan), PLAIT_ERR_INVALID,
            "before is NULL");
    refused(plait_redist_plan(comm, PLAIT_F64, layout, layout, NULL), PLAIT_ERR_INVALID,
            "plan_p is NULL");
    refused(plait_potrf_plan(comm, NULL, &plan), PLAIT_ERR_INVALID,
            "problem or plan_p");
    refused(plait_potrf_plan(comm, &potrf, NULL), PLAIT_ERR_INVALID,
            "problem or plan_p");
    refused(plait_geqrf_plan(comm, NULL, &plan), PLAIT_ERR_INVALID,
            "problem or plan_p");
    CHECK(plan == NULL, "a plan came with an error");
}

/* The library's version is the version in its headers. */
static void check_version(void)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%d.%d.%d", PLAIT_VERSION_MAJOR,
                   PLAIT_VERSION_MINOR, PLAIT_VERSION_PATCH);
    CHECK(strcmp(plait_version(), text) == 0, "%s, the headers say %s", plait_version(),
          text);
}

static void check_places(void)
{
    const int64_t shape[] = {8};
    const int grid[] = {2}, whole[] = {-1}, beyond[] = {-2};
    const char *value = NULL;
    plait_layout_t layout;

    refused(plait_comm_self(NULL), PLAIT_ERR_INVALID, "comm_p is NULL");
    refused(plait_comm_threads(2, NULL), PLAIT_ERR_INVALID, "comms is NULL");
    refused(plait_comm_mpi(0, NULL), PLAIT_ERR_INVALID, "comm_p is NULL");
    refused(plait_config_set(NULL, "auto"), PLAIT_ERR_INVALID, "key or value is NULL");
    refused(plait_config_set("dense_backend", NULL), PLAIT_ERR_INVALID,
            "key or value is NULL");
    refused(plait_config_get(NULL, &value), PLAIT_ERR_INVALID,
            "key or value_p is NULL");
    refused(plait_config_get("dense_backend", NULL), PLAIT_ERR_INVALID,
            "key or value_p is NULL");
    refused(plait_layout_unpack(NULL, 4, &layout), PLAIT_ERR_INVALID, "words are NULL");
    refused(plait_layout_unpack(shape, 1, NULL), PLAIT_ERR_INVALID, "result is NULL");
    refused(plait_layout_pencil(1, NULL, 1, grid, whole, PLAIT_SPLIT_EVEN, &layout),
            PLAIT_ERR_INVALID, "is NULL");
    refused(plait_layout_pencil(1, shape, 1, grid, whole, PLAIT_SPLIT_EVEN, NULL),
            PLAIT_ERR_INVALID, "is NULL");
    refused(plait_layout_pencil(1, shape, 1, grid, beyond, PLAIT_SPLIT_EVEN, &layout),
            PLAIT_ERR_INVALID, "axis 0 is split over grid axis -2");
}

static void check_print(const plait_layout_t *layout)
{
    char text[64];

    for (int n = -1; n < 20; n++) {
        memset(text, 'x', sizeof(text));
        plait_layout_print(layout, text + 1, n);
        CHECK(text[0] == 'x' && text[(n > 0) ? n + 1 : 1] == 'x' &&
                  (n <= 0 || memchr(text + 1, '\0', (size_t)n) != NULL),
              "%d bytes", n);
    }
}

/* A rank that reads no operand of a collective may pass none. */
static void receive(plait_comm_t *comm, void *context)
{
    double x[3] = {1, 2, 3}, y[3] = {0};

    (void)context;
    CHECK(plait_bcast(comm, 1, PLAIT_F64, 3, (comm->end.rank == 1) ? x : NULL, y) ==
                  PLAIT_OK &&
              y[0] == x[0] && y[2] == x[2],
          "%s", plait_error_text());
}

int main(void)
{
    const plait_layout_t layout = {
        .ndim = 1, .shape = {8}, .grid_ndim = 1, .grid = {1}};
    plait_comm_t *comm = NULL;

    CHECK(plait_comm_self(&comm) == PLAIT_OK, "self");
    check_fft(comm, &layout);
    check_others(comm, &layout);
    check_print(&layout);
    check_version();
    check_places();
    plait_comm_destroy(&comm);
    team_run(3, PLAIT_DIRECT_POINTER, receive, NULL);
    (void)plait_pool_trim();
    return report("test_given");
}
