/* Descriptor of an operation: one const row per operation, in the file of its algorithm. */
#ifndef PLAIT_PLAN_OP_H
#define PLAIT_PLAN_OP_H

#include "plan/config.h"
#include "plan/plan.h"

#include <stddef.h>
#include <string.h>

enum { PLAIT_MAX_PARAMS_BYTES = 2048, PLAIT_MAX_ATTRS = 24, PLAIT_MAX_ARRAYS = 4 };

/* The type of an attribute in the params struct. */
typedef enum {
    PLAIT_PARAM_INT,   /* int64_t */
    PLAIT_PARAM_FLOAT, /* double */
    PLAIT_PARAM_ARRAY, /* int64_t[n_max], and the count as int64_t at count_offset */
    PLAIT_PARAM_LIST /* const int64_t *, borrowed during the call, of any length; count
                        as above. A plan's key has the words, not the pointer. */
} plait_param_kind_t;

/* The place of an attribute in the params struct. */
typedef struct {
    const char *name;
    size_t offset;
    plait_param_kind_t kind;
    int n_max;           /* PLAIT_PARAM_ARRAY */
    size_t count_offset; /* PLAIT_PARAM_ARRAY, PLAIT_PARAM_LIST */
} plait_attr_t;

/* The words of a LIST, and how many there are: 0 for other kinds. */
static inline int64_t plait_attr_list(const plait_attr_t *attr, const void *params,
                                      const int64_t **list_p)
{
    int64_t n = 0;

    *list_p = NULL;
    if (attr->kind == PLAIT_PARAM_LIST) {
        memcpy(&n, (const char *)params + attr->count_offset, sizeof(n));
        memcpy(list_p, (const char *)params + attr->offset, sizeof(*list_p));
    }
    return n;
}

#define PLAIT_ATTR(_type, _field)                                                   \
    {                                                                               \
        .name = #_field, .offset = offsetof(_type, _field), .kind = PLAIT_PARAM_INT \
    }
#define PLAIT_ATTR_FLOAT(_type, _field)                                               \
    {                                                                                 \
        .name = #_field, .offset = offsetof(_type, _field), .kind = PLAIT_PARAM_FLOAT \
    }
/* The array _field with its count n_<field>. */
#define PLAIT_ATTR_ARRAY(_type, _field)                                                \
    {                                                                                  \
        .name = #_field, .offset = offsetof(_type, _field), .kind = PLAIT_PARAM_ARRAY, \
        .n_max = (int)(sizeof(((_type *)0)->_field) / sizeof(int64_t)),                \
        .count_offset = offsetof(_type, n_##_field)                                    \
    }
/* The pointer _field with its count n_<field>. */
#define PLAIT_ATTR_LIST(_type, _field)                                                \
    {                                                                                 \
        .name = #_field, .offset = offsetof(_type, _field), .kind = PLAIT_PARAM_LIST, \
        .count_offset = offsetof(_type, n_##_field)                                   \
    }
#define PLAIT_ATTR_END \
    {                  \
        .name = NULL   \
    }

/* Plain data, so that C, Python (ctypes) and the tests read the same row. Every operation
 * also has the attributes `comm` and `site` (base/site.h), which are not in the params: they
 * say where, not what. */
typedef struct {
    const char *name;          /* the XLA target is "plait_<name>" */
    int n_args;                /* array operands */
    int n_rets;                /* array results */
    size_t params_size;        /* a multiple of 8, <= PLAIT_MAX_PARAMS_BYTES */
    const plait_attr_t *attrs; /* ends with a NULL name */
    const char *adjoint;       /* name of the exact adjoint, NULL: none */
    int alias;                 /* operand whose memory result 0 may take; -1 */
    int is_matched;            /* a transfer between two ranks; else all take part */
    plait_family_t family;     /* the choices of plait/config.h that it follows */
    const char *model;         /* "rank" or "mesh" */
    const char *doc;           /* one line for Python and the reference */
    const char *line; /* what PLAIT_DEBUG prints, see plan/describe.h; NULL: title */
    /* Whether the operation can use devices of several processes that work as one (caps.grid); ranks find out
     * about these before they plan it. Depends only on what is equal on all ranks. NULL: never. */
    bool (*wants_grid)(const void *params, int n_ranks, plait_choices_t choices);
    /* Local, pure, deterministic; checks the arguments. */
    plait_status_t (*plan)(const void *params, const plait_problem_t *problem,
                           plait_plan_t **plan_p);
} plait_op_t;

#endif
