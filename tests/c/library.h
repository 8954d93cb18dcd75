/* Work of a library that plait waits for, such as NCCL's: its progress is not visible. */
#ifndef PLAIT_TESTS_LIBRARY_H
#define PLAIT_TESTS_LIBRARY_H

#include "base/clock.h"
#include "base/status.h"
#include "base/wait.h"
#include "check.h"
#include "comm/comm.h"
#include "observed.h"
#include "plan/plan.h"

typedef struct {
    int64_t n_ns;  /* how long it takes                            */
    bool is_begun; /* by all ranks; or who is waited for is to come */
} library_t;

static plait_status_t library_run(const void *params, plait_exec_t *exec)
{
    plait_status_t status = PLAIT_OK;
    const library_t *p = params;
    plait_wait_t wait = plait_wait_begin("a library", -1);
    const int64_t end = plait_clock_ns() + p->n_ns;

    (void)exec;
    wait.is_begun = p->is_begun;
    while (plait_clock_ns() < end) {
        PLAIT_TRY(plait_wait_turn(&wait));
    }
done:
    return status;
}

static inline plait_status_t library_work(plait_comm_t *comm, bool is_begun, double s)
{
    static const plait_kernel_t kernel = {
        .name = "a library", .run = library_run, .touch = observed_touch_none};
    const library_t params = {.n_ns = (int64_t)(s * 1e9), .is_begun = is_begun};

    return observed_kernel(comm, false, &kernel, &params, sizeof(params));
}

#endif
