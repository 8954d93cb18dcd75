/* Steps, and the builder with which operations put steps together.
 *
 * A plan names buffers by slot: operands, then results, then work. Fences divide a plan into phases
 * (plan/check.h proves the following for every operation):
 *   - bytes that a rank wrote before a fence may be read by its peers after the fence;
 *   - bytes that peers read before a fence may be overwritten by their owner after the fence;
 *   - bytes that a rank writes to a peer's slot (caps.can_write) are the peer's after the next fence, and no
 *     other rank touches them between the fences before and after the write.
 * Without direct access (PLAIT_DIRECT_NONE) there are no fences: moves are messages. On a device moves are
 * messages, too. */
#ifndef PLAIT_PLAN_PLAN_H
#define PLAIT_PLAN_PLAN_H

#include "device/host.h"
#include "plait/plan.h"
#include "plait/reduce.h"
#include "plan/config.h"
#include "transport/transport.h"

#include <stdbool.h>

/* As a source: the bytes that the peer published at the last fence. */
enum { PLAIT_SLOT_PUBLISHED = PLAIT_MAX_SLOTS };

/* Bytes that a one-copy read brings in at a time: they stay in the second-level cache. Boxes that lie across
 * (plait_box_turn_axis) need long rows more; their scratch has space between rows. */
enum {
    PLAIT_READ_CHUNK = 256 << 10,
    PLAIT_TURN_CHUNK = 2 << 20,
    PLAIT_TURN_SCRATCH = PLAIT_TURN_CHUNK + (32 << 10)
};

/* One-copy reads bring rows of this length straight to their places. Two ranks at once: through the cache takes
 * 1.4 times as long at 1 MiB and 1.3 times at 32 MiB (EPYC, Linux 6). */
enum { PLAIT_LONG_ROW = 16 << 10 };

/* An operand or result: data is NULL while planning. */
typedef struct {
    plait_dtype_t dtype;
    int ndim;
    const int64_t *dims; /* borrowed */
    void *data;          /* borrowed, row-major */
} plait_array_t;

/* Everything that planning may depend on; the same function plans for any rank. */
typedef struct {
    int n_ranks;
    int rank;
    plait_caps_t caps;
    plait_choices_t choices;
    uint64_t trees; /* of operands and results that are joined arrays (base/tree.h) */
    int n_args, n_rets;
    const plait_array_t *args;
    const plait_array_t *rets;
} plait_problem_t;

typedef enum {
    PLAIT_STEP_FENCE,
    PLAIT_STEP_ARRIVE,
    PLAIT_STEP_MOVE,
    PLAIT_STEP_REDUCE,
    PLAIT_STEP_KERNEL,
    PLAIT_STEP_NATIVE,
    PLAIT_STEP_KIND_COUNT
} plait_step_kind_t;

typedef enum {
    PLAIT_BLOCK_COPY,
    PLAIT_BLOCK_ADD, /* in the order of the list: deterministic */
    PLAIT_BLOCK_ZERO /* the destination only; peer is this rank */
} plait_block_kind_t;

/* A box on its way. Incoming block: from `peer`'s src_slot to my dst_slot; the box has both strides. Outgoing
 * block (messages only): from my src_slot to `peer`; dst is unused. The rows of an outgoing block are in the
 * order of the peer's incoming block. */
typedef struct {
    int peer;
    plait_block_kind_t kind;
    int src_slot, dst_slot;
    int64_t src_offset, dst_offset; /* bytes */
    plait_box_copy_t box;
} plait_block_t;

/* Incoming blocks of one move, and outgoing blocks if moves are messages. */
typedef struct {
    plait_dtype_t dtype; /* of ADD blocks */
    bool is_published;   /* all sources are PLAIT_SLOT_PUBLISHED */
    bool
        is_in_place; /* on a device: it may read where it writes; all blocks are COPY */
    bool lifts;      /* set by plait_plan_move, see plait_move_place */
    int64_t n_in, n_out;
    int64_t in_bytes; /* of all incoming blocks, set by plait_plan_move */
    int64_t room_in, room_out;
    plait_block_t *in;
    plait_block_t *out;
} plait_move_t;

/* The bytes of a slot that a fence takes along; slot -1: the fence shows addresses. */
typedef struct {
    int slot;
    int64_t offset, n_bytes;
} plait_publish_t;

/* dst[i] = op over pieces of src[i], in their order; without pieces the identity of op. Remote: piece q is the
 * src_slot of rank first + q at src_offset. Local: piece q is my src_slot at src_offset + q * piece_stride. */
