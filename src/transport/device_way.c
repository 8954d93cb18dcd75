/* Chooses the link that the ranks of a communicator take. No other file does. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/wait.h"
#include "device/pool.h"
#include "transport/device_link.h"
#include "transport/device_vigil.h"

#include <stdio.h>
#include <string.h>

/* In the order in which they are tried. */
enum { PEER, IPC, NCCL, NVSHMEM, MPI, STAGED, N_LINKS, WHY_BYTES = 200 };

static const plait_device_link_t *const links[N_LINKS] = {
    [PEER] = &plait_link_peer, [IPC] = &plait_link_ipc,
    [NCCL] = &plait_link_nccl, [NVSHMEM] = &plait_link_nvshmem,
    [MPI] = &plait_link_mpi,   [STAGED] = &plait_link_staged,
};

/* The links of each reach: bit l is links[l]. NVSHMEM ends a process if it fails, and copies what NCCL does
 * not: it must be asked for by name. */
static const uint32_t reaches[PLAIT_REACH_COUNT] = {
    [PLAIT_REACH_ANY] = ((1U << N_LINKS) - 1) & ~(1U << NVSHMEM),
    [PLAIT_REACH_NODE] = 1U << PEER | 1U << IPC,
    [PLAIT_REACH_NCCL] = 1U << NCCL,
    [PLAIT_REACH_NVSHMEM] = 1U << NVSHMEM,
    [PLAIT_REACH_MPI] = 1U << MPI | 1U << STAGED,
    [PLAIT_REACH_BESIDE] = 1U << PEER | 1U << IPC | 1U << STAGED,
};

typedef struct plait_device_ways {
    plait_device_t *device;
    const plait_device_link_t *forced;
    int chosen[PLAIT_REACH_COUNT]; /* 1 more than the link's index; 0: not yet */
    bool is_open[N_LINKS];
    void *states[N_LINKS];
    /* For matched transfers, which started operations make on their own threads: is_there is set last and holds
     * until the endpoint is closed. */
    struct {
        void *state;
        _Atomic bool is_there;
    } matched[N_LINKS];
} ways_t;

/* What each rank says about itself before any link is opened. */
typedef struct {
    uint32_t can;
    int32_t has_failed;
    char why[N_LINKS][WHY_BYTES]; /* why it cannot take the link */
} say_t;

/* What each rank says after a link was opened. */
typedef struct {
    int32_t status;
    char why[WHY_BYTES];
} verdict_t;

plait_status_t plait_device_failed(plait_device_run_t *run, plait_status_t status)
{
    if (run->failure == PLAIT_OK && status != PLAIT_OK) {
        run->failure = status;
        (void)snprintf(run->why, sizeof(run->why), "%s", plait_error_text());
    }
    return run->failure;
}

/* ---- what ranks tell each other ---- */

plait_status_t plait_device_share(plait_device_run_t *run, const void *mine,
                                  int64_t n_bytes, void *all)
{
    plait_status_t status = PLAIT_OK;
    const plait_endpoint_t *end = run->session->end;
    void *memory = NULL;
    char *to = all;
    int n = 0;

    PLAIT_TRY(
        plait_pool_take(2 * end->size * (int64_t)sizeof(plait_message_t), &memory));
    plait_message_t *sends = memory;
    plait_message_t *recvs = sends + end->size;
    for (int r = 0; r < end->size; r++) {
        if (r != end->rank) {
            sends[n] = (plait_message_t){r, (void *)(uintptr_t)mine, n_bytes};
            recvs[n++] = (plait_message_t){r, to + r * n_bytes, n_bytes};
        }
    }
    memcpy(to + end->rank * n_bytes, mine, (size_t)n_bytes);
    PLAIT_TRY(end->transport->exchange(run->session, n, sends, n, recvs));
done:
    run->is_lost = run->is_lost || status != PLAIT_OK;
    plait_pool_give(memory);
    return status;
}

/* ---- one endpoint ---- */

