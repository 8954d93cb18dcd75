/* A stand-in for a device: the table of device/device.h on host memory, as unkind as a real device. At the
 * address that the library sees, memory is PROT_NONE; the device itself has it elsewhere. Streams are threads
 * that do their work late, so results are right only by the order of streams and events. Memory that was given
 * back is overwritten. Transforms to real numbers destroy their operand. Copies are counted, and any call may
 * be made to fail. */
#ifndef PLAIT_TESTS_CHECK_DEVICE_H
#define PLAIT_TESTS_CHECK_DEVICE_H

#include "device/device.h"

typedef struct {
    int64_t down_bytes, up_bytes; /* between host and device */
    int64_t across_bytes;         /* to it from another device */
    int64_t n_calls;              /* calls that may fail */
    int64_t n_waits;              /* the host's waits for the device */
} check_device_counts_t;

/* Which of its memory the device shows to other processes. */
typedef enum {
    CHECK_DEVICE_SHOWS_ALL,
    CHECK_DEVICE_SHOWS_VIRTUAL, /* shows what plait has not taken only as virtual */
    CHECK_DEVICE_OPENS_OWN,     /* the same, and it opens no such memory of others */
    CHECK_DEVICE_SHOWS_OWN,     /* shows only what plait has taken */
    CHECK_DEVICE_SHOWS_NONE
} check_device_refusal_t;

void check_device_refuse(plait_device_t *device, check_device_refusal_t refusal);

/* Aborts if the system has no memory. */
plait_device_t *check_device_create(int ordinal);

/* Returns the number of faults, each of them printed: memory that was not given back, addresses beyond what
 * was taken, calls outside enter and leave. */
int check_device_destroy(plait_device_t **device_p);

/* The driver's version that plait sees. */
void check_device_set_driver(plait_device_t *device, int version);

/* While memory is open, it can be read and written at the addresses that the library sees, as by an MPI that
 * can access a device. Works on whole pages; memory that is not the device's is left alone. */
void check_device_open(plait_device_t *device, const void *memory, int64_t n_bytes,
                       bool is_open);

/* The NCCL, of fake_nccl.c, that knows all of the devices; NULL: none does. */
void check_device_use_nccl(const plait_device_nccl_t *nccl);

/* The same for NVSHMEM, of fake_nvshmem.c. */
void check_device_use_nvshmem(const plait_device_nvshmem_t *nvshmem);

/* The library, of fake_cuda_mp.c, by which devices of several ranks work as one; NULL: they do not. */
void check_device_use_grid(const plait_device_grid_t *grid);

/* The outcome that devices working as one report from now on; 0: the real one. */
void check_device_order_joint(int32_t info);

/* Memory for the test's own arrays, at the address that the library sees. n_bytes 0: NULL. */
void *check_device_alloc(plait_device_t *device, int64_t n_bytes);
void check_device_free(plait_device_t *device, void *memory);

/* The address at which the device, and the test, reads and writes the memory. */
void *check_device_view(const plait_device_t *device, const void *memory);

/* The test's own stream, as XLA has one; and a wait until all is done on it. */
plait_stream_t check_device_stream(plait_device_t *device);
void check_device_drain(plait_device_t *device);

/* Enqueues there the work that makes an array. Its bytes come late, so only work ordered behind it sees
 * them. */
void check_device_arrive(plait_device_t *device, void *memory, const void *data,
                         int64_t n_bytes);

check_device_counts_t check_device_counts(plait_device_t *device);

/* From now on the n-th call that may fail does fail, counted from 1; 0: none. is_dead: all later calls fail,
 * too, as after a context is lost. */
void check_device_fail_at(plait_device_t *device, int64_t n, bool is_dead);

#endif
