/* Where the source and tag of a received message are reported: MPI_Status objects of the
 * caller's, known to programs by a small id (an address in a program would make ranks
 * compile different ones). */
#ifndef PLAIT_TRANSPORT_MATCHED_H
#define PLAIT_TRANSPORT_MATCHED_H

#include "transport/transport.h"

/* Writes a matched message into an MPI_Status of the bound MPI. */
typedef void (*plait_status_fill_t)(void *mpi_status, const plait_matched_t *matched);

void plait_matched_set_fill(plait_status_fill_t fill);

/* mpi_status is kept until the process ends or plait_matched_forget; ids start at 1. */
PLAIT_EXPORT plait_status_t plait_matched_keep(void *mpi_status, int64_t *id_p);
PLAIT_EXPORT void plait_matched_forget(int64_t id);

void plait_matched_report(int64_t id, const plait_matched_t *matched);

#endif
