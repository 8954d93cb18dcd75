/* Eigenvalues and eigenvectors of a dealt Hermitian matrix by all devices at once, by a library that works on
 * several devices: those of one process, or those of several processes with one each. No device has all of
 * the matrix. */
#ifndef PLAIT_DENSE_HEEVD_JOINT_H
#define PLAIT_DENSE_HEEVD_JOINT_H

#include "dense/joint.h"

typedef struct {
    plait_dealt_t a, v; /* the operand, and the vectors that are wanted */
    int64_t first;      /* index of the first eigenvector */
    int rank;
    int src, w, vectors, info; /* slots of operand and results */
    bool has_vectors;
} plait_heevd_slots_t;

/* The params of the kernels. */
typedef struct {
    plait_heevd_slots_t q;
    plait_joint_t joint;
    plait_dealt_t d; /* the matrix as the devices have it */
    int from;        /* slot of the matrix as it comes */
    int matrix;      /* work slot */
    int found;       /* work slot of the vectors as they come */
} plait_heevd_parts_t;

/* Whether all devices are to work as one, if they can and the configuration chooses no library. */
bool plait_heevd_wants_joint(int64_t n, int n_ranks, plait_choices_t choices);

/* Decides whether they do; the same on all ranks. If not, *do_p is false, and PLAIT_LOG=info says why. Not OK:
 * the devices could not be asked, or were chosen and do not work as one. */
plait_status_t plait_heevd_joint_ask(const plait_problem_t *problem,
                                     const plait_dealt_t *a, bool has_vectors,
                                     plait_joint_t *joint_p, bool *do_p);

plait_status_t plait_heevd_joint_add(plait_plan_t *plan, const plait_heevd_slots_t *q,
                                     const plait_joint_t *joint);

/* The call if ranks are processes (heevd_grid.c). */
extern const plait_kernel_t plait_heevd_grid_kernel;
void plait_heevd_print(const void *params, FILE *file);

#endif
