#include "transport/process_grid.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/device_vigil.h"

#include <stdio.h>
#include <string.h>

enum { WHY_BYTES = 200 };

typedef struct plait_grid_seat {
    plait_device_t *device;
    plait_process_grid_t *grid; /* NULL: they do not work as one, or not any more */
    bool is_known;
} seat_t;

/* What ranks tell each other: before they take their seats, and after. */
typedef struct {
    int32_t status;
    int32_t has_failed; /* before the ranks were asked */
    plait_nccl_id_t id;
    char why[WHY_BYTES];
} say_t;

static seat_t *seat_of(plait_endpoint_t *end)
{
    if (end->seat == NULL) {
        end->seat = plait_alloc(1, sizeof(*end->seat));
    }
    return end->seat;
}

bool plait_process_grid_is_known(const plait_endpoint_t *end)
{
    return end->seat != NULL && end->seat->is_known;
}

plait_process_grid_t *plait_process_grid(const plait_endpoint_t *end,
                                         const plait_device_t *device)
{
    const bool is_its = end->seat != NULL && end->seat->device == device;

    return is_its ? end->seat->grid : NULL;
}

/* The steps that this rank can do alone. */
static plait_status_t prepare(plait_device_run_t *run, plait_process_grid_t **grid_p,
                              plait_nccl_id_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_grid_t *call = run->device->table->grid;

    PLAIT_CHECK(call != NULL, PLAIT_ERR_UNSUPPORTED,
                "%s devices of several processes do not work as one",
                run->device->table->name);
    PLAIT_TRY(call->create(run->device, run->stream, grid_p));
    if (run->session->end->rank == 0) {
        PLAIT_TRY(call->id(id_p));
    }
    PLAIT_TRY(plait_vigil_enter(run));
done:
    return status;
}

/* A rank that is not ready says why. all: what all ranks say. */
static plait_status_t tell(plait_device_run_t *run, plait_status_t ready, say_t *mine,
                           say_t all[])
{
    mine->status = (int32_t)ready;
    (void)snprintf(mine->why, sizeof(mine->why), "%s",
                   (ready != PLAIT_OK) ? plait_error_text() : "");
    return plait_device_share(run, mine, sizeof(*mine), all);
}

/* The first rank that is not ready; -1: all are. */
static int find_unready(const say_t all[], int n_ranks)
{
    int found = -1;

    for (int r = 0; r < n_ranks && found < 0; r++) {
        found = (all[r].status != PLAIT_OK) ? r : -1;
    }
    return found;
}

static plait_status_t ask(plait_device_run_t *run, seat_t *seat, say_t all[])
{
    plait_status_t status = PLAIT_OK;
    const plait_endpoint_t *end = run->session->end;
    say_t mine = {.has_failed = run->failure != PLAIT_OK};
    plait_status_t ready = (run->failure != PLAIT_OK)
                               ? plait_fail(run->failure, "%s", run->why)
                               : prepare(run, &seat->grid, &mine.id);
    bool has_failed = false;
    int unready = -1;

    PLAIT_TRY(tell(run, ready, &mine, all));
    for (int r = 0; r < end->size; r++) {
        has_failed = has_failed || all[r].has_failed != 0;
    }
    unready = find_unready(all, end->size);
    if (unready < 0) {
        const plait_nccl_id_t id = all[0].id;
        ready = run->device->table->grid->join(seat->grid, &id, end->size, end->rank);
        PLAIT_TRY(tell(run, ready, &mine, all));
        unready = find_unready(all, end->size);
    }
    seat->is_known = !has_failed; /* else this is the reason, and they ask again */
    if (unready >= 0) {
        plait_log(PLAIT_LOG_INFO,
                  "rank %d of %d: devices of the ranks' processes do not work as one: "
                  "rank %d: %s",
                  end->rank, end->size, unready, all[unready].why);
    }
done:
    plait_vigil_leave(run);
    if ((status != PLAIT_OK || unready >= 0) && seat->grid != NULL) {
        run->device->table->grid->abort(seat->grid);
        seat->grid = NULL;
    }
    return status;
}

plait_status_t plait_process_grid_open(plait_device_run_t *run)
{
    plait_status_t status = PLAIT_OK;
    seat_t *seat = seat_of(run->session->end);
    say_t *all = plait_alloc(run->session->end->size, sizeof(*all));

    run->is_lost = run->is_lost || seat == NULL || all == NULL;
    PLAIT_CHECK(seat != NULL && all != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory to ask whether devices work as one");
    seat->device = run->device;
    PLAIT_TRY(ask(run, seat, all));
done:
    plait_free(all);
    return status;
}

void plait_process_grid_abandon(plait_device_run_t *run)
{
    seat_t *seat = run->session->end->seat;

    if (run->is_in_grid && seat != NULL && seat->grid != NULL) {
        run->device->table->grid->abort(seat->grid);
        seat->grid = NULL;
        seat->is_known = false;
    }
}

void plait_process_grid_close(plait_endpoint_t *end, bool is_whole)
{
    seat_t *seat = end->seat;

    if (seat != NULL && seat->grid != NULL &&
        seat->device->table->enter(seat->device) == PLAIT_OK) {
        const plait_device_grid_t *call = seat->device->table->grid;
        (is_whole ? call->close : call->abort)(seat->grid);
        seat->device->table->leave(seat->device);
    }
    plait_free(seat);
    end->seat = NULL;
}
