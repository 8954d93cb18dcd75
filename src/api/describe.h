/* Plans of any operation and any rank as text, for the reference. They need no communicators. */
#ifndef PLAIT_API_DESCRIBE_H
#define PLAIT_API_DESCRIBE_H

#include "plait/plan.h"
#include "plait/status.h"

#include <stdint.h>

/* How ranks reach each other: threads of one process; processes of one node that read each other's memory; or
 * processes that exchange MPI messages. */
typedef enum {
    PLAIT_DESCRIBE_THREADS,
    PLAIT_DESCRIBE_NODE,
    PLAIT_DESCRIBE_MESSAGES,
    PLAIT_DESCRIBE_COUNT
} plait_describe_t;

/* One rank of a group of ranks. */
typedef struct {
    int n_ranks, rank;
    int way; /* plait_describe_t */
} plait_describe_rank_t;

/* params: as the operation's row says. arrays: dtype, ndim and dims of each operand, then of each result.
 * text: the output of plait_plan_print with a NUL, cut to n_bytes. *n_text_p: the length of the whole
 * output. */
PLAIT_EXPORT plait_status_t plait_describe(const char *op, const void *params,
                                           const plait_describe_rank_t *on,
                                           const int64_t arrays[], char *text,
                                           int64_t n_bytes, int64_t *n_text_p,
                                           plait_plan_cost_t *cost_p);

#endif
