/* A stand-in for a device: the table of device/device.h on host memory, with all that makes a
 * real one unkind. Memory is PROT_NONE at the address that the library sees, and lies elsewhere
 * for the device itself. Streams are threads that do their work late: results are right only by
 * the order of streams and events. Memory that was given back is overwritten. Transforms to real
 * numbers destroy their operand. Copies are counted, and any call may be made to fail. */
#ifndef PLAIT_TESTS_CHECK_DEVICE_H
#define PLAIT_TESTS_CHECK_DEVICE_H

#include "device/device.h"

typedef struct {
    int64_t down_bytes, up_bytes; /* between host and device */
    int64_t across_bytes;         /* to it from a device */
    int64_t n_calls;              /* that may fail */
    int64_t n_waits;              /* of the host for the device */
} check_device_counts_t;

/* What of its memory other processes may not have. */
typedef enum {
    CHECK_DEVICE_SHOWS_ALL,
    CHECK_DEVICE_SHOWS_VIRTUAL, /* what plait has not taken as virtual memory alone */
    CHECK_DEVICE_OPENS_OWN,     /* the same, and it opens no such memory of others */
    CHECK_DEVICE_SHOWS_OWN,     /* what plait has taken alone */
    CHECK_DEVICE_SHOWS_NONE
} check_device_refusal_t;

void check_device_refuse(plait_device_t *device, check_device_refusal_t refusal);

/* Aborts where the system has no memory. */
plait_device_t *check_device_create(int ordinal);

/* Returns the number of things that were wrong, each printed: what was not given back, addresses
 * beyond what was taken, calls outside enter and leave. */
int check_device_destroy(plait_device_t **device_p);

/* Its version, as plait sees it. */
void check_device_set_driver(plait_device_t *device, int version);

/* While it is open, memory can be read and written at the addresses that the library sees: by an
 * MPI that could, on a device. Whole pages; what is not the device's is left alone. */
void check_device_open(plait_device_t *device, const void *memory, int64_t n_bytes,
                       bool is_open);

/* By which NCCL, of fake_nccl.c, all of them are known; NULL: by none. */
void check_device_use_nccl(const plait_device_nccl_t *nccl);

/* The same for NVSHMEM, of fake_nvshmem.c. */
void check_device_use_nvshmem(const plait_device_nvshmem_t *nvshmem);

/* By which library, of fake_cuda_mp.c, those of several ranks work as one; NULL: they do not. */
void check_device_use_grid(const plait_device_grid_t *grid);

/* What devices that work as one say they have found from now on; 0: what there is. */
void check_device_order_joint(int32_t info);

/* Memory for arrays of the test's own; its address as the library sees it. n_bytes 0: NULL. */
void *check_device_alloc(plait_device_t *device, int64_t n_bytes);
void check_device_free(plait_device_t *device, void *memory);

/* Where the device, and the test, reads and writes it. */
void *check_device_view(const plait_device_t *device, const void *memory);

/* The stream of the test's own, as XLA has one; and until all is done on it. */
plait_stream_t check_device_stream(plait_device_t *device);
void check_device_drain(plait_device_t *device);

/* Enqueues there what makes an array: its bytes come late, to be seen by what is ordered behind it alone. */
void check_device_arrive(plait_device_t *device, void *memory, const void *data,
                         int64_t n_bytes);

check_device_counts_t check_device_counts(plait_device_t *device);

/* The n-th call from now that may fail does, from 1; 0: none. is_dead: all calls after it as well,
 * as where a context is lost. */
void check_device_fail_at(plait_device_t *device, int64_t n, bool is_dead);

#endif
