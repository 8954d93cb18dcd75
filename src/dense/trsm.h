/* The steps of trsm, for operations that are made of them. */
#ifndef PLAIT_DENSE_TRSM_H
#define PLAIT_DENSE_TRSM_H

#include "dense/params.h"
#include "dense/sweep.h"
#include "plan/op.h"

typedef struct {
    plait_dealt_t a;
    plait_own_t own; /* columns of x */
    bool is_whole;   /* all ranks have all columns of b and x: own.d is of one rank */
    bool
        stays; /* is_whole: of x each rank needs what it solves for itself, for another trsm */
    char uplo, trans, diag;
    int a_slot, x_slot;
    int b_slot; /* with x's memory or its own; x_slot: b is there, outlined as x is */
    int work_slot; /* -1: made here; or that of another trsm with the same a */
} plait_trsm_t;

/* By its parameters, but for the slots; INVALID, with the operation's name, where arrays do not fit. */
plait_status_t plait_trsm_describe(const char *name, const plait_trsm_params_t *p,
                                   const plait_problem_t *problem, plait_trsm_t *t);

/* A fence before and after what is added, where it needs one. */
plait_status_t plait_trsm_fence(plait_plan_t *plan, const plait_trsm_t *t);

/* Appends x = op(a)^-1 b. */
plait_status_t plait_trsm_add(plait_plan_t *plan, plait_trsm_t *t);

#endif
