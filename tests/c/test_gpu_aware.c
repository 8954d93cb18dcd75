/* When MPI may get addresses of devices: the user, the library, and a proof decide. The MPI of this test is
 * functions of its own (the linker's --wrap), and its file is a new one. */
#include "check.h"
#include "device/find.h"
#include "folder.h"
#include "transport/gpu_aware.h"
#include "transport/mpi.h"
#include "transport/mpi_link.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256];
static char library[320];
static const char *host = "here";
static int driver_version = 13000;

const char *__wrap_plait_mpi_library_path(void);
bool __wrap_plait_mpi_lock(void);
plait_status_t __wrap_plait_mpi_unlock(int rank, const char *what, int code);
void *__wrap_plait_mpi_symbol(const char *name);
int __wrap_gethostname(char *name, size_t n);

const char *__wrap_plait_mpi_library_path(void)
{
    return library;
}

bool __wrap_plait_mpi_lock(void)
{
    return true;
}

plait_status_t __wrap_plait_mpi_unlock(int rank, const char *what, int code)
{
    (void)rank;
    (void)what;
    (void)code;
    return PLAIT_OK;
}

int __wrap_gethostname(char *name, size_t n)
{
    (void)snprintf(name, n, "%s", host);
    return 0;
}

/* ---- a library ---- */

static struct {
    bool has_kind, has_cuda;
    int code, kind_says, cuda_says;
} says;

static int query_kind(int kind, int *can_p)
{
    CHECK(kind == 0, "CUDA is 0, not %d", kind);
    *can_p = says.kind_says;
    return says.code;
}

static int query_cuda(void)
{
    return says.cuda_says;
}

void *__wrap_plait_mpi_symbol(const char *name)
{
    int (*of_kind)(int, int *) = query_kind;
    int (*of_cuda)(void) = query_cuda;
    void *address = NULL;

    if (strcmp(name, "MPIX_GPU_query_support") == 0 && says.has_kind) {
        memcpy(&address, &of_kind, sizeof(address));
    } else if (strcmp(name, "MPIX_Query_cuda_support") == 0 && says.has_cuda) {
        memcpy(&address, &of_cuda, sizeof(address));
    }
    return address;
}

static void check_library(void)
{
    for (int i = 0; i < 1 << 5; i++) {
        const bool has_kind = i & 1, has_cuda = i >> 1 & 1, fails = i >> 2 & 1;
        const bool kind_says = i >> 3 & 1, cuda_says = i >> 4 & 1;
        says.has_kind = has_kind;
        says.has_cuda = has_cuda;
        says.code = fails;
        says.kind_says = kind_says;
        says.cuda_says = cuda_says;
        const bool can = has_kind ? kind_says && !fails : !has_cuda || cuda_says;
        plait_status_t status = plait_gpu_aware_ask(__wrap_plait_mpi_symbol);
        CHECK(status == (can ? PLAIT_OK : PLAIT_ERR_UNSUPPORTED), "library %d: %d", i,
              (int)status);
        const char *name =
            has_kind ? "(MPIX_GPU_query_support)" : "(MPIX_Query_cuda_support)";
        CHECK(can || strstr(plait_error_text(), name) != NULL, "%s",
              plait_error_text());
        CHECK(plait_gpu_aware_worth_trying() == status, "library %d", i);
    }
}

/* ---- a device ---- */

static int driver(const plait_device_t *device)
{
    (void)device;
    return driver_version;
}

static const plait_device_table_t table = {.name = "test", .driver = driver};
static plait_device_t device = {.table = &table};

static plait_status_t find(int ordinal, plait_device_t **device_p)
{
    *device_p = &device;
    return (ordinal == 0) ? PLAIT_OK
                          : plait_fail(PLAIT_ERR_UNSUPPORTED, "no such device");
}

