/* Execution of a plan: one loop over steps that knows no operation. */
#ifndef PLAIT_PLAN_EXEC_H
#define PLAIT_PLAN_EXEC_H

#include "base/trace.h"
#include "plan/plan.h"

/* What a kernel sees while it runs. */
struct plait_exec {
    const plait_plan_t *plan;
    plait_session_t session;
    char *slot[PLAIT_MAX_SLOTS]; /* my buffers */
    char *scratch;               /* plan->scratch_bytes, at a 64-byte boundary */
    char *kept;                  /* records of peers, from an arrival to its fence */
    bool has_arrived;            /* at the fence that comes next */
    plait_trace_times_t *times;  /* NULL: nobody wants to know */
    uint64_t skipped;            /* see plait_history_t */
    bool is_joint; /* a failure that all ranks know of: they leave together */
};

/* When ranks make sure that they do the same, where a plan does not begin with a fence: there
 * its fences tell anyway. PLAIT_CHECK=off, first, full. */
typedef enum {
    PLAIT_CHECK_OFF,
    PLAIT_CHECK_FIRST, /* the first time */
    PLAIT_CHECK_FULL
} plait_check_level_t;

plait_check_level_t plait_check_level(void);

/* In place of PLAIT_CHECK, at the same place of the program on all ranks. */
PLAIT_EXPORT void plait_check_choose(int level);

/* What ranks have in common, if they did the same so far. */
typedef struct {
    bool is_agreed;   /* they have run this plan before */
    uint64_t skipped; /* hash of what they ran since then without making sure */
    bool has_failed;  /* out: this plan has, not just what was sent before it */
} plait_history_t;

/* Whether ranks make sure at this execution that they do the same. */
bool plait_exec_agrees(const plait_plan_t *plan, const plait_endpoint_t *end,
                       const plait_history_t *history);

/* Runs the plan on an endpoint. run: see plait_session_t. times: to be filled, or NULL. */
plait_status_t plait_exec_plan(const plait_plan_t *plan, plait_endpoint_t *end,
                               int64_t run, plait_history_t *history,
                               const void *const args[], void *const rets[],
                               plait_trace_times_t *times);

/* Takes part in a collective that this rank cannot plan, so that the others learn of it where
 * they would wait for it: their operation ends with PEER. Returns `status`, whose text is
 * there. */
plait_status_t plait_exec_refuse(plait_endpoint_t *end, int64_t run,
                                 plait_status_t status);

/* Whether a peer's slot can be read at its address. */
static inline bool plait_exec_reaches(const plait_exec_t *exec, int peer, int slot)
{
    return slot == PLAIT_SLOT_PUBLISHED || peer == exec->plan->rank ||
           exec->plan->direct == PLAIT_DIRECT_POINTER;
}

/* Address of a peer's slot in the memory of whoever owns it. */
static inline const char *plait_exec_peer(const plait_exec_t *exec, int peer, int slot)
{
    if (slot == PLAIT_SLOT_PUBLISHED) {
        return plait_peer_bytes(&exec->session, peer);
    }
    return (peer == exec->plan->rank)
               ? exec->slot[slot]
               : (const char *)(uintptr_t)plait_peer_record(&exec->session, peer)
                     ->slot[slot];
}

/* Gathers a box of a peer's slot into contiguous rows of `to`, dst_stride apart (READ). */
plait_status_t plait_exec_read_box(plait_exec_t *exec, int peer, int slot,
                                   int64_t offset, const plait_box_copy_t *box,
                                   char *to);

#endif