typedef struct {
    plait_reduce_t op;
    plait_dtype_t dtype;
    bool is_local;
    int first; /* rank of the first remote piece */
    int n_pieces;
    int64_t n; /* elements */
    int src_slot, dst_slot;
    int64_t src_offset, dst_offset, piece_stride; /* bytes */
} plait_reduce_step_t;

typedef enum {
    PLAIT_NATIVE_ALLREDUCE,
    PLAIT_NATIVE_BCAST,
    PLAIT_NATIVE_BARRIER,
    PLAIT_NATIVE_SENDRECV
} plait_native_t;

/* A collective of the transport itself, or a matched transfer. */
typedef struct {
    plait_native_t native;
    plait_reduce_t op;
    plait_dtype_t dtype, recv_dtype;
    int64_t n, n_recv;              /* elements */
    int src_slot, dst_slot;         /* -1: none */
    int64_t src_offset, dst_offset; /* ALLREDUCE: bytes */
    int template_slot; /* SENDRECV: the result if there is no source; -1: left alone */
    int root;
    int source, dest, send_tag, recv_tag;
    bool is_buffered;  /* SENDRECV, the sending half alone: completes on this rank */
    int64_t status_id; /* where the matched source and tag are reported; 0: nowhere */
} plait_native_step_t;

/* Buffers on a device begin at multiples of this. */
enum { PLAIT_DEVICE_ALIGN = 256 };

static inline int64_t plait_device_padded(int64_t n_bytes)
{
    return (n_bytes + PLAIT_DEVICE_ALIGN - 1) / PLAIT_DEVICE_ALIGN * PLAIT_DEVICE_ALIGN;
}

typedef struct plait_exec plait_exec_t;
typedef struct plait_tiles plait_tiles_t; /* plan/tiles.h */

/* One region of memory of rank `peer` (PLAIT_ANY: this rank) that a kernel reads or writes, for the checker. */
typedef void (*plait_touch_fn_t)(void *context, bool is_write, int peer, int slot,
                                 int64_t offset, const plait_box_copy_t *box);

/* A computation on memory, by the operation's own code. Its params are moved to the plan. */
typedef struct {
    const char *name;
    plait_status_t (*run)(const void *params, plait_exec_t *exec);
    /* The same for slots and scratch on a device: one of the two. run_device enqueues. `tiles` names operations
     * on matrices, both while planning and when they are executed. Both NULL: not on a device. */
    plait_status_t (*run_device)(const void *params, plait_exec_t *exec);
    plait_status_t (*tiles)(const void *params, const plait_tiles_t *tiles);
    /* On a device: all ranks, threads and devices, meet in it and wait for each other. A rank that has failed
     * runs it, too, so that no rank waits for it. */
    bool is_blocking;
    /* Calls touch for everything that run reads and then for everything that it writes; boxes use their src
     * strides. */
    void (*touch)(const void *params, plait_touch_fn_t touch, void *context);
    void (*print)(const void *params, FILE *file);
    void (*destroy)(void *params); /* NULL: plait_free */
} plait_kernel_t;

typedef struct {
    plait_step_kind_t kind;
    union {
        plait_publish_t fence;
        plait_move_t move;
        plait_reduce_step_t reduce;
        plait_native_step_t native;
        struct {
            const plait_kernel_t *kernel;
            void *params;
        } kernel;
    } u;
} plait_step_t;

struct plait_plan {
    char title[192];    /* operation and problem, for print and for error texts */
    uint32_t title_ref; /* the same for the flight recorder */
    int rank, n_ranks;
    plait_direct_t direct;
    bool can_write;         /* peers' memory */
    int64_t publish_bytes;  /* largest number of bytes that its fences may take along */
    bool has_native;        /* it may have steps of the transport itself */
    plait_device_t *device; /* where it runs; NULL: the host */
    plait_reach_t reach;    /* the way to peers' devices */
    int n_threads;          /* of this rank, for its kernels */
    bool is_collective;
    bool needs_agreement; /* it communicates before its first fence */
    bool has_arrivals;    /* see plait_plan_arrive */
    bool shows_work;      /* see plait_plan_show_work */
    bool uses_blas;       /* in one thread, unless the rank is alone */
    uint64_t agree;       /* equal on all ranks of one execution */
    uint64_t agree_some;  /* 0, or equal on all ranks on which it is not 0 */
    uint64_t trees;       /* of the problem */
    int n_args, n_rets, n_work;
    int64_t slot_bytes[PLAIT_MAX_SLOTS];
    int64_t scratch_bytes;
    int n_steps, room_steps;
    plait_step_t *steps;
};

static inline int plait_slot_arg(const plait_plan_t *plan, int i)
{
    (void)plan;
    return i;
}

static inline int plait_slot_ret(const plait_plan_t *plan, int i)
{
    return plan->n_args + i;
}

