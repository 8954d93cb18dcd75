#include "base/cache.h"

#include <stdio.h>
#include <stdlib.h>

bool plait_cache_path(const char *name, char *path, size_t n_bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = -1;

    if (cache != NULL && cache[0] != '\0') {
        n = snprintf(path, n_bytes, "%s/plait/%s", cache, name);
    } else if (home != NULL && home[0] != '\0') {
        n = snprintf(path, n_bytes, "%s/.cache/plait/%s", home, name);
    }
    return n > 0 && n < (int)n_bytes;
}
