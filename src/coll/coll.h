/* Parameters of the collectives, and the parts that several of them share: checks of arguments, blocks of an
 * array, and the steps of moves and reductions. */
#ifndef PLAIT_COLL_COLL_H
#define PLAIT_COLL_COLL_H

#include "plan/op.h"

/* Lists of counts are empty if all blocks are equal. */
typedef struct {
    int64_t n_counts;
    const int64_t *counts; /* rows of each rank */
} plait_allgather_params_t;

typedef struct {
    int64_t reduce; /* plait_reduce_t */
} plait_allreduce_params_t;

typedef struct {
    int64_t n_counts;
    const int64_t *counts; /* rows from i to j at i * n_ranks + j */
} plait_alltoall_params_t;

typedef struct {
    int64_t root;
} plait_bcast_params_t;

typedef struct {
    int64_t unused; /* C has no empty structs */
} plait_barrier_params_t;

typedef struct {
    int64_t status; /* id from plait_matched_keep, or 0 */
} plait_exchange_params_t;

typedef struct {
    int64_t root;
    int64_t elsewhere; /* the other ranks' result: 0 zero, 1 their operand */
    int64_t n_counts;
    const int64_t *counts;
} plait_gather_params_t;

typedef struct {
    int64_t source; /* a rank, PLAIT_ANY, or PLAIT_NO_RANK */
    int64_t tag;    /* or PLAIT_ANY */
    int64_t status; /* id from plait_matched_keep, or 0 */
} plait_recv_params_t;

typedef struct {
    int64_t reduce;
    int64_t root;
    int64_t elsewhere; /* as for gather */
} plait_reduce_params_t;

typedef struct {
    int64_t reduce;
    int64_t n_counts;
    const int64_t *counts;
} plait_reduce_scatter_params_t;

/* Words of one edge of a route. */
enum {
    PLAIT_EDGE_SOURCE,
    PLAIT_EDGE_SOURCE_BLOCK,
    PLAIT_EDGE_DEST,
    PLAIT_EDGE_DEST_BLOCK,
    PLAIT_EDGE_WORDS
};

typedef struct {
    int64_t n_in, n_out; /* blocks of this rank's operand and result */
    int64_t n_edges;     /* words: PLAIT_EDGE_WORDS for each edge */
    const int64_t *edges;
} plait_route_params_t;

typedef struct {
    int64_t reduce;
    int64_t exclusive; /* without the rank's own operand */
    int64_t reverse;   /* over the ranks from this one on, instead of up to this one */
} plait_scan_params_t;

typedef struct {
    int64_t root;
    int64_t n_counts;
    const int64_t *counts;
} plait_scatter_params_t;

typedef struct {
    int64_t dest; /* a rank, or PLAIT_NO_RANK */
    int64_t tag;
} plait_send_params_t;

typedef struct {
    int64_t source; /* a rank, PLAIT_ANY, or PLAIT_NO_RANK */
    int64_t dest;   /* a rank, or PLAIT_NO_RANK            */
    int64_t sendtag;
    int64_t recvtag; /* or PLAIT_ANY */
    int64_t status;  /* id from plait_matched_keep, or 0 */
} plait_sendrecv_params_t;

/* Up to this size a native collective beats direct access if a fence is a collective of MPI (no shared
 * segment). Measured with two ranks on one node: the curves cross between 16 and 64 KiB. */
enum { PLAIT_NATIVE_BYTES = 32 << 10 };

/* Whether n_bytes of each rank go along with a fence: one meeting instead of two, and no reads of peers'
 * memory. Every rank may read the bytes of all ranks, so their sum is bounded as well. */
bool plait_coll_publishes(const plait_problem_t *problem, int64_t n_bytes);

/* ---- arguments ---- */

/* An array's shape as Python writes it. */
typedef struct {
    char text[96];
} plait_shape_text_t;

plait_shape_text_t plait_coll_shape(const plait_array_t *array);

/* Text of a list in a title: its beginning, and for a longer list also a number that differs if the lists do.
 * An error about ranks that disagree prints their titles. */
typedef struct {
    char text[88];
} plait_list_text_t;

/* ", counts [2, 2, 3]"; "" without counts. */
plait_list_text_t plait_coll_counts(int64_t n, const int64_t counts[]);

/* "edges [0-1, 1-0]" names ranks; with blocks, "0.2-1.0". */
plait_list_text_t plait_coll_edges(int64_t n, const int64_t words[]);

/* All functions below: INVALID with the operation's name, what was expected and what was given. */

/* Operand and result have the same dtype (and shape). */
plait_status_t plait_coll_same_dtype(const char *op, const plait_array_t *x,
                                     const plait_array_t *y);
