#include "transport/gpu_aware.h"

#include "base/cache.h"
#include "base/hash.h"
#include "base/setting.h"
#include "base/status.h"
#include "base/text.h"
#include "device/find.h"
#include "transport/mpi.h"
#include "transport/mpi_link.h"

#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_BYTES = 4096, SAY_BYTES = 400 };

typedef enum { AUTO, NEVER, MUST, FORCE, UNKNOWN } setting_t;

static setting_t setting_now(void)
{
    static const char *const names[] = {"auto", "0", "1", "force", NULL};
    const char *text = getenv("PLAIT_GPU_AWARE");
    const bool is_set = text != NULL && text[0] != '\0';
    const int found = is_set ? plait_setting_find(text, names) : AUTO;

    return (found < 0) ? UNKNOWN : (setting_t)found;
}

static plait_status_t fail_unknown(void)
{
    const char *text = getenv("PLAIT_GPU_AWARE");

    return plait_fail(PLAIT_ERR_UNSUPPORTED,
                      "PLAIT_GPU_AWARE is '%.20s': expected auto, 0, 1 or force",
                      (text != NULL) ? text : "");
}

/* ---- what the library says ---- */

/* MPICH and Cray MPI have the first function, MPICH and Open MPI the second. Either returns 0 for a build or a
 * run without GPU support. */
plait_status_t plait_gpu_aware_ask(plait_aware_find_t find)
{
    enum { OF_CUDA = 0 }; /* MPIX_GPU_SUPPORT_CUDA */
    plait_status_t status = PLAIT_OK;
    int (*of_kind)(int, int *) = NULL;
    int (*of_cuda)(void) = NULL;
    void *address = find("MPIX_GPU_query_support");
    int can = 0;

    if (address != NULL) {
        memcpy(&of_kind, &address, sizeof(address));
        PLAIT_CHECK(of_kind(OF_CUDA, &can) == 0 && can != 0, PLAIT_ERR_UNSUPPORTED,
                    "MPI says that it does not read GPUs' memory "
                    "(MPIX_GPU_query_support)");
        goto done;
    }
    address = find("MPIX_Query_cuda_support");
    if (address != NULL) {
        memcpy(&of_cuda, &address, sizeof(address));
        PLAIT_CHECK(of_cuda() != 0, PLAIT_ERR_UNSUPPORTED,
                    "MPI says that it does not read GPUs' memory "
                    "(MPIX_Query_cuda_support)");
    }
done:
    return status;
}

static plait_status_t ask_library(void)
{
    plait_status_t status = PLAIT_ERR_COMM;

    if (plait_mpi_lock()) {
        status = plait_gpu_aware_ask(plait_mpi_symbol);
        (void)plait_mpi_unlock(0, "query", 0);
    } else {
        (void)plait_mpi_usable("query");
    }
    return status;
}

plait_status_t plait_gpu_aware_worth_trying(void)
{
    setting_t setting = setting_now();

    return (setting == UNKNOWN) ? fail_unknown()
           : (setting == FORCE) ? PLAIT_OK
                                : ask_library();
}

/* ---- what was proved ---- */

/* Variables by which libraries turn to GPUs, or choose how they reach peers: a proof holds for one set of
 * values. */
static const char *const switches[] = {
    "MPICH_GPU_SUPPORT_ENABLED",
    "MPIR_CVAR_ENABLE_GPU",
    "MPIR_CVAR_CH4_NETMOD",
    "MPIR_CVAR_NOLOCAL",
    "MPIR_CVAR_NUM_CLIQUES",
    "MV2_USE_CUDA",
    "I_MPI_OFFLOAD",
    "OMPI_MCA_accelerator",
    "OMPI_MCA_opal_cuda_support",
    "OMPI_MCA_pml",
    "OMPI_MCA_mtl",
    "OMPI_MCA_btl",
    "UCX_TLS",
    "PSM2_CUDA",
    "FI_PROVIDER",
};

/* Cray MPI reads GPUs' memory by a library with which the program must be linked. */
static int is_gpu_layer(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    return info->dlpi_name != NULL && strstr(info->dlpi_name, "libmpi_gtl_") != NULL;
}

static void add(char key[KEY_BYTES], const char *name, const char *value)
{
    plait_text_append(key, KEY_BYTES, "; %s %s", name, value);
}

/* Writes the key as one line. */
static void write_key(const plait_device_t *device, plait_aware_distance_t distance,
                      char key[KEY_BYTES])
{
    const char *library = plait_mpi_library_path();
    char host[256] = "";
    char number[64];
    struct stat file = {.st_mtim = {.tv_sec = 0}};

    (void)gethostname(host, sizeof(host) - 1);
    (void)stat(library, &file);
    (void)snprintf(key, KEY_BYTES, "host %s", host);
    add(key, "MPI", library);
    (void)snprintf(number, sizeof(number), "%lld.%09ld", (long long)file.st_mtim.tv_sec,
                   (long)file.st_mtim.tv_nsec);
    add(key, "of", number);
    (void)snprintf(number, sizeof(number), "%d", device->table->driver(device));
    add(key, "driver", number);
    for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
        const char *value = getenv(switches[i]);
        if (value != NULL) {
            add(key, switches[i], value);
        }
    }
    if (dl_iterate_phdr(is_gpu_layer, NULL) != 0) {
        add(key, "with", "libmpi_gtl");
    }
    add(key, "ranks of", (distance == PLAIT_AWARE_NEAR) ? "one node" : "two nodes");
    for (char *at = key; *at != '\0'; at++) {
        if (*at == '\n') {
            *at = ' ';
        }
    }
}

