#include "device/cuda_load.h"

#include "base/status.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NEWEST = 13, N_MAJORS = 2, WHY_BYTES = 1024 };

/* The least NCCL version for cuSOLVERMp 0.9.1 and for cuBLASMp 0.10, to which it is linked; as NCCL counts. */
enum { MP_NCCL = 22902 };

/* For CUDA 13 and for CUDA 12, in this order. */
typedef struct {
    const char *name;
    const char *soname[N_MAJORS];
    const char *folder[N_MAJORS];
} library_t;

static const library_t libraries[PLAIT_CUDA_N_LIBRARIES] = {
#define LIBRARY(_library, _name, _soname_13, _folder_13, _soname_12, _folder_12) \
    {_name, {_soname_13, _soname_12}, {_folder_13, _folder_12}},
    PLAIT_CUDA_LIBRARY_FOR_EACH(LIBRARY)
#undef LIBRARY
};

typedef struct {
    plait_cuda_library_t library;
    const char *name;
    size_t offset; /* in plait_cuda_t */
    bool is_optional;
} symbol_t;

static const symbol_t symbols[] = {
#define SYMBOL(_library, _type, _symbol, _arguments) \
    {PLAIT_CUDA_##_library, #_symbol, offsetof(plait_cuda_t, _symbol), false},
#define OPTIONAL(_library, _type, _symbol, _arguments) \
    {PLAIT_CUDA_##_library, #_symbol, offsetof(plait_cuda_t, _symbol), true},
    PLAIT_CUDA_SYMBOL_FOR_EACH(SYMBOL) PLAIT_CUDA_OPTIONAL_FOR_EACH(OPTIONAL)
#undef SYMBOL
#undef OPTIONAL
};

enum { N_SYMBOLS = sizeof(symbols) / sizeof(symbols[0]) };

/* Folders that the loader does not search by itself. */
static const char *const usual[] = {"/usr/local/cuda/lib64", "/usr/local/nvidia/lib64",
                                    "/usr/lib/wsl/lib"};

typedef enum { UNTRIED, FOUND, REFUSED } state_t;

typedef struct {
    state_t state;
    void *handle;
    char path[PATH_MAX];
    const char *place; /* "wheel" and so on */
    char why[WHY_BYTES];
    char say[WHY_BYTES];
} opened_t;

static struct {
    opened_t opened[PLAIT_CUDA_N_LIBRARIES];
    plait_cuda_t pointers;
    int major;   /* 0: not yet known */
    void *first; /* the library that decided on the version, and its place */
    const char *first_place;
    char wheels[PATH_MAX];
} cuda;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Places --------------------------------------------------------------------------------- */

/* One search: for which library, and the text that lists the places tried. */
typedef struct {
    const library_t *library;
    int version; /* index of soname and folder */
    void *handle;
    const char *place;
    char why[WHY_BYTES];
    int n_why;
} search_t;

static void note(search_t *s, const char *format, const char *first, const char *second)
{
    int room = WHY_BYTES - s->n_why;

    if (room > 1) {
        (void)snprintf(s->why + s->n_why, (size_t)room, format, first, second);
        s->n_why += (int)strlen(s->why + s->n_why);
    }
}

/* Notes the reason if a file exists but does not open. */
static void try_folder(search_t *s, const char *folder, const char *place)
{
    char path[PATH_MAX];
    int n =
        snprintf(path, sizeof(path), "%s/%s", folder, s->library->soname[s->version]);

    if (n < 0 || n >= PATH_MAX) {
        return;
    }
    s->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    s->place = place;
    if (s->handle == NULL && access(path, F_OK) == 0) {
        note(s, "\n  %s%s", dlerror(), "");
    } else if (s->handle == NULL) {
        note(s, "\n  no %s%s", path, "");
    }
}

static void try_given(search_t *s, const char *folders)
{
    char folder[PATH_MAX];
    const char *end = folders;

    do {
        end = folders + strcspn(folders, ":");
        (void)snprintf(folder, sizeof(folder), "%.*s", (int)(end - folders), folders);
        try_folder(s, folder, "PLAIT_CUDA_DIR");
        folders = end + 1;
    } while (s->handle == NULL && *end == ':');
}

static void try_loaded(search_t *s)
{
    s->handle = dlopen(s->library->soname[s->version], RTLD_NOW | RTLD_NOLOAD);
    s->place = "already loaded";
}

/* The path of any library of a wheel tells where the other wheels are. */
static int see_wheels(struct dl_phdr_info *info, size_t size, void *data)
{
    static const char folder[] = "-packages/nvidia/";
    const char *at = strstr(info->dlpi_name, folder);
    char *root = data;

    (void)size;
    if (at != NULL) {
        int n = (int)(at - info->dlpi_name) + (int)sizeof(folder) - 2;
        (void)snprintf(root, PATH_MAX, "%.*s", n, info->dlpi_name);
    }
    return at != NULL;
}

static void try_wheels(search_t *s)
{
    char folder[PATH_MAX];
    const char *below = s->library->folder[s->version];
    int n = 0;

    if (cuda.wheels[0] == '\0') {
        (void)dl_iterate_phdr(see_wheels, cuda.wheels);
    }
    if (cuda.wheels[0] != '\0' && below != NULL) {
        n = snprintf(folder, sizeof(folder), "%s/%s", cuda.wheels, below);
        if (n > 0 && n < PATH_MAX) {
            try_folder(s, folder, "wheel");
        }
    }
}

static void try_system(search_t *s)
{
    const char *soname = s->library->soname[s->version];

    s->handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    s->place = "system";
    if (s->handle == NULL) {
        note(s, "\n  the system: %s%s", dlerror(), "");
    }
    for (size_t i = 0; s->handle == NULL && i < sizeof(usual) / sizeof(usual[0]); i++) {
        try_folder(s, usual[i], "system");
    }
}

static const char *given_folders(void)
{
    const char *given = getenv("PLAIT_CUDA_DIR");

    return (given != NULL && given[0] != '\0') ? given : NULL;
}

/* Tries all places in their order, for one version. */
static void try_places(search_t *s)
{
    const char *given = given_folders();
    bool is_driver = s->library == &libraries[PLAIT_CUDA_DRIVER];

    if (given != NULL) {
        try_given(s, given);
    }
    if (s->handle == NULL && (given == NULL || is_driver)) {
        try_loaded(s);
        if (s->handle == NULL) {
            try_wheels(s);
        }
        if (s->handle == NULL) {
            try_system(s);
        }
    }
}

/* ---- One library ---------------------------------------------------------------------------- */

/* The first symbol that the library lacks, or NULL. */
static const char *find_missing(plait_cuda_library_t library, void *handle)
{
    const char *missing = NULL;

    for (int i = 0; missing == NULL && i < N_SYMBOLS; i++) {
        bool is_there = symbols[i].library != library || symbols[i].is_optional ||
                        dlsym(handle, symbols[i].name) != NULL;
        missing = is_there ? NULL : symbols[i].name;
    }
    return missing;
}

/* Writes the pointers of this library only: others may be in use. ISO C has no conversion from void * to a
 * pointer to a function. */
static void take_symbols(plait_cuda_library_t library, void *handle)
{
    for (int i = 0; i < N_SYMBOLS; i++) {
        if (symbols[i].library == library) {
            void *address = dlsym(handle, symbols[i].name);
            memcpy((char *)&cuda.pointers + symbols[i].offset, (const void *)&address,
                   sizeof(address));
        }
    }
}

static void path_of(void *handle, char path[])
{
    struct link_map *map = NULL;

    if (dlinfo(handle, RTLD_DI_LINKMAP, (void *)&map) == 0 && map != NULL) {
        (void)snprintf(path, PATH_MAX, "%s", map->l_name);
    }
}

/* The version of the library just opened, 1000 major + 10 minor, as CUDA counts; 0: not known. */
static int version_of(plait_cuda_library_t library)
{
    int (*property)(int, int *) = NULL;
    int version = 0, major = 0, minor = 0;

    switch (library) {
    case PLAIT_CUDA_DRIVER:
        (void)cuda.pointers.cuDriverGetVersion(&version);
        break;
    case PLAIT_CUDA_NVRTC:
        (void)cuda.pointers.nvrtcVersion(&major, &minor);
        break;
    case PLAIT_CUDA_NCCL: /* 10000 major + 100 minor + patch */
        (void)cuda.pointers.ncclGetVersion(&version);
        version = version / 10000 * 1000 + version / 100 % 100 * 10;
        break;
    case PLAIT_CUDA_NVSHMEM:
        cuda.pointers.nvshmemx_vendor_get_version_info(&major, &minor, &version);
        version = 0; /* was the patch number */
        break;
    case PLAIT_CUDA_CUFFT:
        property = cuda.pointers.cufftGetProperty;
        break;
    case PLAIT_CUDA_CUBLAS:
        property = cuda.pointers.cublasGetProperty;
        break;
    case PLAIT_CUDA_CUSOLVER:
        property = cuda.pointers.cusolverGetProperty;
        break;
    case PLAIT_CUDA_CUSOLVER_MG:
    case PLAIT_CUDA_CUSOLVER_MP: /* asked of a handle, which needs a device */
    case PLAIT_CUDA_N_LIBRARIES:
        break;
    }
    if (property != NULL) {
        (void)property(0, &major);
        (void)property(1, &minor);
    }
    return (version != 0) ? version : 1000 * major + 10 * minor;
}

static void refuse(opened_t *o, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void refuse(opened_t *o, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(o->why, sizeof(o->why), format, args);
    va_end(args);
    o->state = REFUSED;
}

/* Takes the library that the search found, or notes why there is none. */
static void conclude(plait_cuda_library_t library, const search_t *s)
{
    opened_t *o = &cuda.opened[library];
    const char *name = libraries[library].name, *missing = NULL;

    if (s->handle == NULL) {
        refuse(o, "CUDA's %s was not found:%s", name, s->why);
        return;
    }
    path_of(s->handle, o->path);
    missing = find_missing(library, s->handle);
    if (missing != NULL) {
        refuse(o, "CUDA's %s, %s, has no %s: it is too old, or not what its name says",
               name, o->path, missing);
        (void)dlclose(s->handle);
    } else {
        take_symbols(library, s->handle);
        o->state = FOUND;
        o->handle = s->handle;
        o->place = s->place;
    }
}

static void open_driver(void)
{
    const int oldest = NEWEST - N_MAJORS + 1;
    search_t s = {.library = &libraries[PLAIT_CUDA_DRIVER]};
    opened_t *o = &cuda.opened[PLAIT_CUDA_DRIVER];

    try_places(&s);
    conclude(PLAIT_CUDA_DRIVER, &s);
    if (o->state == FOUND && version_of(PLAIT_CUDA_DRIVER) / 1000 < oldest) {
        refuse(o, "the driver %s is of CUDA %d: it is too old, CUDA %d is the least",
               o->path, version_of(PLAIT_CUDA_DRIVER) / 1000, oldest);
    }
}

/* A driver runs the libraries of its own major version of CUDA and of older ones. */
static int newest_for_driver(void)
{
    int major = NEWEST;

    if (cuda.opened[PLAIT_CUDA_DRIVER].state == UNTRIED) {
        open_driver();
    }
    if (cuda.opened[PLAIT_CUDA_DRIVER].state == FOUND) {
        int driver = version_of(PLAIT_CUDA_DRIVER) / 1000;
        major = (driver < NEWEST) ? driver : NEWEST;
    }
    return major;
}

/* Looks for the first library in one way. Places come before versions: a library that JAX has loaded is
 * preferred to a newer one in the system. */
static bool has_any(void (*try_place)(search_t *), int version)
{
    search_t s = {.version = version};

    for (int l = PLAIT_CUDA_CUBLAS; s.handle == NULL && l < PLAIT_CUDA_NCCL; l++) {
        s.library = &libraries[l];
        try_place(&s);
    }
    cuda.first = s.handle;
    cuda.first_place = s.place;
    return s.handle != NULL;
}

static void find_major(void)
{
    static void (*const places[])(search_t *) = {try_loaded, try_wheels, try_system};
    const int newest = newest_for_driver();
    const int n_places = (given_folders() != NULL) ? 1 : 3;

    for (int p = 0; cuda.major == 0 && p < n_places; p++) {
        for (int m = newest; cuda.major == 0 && m > NEWEST - N_MAJORS; m--) {
            bool is_there =
                has_any((given_folders() != NULL) ? try_places : places[p], NEWEST - m);
            cuda.major = is_there ? m : 0;
        }
    }
    cuda.major = (cuda.major != 0) ? cuda.major : newest;
}

static const opened_t *opened(plait_cuda_library_t library);

/* Opens the libraries that this one needs. The loader would bring them along from any place, but takes a
 * library of that name that the process already has. An NCCL that is too old lacks functions, and the loader
 * would only name one of them. */
static bool has_needs(plait_cuda_library_t library)
{
    const opened_t *nccl = NULL;
    int version = 0;

    if (library == PLAIT_CUDA_CUSOLVER_MP) {
        (void)opened(PLAIT_CUDA_CUBLAS);
        (void)opened(PLAIT_CUDA_CUSOLVER);
        nccl = opened(PLAIT_CUDA_NCCL);
    }
    if (nccl != NULL && nccl->state == FOUND) {
        (void)cuda.pointers.ncclGetVersion(&version);
    }
    if (nccl != NULL && nccl->state != FOUND) {
        refuse(&cuda.opened[library], "%s wants NCCL: %.900s", libraries[library].name,
               nccl->why);
    } else if (nccl != NULL && version < MP_NCCL) {
        refuse(&cuda.opened[library],
               "NCCL %d.%d.%d of %s is too old for %s, %d.%d.%d is the least",
               version / 10000, version / 100 % 100, version % 100, nccl->path,
               libraries[library].name, MP_NCCL / 10000, MP_NCCL / 100 % 100,
               MP_NCCL % 100);
    }
    return cuda.opened[library].state != REFUSED;
}

static void open_library(plait_cuda_library_t library)
{
    search_t s = {.library = &libraries[library]};

    if (cuda.major == 0) {
        find_major();
    }
    if (!has_needs(library)) {
        return;
    }
    s.version = NEWEST - cuda.major;
    try_places(&s);
    s.place = (s.handle != NULL && s.handle == cuda.first) ? cuda.first_place : s.place;
    conclude(library, &s);
}

static void describe(plait_cuda_library_t library)
{
    opened_t *o = &cuda.opened[library];
    char text[WHY_BYTES];

    if (o->state == FOUND) {
        char number[32] = "";
        int version = version_of(library);
        if (version != 0) {
            (void)snprintf(number, sizeof(number), "%d.%d, ", version / 1000,
                           version % 1000 / 10);
        }
        (void)snprintf(text, sizeof(text), "%s%.900s (%s)", number, o->path, o->place);
        memcpy(o->say, text, sizeof(text));
    } else {
        memcpy(o->say, o->why, sizeof(o->why));
    }
}

/* The lock must be held. */
static const opened_t *opened(plait_cuda_library_t library)
{
    if (cuda.opened[library].state == UNTRIED) {
        if (library == PLAIT_CUDA_DRIVER) {
            open_driver();
        } else {
            open_library(library);
        }
        describe(library);
    } else if (cuda.opened[library].say[0] == '\0') {
        describe(library);
    }
    return &cuda.opened[library];
}

/* ---- What others see ------------------------------------------------------------------------ */

plait_status_t plait_cuda_require(plait_cuda_library_t library,
                                  const plait_cuda_t **cuda_p)
{
    plait_status_t status = PLAIT_OK;
    const opened_t *o = NULL;

    (void)pthread_mutex_lock(&lock);
    o = opened(library);
    PLAIT_CHECK(o->state == FOUND, PLAIT_ERR_UNSUPPORTED, "%s", o->why);
    *cuda_p = &cuda.pointers;
done:
    (void)pthread_mutex_unlock(&lock);
    return status;
}

plait_status_t plait_cuda_start(const plait_cuda_t **cuda_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *driver = NULL;
    const char *name = NULL;
    int result = 0;

    PLAIT_TRY(plait_cuda_require(PLAIT_CUDA_DRIVER, &driver));
    result = driver->cuInit(0);
    PLAIT_CHECK(
        result != PLAIT_CU_STUB, PLAIT_ERR_UNSUPPORTED,
        "no CUDA device: %s is the toolkit's stand-in for a driver (cuInit: 34)",
        plait_cuda_path(PLAIT_CUDA_DRIVER));
    if (result != PLAIT_CU_OK) {
        (void)driver->cuGetErrorName(result, &name);
    }
    PLAIT_CHECK(result == PLAIT_CU_OK, PLAIT_ERR_UNSUPPORTED,
                "no CUDA device: cuInit of %s says %d (%s)",
                plait_cuda_path(PLAIT_CUDA_DRIVER), result,
                (name != NULL) ? name : "unknown");
    *cuda_p = driver;
done:
    return status;
}

const char *plait_cuda_path(plait_cuda_library_t library)
{
    return cuda.opened[library].path;
}

void plait_cuda_wheels(const char *folder)
{
    (void)pthread_mutex_lock(&lock);
    (void)snprintf(cuda.wheels, sizeof(cuda.wheels), "%s", folder);
    (void)pthread_mutex_unlock(&lock);
}

static bool is_library(int i)
{
    return i >= 0 && i < PLAIT_CUDA_N_LIBRARIES;
}

const char *plait_cuda_name(int i)
{
    return is_library(i) ? libraries[i].name : NULL;
}

const char *plait_cuda_say(int i)
{
    const char *text = NULL;

    if (is_library(i)) {
        (void)pthread_mutex_lock(&lock);
        text = opened((plait_cuda_library_t)i)->say;
        (void)pthread_mutex_unlock(&lock);
    }
    return text;
}

void plait_cuda_forget(void)
{
    for (int l = 0; l < PLAIT_CUDA_N_LIBRARIES; l++) {
        if (cuda.opened[l].handle != NULL) {
            (void)dlclose(cuda.opened[l].handle);
        }
    }
    if (cuda.first != NULL) {
        (void)dlclose(cuda.first);
    }
    memset((void *)&cuda, 0, sizeof(cuda));
}
