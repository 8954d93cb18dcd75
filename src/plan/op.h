/* Descriptor of an operation: one const row per operation, in the file of its algorithm. */
#ifndef PLAIT_PLAN_OP_H
#define PLAIT_PLAN_OP_H

#include "plan/plan.h"

#include <stddef.h>

enum { PLAIT_MAX_PARAMS_BYTES = 2048, PLAIT_MAX_ATTRS = 24, PLAIT_MAX_ARRAYS = 4 };

/* Where an attribute goes in the params struct. Scalars are int64_t (or double where
 * is_float); arrays are int64_t[n_max] with an int64_t count at count_offset. */
typedef struct {
    const char *name;
    size_t offset;
    int n_max;           /* 0: scalar */
    size_t count_offset; /* arrays */
    bool is_float;
} plait_attr_t;

#define PLAIT_ATTR(_type, _field)                     \
    {                                                 \
#_field, offsetof(_type, _field), 0, 0, false \
    }
#define PLAIT_ATTR_FLOAT(_type, _field)              \
    {                                                \
#_field, offsetof(_type, _field), 0, 0, true \
    }
/* The array _field with its count n_<field>. */
#define PLAIT_ATTR_ARRAY(_type, _field)                            \
    {                                                              \
#_field, offsetof(_type, _field),                          \
            (int)(sizeof(((_type *)0)->_field) / sizeof(int64_t)), \
            offsetof(_type, n_##_field), false                     \
    }
#define PLAIT_ATTR_END       \
    {                        \
        NULL, 0, 0, 0, false \
    }

/* Plain data, so that C, Python (ctypes) and the tests read the same row. Every operation
 * also has the attributes `comm` and `site` (base/site.h), which are not in the params: they
 * say where, not what. */
typedef struct {
    const char *name;          /* the XLA target is "plait_<name>" */
    int n_args;                /* array operands */
    int n_rets;                /* array results */
    size_t params_size;        /* <= PLAIT_MAX_PARAMS_BYTES */
    const plait_attr_t *attrs; /* ends with a NULL name */
    const char *adjoint;       /* name of the exact adjoint, NULL: none */
    int alias;                 /* operand whose memory result 0 may take; -1 */
    const char *model;         /* "rank" or "mesh" */
    const char *doc;           /* one line for Python and the reference */
    const char *line; /* what PLAIT_DEBUG prints, see plan/describe.h; NULL: title */
    /* Local, pure, deterministic; judges the arguments. */
    plait_status_t (*plan)(const void *params, const plait_problem_t *problem,
                           plait_plan_t **plan_p);
} plait_op_t;

#endif