static void write_answer(int distance, const char *format, const char *answer)
{
    char key[4096], file[PATH_MAX], path[PATH_MAX];

    CHECK(plait_gpu_aware_key(0, distance, key, sizeof(key), file, sizeof(file)) ==
              PLAIT_OK,
          "key");
    (void)snprintf(path, sizeof(path), "%s/plait", folder);
    (void)mkdir(path, S_IRWXU);
    (void)snprintf(path, sizeof(path), "%s/plait/gpu-aware", folder);
    (void)mkdir(path, S_IRWXU);
    CHECK(strncmp(file, path, strlen(path)) == 0, "%s", file);
    FILE *out = fopen(file, "w");
    CHECK(out != NULL, "%s", file);
    if (out != NULL) {
        (void)fprintf(out, format, key, answer);
        (void)fclose(out);
    }
}

static void set_time(time_t seconds)
{
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};

    CHECK(utimensat(AT_FDCWD, library, times, 0) == 0, "%s", library);
}

static void expect(bool can, unsigned distances, const char *why)
{
    plait_status_t status = plait_gpu_aware_can(&device, distances);

    CHECK(status == (can ? PLAIT_OK : PLAIT_ERR_UNSUPPORTED), "%s: %d, %s", why,
          (int)status, plait_error_text());
    CHECK(can || strstr(plait_error_text(), why) != NULL, "%s: %s", why,
          plait_error_text());
}

/* An answer holds for the setup that it was found with. */
static void check_proof(void)
{
    enum { BOTH = PLAIT_AWARE_NEAR | PLAIT_AWARE_FAR };
    static const char whole[] = "%s\n%s\nbecause\n";
    static const char near[] = "not proved for ranks of one node";
    static const char far[] = "not proved for ranks of two nodes";

    says.has_kind = true;
    says.kind_says = 1;
    says.code = 0;
    expect(false, PLAIT_AWARE_NEAR, near);
    write_answer(PLAIT_AWARE_NEAR, whole, "yes");
    expect(true, PLAIT_AWARE_NEAR, "proved");
    expect(true, 0, "one rank alone");
    expect(false, PLAIT_AWARE_FAR, far);
    expect(false, BOTH, far);
    write_answer(PLAIT_AWARE_FAR, whole, "yes");
    expect(true, BOTH, "both");
    set_time(2000);
    expect(false, BOTH, near);
    set_time(1000);
    driver_version++;
    expect(false, BOTH, near);
    driver_version--;
    host = "there";
    expect(false, BOTH, near);
    host = "here";
    (void)setenv("UCX_TLS", "tcp", 1);
    expect(false, BOTH, near);
    (void)unsetenv("UCX_TLS");
    (void)setenv("MPICH_GPU_SUPPORT_ENABLED", "1\n", 1);
    expect(false, BOTH, near);
    write_answer(PLAIT_AWARE_NEAR, whole, "yes");
    expect(true, PLAIT_AWARE_NEAR, "a value of two lines");
    (void)unsetenv("MPICH_GPU_SUPPORT_ENABLED");
    (void)setenv("UNKNOWN_TO_MPI", "1", 1);
    expect(true, BOTH, "all as it was");
    (void)unsetenv("UNKNOWN_TO_MPI");
    says.kind_says = 0;
    expect(false, BOTH, "MPI says that it does not");
    says.kind_says = 1;
    write_answer(PLAIT_AWARE_NEAR, whole, "no");
    expect(false, BOTH, "disproved by plait doctor: because");
    write_answer(PLAIT_AWARE_NEAR, "%s\n%s\n", "yes");
    expect(false, BOTH, near);
    write_answer(PLAIT_AWARE_NEAR, "other than %s\n%s\nbecause\n", "yes");
    expect(false, BOTH, near);
    write_answer(PLAIT_AWARE_NEAR, "", "yes");
    expect(false, BOTH, near);
    write_answer(PLAIT_AWARE_NEAR, whole, "yes");
    expect(true, BOTH, "whole again");
}

static void check_say(const char *setting, const char *expected)
{
    if (setting != NULL) {
        (void)setenv("PLAIT_GPU_AWARE", setting, 1);
    } else {
        (void)unsetenv("PLAIT_GPU_AWARE");
    }
    const char *said = plait_gpu_aware_say(0);
    CHECK(strstr(said, expected) != NULL, "PLAIT_GPU_AWARE %s: %s",
          (setting != NULL) ? setting : "", said);
}

