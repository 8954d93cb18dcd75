/* Parameters of redistribute, and code that other operations on layouts share with it. */
#ifndef PLAIT_REDIST_PARAMS_H
#define PLAIT_REDIST_PARAMS_H

#include "plait/layout.h"
#include "plan/plan.h"

typedef struct {
    int64_t n_from, n_to;
    int64_t from[PLAIT_LAYOUT_WORDS]; /* plait_layout_pack */
    int64_t to[PLAIT_LAYOUT_WORDS];
    int64_t
        turn; /* 1: the last two axes are exchanged; `to` describes the turned array */
} plait_redistribute_params_t;

/* INVALID unless the array has the shape that `layout` gives for problem->rank; `what` starts the text. */
plait_status_t plait_layout_fits(const plait_layout_t *layout,
                                 const plait_problem_t *problem,
                                 const plait_array_t *array, const char *what);

/* Adds a layout to what ranks must agree on. */
void plait_layout_agree(plait_plan_t *plan, const plait_layout_t *layout);

#endif
