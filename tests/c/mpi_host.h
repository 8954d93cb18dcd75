/* Does what a program that runs MPI would do: loads a library and initialises it. Without mpi.h, handles are
 * passed as their bits, which all ABIs take in a register. */
#ifndef PLAIT_TESTS_MPI_HOST_H
#define PLAIT_TESTS_MPI_HOST_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    void *library;
    int level; /* MULTIPLE in this ABI */
    uint64_t f64, sum, self;
    void *status_ignore;
    int (*init_thread)(int *, char ***, int, int *);
    int (*finalize)(void);
    int (*comm_dup)(uintptr_t, uint64_t *);
    int (*comm_split)(uintptr_t, int, int, uint64_t *);
    int (*comm_free)(uint64_t *);
    int (*barrier)(uintptr_t);
    int (*allreduce)(const void *, void *, int, uintptr_t, uintptr_t, uintptr_t);
    int (*sendrecv)(const void *, int, uintptr_t, int, int, void *, int, uintptr_t, int,
                    int, uintptr_t, void *);
} host_t;

static host_t host;

/* The part of many cases that comes next, the same on all ranks. Each MPI begins with another part. */
enum { HOST_PARTS = 4 };

static inline int host_next_part(void)
{
    static int n_taken = 0;
    const char *turn = getenv("PLAIT_TEST_TURN");

    return (((turn != NULL) ? atoi(turn) : 0) + n_taken++) % HOST_PARTS;
}

static inline void host_find(const char *name, void *function_p)
{
    void *address = dlsym(host.library, name);

    if (address == NULL) {
        printf("the library has no %s\n", name);
        exit(2);
    }
    memcpy(function_p, &address, sizeof(address));
}

static inline void host_constants(void)
{
    int (*abi)(int *, int *) = NULL;
    void *address = dlsym(host.library, "MPI_Abi_get_version");
    int major = 0;
    int minor = 0;

    memcpy(&abi, &address, sizeof(address));
    if (abi != NULL) {
        (void)abi(&major, &minor);
    }
    host.level = (major > 0) ? 4096 : 3;
    host.f64 = (major > 0) ? 0x214 : 0x4c00080b;
    host.sum = (major > 0) ? 0x21 : 0x58000003;
    host.self = (major > 0) ? 0x102 : 0x44000001;
    host.status_ignore = (major > 0) ? NULL : (void *)1;
    if (dlsym(host.library, "ompi_mpi_comm_world") != NULL) {
        host.f64 = (uintptr_t)dlsym(host.library, "ompi_mpi_double");
        host.sum = (uintptr_t)dlsym(host.library, "ompi_mpi_op_sum");
        host.self = (uintptr_t)dlsym(host.library, "ompi_mpi_comm_self");
        host.status_ignore = NULL;
    }
}

/* argv[1] or PLAIT_TEST_LIBMPI names the library. RTLD_LOCAL as in Python. */
static inline void host_load(int argc, char **argv)
{
    const char *path = (argc > 1) ? argv[1] : getenv("PLAIT_TEST_LIBMPI");

    host.library = (path != NULL) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (host.library == NULL) {
        printf("no MPI library: %s\n",
               (path != NULL) ? dlerror() : "PLAIT_TEST_LIBMPI is unset");
        exit(2);
    }
    host_find("MPI_Init_thread", &host.init_thread);
    host_find("MPI_Finalize", &host.finalize);
    host_find("MPI_Comm_dup", &host.comm_dup);
    host_find("MPI_Comm_split", &host.comm_split);
    host_find("MPI_Comm_free", &host.comm_free);
    host_find("MPI_Barrier", &host.barrier);
    host_find("MPI_Allreduce", &host.allreduce);
    host_find("MPI_Sendrecv", &host.sendrecv);
    host_constants();
}

static inline void host_init(void)
{
    int provided = 0;
    const char *wanted = getenv("PLAIT_TEST_LEVEL"); /* 1 or 2 instead of 3, MULTIPLE */
    int level = host.level;

    if (wanted != NULL) {
        level = (host.level == 4096) ? 512 << atoi(wanted) : atoi(wanted);
    }
    (void)host.init_thread(NULL, NULL, level, &provided);
    fprintf(stderr, "MPI has started\n"); /* run_mpi.py counts these */
}

#endif