void plait_device_close_ways(plait_endpoint_t *end, bool is_whole)
{
    ways_t *ways = end->ways;

    if (ways == NULL) {
        return;
    }
    bool is_inside =
        ways->device != NULL && ways->device->table->enter(ways->device) == PLAIT_OK;
    plait_vigil_forget(end);
    for (int l = 0; l < N_LINKS; l++) {
        if (ways->matched[l].is_there) {
            links[l]->matched->destroy(ways->device, ways->matched[l].state);
        }
        if (ways->is_open[l] && links[l]->close != NULL) {
            links[l]->close(ways->device, ways->states[l], is_whole);
        }
    }
    if (is_inside) {
        ways->device->table->leave(ways->device);
    }
    plait_free(ways);
    end->ways = NULL;
}

plait_status_t plait_device_force_link(plait_endpoint_t *end,
                                       const plait_device_link_t *link)
{
    plait_status_t status = PLAIT_OK;
    ways_t *ways = plait_alloc(1, sizeof(*ways));

    PLAIT_CHECK(ways != NULL, PLAIT_ERR_NO_MEMORY, "no memory for ways to devices");
    ways->forced = link;
    end->ways = ways;
done:
    return status;
}

/* ---- the choice ---- */

/* Whether link l is one of the links that may be taken. A started operation is staged if it may not take the
 * forced link. */
static bool is_asked_for(const ways_t *ways, plait_reach_t reach, int l)
{
    bool is_part = (reaches[reach] >> l & 1) != 0;
    bool is_forced = ways->forced == links[l];

    return (ways->forced == NULL)          ? is_part
           : (reach == PLAIT_REACH_BESIDE) ? is_part && (is_forced || l == STAGED)
                                           : is_forced;
}

/* Whether this rank could take the link; if not, why[] says why. A started operation that may take no link is
 * staged whatever PLAIT_GPU_AWARE says. */
static bool can_take(const plait_endpoint_t *end, const ways_t *ways,
                     plait_reach_t reach, int l, char why[WHY_BYTES])
{
    bool is_last = reach == PLAIT_REACH_BESIDE && l == STAGED;
    bool can = true;

    if (ways->forced == NULL && links[l]->can != NULL && !is_last) {
        can = links[l]->can(end, ways->device) == PLAIT_OK;
        (void)snprintf(why, WHY_BYTES, "%s", can ? "" : plait_error_text());
    }
    return can;
}

/* All ranks know that they take this link, so a failure to open it is a failure of this execution. */
static void take(plait_device_run_t *run, ways_t *ways, int l)
{
    plait_status_t status = run->failure;

    if (status == PLAIT_OK && links[l]->open != NULL && !ways->is_open[l]) {
        PLAIT_TRY(links[l]->open(run, &ways->states[l]));
        ways->is_open[l] = true;
    }
done:
    (void)plait_device_failed(run, status);
    run->link = links[l];
    run->state = ways->is_open[l] ? ways->states[l] : NULL;
}

/* Opens the link on all ranks or on none. why[]: of the first rank that failed, except ranks (PEER) that failed
 * because of another rank. */
static plait_status_t open_on_all(plait_device_run_t *run, ways_t *ways, int l,
                                  verdict_t all[], char why[WHY_BYTES], bool *is_open_p)
{
    plait_status_t status = PLAIT_OK;
    verdict_t mine = {.status = PLAIT_OK};

    *is_open_p = true;
    if (links[l]->open == NULL || ways->is_open[l]) {
        goto done;
    }
    mine.status = (int32_t)links[l]->open(run, &ways->states[l]);
    ways->is_open[l] = mine.status == PLAIT_OK;
    if (mine.status != PLAIT_OK) {
        (void)snprintf(mine.why, sizeof(mine.why), "%s", plait_error_text());
    }
    PLAIT_CHECK(!run->is_lost, (plait_status_t)mine.status, "%s", mine.why);
    PLAIT_TRY(plait_device_share(run, &mine, sizeof(mine), all));
    for (int r = run->session->end->size - 1; r >= 0; r--) {
        *is_open_p = *is_open_p && all[r].status == PLAIT_OK;
        if (all[r].status != PLAIT_OK &&
            (why[0] == '\0' || all[r].status != PLAIT_ERR_PEER)) {
            (void)snprintf(why, WHY_BYTES, "rank %d: %.180s", r, all[r].why);
        }
    }
done:
    if (ways->is_open[l] && !(*is_open_p && status == PLAIT_OK)) {
        links[l]->close(ways->device, ways->states[l], !run->is_lost);
        ways->is_open[l] = false;
    }
    return status;
}

