/* The status that every call that can fail returns, and the text that explains the last failure. */
#ifndef PLAIT_STATUS_H
#define PLAIT_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PLAIT_EXPORT __attribute__((visibility("default")))
#else
#define PLAIT_EXPORT
#endif

typedef enum {
    PLAIT_OK = 0,
    PLAIT_ERR_INVALID = 1,     /* an argument is wrong, on every rank alike           */
    PLAIT_ERR_NO_MEMORY = 2,   /* an allocation failed                                */
    PLAIT_ERR_OVERFLOW = 3,    /* a size does not fit its type                        */
    PLAIT_ERR_UNSUPPORTED = 4, /* this MPI, machine or build cannot do it             */
    PLAIT_ERR_TRANSPORT = 5,   /* MPI or the system reported a failure                */
    PLAIT_ERR_MISMATCH = 6,    /* ranks disagree on what they call                    */
    PLAIT_ERR_TRUNCATION = 7,  /* a message is longer than the place it should go to  */
    PLAIT_ERR_COMM = 8,        /* the communicator is freed, foreign or null          */
    PLAIT_ERR_TIMEOUT = 9,     /* a peer did not arrive within PLAIT_TIMEOUT          */
    PLAIT_ERR_PEER = 10,       /* another rank failed in the same operation           */
    PLAIT_ERR_INTERNAL = 11,   /* a bug in plait                                      */
    PLAIT_STATUS_COUNT = 12
} plait_status_t;

/** Name of a status, e.g. "MISMATCH".
 *  Collective: no.  Shapes: none.  Owns: nothing; the text is static.
 *  Errors: none; an unknown value gives "UNKNOWN".  Source: own. */
PLAIT_EXPORT const char *plait_status_name(plait_status_t status);

/** Explanation of the last failure on this thread: operation, rank, cause.
 *  Collective: no.  Shapes: none.
 *  Owns: nothing; the text is borrowed until the next failing call of this thread.
 *  Errors: none; meaningful only after a call that failed, as other calls may change the text.
 *  Source: own. */
PLAIT_EXPORT const char *plait_error_text(void);

#ifdef __cplusplus
}
#endif
#endif
