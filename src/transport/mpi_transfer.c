/* Takes transfers, and the numbers in their tags, and gives them back. */
#include "transport/mpi_transfer.h"

#include "base/alloc.h"
#include "transport/matched.h"

#include <string.h>

plait_mpi_transfer_t *plait_mpi_transfer_take(plait_mpi_link_t *link)
{
    (void)pthread_mutex_lock(&link->transfer_lock);
    plait_mpi_transfer_t *transfer = link->idle;
    if (transfer != NULL) {
        link->idle = transfer->next;
    }
    (void)pthread_mutex_unlock(&link->transfer_lock);
    return (transfer != NULL) ? transfer : plait_alloc(1, sizeof(*transfer));
}

void plait_mpi_transfer_give(plait_mpi_transfer_t *transfer)
{
    plait_mpi_link_t *link = transfer->link;

    (void)pthread_mutex_lock(&link->transfer_lock);
    transfer->next = link->idle;
    link->idle = transfer;
    (void)pthread_mutex_unlock(&link->transfer_lock);
}

void plait_mpi_transfers_free(plait_mpi_link_t *link)
{
    while (link->idle != NULL) {
        plait_mpi_transfer_t *transfer = link->idle;
        link->idle = transfer->next;
        plait_free(transfer->copy);
        plait_free(transfer);
    }
}

bool plait_mpi_transfer_has_copy(plait_mpi_transfer_t *t)
{
    if (t->copy == NULL) {
        t->copy = plait_alloc(PLAIT_SEND_BYTES, 1);
    }
    return t->copy != NULL;
}

void plait_mpi_transfer_reset(plait_mpi_transfer_t *t, plait_mpi_link_t *link,
                              const plait_half_t *send, const plait_half_t *recv)
{
    t->next = NULL;
    t->link = link;
    t->send = plait_half_is_given(send) ? send : NULL;
    t->recv = plait_half_is_given(recv) ? recv : NULL;
    t->send_stage = PLAIT_MPI_ENDED;
    t->recv_stage = PLAIT_MPI_ENDED;
    t->status = PLAIT_OK;
    memset(t->is_active, 0, sizeof(t->is_active));
    t->n_sent = 0;
    t->n_received = 0;
    t->n_bulk_in = 0;
    t->is_in_chunks = false;
    t->from = (plait_mpi_envelope_t){.source = PLAIT_NO_RANK, .tag = PLAIT_ANY};
}

/* The word with the number's bit. */
static _Atomic uint64_t *word_of(plait_mpi_link_t *link, uint32_t number)
{
    return &link->held_numbers[number % PLAIT_MPI_N_NUMBERS / 64];
}

/* There are fewer buffered sends (PLAIT_BUFFERED_BYTES), and fewer threads, than numbers. */
plait_status_t plait_mpi_number_take(plait_mpi_link_t *link, uint32_t *number_p)
{
    plait_status_t status = PLAIT_OK;
    bool is_taken = false;

    for (int i = 0; (i < PLAIT_MPI_N_NUMBERS) && !is_taken; i++) {
        const uint32_t number = atomic_fetch_add(&link->n_transfers, 1);
        const uint64_t bit = UINT64_C(1) << (number % 64);
        is_taken = (atomic_fetch_or(word_of(link, number), bit) & bit) == 0;
        *number_p = number;
    }
    PLAIT_CHECK(is_taken, PLAIT_ERR_COMM,
                "rank %d send: %d messages of this communicator have not ended, and it "
                "takes no more; most were given up, make a new communicator",
                link->rank, PLAIT_MPI_N_NUMBERS);
done:
    return status;
}

void plait_mpi_number_give(plait_mpi_link_t *link, uint32_t number)
{
    atomic_fetch_and(word_of(link, number), ~(UINT64_C(1) << (number % 64)));
}