static void check_setting(void)
{
    enum { BOTH = PLAIT_AWARE_NEAR | PLAIT_AWARE_FAR };

    check_say(NULL, "reads it");
    check_say("", "reads it");
    CHECK(plait_gpu_aware_may_stage() == PLAIT_OK, "may stage");
    check_say("AUTO", "reads it");
    check_say("0", "gets copies in host memory: PLAIT_GPU_AWARE is 0");
    expect(false, BOTH, "PLAIT_GPU_AWARE is 0");
    CHECK(plait_gpu_aware_may_stage() == PLAIT_OK, "may stage");
    check_say("1", "reads it");
    expect(true, BOTH, "1 and proved");
    CHECK(plait_gpu_aware_may_stage() == PLAIT_ERR_UNSUPPORTED, "1");
    driver_version++;
    check_say("1", "\nrefused: PLAIT_GPU_AWARE is 1");
    check_say("auto", "gets copies in host memory: not proved for ranks of one node");
    write_answer(PLAIT_AWARE_NEAR, "%s\n%s\nbecause\n", "yes");
    check_say("auto",
              "reads it within a node; between nodes gets copies in host memory: "
              "not proved for ranks of two nodes");
    driver_version--;
    says.kind_says = 0;
    check_say("force", "reads it");
    expect(true, BOTH, "forced");
    CHECK(plait_gpu_aware_worth_trying() == PLAIT_OK, "forced");
    CHECK(plait_gpu_aware_may_stage() == PLAIT_OK, "forced");
    check_say("true", "PLAIT_GPU_AWARE is 'true': expected auto, 0, 1 or force");
    CHECK(plait_gpu_aware_may_stage() == PLAIT_ERR_UNSUPPORTED, "unknown");
    CHECK(plait_gpu_aware_worth_trying() == PLAIT_ERR_UNSUPPORTED, "unknown");
    (void)unsetenv("PLAIT_GPU_AWARE");
    says.kind_says = 1;
    CHECK(strcmp(plait_gpu_aware_say(1),
                 "gets copies in host memory: no such device") == 0,
          "%s", plait_gpu_aware_say(1));
}

static void check_key(void)
{
    char key[4096], file[PATH_MAX];

    CHECK(plait_gpu_aware_key(0, PLAIT_AWARE_NEAR, key, 8, file, sizeof(file)) ==
              PLAIT_ERR_INVALID,
          "no room for the key");
    CHECK(plait_gpu_aware_key(0, PLAIT_AWARE_NEAR, key, sizeof(key), file, 8) ==
              PLAIT_ERR_INVALID,
          "no room for the file");
    CHECK(plait_gpu_aware_key(1, PLAIT_AWARE_NEAR, key, sizeof(key), file,
                              sizeof(file)) == PLAIT_ERR_UNSUPPORTED,
          "no device");
    (void)unsetenv("XDG_CACHE_HOME");
    (void)setenv("HOME", "/home/somebody", 1);
    CHECK(plait_gpu_aware_key(0, PLAIT_AWARE_NEAR, key, sizeof(key), file,
                              sizeof(file)) == PLAIT_OK &&
              strstr(file, "/home/somebody/.cache/plait/gpu-aware/") == file,
          "%s", file);
    (void)unsetenv("HOME");
    CHECK(plait_gpu_aware_key(0, PLAIT_AWARE_NEAR, key, sizeof(key), file,
                              sizeof(file)) == PLAIT_ERR_INVALID,
          "nowhere");
    expect(false, PLAIT_AWARE_NEAR, "not proved for ranks of one node");
}

int main(void)
{
    char command[320];

    make_folder("plait-aware", folder, sizeof(folder));
    (void)snprintf(library, sizeof(library), "%s/libmpi.so", folder);
    (void)fclose(fopen(library, "w"));
    set_time(1000);
    (void)setenv("XDG_CACHE_HOME", folder, 1);
    (void)unsetenv("PLAIT_GPU_AWARE");
    plait_device_set_finder(find);
    check_library();
    check_proof();
    check_setting();
    check_key();
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    CHECK(system(command) == 0, "%s", command);
    return report("test_gpu_aware");
}