static inline int plait_plan_n_slots(const plait_plan_t *plan)
{
    return plan->n_args + plan->n_rets + plan->n_work;
}

/* Number of elements and bytes of an array, checked. */
plait_status_t plait_array_size(const plait_array_t *array, int64_t *n_p,
                                int64_t *n_bytes_p);

/* The bytes alone; 0 if they are unknown or too many. */
static inline int64_t plait_array_bytes(const plait_array_t *array)
{
    int64_t n = 0;
    int64_t n_bytes = 0;

    return (plait_array_size(array, &n, &n_bytes) == PLAIT_OK) ? n_bytes : 0;
}

/* A partner or tag of a matched transfer as programs write it. */
typedef struct {
    char text[16];
} plait_partner_text_t;

plait_partner_text_t plait_rank_text(int rank);
plait_partner_text_t plait_tag_text(int tag);

/* An empty plan with the slots of the problem's arrays. `format` makes the title. */
plait_status_t plait_plan_create(const plait_problem_t *problem, plait_plan_t **plan_p,
                                 const char *format, ...)
    __attribute__((format(printf, 3, 4)));

plait_status_t plait_plan_add_work(plait_plan_t *plan, int64_t n_bytes, int *slot_p);

/* Peers read work slots after a fence: if they can map the slots, they need no copies (READ). Called on all
 * ranks, or on some: only the time changes. */
void plait_plan_show_work(plait_plan_t *plan);

void plait_plan_need_scratch(plait_plan_t *plan, int64_t n_bytes);

/* Scratch for a box between this rank's memory and a peer's (exec_reach.c). */
void plait_plan_need_passage(plait_plan_t *plan, const plait_box_copy_t *box);

/* Puts a value that must be equal on all ranks into plan->agree. */
void plait_plan_agree(plait_plan_t *plan, uint64_t value);

/* The same for a value that only some ranks have; the others do not call this. */
void plait_plan_agree_some(plait_plan_t *plan, uint64_t value);

plait_status_t plait_move_add_in(plait_move_t *move, const plait_block_t *block);
plait_status_t plait_move_add_out(plait_move_t *move, const plait_block_t *block);
void plait_move_clear(plait_move_t *move);

/* The block that is a whole message with `peer`, if it lies on this side (is_out: the source's) as it is
 * packed, and is copied. The message then goes from or to the block's place without staging. NULL: packed
 * rows. */
const plait_block_t *plait_move_whole(const plait_block_t blocks[], int64_t n, int peer,
                                      bool is_out);

/* Bytes of everything that goes to `peer`, or comes from it. */
int64_t plait_move_bytes(const plait_move_t *move, int peer, bool is_out);

/* Like plait_move_whole, for a move on a device. A move in place either lifts everything that leaves before
 * anything comes, or keeps everything that comes in scratch until the rest has left; it lifts this rank's own
 * data in both cases. */
const plait_block_t *plait_move_place(const plait_move_t *move, int peer, bool is_out);

/* Each adds one step. A move and a kernel's params are moved to the plan, also on failure. A fence is left out
 * if the plan has no direct access. An empty move is left out if the plan has it; without it, the n-th move of
 * one rank is the n-th of all. */
plait_status_t plait_plan_fence(plait_plan_t *plan);
/* A fence that publishes bytes of a slot, never left out. Until the next fence every rank may read the bytes as
 * PLAIT_SLOT_PUBLISHED. Either all ranks publish at a fence or none. */
plait_status_t plait_plan_publish(plait_plan_t *plan, int slot, int64_t offset,
                                  int64_t n_bytes);
/* The first half of the next fence. Peers may read after the fence what was written before this step; the fence
 * does not wait for what this rank does in between, which may still read what peers showed before. Left out as
 * a fence is; the fence must not publish. */
plait_status_t plait_plan_arrive(plait_plan_t *plan);
/* A fence for its own sake: never left out. */
plait_status_t plait_plan_meet(plait_plan_t *plan);
plait_status_t plait_plan_move(plait_plan_t *plan, plait_move_t *move);
plait_status_t plait_plan_reduce(plait_plan_t *plan, const plait_reduce_step_t *reduce);
plait_status_t plait_plan_native(plait_plan_t *plan, const plait_native_step_t *native);
plait_status_t plait_plan_kernel(plait_plan_t *plan, const plait_kernel_t *kernel,
                                 void *params);
/* A kernel with a copy of params, which have n_bytes and own nothing. */
plait_status_t plait_plan_kernel_copy(plait_plan_t *plan, const plait_kernel_t *kernel,
                                      const void *params, size_t n_bytes);

#endif
