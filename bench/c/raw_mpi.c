/* MPI's own blocking calls, timed in C, in the MPI library that mpi4py has loaded:
 * through ctypes in the processes that also run plait, so that both take turns. Handles
 * come as the integers of mpi4py's MPI._handleof: an int or a pointer, either fits its
 * register. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

/* What a call needs; n items in each block. */
typedef struct {
    const void *x;
    void *y;
    int n;
    uintptr_t dtype, op, comm;
    int rank, peer;
} call_t;

typedef int combine_t(const void *x, void *y, int n, uintptr_t dtype, uintptr_t op,
                      uintptr_t comm);
typedef int reduce_t(const void *x, void *y, int n, uintptr_t dtype, uintptr_t op,
                     int root, uintptr_t comm);
typedef int exchange_t(const void *x, int n, uintptr_t dtype, void *y, int m,
                       uintptr_t to, uintptr_t comm);
typedef int rooted_t(const void *x, int n, uintptr_t dtype, void *y, int m,
                     uintptr_t to, int root, uintptr_t comm);
typedef int bcast_t(void *x, int n, uintptr_t dtype, int root, uintptr_t comm);
typedef int barrier_t(uintptr_t comm);
typedef int send_t(const void *x, int n, uintptr_t dtype, int dest, int tag,
                   uintptr_t comm);
typedef int recv_t(void *y, int n, uintptr_t dtype, int source, int tag, uintptr_t comm,
                   void *status);
typedef int sendrecv_t(const void *x, int n_send, uintptr_t send_dtype, int dest,
                       int tag, void *y, int n_recv, uintptr_t recv_dtype, int source,
                       int recv_tag, uintptr_t comm, void *status);

static void *library;
static int64_t status[32]; /* larger than the MPI_Status of any ABI */

static void *find(const char *name)
{
    return dlsym(library, name);
}

static int run_combine(void *mpi, const call_t *c, int i)
{
    (void)i;
    return ((combine_t *)mpi)(c->x, c->y, c->n, c->dtype, c->op, c->comm);
}

static int run_reduce(void *mpi, const call_t *c, int i)
{
    return ((reduce_t *)mpi)(c->x, c->y, c->n, c->dtype, c->op, i % 2, c->comm);
}

static int run_exchange(void *mpi, const call_t *c, int i)
{
    (void)i;
    return ((exchange_t *)mpi)(c->x, c->n, c->dtype, c->y, c->n, c->dtype, c->comm);
}

static int run_rooted(void *mpi, const call_t *c, int i)
{
    return ((rooted_t *)mpi)(c->x, c->n, c->dtype, c->y, c->n, c->dtype, i % 2,
                             c->comm);
}

static int run_bcast(void *mpi, const call_t *c, int i)
{
    return ((bcast_t *)mpi)(c->y, c->n, c->dtype, i % 2, c->comm);
}

static int run_barrier(void *mpi, const call_t *c, int i)
{
    (void)i;
    return ((barrier_t *)mpi)(c->comm);
}

static int run_sendrecv(void *mpi, const call_t *c, int i)
{
    (void)i;
    return ((sendrecv_t *)mpi)(c->x, c->n, c->dtype, c->peer, 1, c->y, c->n, c->dtype,
                               c->peer, 1, c->comm, status);
}

/* There in even calls, back in odd ones. */
static int run_send(void *mpi, const call_t *c, int i)
{
    recv_t *recv = (recv_t *)find("MPI_Recv");

    return (c->rank == i % 2)
               ? ((send_t *)mpi)(c->x, c->n, c->dtype, c->peer, 1, c->comm)
               : recv(c->y, c->n, c->dtype, c->peer, 1, c->comm, status);
}

static const struct {
    const char *name, *function;
    int (*run)(void *mpi, const call_t *c, int i);
} calls[] = {
    {"allreduce", "MPI_Allreduce", run_combine},
    {"scan", "MPI_Scan", run_combine},
    {"reduce_scatter", "MPI_Reduce_scatter_block", run_combine},
    {"reduce", "MPI_Reduce", run_reduce},
    {"allgather", "MPI_Allgather", run_exchange},
    {"alltoall", "MPI_Alltoall", run_exchange},
    {"gather", "MPI_Gather", run_rooted},
    {"scatter", "MPI_Scatter", run_rooted},
    {"bcast", "MPI_Bcast", run_bcast},
    {"barrier", "MPI_Barrier", run_barrier},
    {"sendrecv", "MPI_Sendrecv", run_sendrecv},
    {"send", "MPI_Send", run_send},
};

/* extension: mpi4py's module, whose dependencies hold the MPI. 0 if found. */
int raw_open(const char *extension)
{
    library = dlopen(extension, RTLD_LAZY | RTLD_NOLOAD);
    return library == NULL || find("MPI_Allreduce") == NULL;
}

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds for n_calls; negative where there is no such call or MPI reports an error. Rooted
 * calls change the root in turns, so that they are measured there and back. */
double raw_call(const char *name, int n_calls, const void *x, void *y, int n,
                uintptr_t dtype, uintptr_t op, uintptr_t comm, int rank, int peer)
{
    const call_t call = {x, y, n, dtype, op, comm, rank, peer};
    double spent = -1;

    for (size_t k = 0; k < sizeof(calls) / sizeof(calls[0]); k++) {
        if (strcmp(calls[k].name, name) == 0) {
            void *mpi = find(calls[k].function);
            const double begin = seconds();
            int error = 0;
            for (int i = 0; i < n_calls && error == 0; i++) {
                error = calls[k].run(mpi, &call, i);
            }
            spent = (error == 0) ? seconds() - begin : -1;
        }
    }
    return spent;
}