/* False: there is no folder for the file. */
static bool name_file(const char *key, char *file, size_t n_bytes)
{
    const unsigned long long hash = plait_hash_bytes(PLAIT_HASH_SEED, key, strlen(key));
    char name[64];

    (void)snprintf(name, sizeof(name), "gpu-aware/%016llx", hash);
    return plait_cache_path(name, file, n_bytes);
}

plait_status_t plait_gpu_aware_key(int ordinal, int distance, char *key, int n_key,
                                   char *file, int n_file)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = NULL;
    char text[KEY_BYTES];

    PLAIT_TRY(plait_device_find(ordinal, &device));
    write_key(device, (plait_aware_distance_t)distance, text);
    PLAIT_CHECK((int)strlen(text) < n_key, PLAIT_ERR_INVALID, "%d bytes for a key",
                n_key);
    PLAIT_CHECK(
        name_file(text, file, (size_t)n_file), PLAIT_ERR_INVALID,
        "no folder for the proof: XDG_CACHE_HOME and HOME are not set, or the path "
        "is too long; set XDG_CACHE_HOME");
    memcpy(key, text, strlen(text) + 1);
done:
    return status;
}

static bool read_line(FILE *file, char *text, int n_bytes)
{
    bool is_there = fgets(text, n_bytes, file) != NULL;

    text[is_there ? strcspn(text, "\n") : 0] = '\0';
    return is_there;
}

/* A file that is incomplete, or has another key with the same hash, does not count. */
static plait_status_t find_proof(const plait_device_t *device,
                                 plait_aware_distance_t distance)
{
    plait_status_t status = PLAIT_OK;
    char path[PATH_MAX], key[KEY_BYTES], kept[KEY_BYTES];
    char answer[8] = "", why[100] = "";
    bool is_known = false;
    FILE *file = NULL;

    write_key(device, distance, key);
    file = name_file(key, path, sizeof(path)) ? fopen(path, "r") : NULL;
    if (file != NULL) {
        is_known = read_line(file, kept, KEY_BYTES) && strcmp(kept, key) == 0 &&
                   read_line(file, answer, sizeof(answer)) &&
                   read_line(file, why, sizeof(why));
        (void)fclose(file);
    }
    bool is_no = is_known && strcmp(answer, "no") == 0;
    PLAIT_CHECK(!is_no, PLAIT_ERR_UNSUPPORTED, "disproved by plait doctor: %s", why);
    PLAIT_CHECK(
        is_known && strcmp(answer, "yes") == 0, PLAIT_ERR_UNSUPPORTED,
        "not proved for ranks of %s under these settings: run plait doctor to prove it",
        (distance == PLAIT_AWARE_NEAR) ? "one node" : "two nodes");
done:
    return status;
}

/* ---- both ---- */

plait_status_t plait_gpu_aware_can(const plait_device_t *device, unsigned distances)
{
    plait_status_t status = PLAIT_OK;
    setting_t setting = setting_now();

    PLAIT_CHECK(setting != NEVER, PLAIT_ERR_UNSUPPORTED, "PLAIT_GPU_AWARE is 0");
    if (setting == UNKNOWN) {
        status = fail_unknown();
    }
    if (status == PLAIT_OK && setting != FORCE) {
        PLAIT_TRY(ask_library());
        for (unsigned bit = PLAIT_AWARE_NEAR; bit <= PLAIT_AWARE_FAR; bit *= 2) {
            if ((distances & bit) != 0) {
                PLAIT_TRY(find_proof(device, (plait_aware_distance_t)bit));
            }
        }
    }
done:
    return status;
}

plait_status_t plait_gpu_aware_may_stage(void)
{
    setting_t setting = setting_now();

    return (setting == UNKNOWN) ? fail_unknown()
           : (setting == MUST)
               ? plait_fail(PLAIT_ERR_UNSUPPORTED,
                            "PLAIT_GPU_AWARE is 1: MPI reads GPUs' memory, or the "
                            "operation fails")
               : PLAIT_OK;
}

const char *plait_gpu_aware_say(int ordinal)
{
    static _Thread_local char text[SAY_BYTES];
    plait_device_t *device = NULL;
    plait_status_t near = plait_device_find(ordinal, &device);

    near = (near == PLAIT_OK) ? plait_gpu_aware_can(device, PLAIT_AWARE_NEAR) : near;
    if (near != PLAIT_OK) {
        (void)snprintf(text, sizeof(text), "gets copies in host memory: %s",
                       plait_error_text());
    } else if (plait_gpu_aware_can(device, PLAIT_AWARE_FAR) != PLAIT_OK) {
        (void)snprintf(text, sizeof(text),
                       "reads it within a node; between nodes gets copies in host "
                       "memory: %s",
                       plait_error_text());
    } else {
        (void)snprintf(text, sizeof(text), "reads it");
    }
    if (near != PLAIT_OK && plait_gpu_aware_may_stage() != PLAIT_OK) {
        const size_t used = strlen(text);
        (void)snprintf(text + used, sizeof(text) - used, "\nrefused: %s",
                       plait_error_text());
    }
    return text;
}
