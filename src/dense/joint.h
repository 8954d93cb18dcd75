/* Shared by operations that the devices of all ranks do as one: the deal in which the devices' libraries take
 * a matrix, and the move of its columns from one deal to another. */
#ifndef PLAIT_DENSE_JOINT_H
#define PLAIT_DENSE_JOINT_H

#include "dense/dealt.h"
#include "plan/joint.h"

/* How the devices do an operation. */
typedef struct {
    bool is_grid; /* ranks are several processes */
    plait_joint_problem_t call;
    int64_t work_bytes;
} plait_joint_t;

/* What the devices are to do: the operation's own part of plait_joint_problem_t. */
typedef struct {
    plait_joint_op_t op;
    bool has_vectors;
    int64_t n_rhs;
} plait_joint_wish_t;

/* Whether plait.config has chosen the library for several devices of one process, and each rank has a block of
 * the matrix. Then this library does the operation, or the operation fails. */
bool plait_joint_is_chosen(plait_choices_t choices, int64_t n, int n_ranks);

/* Describes the call, without the devices themselves and the size of work memory. Blocks are the caller's, if
 * the library takes them. is_grid: the devices belong to several processes. */
plait_joint_t plait_joint_describe(const plait_dealt_t *a,
                                   const plait_joint_wish_t *wish, bool is_grid);

/* UNSUPPORTED says why the devices of one process do not work as one, and, if they were chosen, that they
 * were. */
plait_status_t plait_joint_ask(const plait_problem_t *problem, const plait_dealt_t *a,
                               const plait_joint_wish_t *wish, plait_joint_t *joint_p);

/* Appends to a move that columns of one deal go to another deal, which has the same matrix from column `first`
 * on. is_lower: of each block that moves, only the rows from its first diagonal element on. */
plait_status_t plait_joint_redeal(const plait_plan_t *plan, const plait_dealt_t *from,
                                  int src, const plait_dealt_t *to, int64_t first,
                                  int dst, bool is_lower, plait_move_t *move);

/* The same as a step; and a step that brings rank 0's slot to all ranks. */
plait_status_t plait_joint_add_redeal(plait_plan_t *plan, const plait_dealt_t *from,
                                      int src, const plait_dealt_t *to, int dst,
                                      bool is_lower);
plait_status_t plait_joint_add_share(plait_plan_t *plan, int slot);

/* Makes a work slot for the outcome of a call, and appends a step that sets it to 0. */
plait_status_t plait_joint_info(plait_plan_t *plan, int *slot_p);

/* The call, which rank 0 makes for all ranks; w: in host memory. */
plait_status_t plait_joint_run(const plait_joint_t *joint, const plait_exec_t *exec,
                               const plait_joint_part_t parts[], void *w,
                               int32_t *info_p);

#endif
