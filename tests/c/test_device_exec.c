/* The cases of exec_cases.h and exec_halo.h with arrays on a device. */
#include "exec_cases.h"
#include "exec_halo.h"
#include "on_device.h"

/* ---- what the halved numbers of a real transform are multiplied by ---- */

typedef struct {
    plait_layout_t from, to;
    plait_fft_problem_t problem;
    char text[100];
} weighted_t;

/* Both as on the host. */
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

/* All by one link. */
static void check_link(const plait_device_link_t *link, int n_ranks)
{
    team_link = link;
    on_device_begin(n_ranks);
    exec_cases(n_ranks);
    exec_halo_cases(n_ranks);
    on_device_end(n_ranks);
}

int main(void)
{
    const int most = is_quick() ? 3 : 4;

    for (int n_ranks = 1; n_ranks <= most; n_ranks++) {
        check_link(NULL, n_ranks); /* peers by address */
        on_device_begin(n_ranks);
        check_weighted(n_ranks);
        on_device_end(n_ranks);
    }
    check_link(&plait_link_staged, 3);
    check_link(&plait_link_ipc, 3);
    on_device_begin(3);
    check_turned_large(2, PLAIT_C128);
    check_turned_large(3, PLAIT_F32);
    team_run(3, PLAIT_DIRECT_NONE, halo_defaults, NULL);
    on_device_end(3);
    (void)plait_pool_trim();
    return report("test_device_exec");
}
