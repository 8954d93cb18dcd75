/* The part of plan/check.h that is about messages: each one sent is received, with the same size, in
 * the same order. */
#ifndef PLAIT_PLAN_CHECK_MESSAGES_H
#define PLAIT_PLAN_CHECK_MESSAGES_H

#include "plan/plan.h"

plait_status_t plait_plans_check_messages(plait_plan_t *const plans[], int n_ranks);

#endif