/* The links that all ranks can take; why[][]: of the first rank that cannot. */
static uint32_t common_links(const say_t all[], int n_ranks, char why[][WHY_BYTES])
{
    uint32_t common = all[0].can;

    for (int r = n_ranks - 1; r >= 0; r--) {
        common &= all[r].can;
        for (int l = 0; l < N_LINKS; l++) {
            if ((all[r].can >> l & 1) == 0) {
                (void)snprintf(why[l], WHY_BYTES, "rank %d: %.180s", r, all[r].why[l]);
            }
        }
    }
    return common;
}

static plait_status_t refuse(const ways_t *ways, plait_reach_t reach,
                             char why[][WHY_BYTES])
{
    char text[N_LINKS * WHY_BYTES + 64] = "";

    for (int l = 0; l < N_LINKS; l++) {
        if (is_asked_for(ways, reach, l)) {
            size_t used = strlen(text);
            (void)snprintf(text + used, sizeof(text) - used, "\n  %s: %s",
                           links[l]->name, why[l]);
        }
    }
    return plait_fail(PLAIT_ERR_UNSUPPORTED, "peers' devices cannot be reached%s",
                      text);
}

/* If this fails, the rank's matched transfers are staged, also those that are offered to it. */
static void open_matched(const plait_endpoint_t *end, ways_t *ways, int l)
{
    const plait_matched_link_t *matched = links[l]->matched;

    if (matched != NULL && matched->create != NULL && !ways->matched[l].is_there &&
        matched->create(end, ways->states[l], &ways->matched[l].state) == PLAIT_OK) {
        ways->matched[l].is_there = true;
    }
}

/* Of the links in `can`, the first one that opens on all ranks. */
static plait_status_t open_first(plait_device_run_t *run, ways_t *ways,
                                 plait_reach_t reach, uint32_t can,
                                 verdict_t verdicts[], char why[][WHY_BYTES])
{
    plait_status_t status = PLAIT_OK;
    bool is_open = false;
    int l = 0;

    for (; l < N_LINKS && !is_open; l++) {
        if ((can >> l & 1) != 0) {
            PLAIT_TRY(open_on_all(run, ways, l, verdicts, why[l], &is_open));
        }
    }
    if (!is_open) {
        status = refuse(ways, reach, why);
        goto done;
    }
    ways->chosen[reach] = l;
    plait_log(PLAIT_LOG_INFO, "rank %d of %d reaches peers' devices by %s",
              run->session->end->rank, run->session->end->size, links[l - 1]->name);
    take(run, ways, l - 1);
    open_matched(run->session->end, ways, l - 1);
done:
    return status;
}

static plait_status_t ask_all(plait_device_run_t *run, ways_t *ways,
                              plait_reach_t reach, const say_t *mine)
{
    plait_status_t status = PLAIT_OK;
    const int n_ranks = run->session->end->size;
    char why[N_LINKS][WHY_BYTES] = {""};
    bool has_failed = false;
    void *memory = NULL;

    PLAIT_TRY(plait_pool_take(n_ranks * (int64_t)(sizeof(say_t) + sizeof(verdict_t)),
                              &memory));
    say_t *all = memory;
    verdict_t *verdicts = (verdict_t *)(void *)(all + n_ranks);
    PLAIT_TRY(plait_device_share(run, mine, sizeof(*mine), all));
    for (int r = 0; r < n_ranks; r++) {
        has_failed = has_failed || all[r].has_failed;
    }
    if (!has_failed) { /* else they meet again at the next operation */
        PLAIT_TRY(open_first(run, ways, reach, common_links(all, n_ranks, why),
                             verdicts, why));
    }
done:
    run->is_lost = run->is_lost || (status != PLAIT_OK && memory == NULL);
    if (!plait_endpoint_is_stuck(run->session->end)) {
        plait_pool_give(memory);
    }
    return status;
}

