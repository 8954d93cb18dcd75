/* The steps of trsm, for operations that are made of them. */
#ifndef PLAIT_DENSE_TRSM_H
#define PLAIT_DENSE_TRSM_H

#include "dense/params.h"
#include "dense/sweep.h"
#include "plan/op.h"

typedef struct {
    plait_dealt_t a;
    plait_own_t own; /* columns of x */
    bool is_whole;   /* all ranks have all columns of b and x: own.d is for one rank */
    bool
        stays; /* is_whole: each rank needs only what it solves for of x, for another trsm */
    char uplo, trans, diag;
    int a_slot, x_slot;
    int b_slot; /* has x's memory or its own; x_slot: b is already there, outlined like x */
    int work_slot; /* -1: made here; otherwise from another trsm with the same a */
} plait_trsm_t;

/* Fills in everything but the slots from the parameters. INVALID, with the operation's name, if arrays do not
 * fit. */
plait_status_t plait_trsm_describe(const char *name, const plait_trsm_params_t *p,
                                   const plait_problem_t *problem, plait_trsm_t *t);

/* A fence before and after the steps that are added, if they need one. */
plait_status_t plait_trsm_fence(plait_plan_t *plan, const plait_trsm_t *t);

/* Appends x = op(a)^-1 b. */
plait_status_t plait_trsm_add(plait_plan_t *plan, plait_trsm_t *t);

#endif
