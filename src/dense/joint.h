/* Shared by operations that the devices of all ranks do as one: the deal in which the devices' libraries take
 * a matrix, and the move of its columns from one deal to another. */
#ifndef PLAIT_DENSE_JOINT_H
#define PLAIT_DENSE_JOINT_H

#include "dense/dealt.h"
#include "plan/joint.h"

/* How the devices are to do it. */
typedef struct {
    bool is_grid; /* of several processes */
    plait_joint_problem_t call;
    int64_t work_bytes;
} plait_joint_t;

/* What the devices are to do; the operation's own of what plait_joint_problem_t has. */
typedef struct {
    plait_joint_op_t op;
    bool has_vectors;
    int64_t n_rhs;
} plait_joint_wish_t;

/* Whether plait.config has chosen the library of several devices of one process, for a matrix of which
 * each rank has a block: then it does it, or the operation fails. */
bool plait_joint_is_chosen(plait_choices_t choices, int64_t n, int n_ranks);

/* What the devices, of several processes where is_grid, are to do, in the caller's blocks if their library
 * takes them: without the devices themselves, and the size of work memory. */
plait_joint_t plait_joint_describe(const plait_dealt_t *a,
                                   const plait_joint_wish_t *wish, bool is_grid);

/* UNSUPPORTED: why the devices of one process do not; and that they were chosen, if they were. */
plait_status_t plait_joint_ask(const plait_problem_t *problem, const plait_dealt_t *a,
                               const plait_joint_wish_t *wish, plait_joint_t *joint_p);

/* Appends to a move that columns of one deal go to another one, of the same matrix from column `first` on;
 * is_lower: of all columns, rows from the first one of each block on. */
plait_status_t plait_joint_redeal(const plait_plan_t *plan, const plait_dealt_t *from,
                                  int src, const plait_dealt_t *to, int64_t first,
                                  int dst, bool is_lower, plait_move_t *move);

/* The same as a step, and that rank 0's slot comes to all. */
plait_status_t plait_joint_add_redeal(plait_plan_t *plan, const plait_dealt_t *from,
                                      int src, const plait_dealt_t *to, int dst,
                                      bool is_lower);
plait_status_t plait_joint_add_share(plait_plan_t *plan, int slot);

/* Makes a work slot for how a call has ended, and appends that it is 0. */
plait_status_t plait_joint_info(plait_plan_t *plan, int *slot_p);

/* The call, by rank 0 for all of them; w: of host memory. */
plait_status_t plait_joint_run(const plait_joint_t *joint, const plait_exec_t *exec,
                               const plait_joint_part_t parts[], void *w,
                               int32_t *info_p);

#endif
