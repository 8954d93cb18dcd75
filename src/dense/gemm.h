/* The steps of gemm, for operations that are made of them. */
#ifndef PLAIT_DENSE_GEMM_H
#define PLAIT_DENSE_GEMM_H

#include "dense/sweep.h"

typedef struct {
    plait_dealt_t a, b, c;
    bool is_trans, is_lower, is_upper, is_unit; /* of a as it is stored */
    bool is_lower_c;
    char trans;
    int a_slot, b_slot, c_slot; /* a and b may be the same slot, but not c */
} plait_gemm_t;

/* Appends c = op(a) b, between fences. */
plait_status_t plait_gemm_add(plait_plan_t *plan, const plait_gemm_t *given);

#endif
