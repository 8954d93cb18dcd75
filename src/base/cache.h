/* The folder in which files of this user are kept from one process to the next. */
#ifndef PLAIT_BASE_CACHE_H
#define PLAIT_BASE_CACHE_H

#include <stdbool.h>
#include <stddef.h>

/* The path of plait's `name` in that folder: $XDG_CACHE_HOME/plait or ~/.cache/plait. False: there is no such
 * folder, or the path is too long. */
bool plait_cache_path(const char *name, char *path, size_t n_bytes);

#endif
