/* Folders of stand-ins for CUDA's libraries, for the tests: FAKES_DIR has one of each. */
#ifndef PLAIT_TESTS_FAKES_H
#define PLAIT_TESTS_FAKES_H

#include "check.h"
#include "device/cuda.h"
#include "device/cuda_load.h"
#include "folder.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char fakes_root[PATH_MAX - 256];

/* Makes a folder of this test's own, with its parents, in a new folder in TMPDIR. */
static inline const char *folder_of(const char *name)
{
    static char path[PATH_MAX];

    if (fakes_root[0] == '\0') {
        make_folder("plait-fakes", fakes_root, sizeof(fakes_root));
    }
    snprintf(path, sizeof(path), "%s/%s", fakes_root, name);
    for (char *at = path + strlen(fakes_root) + 1; at != NULL;
         at = strchr(at + 1, '/')) {
        char kept = *at;
        *at = (kept == '/') ? '\0' : kept;
        mkdir(path, S_IRWXU);
        *at = kept;
    }
    mkdir(path, S_IRWXU);
    return path;
}

/* Copies the file, since the loader takes two links to one file for one library. */
static inline void put_fake(const char *fake, const char *folder, const char *name)
{
    char from[PATH_MAX], to[PATH_MAX + 64];
    static char bytes[1 << 16];
    size_t n = 0;

    snprintf(from, sizeof(from), "%s/%s", FAKES_DIR, fake);
    snprintf(to, sizeof(to), "%s/%s", folder, name);
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    CHECK(in != NULL && out != NULL, "%s to %s", from, to);
    while (in != NULL && out != NULL && (n = fread(bytes, 1, sizeof(bytes), in)) > 0) {
        CHECK(fwrite(bytes, 1, n, out) == n, "%s", to);
    }
    if (in != NULL) {
        fclose(in);
    }
    if (out != NULL) {
        fclose(out);
    }
}

static inline void remove_fakes(void)
{
    char command[PATH_MAX + 32];

    if (fakes_root[0] != '\0') {
        snprintf(command, sizeof(command), "rm -rf '%s'", fakes_root);
        CHECK(system(command) == 0, "%s", command);
    }
}

/* The count that a stand-in's function returns. */
static inline int ask_fake(const char *library, const char *function)
{
    char path[PATH_MAX + 64];
    int (*count)(void) = NULL;

    snprintf(path, sizeof(path), "%s/%s", FAKES_DIR, library);
    void *handle = dlopen(path, RTLD_NOW);
    void *address = dlsym(handle, function);
    memcpy((void *)&count, (const void *)&address, sizeof(count));
    const int n = count();
    dlclose(handle);
    return n;
}

/* Whether the text of the last error contains the word. */
static inline bool says(const char *word)
{
    return strstr(plait_error_text(), word) != NULL;
}

/* From now on CUDA is looked for only there; NULL: as usual. */
static inline void look_in(const char *folder)
{
    plait_cuda_release();
    plait_cuda_forget();
    if (folder != NULL) {
        setenv("PLAIT_CUDA_DIR", folder, 1);
    } else {
        unsetenv("PLAIT_CUDA_DIR");
    }
}

#endif
