/* Eigenvalues and eigenvectors of a dealt Hermitian matrix by all devices at once: where they are one
 * process's, and its library works on several of them. No device has all of the matrix. */
#ifndef PLAIT_DENSE_HEEVD_JOINT_H
#define PLAIT_DENSE_HEEVD_JOINT_H

#include "dense/dealt.h"

typedef struct {
    plait_dealt_t a, v; /* the operand, and the vectors: v.n is 0 without them */
    int rank;
    int src, w, vectors, info; /* slots of operand and results */
    bool has_vectors;
} plait_heevd_slots_t;

/* How the devices are to do it. */
typedef struct {
    plait_device_heevd_t call;
    int64_t work_bytes;
} plait_heevd_joint_t;

/* The same on all ranks; false: they do not, and PLAIT_LOG=info says why. Not OK: they could not be
 * asked. */
plait_status_t plait_heevd_joint_ask(const plait_problem_t *problem,
                                     const plait_dealt_t *a, bool has_vectors,
                                     plait_heevd_joint_t *joint_p, bool *do_p);

plait_status_t plait_heevd_joint_add(plait_plan_t *plan, const plait_heevd_slots_t *q,
                                     const plait_heevd_joint_t *joint);

#endif
