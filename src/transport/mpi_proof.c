/* Whether MPI moves large arrays where the system does not let processes read each other's memory, as in
 * containers without the permission and by seccomp. MPICH 5.0 reads it all the same and does not look whether that
 * was refused: an iallreduce ends well, and has added nothing. So one is tried where this process finds its
 * neighbour's memory unreadable, or does not look (PLAIT_DIRECT=off). Up to that nothing is sent that is not small. */
#include "base/alloc.h"
#include "transport/mpi_link.h"
#include "transport/node_copy.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of one rank: pieces that algorithms cut a reduction into are then larger than what MPI copies twice. */
enum { PROOF_BYTES_PER_RANK = 64 << 10, PERIOD = 1024 };

typedef struct {
    int32_t node_first;
    int32_t pid;
    uint64_t address;
    uint64_t nonce;
} neighbour_t;

static plait_status_t show(plait_mpi_link_t *link, const void *mine, void *every,
                           int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    uint64_t request = 0;

    PLAIT_TRY(PLAIT_MPI_CALL(
        link->rank, "open",
        link->mpi->iallgather(mine, n_bytes, every, link->control, &request)));
    PLAIT_TRY(plait_mpi_wait(link, "open: neighbours", PLAIT_ANY, 0, 1, &request));
done:
    return status;
}

/* The next rank of this node, round and round; this one where there is no other. */
static int neighbour_of(const plait_mpi_link_t *link, const neighbour_t *every)
{
    int r = link->rank;

    do {
        r = (r + 1) % link->size;
    } while (every[r].node_first != every[link->rank].node_first);
    return r;
}

/* Small integers, whose sums are exact. */
static bool reduces(plait_mpi_link_t *link, double *x, double *y, int64_t n)
{
    plait_status_t status = PLAIT_OK;
    uint64_t request = 0;
    const double of_ranks = 0.5 * link->size * (link->size - 1);
    bool is_right = true;

    for (int64_t i = 0; i < n; i++) {
        x[i] = (double)(i % PERIOD + link->rank);
    }
    PLAIT_TRY(PLAIT_MPI_CALL(link->rank, "open",
                             link->mpi->iallreduce(x, y, n, PLAIT_F64, PLAIT_SUM,
                                                   link->matched, &request)));
    PLAIT_TRY(
        plait_mpi_wait(link, "open: a large allreduce", PLAIT_ANY, 0, 1, &request));
    for (int64_t i = 0; i < n; i++) {
        is_right = is_right && y[i] == (double)(i % PERIOD) * link->size + of_ranks;
    }
done:
    return status == PLAIT_OK && is_right;
}

/* The first rank that says yes, known to all; PLAIT_ANY: none does. */
static plait_status_t ask(plait_mpi_link_t *link, int32_t answers[], bool says_yes,
                          int *first_p)
{
    plait_status_t status = PLAIT_OK;

    answers[link->size] = says_yes;
    PLAIT_TRY(show(link, &answers[link->size], answers, sizeof(*answers)));
    *first_p = PLAIT_ANY;
    for (int r = link->size - 1; r >= 0; r--) {
        *first_p = (answers[r] != 0) ? r : *first_p;
    }
done:
    return status;
}

/* error: what this rank was refused with; 0: it does not know. */
static plait_status_t try_large(plait_mpi_link_t *link, int32_t answers[], int error)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n = PROOF_BYTES_PER_RANK / (int64_t)sizeof(double) * link->size;
    double *x = plait_alloc(2 * n, sizeof(*x));
    int who = PLAIT_ANY;

    PLAIT_TRY(ask(link, answers, x == NULL, &who));
    PLAIT_CHECK(who == PLAIT_ANY, PLAIT_ERR_NO_MEMORY,
                "no memory on rank %d to try whether MPI moves large arrays", who);
    PLAIT_TRY(ask(link, answers, !reduces(link, x, x + n, n), &who));
    PLAIT_CHECK(
        who == PLAIT_ANY, PLAIT_ERR_TRANSPORT,
        "an allreduce of %lld bytes by MPI is wrong on rank %d: processes may not "
        "read each other's memory here%s%s, and MPI does not see that. Give them the "
        "permission, or have MPI do without before it starts: MPICH by "
        "MPIR_CVAR_CH4_CMA_ENABLE=0, which `plait run` sets",
        (long long)n * (long long)sizeof(double), who, (error > 0) ? ": " : "",
        (error > 0) ? strerror(error) : "");
done:
    if (!atomic_load(&link->is_stuck)) {
        plait_free(x);
    }
    return status;
}

plait_status_t plait_mpi_prove(plait_mpi_link_t *link, int node_first, bool is_off)
{
    plait_status_t status = PLAIT_OK;
    const int size = link->size;
    neighbour_t *every = plait_alloc(size + 1, sizeof(*every));
    int32_t *answers = plait_alloc(size + 1, sizeof(*answers));
    int error = 0;
    int who = PLAIT_ANY;

    PLAIT_CHECK(every != NULL && answers != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for a communicator of %d ranks", size);
    every[size] = (neighbour_t){.node_first = node_first,
                                .pid = (int32_t)getpid(),
                                .address = (uint64_t)(uintptr_t)&link->nonce,
                                .nonce = link->nonce};
    PLAIT_TRY(show(link, &every[size], every, sizeof(*every)));
    const int neighbour = neighbour_of(link, every);
    if (neighbour != link->rank && !is_off) {
        error = plait_node_probe(every[neighbour].pid, every[neighbour].address,
                                 every[neighbour].nonce);
    }
    PLAIT_TRY(
        ask(link, answers, error != 0 || (is_off && neighbour != link->rank), &who));
    if (who != PLAIT_ANY) {
        PLAIT_TRY(try_large(link, answers, error));
    }
done:
    if (!atomic_load(&link->is_stuck)) {
        plait_free(every);
        plait_free(answers);
    }
    return status;
}
