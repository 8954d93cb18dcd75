/* Plans in words, for the reference: of any operation and any rank, without communicators. */
#ifndef PLAIT_API_DESCRIBE_H
#define PLAIT_API_DESCRIBE_H

#include "plait/status.h"

#include <stdint.h>

/* How ranks reach each other: threads of one process, processes of one node that read each
 * other's memory, processes that exchange messages of MPI. */
typedef enum {
    PLAIT_DESCRIBE_THREADS,
    PLAIT_DESCRIBE_NODE,
    PLAIT_DESCRIBE_MESSAGES,
    PLAIT_DESCRIBE_COUNT
} plait_describe_t;

/* params: as the operation's row says. arrays: dtype, ndim and dims of each operand, then of
 * each result. text gets what plait_plan_print prints; OVERFLOW if that and its NUL are more
 * than n_bytes. */
PLAIT_EXPORT plait_status_t plait_describe(const char *op, const void *params,
                                           int n_ranks, int rank, int way,
                                           const int64_t arrays[], char *text,
                                           int n_bytes);

#endif
