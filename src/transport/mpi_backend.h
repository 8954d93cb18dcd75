/* MPI as a table of functions in which handles are plain bits. This is all that the other files here see of the
 * MPI that the process runs. Each function is one function of MPI. It returns MPI's error code (0: success) and
 * is called under the lock of transport/mpi_link.h. */
#ifndef PLAIT_TRANSPORT_MPI_BACKEND_H
#define PLAIT_TRANSPORT_MPI_BACKEND_H

#include "plait/dtype.h"
#include "plait/reduce.h"
#include "plait/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest texts of any ABI: error strings are 256 to 512 bytes, version strings 8192.
 */
enum { PLAIT_MPI_TEXT_BYTES = 1024, PLAIT_MPI_VERSION_BYTES = 16384 };

/* The MPI constants that callers need, in this form in every ABI. */
enum {
    PLAIT_MPI_NOBODY = -2, /* PLAIT_PROC_NULL */
    PLAIT_MPI_ANY_RANK = -1,
    PLAIT_MPI_ANY_TAG = -1
};

typedef enum {
    PLAIT_MPI_SINGLE,
    PLAIT_MPI_FUNNELED,
    PLAIT_MPI_SERIALIZED,
    PLAIT_MPI_MULTIPLE
} plait_mpi_level_t;

typedef struct {
    int source;
    int tag;
    int64_t n_bytes;
} plait_mpi_envelope_t;

/* Called with the value of a communicator's attribute when the communicator is freed. */
typedef void (*plait_mpi_deleted_t)(uintptr_t value);

typedef struct {
    const char *abi;

    /* Looks up the functions and constants. UNSUPPORTED, naming the first that is missing. */
    plait_status_t (*load)(void *library);

    uint64_t (*comm_world)(void);
    uint64_t (*comm_self)(void);
    uint64_t (*comm_null)(void);

    /* Allowed before MPI_Init and after MPI_Finalize. */
    int (*state)(bool *is_initialized_p, bool *is_finalized_p);
    int (*library_version)(char text[PLAIT_MPI_VERSION_BYTES]);
    void (*error_text)(int code, char text[PLAIT_MPI_TEXT_BYTES]);
    /* Whether the error is of a message that was longer than its receive buffer. */
    bool (*is_truncation)(int code);

    int (*thread_level)(plait_mpi_level_t *level_p);
    int (*comm_facts)(uint64_t comm, int *size_p, int *rank_p, bool *is_inter_p);
    /* Numbers in MPI_COMM_WORLD of n of the communicator's ranks. */
    int (*comm_members)(uint64_t comm, int n, const int32_t ranks[], int32_t members[]);
    /* *slot_p lives until the request is done; only then comm_in(slot_p) is the duplicate. */
    int (*comm_idup)(uint64_t comm, uint64_t *slot_p, uint64_t *request_p);
    uint64_t (*comm_in)(const uint64_t *slot_p);
    int (*comm_free)(uint64_t comm);
    int (*comm_return_errors)(uint64_t comm);
    /* Collective, blocking: the number of ranks that share memory with this rank, itself included, and the
     * first of them. */
    int (*comm_node)(uint64_t comm, int rank, int *size_p, int *first_p);

    int (*keyval_create)(plait_mpi_deleted_t deleted, int *keyval_p);
    int (*keyval_free)(int keyval);
    int (*attribute_set)(uint64_t comm, int keyval, uintptr_t value);
    int (*attribute_has)(uint64_t comm, int keyval, bool *is_there_p);
    int (*attribute_delete)(uint64_t comm, int keyval);

    /* Largest tag of a message, from MPI_COMM_WORLD's attribute MPI_TAG_UB; unchanged if there is no such
     * attribute. */
    int (*max_tag)(int *tag_p);
    /* Largest count of the functions below: INT_MAX, or INT64_MAX where MPI has *_c. */
    int64_t (*max_count)(void);
    int (*isend)(const void *data, int64_t n_bytes, int peer, int tag, uint64_t comm,
                 uint64_t *request_p);
    int (*irecv)(void *data, int64_t n_bytes, int peer, int tag, uint64_t comm,
                 uint64_t *request_p);
    /* x may equal y. The caller passes only pairs that MPI defines. */
    int (*iallreduce)(const void *x, void *y, int64_t n, plait_dtype_t dtype,
                      plait_reduce_t op, uint64_t comm, uint64_t *request_p);
    int (*ibcast)(void *data, int64_t n_bytes, int root, uint64_t comm,
                  uint64_t *request_p);
    int (*iallgather)(const void *x, int64_t n_bytes, void *y, uint64_t comm,
                      uint64_t *request_p);
    int (*ibarrier)(uint64_t comm, uint64_t *request_p);
    /* envelope_p may be NULL; it is set when the request is done. */
    int (*test)(uint64_t *request_p, bool *is_done_p, plait_mpi_envelope_t *envelope_p);
    int (*cancel)(uint64_t *request_p);
    /* Whether a message with this tag (negative: any) waits to be received; if so, its envelope. */
    int (*iprobe)(uint64_t comm, int tag, bool *is_there_p,
                  plait_mpi_envelope_t *envelope_p);

    /* y = x op y, without communication. */
    int (*reduce_local)(const void *x, void *y, int n, plait_dtype_t dtype,
                        plait_reduce_t op);

    /* Writes a message's source, tag and size into the program's own MPI_Status. */
    int (*fill_status)(void *mpi_status, const plait_mpi_envelope_t *envelope);
} plait_mpi_backend_t;

extern const plait_mpi_backend_t plait_mpi_backend_mpich;
extern const plait_mpi_backend_t plait_mpi_backend_ompi;
extern const plait_mpi_backend_t plait_mpi_backend_std;

/* One function that a backend looks up: its name, and where its pointer goes in a
 * table. */
typedef struct {
    const char *name;
    size_t offset;
    bool is_optional; /* stays NULL if the function is missing */
} plait_mpi_symbol_t;

/* For the backends' load. */
plait_status_t plait_mpi_load_symbols(void *library, void *table, int n,
                                      const plait_mpi_symbol_t symbols[]);

#endif
