/* A new folder for the files of a test. */
#ifndef PLAIT_TESTS_FOLDER_H
#define PLAIT_TESTS_FOLDER_H

#include "check.h"

#include <stdio.h>
#include <stdlib.h>

/* The path begins with `name`, in the directory for temporary files. */
static inline void make_folder(const char *name, char *path, size_t n_bytes)
{
    const char *tmp = getenv("TMPDIR");

    (void)snprintf(path, n_bytes, "%s/%s-XXXXXX", (tmp != NULL) ? tmp : P_tmpdir, name);
    CHECK(mkdtemp(path) != NULL, "%s", path);
}

#endif
