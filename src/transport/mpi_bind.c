/* Finds which MPI the process runs, without linking to one: MPI's libraries are already mapped, and their
 * symbols show the ABI. */
#include "base/log.h"
#include "base/status.h"
#include "transport/mpi.h"
#include "transport/mpi_link.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, MAX_FOUND = 8 };

typedef struct {
    void *library; /* handle of dlopen, never closed while bound */
    char path[PATH_BYTES];
    void *entry; /* its MPI_Init_thread: tells one MPI from another */
} found_t;

typedef struct {
    int n;
    char path[MAX_FOUND][PATH_BYTES];
} paths_t;

static const char *const level_names[] = {"SINGLE", "FUNNELED", "SERIALIZED",
                                          "MULTIPLE"};

static pthread_mutex_t bind_lock = PTHREAD_MUTEX_INITIALIZER;
static found_t bound;
static char version[PLAIT_MPI_VERSION_BYTES];
static plait_mpi_level_t bound_level;

plait_status_t plait_mpi_load_symbols(void *library, void *table, int n,
                                      const plait_mpi_symbol_t symbols[])
{
    plait_status_t status = PLAIT_OK;

    for (int i = 0; i < n; i++) {
        void *address = dlsym(library, symbols[i].name);
        PLAIT_CHECK((address != NULL) || symbols[i].is_optional, PLAIT_ERR_UNSUPPORTED,
                    "the MPI library of this process has no %s", symbols[i].name);
        memcpy((char *)table + symbols[i].offset, &address, sizeof(address));
    }
done:
    return status;
}

/* Fills *found_p if the handle leads to MPI; a module leads to the MPI on which it depends. */
static bool find_entry(void *library, found_t *found_p)
{
    void *entry = (library != NULL) ? dlsym(library, "MPI_Init_thread") : NULL;
    Dl_info info = {0};

    if (entry != NULL) {
        found_p->library = library;
        found_p->entry = entry;
        found_p->path[0] = '\0';
        if ((dladdr(entry, &info) != 0) && (info.dli_fname != NULL)) {
            (void)snprintf(found_p->path, PATH_BYTES, "%s", info.dli_fname);
        }
    }
    return entry != NULL;
}

static plait_status_t find_below(const char *where, found_t *found_p)
{
    plait_status_t status = PLAIT_OK;
    void *library = dlopen(where, RTLD_LAZY | RTLD_NOLOAD);

    PLAIT_CHECK(library != NULL, PLAIT_ERR_UNSUPPORTED,
                "no MPI: %s is not loaded in this process", where);
    if (!find_entry(library, found_p)) {
        (void)dlclose(library);
        status = plait_fail(PLAIT_ERR_UNSUPPORTED,
                            "no MPI: neither %s nor a library it depends on has "
                            "MPI_Init_thread",
                            where);
    }
done:
    return status;
}

static int note_path(struct dl_phdr_info *info, size_t size, void *data)
{
    static const char *const prefixes[] = {"libmpi.so", "libmpi_abi.so", "libmpich.so"};
    paths_t *paths = data;
    const char *slash =
        (info->dlpi_name != NULL) ? strrchr(info->dlpi_name, '/') : NULL;

    (void)size;
    for (int i = 0; (slash != NULL) && (paths->n < MAX_FOUND) && (i < 3); i++) {
        if (strncmp(slash + 1, prefixes[i], strlen(prefixes[i])) == 0) {
            (void)snprintf(paths->path[paths->n++], PATH_BYTES, "%s", info->dlpi_name);
        }
    }
    return 0;
}

static bool is_initialized(const found_t *found)
{
    int (*initialized)(int *) = NULL;
    void *address = dlsym(found->library, "MPI_Initialized");
    int flag = 0;

    memcpy(&initialized, &address, sizeof(address));
    if (initialized != NULL) {
        (void)initialized(&flag);
    }
    return flag != 0;
}

/* Adds the MPI to which the handle leads, unless it is there already (a forwarding library). */
static void add_found(void *library, int *n_p, found_t found[])
{
    found_t next;
    bool is_new = (*n_p < MAX_FOUND) && find_entry(library, &next);

    for (int i = 0; is_new && (i < *n_p); i++) {
        is_new = (found[i].entry != next.entry);
    }
    if (is_new) {
        found[(*n_p)++] = next;
    } else if (library != NULL) {
        (void)dlclose(library);
    }
}

/* Of several MPI libraries, the process's is the one that is initialised: a module that was merely imported may
 * have brought in the others. */
static plait_status_t find_mapped(found_t *found_p)
{
    plait_status_t status = PLAIT_OK;
    paths_t paths = {0};
    found_t found[MAX_FOUND];
    int n_found = 0;
    int n_live = 0;
    int chosen = 0;

    (void)dl_iterate_phdr(note_path, &paths);
    add_found(dlopen(NULL, RTLD_LAZY), &n_found, found);
    for (int i = 0; i < paths.n; i++) {
        add_found(dlopen(paths.path[i], RTLD_LAZY | RTLD_NOLOAD), &n_found, found);
    }
    for (int i = 0; i < n_found; i++) {
        if (is_initialized(&found[i])) {
            n_live++;
            chosen = i;
        }
    }
    PLAIT_CHECK(n_found > 0, PLAIT_ERR_UNSUPPORTED,
                "no MPI: no libmpi.so, libmpi_abi.so or libmpich.so is loaded in this "
                "process, and the program itself has no MPI_Init_thread");
    PLAIT_CHECK(
        (n_found == 1) || (n_live == 1), PLAIT_ERR_UNSUPPORTED,
        "two MPI libraries are loaded, %s and %s, and %s is initialised; a process can "
        "use only one of them",
        found[0].path, found[1].path, (n_live == 0) ? "neither" : "each");
    *found_p = found[chosen];
    found[chosen].library = NULL; /* moved */
done:
    for (int i = 0; i < n_found; i++) {
        if (found[i].library != NULL) {
            (void)dlclose(found[i].library);
        }
    }
    return status;
}

