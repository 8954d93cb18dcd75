/* Choices of backend and tuning for the whole process. They never change results beyond rounding. Anything
 * that does is an argument of an operation. */
#ifndef PLAIT_CONFIG_H
#define PLAIT_CONFIG_H

#include "plait/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A key: one thing that can be chosen. */
typedef struct {
    const char *name; /* "transpose_comm_backend" */
    const char
        *variable; /* environment variable: the choice that the process begins with */
    const char *const
        *choices;    /* NULL after the last one; the first one is the default */
    const char *doc; /* what the key is, in one line */
} plait_config_key_t;

/** Number of keys.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT int plait_config_count(void);

/** The i-th key; NULL outside 0 <= i < count.
 *  Collective: no.  Shapes: none.  Owns: nothing; the key is static.  Errors: none.  Source: own. */
PLAIT_EXPORT const plait_config_key_t *plait_config_at(int i);

/** Sets a key to a value, both in any letter case. The choice holds for plans made, and operations called,
 *  from now on; existing plans stay as they are.
 *  Collective: no; but ranks that choose differently get MISMATCH from the operations that obey the key.
 *  Shapes: none.  Owns: nothing; key and value are borrowed until return.
 *  Errors: INVALID (NULL; no such key or value; the text lists the existing ones), UNSUPPORTED (the value
 *  needs something that is missing here; nothing is changed then).  Source: own. */
PLAIT_EXPORT plait_status_t plait_config_set(const char *key, const char *value);

/** The current value of a key.
 *  Collective: no.  Shapes: none.  Owns: nothing; *value_p is static.
 *  Errors: INVALID (NULL, no such key, or the environment names a value that does not exist).
 *  Source: own. */
PLAIT_EXPORT plait_status_t plait_config_get(const char *key, const char **value_p);

#ifdef __cplusplus
}
#endif
#endif