plait_status_t plait_coll_same(const char *op, const plait_array_t *x,
                               const plait_array_t *y);

plait_status_t plait_coll_check_root(const char *op, int64_t root, int n_ranks);
plait_status_t plait_coll_check_reduce(const char *op, int64_t reduce,
                                       plait_dtype_t dtype);
plait_status_t plait_coll_check_flag(const char *op, const char *name, int64_t flag);

/* Partner and tag of a matched transfer. Only a receiver may accept any partner or tag. A program may compute
 * a negative partner that is no special value. Python adds this offset to it, and the error names the original
 * number. */
enum { PLAIT_NEGATIVE = -(1 << 30) };
plait_status_t plait_coll_check_peer(const char *op, const char *name, int64_t peer,
                                     int n_ranks, bool is_recv);
plait_status_t plait_coll_check_tag(const char *op, const char *name, int64_t tag,
                                    bool is_recv);

/* ---- blocks along the first axis, one for each rank, in rank order ---- */

typedef struct {
    const char *op;
    const plait_problem_t *problem;
    const plait_array_t *joined; /* all blocks; NULL if this rank has no such array */
    const plait_array_t *part;   /* this rank's block */
    int64_t n_counts;
    const int64_t
        *counts; /* rows of each block; none: joined has shape (n_ranks, *part) */
} plait_blocks_spec_t;

typedef struct {
    int n_ranks;
    int64_t *start; /* block r is bytes start[r] to start[r + 1] */
} plait_blocks_t;

/* Checks counts and shapes. *blocks must be cleared, also after a failure. */
plait_status_t plait_blocks_create(const plait_blocks_spec_t *spec,
                                   plait_blocks_t *blocks);
void plait_blocks_clear(plait_blocks_t *blocks);

/* Has the plan check that all ranks mean the same blocks. */
void plait_blocks_agree(plait_plan_t *plan, const plait_blocks_t *blocks);

static inline int64_t plait_block_bytes(const plait_blocks_t *blocks, int rank)
{
    return blocks->start[rank + 1] - blocks->start[rank];
}

/* ---- steps ---- */

/* Copies one slot to another on this rank. */
plait_status_t plait_coll_copy(plait_plan_t *plan, int src_slot, int dst_slot,
                               int64_t n_bytes);

/* The result of a rank that is not the root: zero, or its operand. Comes after the last fence, when no rank
 * reads result 0. */
plait_status_t plait_coll_elsewhere(plait_plan_t *plan, bool is_operand);

/* Bytes of one rank's operand 0 that become another rank's result 0; n_bytes 0: none. */
typedef struct {
    int64_t src_offset, dst_offset, n_bytes;
} plait_piece_t;

typedef plait_piece_t (*plait_piece_fn_t)(const void *context, int from, int to);

/* The steps of a collective in which each rank has at most one piece from each rank; `piece` gives the piece
 * between any two ranks. */
plait_status_t plait_coll_exchange(plait_plan_t *plan, const plait_problem_t *problem,
                                   plait_piece_fn_t piece, const void *context);

/* Bytes from the start of operand 0 that other ranks want: of this rank, and the most of any rank; -1 if not
 * all ranks know. */
typedef struct {
    int64_t n_mine, n_most;
} plait_share_t;

/* The steps of a collective that moves parts of operand 0 to results. No rank reads before all ranks are here,
 * and no rank overwrites before all have read. The plan takes the move over. */
plait_status_t plait_coll_move(plait_plan_t *plan, const plait_problem_t *problem,
                               const plait_share_t *share, plait_move_t *move);

/* The part that one rank reduces: the same elements of n_pieces consecutive ranks. */
typedef struct {
    int first, n_pieces;
    int64_t offset; /* bytes */
    int64_t n;      /* elements */
} plait_part_t;

typedef struct {
    plait_reduce_t op;
    plait_dtype_t dtype;
    int src_slot, dst_slot;
    int64_t dst_offset;
    const plait_part_t *parts; /* of every rank */
} plait_reduction_t;

/* The same for reductions: parts of src_slot are reduced into dst_slot, which no peer reads. */
plait_status_t plait_coll_reduce(plait_plan_t *plan, const plait_problem_t *problem,
                                 const plait_reduction_t *reduction);

/* Steps of a reduction from operand 0 to result 0 of the root, or of all ranks (root -1). On the other ranks
 * operand and result stay as they are, even if they share memory. */
plait_status_t plait_coll_allreduce(plait_plan_t *plan, const plait_problem_t *problem,
                                    plait_reduce_t op, int root);

#endif