static plait_status_t ways_of(plait_device_run_t *run, ways_t **ways_p)
{
    plait_status_t status = PLAIT_OK;
    plait_endpoint_t *end = run->session->end;
    ways_t *ways = end->ways;

    if (ways == NULL) {
        ways = plait_alloc(1, sizeof(*ways));
        PLAIT_CHECK(ways != NULL, PLAIT_ERR_NO_MEMORY, "no memory for ways to devices");
        end->ways = ways;
    }
    if (ways->device == NULL) {
        ways->device = run->device;
    }
    if (ways->device != run->device) { /* the others go on, with messages, too */
        (void)plait_device_failed(
            run, plait_fail(PLAIT_ERR_INVALID,
                            "an array is on device %d, but earlier arrays were on "
                            "device %d; a communicator has one device",
                            run->device->ordinal, ways->device->ordinal));
    }
    *ways_p = ways;
done:
    return status;
}

plait_status_t plait_device_find_way(plait_device_run_t *run, plait_reach_t reach,
                                     bool may_ask)
{
    plait_status_t status = PLAIT_OK;
    say_t mine = {.has_failed = run->failure != PLAIT_OK};
    ways_t *ways = NULL;

    run->link = &plait_link_staged;
    PLAIT_TRY(ways_of(run, &ways));
    for (int l = 0; l < N_LINKS && ways->chosen[reach] == 0; l++) {
        bool can = is_asked_for(ways, reach, l) &&
                   can_take(run->session->end, ways, reach, l, mine.why[l]);
        mine.can |= (uint32_t)can << l;
        ways->chosen[reach] = (can && links[l]->is_known) ? l + 1 : 0;
    }
    if (ways->chosen[reach] != 0) {
        take(run, ways, ways->chosen[reach] - 1);
    } else if (may_ask) {
        PLAIT_TRY(ask_all(run, ways, reach, &mine));
    }
done:
    run->is_lost = run->is_lost || (status != PLAIT_OK && ways == NULL);
    return status;
}

/* Whether the link needs no other rank, or was opened with all ranks, for this device. */
static bool has_matched(const plait_device_run_t *run, const ways_t *ways, int l)
{
    const plait_endpoint_t *end = run->session->end;
    const plait_matched_link_t *matched = links[l]->matched;
    bool is_asked_for =
        (reaches[run->reach] >> l & 1) != 0 &&
        (ways == NULL || ways->forced == NULL || ways->forced == links[l]);

    return matched != NULL && is_asked_for &&
           ((matched->can != NULL) ? matched->can(end, run->device)
                                   : ways != NULL && ways->matched[l].is_there &&
                                         ways->device == run->device);
}

const plait_matched_link_t *plait_device_matched_way(const plait_device_run_t *run,
                                                     void **state_p)
{
    const ways_t *ways = run->session->end->ways;
    int l = 0;

    while (l < N_LINKS && !has_matched(run, ways, l)) {
        l++;
    }
    *state_p = (l < N_LINKS && ways != NULL) ? ways->matched[l].state : NULL;
    return (l < N_LINKS) ? links[l]->matched : NULL;
}

const char *plait_device_link_name(int i)
{
    return (i >= 0 && i < N_LINKS) ? links[i]->name : NULL;
}

plait_status_t plait_device_await(plait_device_t *device, plait_event_t *event,
                                  const char *what, int64_t latest_ns)
{
    plait_status_t status = PLAIT_OK;
    plait_wait_t wait = plait_wait_begin(what, -1);
    bool is_over = false;

    wait.is_begun = true;
    PLAIT_TRY(device->table->event_ask(device, event, &is_over));
    while (!is_over && (latest_ns == INT64_MAX || plait_clock_ns() < latest_ns)) {
        PLAIT_TRY(plait_wait_turn(&wait));
        PLAIT_TRY(device->table->event_ask(device, event, &is_over));
    }
done:
    return status;
}

plait_status_t plait_device_wait(plait_device_run_t *run)
{
    bool is_links = run->link != NULL && run->link->wait != NULL && run->state != NULL;

    return is_links ? run->link->wait(run)
                    : run->device->table->stream_wait(run->device, run->stream);
}

void plait_device_abandon(plait_device_run_t *run)
{
    ways_t *ways = run->session->end->ways;

    for (int l = 0; l < N_LINKS; l++) {
        if (run->link == links[l] && links[l]->abandon != NULL && ways->is_open[l]) {
            links[l]->abandon(run, ways->states[l]);
            ways->is_open[l] = false;
            for (int reach = 0; reach < PLAIT_REACH_COUNT; reach++) {
                ways->chosen[reach] =
                    (ways->chosen[reach] == l + 1) ? 0 : ways->chosen[reach];
            }
        }
    }
}
