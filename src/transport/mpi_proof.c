/* Tests whether MPI moves large arrays correctly where the system does not let processes read each other's
 * memory, as in containers without the permission, or under seccomp. MPICH 5.0 tries to read it nevertheless
 * and does not check whether this was refused: an iallreduce reports success and has added nothing. So an
 * iallreduce is tried if this process finds its neighbour's memory unreadable, or does not look
 * (PLAIT_DIRECT=off). Every process does this once, before anything large is sent. */
#include "base/alloc.h"
#include "transport/mpi_link.h"
#include "transport/node_copy.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* For each rank of a node, since algorithms divide a reduction among the ranks of a node: such a piece is
 * larger than what MPICH copies twice by default (16 KiB). */
enum { BYTES_PER_RANK = 64 << 10, PERIOD = 1024 };

/* MPI has carried a large allreduce in this process. */
static _Atomic bool is_proved;

typedef struct {
    int32_t node_first;
    int32_t pid;
    uint64_t address;
    uint64_t nonce;
} neighbour_t;

static plait_status_t show(plait_mpi_link_t *link, const void *mine, void *every,
                           int64_t n_bytes)
{
    return plait_mpi_show(link, "open: look at neighbours", mine, every, n_bytes);
}

/* The next rank of this node, cyclically; this rank if there is no other. */
static int neighbour_of(const plait_mpi_link_t *link, const neighbour_t *every)
{
    int r = link->rank;

    do {
        r = (r + 1) % link->size;
    } while (every[r].node_first != every[link->rank].node_first);
    return r;
}

/* Number of ranks of the largest node. */
static int largest_node(const plait_mpi_link_t *link, const neighbour_t *every,
                        int32_t counts[])
{
    int most = 0;

    memset(counts, 0, (size_t)link->size * sizeof(counts[0]));
    for (int r = 0; r < link->size; r++) {
        int32_t n = ++counts[every[r].node_first];
        most = (n > most) ? n : most;
    }
    return most;
}

/* An allreduce of small integers, whose sums are exact. */
static plait_status_t reduce(plait_mpi_link_t *link, double *x, double *y, int64_t n,
                             bool *is_right_p)
{
    plait_status_t status = PLAIT_OK;
    uint64_t request = 0;
    const double of_ranks = 0.5 * link->size * (link->size - 1);

    *is_right_p = false;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (double)(i % PERIOD + link->rank);
    }
    PLAIT_TRY(PLAIT_MPI_CALL(
        link->rank, "open",
        link->mpi->iallreduce(x, y, n, PLAIT_F64, PLAIT_SUM, link->matched, &request)));
    PLAIT_TRY(plait_mpi_wait(link, "open: a large allreduce", PLAIT_ANY, 0, NULL, 1,
                             &request));
    *is_right_p = true;
    for (int64_t i = 0; i < n; i++) {
        *is_right_p =
            *is_right_p && y[i] == (double)(i % PERIOD) * link->size + of_ranks;
    }
done:
    return status;
}

/* The first rank that says yes, known to all ranks; PLAIT_ANY: no rank does. */
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

/* n_pieces: the number of pieces into which the allreduce may be divided; error: the error with which this rank
 * was refused; 0: not known. */
static plait_status_t try_large(plait_mpi_link_t *link, int32_t answers[], int n_pieces,
                                int error)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n = (int64_t)n_pieces * BYTES_PER_RANK / (int64_t)sizeof(double);
    double *x = plait_alloc(2 * n, sizeof(*x));
    bool is_right = false;
    int who = PLAIT_ANY;

    PLAIT_TRY(ask(link, answers, x == NULL, &who));
    PLAIT_CHECK(who == PLAIT_ANY, PLAIT_ERR_NO_MEMORY,
                "no memory on rank %d to try whether MPI moves large arrays", who);
    const plait_status_t ended = reduce(link, x, x + n, n, &is_right);
    /* after a failure that is not MPI's own, the others do not come: they are not asked */
    PLAIT_TRY(ended == PLAIT_ERR_TRANSPORT ? PLAIT_OK : ended);
    PLAIT_TRY(ask(link, answers, !is_right, &who));
    PLAIT_CHECK(
        who == PLAIT_ANY, PLAIT_ERR_TRANSPORT,
        "MPI cannot carry an allreduce of %lld bytes: on rank %d it fails or is wrong. "
        "Processes %s read each other's memory here%s%s, and MPI does not see that. "
        "Give them the permission, or have MPI do without it: for MPICH, set "
        "MPIR_CVAR_CH4_CMA_ENABLE=0 in the environment before it starts (`plait run` "
        "sets it only where its own processes may not)",
        (long long)n * (long long)sizeof(double), who,
        (error > 0) ? "may not" : "perhaps may not", (error > 0) ? ": " : "",
        (error > 0) ? strerror(error) : "");
    atomic_store(&is_proved, true);
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
    bool is_alone = neighbour == link->rank;
    if (!is_alone && !is_off) {
        error = plait_node_probe(every[neighbour].pid, every[neighbour].address,
                                 every[neighbour].nonce);
    }
    bool asks = !is_alone && (is_off || error != 0) && !atomic_load(&is_proved);
    PLAIT_TRY(ask(link, answers, asks, &who));
    if (who != PLAIT_ANY) {
        PLAIT_TRY(try_large(link, answers, largest_node(link, every, answers), error));
    }
done:
    if (!atomic_load(&link->is_stuck)) {
        plait_free(every);
        plait_free(answers);
    }
    return status;
}
