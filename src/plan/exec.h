/* Execution of a plan: one loop over steps that knows no operation. */
#ifndef PLAIT_PLAN_EXEC_H
#define PLAIT_PLAN_EXEC_H

#include "base/trace.h"
#include "device/lender.h"
#include "plan/plan.h"
#include "transport/device_link.h"

/* Work memory of a peer, mapped into this process. */
typedef struct {
    char *base; /* NULL: it is not */
    uint64_t token;
} plait_shown_t;

/* What a kernel sees while it runs. */
struct plait_exec {
    const plait_plan_t *plan;
    plait_session_t session;
    char *slot[PLAIT_MAX_SLOTS]; /* my buffers */
    char *scratch;               /* plan->scratch_bytes, at a 64-byte boundary */
    uint64_t token; /* shows peers my work slots' memory (device/pool.h); 0: none */
    plait_shown_t *shown; /* what peers show, by rank; NULL: the plan does not use it */
    char *kept;           /* records of peers, from an arrival to its fence */
    bool has_arrived;     /* at the next fence */
    bool is_beside;       /* as in plait_exec_arrays_t */
    plait_device_run_t *device; /* NULL: everything is in host memory */
    plait_lender_t *lender;     /* of its work memory on the device; NULL: the device */
    plait_trace_times_t *times; /* NULL: nobody wants to know */
    plait_matched_t *matched;   /* the same */
    uint64_t skipped;           /* see plait_history_t */
    bool is_joint;              /* all ranks know of the failure and leave together */
};

/* When ranks make sure that they do the same, for plans that do not begin with a fence; the fences of other
 * plans tell anyway. PLAIT_CHECK=off, first, full. */
typedef enum {
    PLAIT_CHECK_OFF,
    PLAIT_CHECK_FIRST, /* the first time a plan runs */
    PLAIT_CHECK_FULL
} plait_check_level_t;

plait_check_level_t plait_check_level(void);

/* Replaces PLAIT_CHECK; called at the same place of the program on all ranks. */
PLAIT_EXPORT void plait_check_choose(int level);

/* What is equal on all ranks, if they did the same so far. */
typedef struct {
    bool is_agreed;   /* they have run this plan before */
    bool is_due;      /* they have not made sure for long */
    uint64_t skipped; /* hash of what they ran without making sure */
    bool has_failed;  /* out: this plan has, not just a message sent before it */
    bool has_left;    /* out: it has, and does not tell the other ranks */
} plait_history_t;

/* Whether the plan, once started, takes another way than without start: on devices. */
static inline bool plait_exec_is_apart(const plait_plan_t *plan, bool is_started)
{
    return plan->device != NULL && is_started;
}

/* What ranks compare: the plan, and whether it takes that other way. */
static inline uint64_t plait_exec_agree(const plait_plan_t *plan, bool is_started)
{
    return plan->agree + plait_exec_is_apart(plan, is_started);
}

/* Whether ranks make sure at this execution that they do the same. */
bool plait_exec_agrees(const plait_plan_t *plan, const plait_endpoint_t *end,
                       const plait_history_t *history);

/* Operands and results; for a plan on a device they are there, in the order of the stream. */
typedef struct {
    const void *const *args;
    void *const *rets;
    plait_stream_t stream;
    plait_lender_t *lender;   /* of work memory; NULL: the device itself */
    plait_matched_t *matched; /* of a received message; NULL: nobody asks */
    bool is_beside; /* a started operation: on a device others run at the same time */
} plait_exec_arrays_t;

/* INVALID: the plan is for another rank, or for ranks that reach each other in another way. */
plait_status_t plait_exec_check(const plait_plan_t *plan, const plait_endpoint_t *end);

/* Runs the plan on an endpoint. run: see plait_session_t. times: to be filled, or NULL. On a device, work may
 * still be on the stream when this returns. */
plait_status_t plait_exec_plan(const plait_plan_t *plan, plait_endpoint_t *end,
                               int64_t run, plait_history_t *history,
                               const plait_exec_arrays_t *arrays,
                               plait_trace_times_t *times);

/* For plait_observe_refuse. is_told_p: whether all ranks know, and have left together. */
plait_status_t plait_exec_refuse(plait_endpoint_t *end, int64_t run,
                                 plait_status_t status, bool *is_told_p);

/* Whether a peer's slot is in work memory that is mapped into this process. */
static inline bool plait_exec_is_shown(const plait_exec_t *exec, int peer, int slot)
{
    return exec->shown != NULL && exec->shown[peer].base != NULL &&
           slot >= exec->plan->n_args + exec->plan->n_rets;
}

/* Whether a peer's slot can be read at the address that plait_exec_peer returns. */
static inline bool plait_exec_reaches(const plait_exec_t *exec, int peer, int slot)
{
    return slot == PLAIT_SLOT_PUBLISHED || peer == exec->plan->rank ||
           exec->plan->direct == PLAIT_DIRECT_POINTER ||
           plait_exec_is_shown(exec, peer, slot);
}

/* Address of a peer's slot: in this process if it reaches the slot, else in the peer's. */
static inline const char *plait_exec_peer(const plait_exec_t *exec, int peer, int slot)
{
    const uint64_t *theirs = NULL;
    const int first = exec->plan->n_args + exec->plan->n_rets; /* of work memory */

    if (slot == PLAIT_SLOT_PUBLISHED) {
        return plait_peer_bytes(&exec->session, peer);
    }
    if (peer == exec->plan->rank) {
        return exec->slot[slot];
    }
    theirs = plait_peer_record(&exec->session, peer)->slot;
    return plait_exec_is_shown(exec, peer, slot)
               ? exec->shown[peer].base + (theirs[slot] - theirs[first])
               : (const char *)(uintptr_t)theirs[slot];
}

/* For kernels that move whole arrays, in host memory and on a device. n_bytes from the begin of each slot. */
plait_status_t plait_exec_copy(plait_exec_t *exec, int dst_slot, int src_slot,
                               int64_t n_bytes);
plait_status_t plait_exec_load(plait_exec_t *exec, void *words, int src_slot,
                               int64_t n_bytes);
plait_status_t plait_exec_store(plait_exec_t *exec, int dst_slot, const void *words,
                                int64_t n_bytes);

/* The transport's sendrecv, or its send, on the memory of slots. */
plait_status_t plait_exec_sendrecv(plait_exec_t *exec, bool is_buffered,
                                   const plait_half_t *send, const plait_half_t *recv,
                                   plait_matched_t *matched_p);

/* Gathers a box of a peer's slot into contiguous rows of `to`, dst_stride apart (READ). */
plait_status_t plait_exec_read_box(plait_exec_t *exec, int peer, int slot,
                                   int64_t offset, const plait_box_copy_t *box,
                                   char *to);

/* Scatters rows of `from`, src_stride apart, to a box of a peer's slot (READ). */
plait_status_t plait_exec_write_box(plait_exec_t *exec, int peer, int slot,
                                    int64_t offset, const plait_box_copy_t *box,
                                    const char *from);

/* A block from my src_slot to the peer's dst_slot (READ, can_write; plait_plan_need_passage). */
plait_status_t plait_exec_put(plait_exec_t *exec, const plait_block_t *block);

#endif
