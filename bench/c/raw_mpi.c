/* MPI's own blocking calls, timed in C, in the MPI library that mpi4py has loaded:
 * through ctypes in the processes that also run plait, so that both take turns. Handles
 * come as the integers of mpi4py's MPI._handleof: an int or a pointer, either fits its
 * register. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

typedef int allreduce_t(const void *x, void *y, int n, uintptr_t dtype, uintptr_t op,
                        uintptr_t comm);
typedef int sendrecv_t(const void *x, int n_send, uintptr_t send_dtype, int dest,
                       int tag, void *y, int n_recv, uintptr_t recv_dtype, int source,
                       int recv_tag, uintptr_t comm, void *status);

static allreduce_t *allreduce;
static sendrecv_t *sendrecv;

/* library: of mpi4py's extension module, whose dependencies hold the MPI. 0 if found.
 */
int raw_open(const char *library)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);

    if (handle == NULL) {
        return 1;
    }
    *(void **)&allreduce = dlsym(handle, "MPI_Allreduce");
    *(void **)&sendrecv = dlsym(handle, "MPI_Sendrecv");
    return allreduce == NULL || sendrecv == NULL;
}

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds for n_calls; negative where MPI reports an error. */
double raw_allreduce(int n_calls, const void *x, void *y, int n, uintptr_t dtype,
                     uintptr_t op, uintptr_t comm)
{
    const double begin = seconds();

    for (int i = 0; i < n_calls; i++) {
        if (allreduce(x, y, n, dtype, op, comm) != 0) {
            return -1;
        }
    }
    return seconds() - begin;
}

double raw_sendrecv(int n_calls, const void *x, void *y, int n, uintptr_t dtype,
                    int peer, uintptr_t comm)
{
    const double begin = seconds();
    int64_t status[32]; /* larger than the MPI_Status of any ABI */

    for (int i = 0; i < n_calls; i++) {
        if (sendrecv(x, n, dtype, peer, 1, y, n, dtype, peer, 1, comm, status) != 0) {
            return -1;
        }
    }
    return seconds() - begin;
}
