/* The text of an operation in a line of the log, by the template in the operation's row. */
#ifndef PLAIT_PLAN_DESCRIBE_H
#define PLAIT_PLAN_DESCRIBE_H

#include "plan/op.h"

enum { PLAIT_LINE_BYTES = 192 };

/* Equal for all executions of one plan. */
typedef struct {
    char line[PLAIT_LINE_BYTES]; /* begins with the name of the function */
    int peer;                    /* root or partner; -1: there is none */
} plait_about_t;

/* Fills op->line in. {items} and {dtype} are those of operand 0, {result} is the number of
 * elements of result 0, {reduce} the name of the reduction, {title} the plan's title, and
 * any other word in braces the attribute of this name. */
void plait_about_op(const plait_op_t *op, const void *params,
                    const plait_array_t args[], const plait_array_t rets[],
                    const char *title, plait_about_t *about);

#endif