/* MPI 5 libraries report their ABI; their MPICH-ABI twins answer -1. */
static const plait_mpi_backend_t *backend_of(void *library)
{
    int (*abi_version)(int *, int *) = NULL;
    void *address = dlsym(library, "MPI_Abi_get_version");
    int major = 0;
    int minor = 0;

    memcpy(&abi_version, &address, sizeof(address));
    if (abi_version != NULL) {
        (void)abi_version(&major, &minor);
    }
    if (major > 0) {
        return &plait_mpi_backend_std;
    }
    return (dlsym(library, "ompi_mpi_comm_world") != NULL) ? &plait_mpi_backend_ompi
                                                           : &plait_mpi_backend_mpich;
}

static plait_status_t check_state(const plait_mpi_backend_t *mpi, const char *path,
                                  plait_mpi_level_t *level_p)
{
    plait_status_t status = PLAIT_OK;
    bool is_up = false;
    bool is_over = false;

    PLAIT_CHECK(mpi->state(&is_up, &is_over) == 0, PLAIT_ERR_UNSUPPORTED,
                "%s: MPI_Initialized failed", path);
    PLAIT_CHECK(
        is_up, PLAIT_ERR_UNSUPPORTED,
        "MPI (%s) is not initialised: first call MPI_Init_thread, or in Python import "
        "mpi4py.MPI",
        path);
    PLAIT_CHECK(!is_over, PLAIT_ERR_UNSUPPORTED, "MPI (%s) is already finalised", path);
    PLAIT_CHECK(mpi->thread_level(level_p) == 0, PLAIT_ERR_UNSUPPORTED,
                "%s: MPI_Query_thread failed", path);
    PLAIT_CHECK(
        *level_p >= PLAIT_MPI_SERIALIZED, PLAIT_ERR_UNSUPPORTED,
        "MPI was initialised with thread level %s; plait needs SERIALIZED or MULTIPLE: "
        "ask MPI_Init_thread for it, or in Python set mpi4py.rc.thread_level = "
        "'multiple' before mpi4py.MPI is imported",
        level_names[*level_p]);
    if (*level_p == PLAIT_MPI_SERIALIZED) {
        plait_log(PLAIT_LOG_WARN, "mpi thread level SERIALIZED: calls of MPI by other "
                                  "threads of this program "
                                  "while plait communicates are unsafe");
    }
done:
    return status;
}

static plait_status_t bind_to(const found_t *found)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_backend_t *mpi = backend_of(found->library);
    plait_mpi_level_t level = PLAIT_MPI_SINGLE;

    PLAIT_TRY(mpi->load(found->library));
    PLAIT_TRY(check_state(mpi, found->path, &level));
    PLAIT_CHECK(mpi->library_version(version) == 0, PLAIT_ERR_UNSUPPORTED,
                "%s: MPI_Get_library_version failed", found->path);
    version[strcspn(version, "\r\n")] = '\0';
    PLAIT_TRY(plait_mpi_start(mpi));
    bound = *found;
    bound_level = level;
    plait_log(PLAIT_LOG_INFO, "mpi %s abi %s thread level %s", bound.path, mpi->abi,
              level_names[level]);
done:
    return status;
}

plait_status_t plait_mpi_bind(const char *where)
{
    plait_status_t status = PLAIT_OK;
    found_t found = {0};

    (void)pthread_mutex_lock(&bind_lock);
    if ((where == NULL) && (bound.library != NULL)) {
        goto done; /* to whichever library */
    }
    PLAIT_TRY((where != NULL) ? find_below(where, &found) : find_mapped(&found));
    if (bound.library == NULL) {
        PLAIT_TRY(bind_to(&found));
        found.library = NULL; /* moved */
    }
    PLAIT_CHECK(found.entry == bound.entry, PLAIT_ERR_UNSUPPORTED,
                "two MPI libraries: plait is bound to %s, and %s belongs to %s",
                bound.path, where, found.path);
done:
    if (found.library != NULL) {
        (void)dlclose(found.library);
    }
    (void)pthread_mutex_unlock(&bind_lock);
    return status;
}

void *plait_mpi_symbol(const char *name)
{
    return (plait_mpi_started() != NULL) ? dlsym(bound.library, name) : NULL;
}

const char *plait_mpi_abi(void)
{
    const plait_mpi_backend_t *mpi = plait_mpi_started();

    return (mpi != NULL) ? mpi->abi : "";
}

const char *plait_mpi_library_path(void)
{
    return (plait_mpi_started() != NULL) ? bound.path : "";
}

const char *plait_mpi_library_version(void)
{
    return (plait_mpi_started() != NULL) ? version : "";
}

const char *plait_mpi_thread_level(void)
{
    return (plait_mpi_started() != NULL) ? level_names[bound_level] : "";
}

plait_status_t plait_mpi_world(uint64_t *comm_bits_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_backend_t *mpi = plait_mpi_started();

    PLAIT_CHECK(mpi != NULL, PLAIT_ERR_UNSUPPORTED, "no MPI is bound");
    *comm_bits_p = mpi->comm_world();
done:
    return status;
}
