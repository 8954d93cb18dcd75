#include "transport/staged_half.h"

#include "base/status.h"
#include "device/pool.h"

static plait_flight_t *flight_of(const plait_staged_half_t *half, int i)
{
    return &half->call->staging->flights[i % PLAIT_STAGED_FLIGHTS];
}

static plait_status_t need_staging(plait_staged_call_t *call)
{
    plait_status_t status = PLAIT_OK;

    if (call->staging == NULL) {
        PLAIT_TRY(plait_staging_take(call->run->device, call->room, &call->staging));
        PLAIT_TRY(plait_staging_part(call->staging, call->run->stream));
    }
done:
    return status;
}

/* As many chunks as there are flights: earlier chunks are through. */
static plait_status_t lower(plait_staged_half_t *half)
{
    plait_status_t status = PLAIT_OK;
    plait_staging_t *staging = half->call->staging;

    while (half->lower_at < half->n_bytes &&
           half->n_lowered < half->n_given + PLAIT_STAGED_FLIGHTS) {
        const int64_t chunk = plait_staged_chunk(half->n_bytes, half->lower_at);
        PLAIT_TRY(plait_staging_lower(staging, staging->down,
                                      flight_of(half, half->n_lowered),
                                      half->data + half->lower_at, chunk));
        half->n_lowered++;
        half->lower_at += chunk;
    }
done:
    return status;
}

plait_status_t plait_staged_half_begin(plait_staged_half_t *half)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(need_staging(half->call));
    if (half->is_send) {
        PLAIT_TRY(lower(half));
    }
done:
    return status;
}

static plait_status_t raise_last(plait_staged_half_t *half)
{
    plait_staging_t *staging = half->call->staging;

    return (half->n_given == 0)
               ? PLAIT_OK
               : plait_staging_raise(staging, staging->up,
                                     flight_of(half, half->n_given - 1),
                                     half->data + half->at, half->chunk);
}

static plait_status_t next_out(plait_staged_half_t *half, void **data_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(lower(half));
    PLAIT_TRY(
        plait_staging_lowered(half->call->staging, flight_of(half, half->n_given)));
    *data_p = flight_of(half, half->n_given)->out;
done:
    return status;
}

static plait_status_t next_in(plait_staged_half_t *half, void **data_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(raise_last(half));
    PLAIT_TRY(plait_staging_land(half->call->staging, flight_of(half, half->n_given)));
    *data_p = flight_of(half, half->n_given)->in;
done:
    return status;
}

/* In ordinary memory: copies may still use the staging's memory. */
static plait_status_t next_spare(plait_staged_half_t *half, void **data_p)
{
    plait_status_t status = PLAIT_OK;

    if (half->spare == NULL) {
        PLAIT_TRY(plait_pool_take(half->call->room, &half->spare));
    }
    *data_p = half->spare;
done:
    return status;
}

plait_status_t plait_staged_half_next(plait_staged_half_t *half, void **data_p)
{
    plait_device_run_t *run = half->call->run;
    plait_status_t status = run->failure;

    PLAIT_TRY(status);
    PLAIT_TRY(need_staging(half->call));
    PLAIT_TRY(half->is_send ? next_out(half, data_p) : next_in(half, data_p));
    half->at += half->chunk;
    half->chunk = plait_staged_chunk(half->n_bytes, half->at);
    half->n_given++;
done:
    (void)plait_device_failed(run, status);
    if (status != PLAIT_OK && !half->is_send) {
        status = next_spare(half, data_p);
    }
    return status;
}

plait_status_t plait_staged_half_bring(plait_staged_half_t *half)
{
    plait_status_t status = PLAIT_OK;

    if (half->n_given > 0) {
        PLAIT_TRY(raise_last(half));
        PLAIT_TRY(plait_staging_join(half->call->staging, half->call->run->stream));
    }
done:
    return status;
}

void plait_staged_half_finish(plait_staged_half_t *half)
{
    if (!plait_endpoint_is_stuck(half->call->run->session->end)) {
        plait_pool_give(half->spare);
    }
    half->spare = NULL;
}

void plait_staged_call_finish(plait_staged_call_t *call)
{
    if (!plait_endpoint_is_stuck(call->run->session->end)) {
        plait_staging_give(call->staging, call->run->failure == PLAIT_OK);
    }
    call->staging = NULL;
}
