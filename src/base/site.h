/* Call sites: where in the user's program an operation was called, as "file:line". A compiled program has a
 * number; the text of the number is kept here, once per process. */
#ifndef PLAIT_BASE_SITE_H
#define PLAIT_BASE_SITE_H

#include "plait/status.h"

#include <stdint.h>

enum { PLAIT_SITE_TEXT_BYTES = 56, PLAIT_SITE_EAGER_SLOTS = 1024 };

/* The number of `text` from now on: `id`, or a later number if `id` is the number of another text; 0 if there
 * is no room. If all ranks put the same numbers and texts in the same order, they get the same numbers. Long
 * texts lose their beginning. */
PLAIT_EXPORT int64_t plait_site_put(int64_t id, const char *text);

/* The text of a number; "" if there is none. Static. */
PLAIT_EXPORT const char *plait_site_text(int64_t id);

/* The text's number in the flight recorder (base/trace.h), for operations; 0: none. */
uint32_t plait_site_ref(int64_t id);

/* Calls outside jit share one compiled program, whatever line they are on. The caller writes the site into the
 * slot of its communicator (id modulo the number of slots; 0 if it does not know the communicator), runs the
 * program, whose own site is 0, and waits for it. */
PLAIT_EXPORT int64_t *plait_site_eager(void);

/* Sets the site of the operation that this thread runs from now on; site 0: a call outside jit. */
void plait_site_enter(int64_t site, int64_t comm_id);

/* The site of the operation that this thread runs; 0 if it has none. */
int64_t plait_site_here(void);

#endif
