/* A device that has memory of its own: a const table of functions behind every array that the host cannot
 * touch. Arrays in host memory have no device (NULL): code for the host calls device/host.h and kernel/
 * directly.
 *
 * Work is enqueued on a stream and done in the stream's order. No function waits for it unless its comment
 * says so. Addresses are the device's; `host` names memory from host_take (pinned). Tables that arguments
 * point to (boxes, pieces, descriptions of transforms) are read before a function returns; data are read when
 * the stream reaches the work. Functions are called between enter and leave, by one thread per stream at a
 * time. If the device reports a failure of enqueued work later, the next call on that device returns it. */
#ifndef PLAIT_DEVICE_DEVICE_H
#define PLAIT_DEVICE_DEVICE_H

#include "device/host.h"
#include "plait/dtype.h"
#include "plait/reduce.h"
#include "plait/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct plait_device plait_device_t;

/* The device's own type: a CUstream, or a stream of the tests' device. */
typedef void *plait_stream_t;

/* A point of a stream. */
typedef struct plait_event plait_event_t;

/* One box from src to dst is copied, added to what is there (the dtype's own sum; float16 and bfloat16 rounded
 * once from float32), or zeroed (src unused). */
typedef enum {
    PLAIT_DEVICE_COPY,
    PLAIT_DEVICE_ADD,
    PLAIT_DEVICE_ZERO
} plait_device_box_kind_t;

typedef struct {
    plait_device_box_kind_t kind;
    const void *src; /* addresses of row (0, 0, ...) */
    void *dst;
    plait_box_copy_t box;
} plait_device_box_t;

/* A batch of one-dimensional transforms, or one transform of up to three dimensions, in cuFFT's advanced
 * layout, counted in elements. Along the last axis a real side of length n has n elements, the complex side n
 * / 2 + 1. Either side begins where a complex number may. C2R destroys its input. */
typedef enum {
    PLAIT_DEVICE_FFT_C2C,
    PLAIT_DEVICE_FFT_R2C,
    PLAIT_DEVICE_FFT_C2R
} plait_device_fft_kind_t;

typedef struct {
    plait_device_fft_kind_t kind;
    plait_dtype_t dtype; /* of the complex side: complex64 or complex128 */
    int ndim;            /* 1, 2 or 3 */
    int64_t n[3];
    int64_t in_embed[3], in_stride, in_distance;
    int64_t out_embed[3], out_stride, out_distance;
    int64_t n_batch;
    int sign; /* -1 forward, +1 backward; no scaling */
} plait_device_fft_t;

/* Work on matrices of float32, float64, complex64 or complex128. Matrices are column-major, with ld elements
 * from column to column, as in BLAS and LAPACK. c is written and is m x n; neither m nor n is 0. `trans`
 * applies to a: 'N', 'T', 'C'. *info says how all work on a matrix has ended so far. Work that finds *info
 * other than 0 may do anything with the matrix. */
typedef enum {
    PLAIT_TILE_GEMM, /* c = alpha op(a) op(b) + beta c, with k the extent of the sum */
    PLAIT_TILE_HERK, /* lower triangle of c = alpha a a^H + beta c, a being n x k */
    PLAIT_TILE_TRSM, /* c = op(a)^-1 c (side 'L') or c op(a)^-1 ('R'), a triangular */
    PLAIT_TILE_TRMM, /* the same with op(a) */
    /* c = its Cholesky factor L, from the lower triangle; above it c is not touched. For the first leading
     * minor that is not positive, or not finite: *info = row + its order, if *info was 0. */
    PLAIT_TILE_POTRF,
    /* c = L U of P c. extra: int32, row i was exchanged with row extra[i] - row. The first column without a
     * pivot, or with a pivot that is not finite, counted from 1, sets *info as for POTRF. */
    PLAIT_TILE_GETRF,
    PLAIT_TILE_LASWP, /* row i of c is exchanged with row extra[i] - row, for i = 0 .. k - 1 */
    PLAIT_TILE_GEQRF, /* c = R and reflectors; extra: their min(m, n) factors */
    /* c = Q c ('N') or Q^H c ('C'). a and extra: what GEQRF has made of k columns of m rows. */
    PLAIT_TILE_ORMQR,
    /* The eigenvalues of c, ascending, to extra. Only the lower triangle is read. k = 1: vectors to c;
     * otherwise c is destroyed. If no eigenvalues are found, *info is set if it was 0. */
    PLAIT_TILE_HEEVD,
    /* c[i, j] = a[i, j] for row + j <= i < k, else 0. Of the first of these in each column only the real part
     * is kept (diag 'R'), or it becomes 1 ('U'). a may be c. */
    PLAIT_TILE_TRIM,
    PLAIT_TILE_SPOIL, /* c[i, j] = NaN for i >= row + j, where *info is not 0 */
    /* If one of c[i, j], i >= row + j, is not finite: *info = k if it was 0, and all of these become 0. */
    PLAIT_TILE_SCREEN,
    /* Finds the first diagonal element of c that is not finite, and treats it as the last one of the leading
     * minor that POTRF does not find positive: *info = row + its order, if *info was 0. */
    PLAIT_TILE_JUDGE,
    PLAIT_TILE_COUNT
} plait_tile_op_t;

typedef struct {
    plait_tile_op_t op;
    plait_dtype_t dtype;
    char side, uplo, trans, trans_b, diag;
    int64_t m, n, k, row;
    int64_t lda, ldb, ldc;
    double alpha, beta;
    const void *a, *b;
    void *c;
    void *extra; /* pivots, factors of reflectors, or eigenvalues */
    int32_t *info;
} plait_device_tile_t;

/* A handle of memory or of an event, for other processes of the node. */
typedef struct {
    unsigned char bytes[64];
} plait_device_handle_t;

/* An address of a device's memory, for other processes of the node. */
typedef struct {
    plait_device_handle_t handle; /* of the block with the address */
    uint64_t base;                /* the block's begin in its own process */
    uint64_t number; /* the block's own: no other has had or will have it */
    int64_t offset;  /* of the address in the block */
} plait_device_shown_t;

/* NCCL between ranks with one device each. Only close waits. `ask` tells whether the work begun so far is
 * over, or how it failed. A group is all between begin and end. */
typedef struct plait_nccl plait_nccl_t;

typedef struct {
    unsigned char bytes[128];
} plait_nccl_id_t;

typedef struct {
    plait_status_t (*can)(void); /* UNSUPPORTED: not found, or too old */
    plait_status_t (*id)(plait_nccl_id_t *id_p);
    /* For the current device. */
    plait_status_t (*open)(const plait_nccl_id_t *id, int n_ranks, int rank,
                           plait_nccl_t **nccl_p);
    plait_status_t (*ask)(plait_nccl_t *nccl, bool *is_over_p);
    plait_status_t (*begin)(plait_nccl_t *nccl);
    plait_status_t (*send)(plait_nccl_t *nccl, plait_stream_t stream, int peer,
                           const void *data, int64_t n_bytes);
    plait_status_t (*recv)(plait_nccl_t *nccl, plait_stream_t stream, int peer,
                           void *data, int64_t n_bytes);
    plait_status_t (*end)(plait_nccl_t *nccl);
    /* Waits for the peers, which also call close, but not for ever. */
    void (*close)(plait_nccl_t *nccl);
    /* Waits for nobody. Work on streams ends soon, whatever its outcome. */
    void (*abort)(plait_nccl_t *nccl);
} plait_device_nccl_t;

/* NVSHMEM between processes with one device each: its PEs. All PEs have a pool of memory of one size. An
 * address in this PE's pool stands for the same place in another PE's pool. put, signal, await and quiet
 * enqueue work that is done in the stream's order. If any of it fails, NVSHMEM ends the process. */
typedef struct {
    unsigned char bytes[128];
} plait_nvshmem_id_t;

typedef struct {
    int pe, n_pes;   /* 0 PEs: NVSHMEM was not started */
    uint64_t number; /* of this start alone; 0: somebody else started it */
    char *pool;      /* NULL: not yet allocated */
    int64_t pool_bytes;
    /* Who has which part of the pool. Belongs to, and is allocated by, the code that asked for the pool; freed
     * with the job. */
    void *book;
} plait_nvshmem_job_t;

typedef struct {
    /* UNSUPPORTED: not found, too old, used for another device, or an earlier failure. */
    plait_status_t (*can)(const plait_device_t *device);
    /* The job that this process belongs to for as long as it lives. */
    plait_status_t (*look)(const plait_device_t *device, plait_nvshmem_job_t **job_p);
    plait_status_t (*id)(plait_nvshmem_id_t *id_p);
    /* start and allocate are the only functions that wait. All PEs call them together and wait for each other.
     * They work on the current device. If one PE fails, the others may keep waiting. */
    plait_status_t (*start)(const plait_device_t *device, const plait_nvshmem_id_t *id,
                            int n_pes, int pe);
    plait_status_t (*allocate)(const plait_device_t *device, int64_t n_bytes);
    /* Copies n_bytes from this PE's pool to dst of the PE, and then sets that PE's signal. */
    void (*put)(plait_stream_t stream, int pe, void *dst, const void *src,
                int64_t n_bytes, uint64_t *signal, uint64_t value);
    void (*signal)(plait_stream_t stream, int pe, uint64_t *signal, uint64_t value);
    /* The stream waits until this PE's signal is the value or more. */
    void (*await)(plait_stream_t stream, uint64_t *signal, uint64_t value);
    /* The stream waits until all puts and signals have arrived. */
    void (*quiet)(plait_stream_t stream);
} plait_device_nvshmem_t;

/* The most devices that work as one. */
enum { PLAIT_MAX_JOINT = 16 };

/* Joint work on a matrix, of which only the lower triangle is read. */
typedef enum {
    PLAIT_JOINT_HEEVD, /* eigenvalues, ascending; and vectors in the matrix's place */
    PLAIT_JOINT_POTRF, /* L in the place of the lower triangle; above, anything */
    PLAIT_JOINT_POTRS, /* (L L^H)^-1 b in the place of b; the matrix is L */
    PLAIT_JOINT_POTRI  /* lower triangle of (L L^H)^-1 in that of L; above, anything */
} plait_joint_op_t;

/* An n x n Hermitian matrix, column-major of leading dimension n, dealt out to devices in blocks of `block`
 * columns; the last block may have fewer. Block k is on device k mod n_devices, as its block k div n_devices.
 * Each device has at least one block, and room for as many blocks as any device. */
typedef struct {
    plait_joint_op_t op;
    int n_devices;
    plait_device_t *devices[PLAIT_MAX_JOINT]; /* of one process; otherwise not read */
    plait_dtype_t dtype; /* float32, float64, complex64 or complex128 */
    bool has_vectors;    /* for HEEVD */
    int64_t n, block;
    /* For POTRS: b is n x n_rhs and dealt out like the matrix; devices may have no part of it. */
    int64_t n_rhs;
} plait_joint_problem_t;

/* Joint work of several devices of one process. One thread calls these functions for all devices, inside or
 * outside of enter and leave, and waits for the devices. */
typedef struct {
    /* Device memory that each device needs besides. UNSUPPORTED: why the devices cannot. Makes and keeps what
     * the library needs; called while planning. */
    plait_status_t (*plan)(const plait_joint_problem_t *problem, int64_t *work_bytes_p);
    /* w: eigenvalues, in host memory; only for HEEVD. b: only for POTRS. Earlier work must be done before the
     * call. The call's own work is done when it returns, even after a failure. *info_p is other than 0 if no
     * eigenvalues were found, or is the order of the leading minor that is not positive, or of the diagonal
     * element that is 0. */
    plait_status_t (*run)(const plait_joint_problem_t *problem, int64_t work_bytes,
                          void *const a[], void *const b[], void *const work[], void *w,
                          int32_t *info_p);
} plait_device_joint_t;

/* One device's seat in a grid of several processes that work as one, each with one device. The grid has one
 * row. All ranks call the functions marked `waits` together, and wait for each other within the library. Only
 * the call itself can end such a wait, so the ranks meet before it. The other functions concern one rank
 * alone. */
typedef struct plait_process_grid plait_process_grid_t;

/* A rank's part of a heevd, all of it on its device. */
typedef struct {
    void *matrix;  /* only the lower triangle is read; overwritten */
    void *vectors; /* in the matrix's layout; NULL without vectors */
    void *w;       /* all eigenvalues, ascending, on every rank */
    void *work;
    int64_t work_bytes;
} plait_grid_part_t;

typedef struct {
    /* UNSUPPORTED: not found, too old. */
    plait_status_t (*create)(plait_device_t *device, plait_stream_t stream,
                             plait_process_grid_t **grid_p);
    plait_status_t (*id)(plait_nccl_id_t *id_p);
    /* Waits. */
    plait_status_t (*join)(plait_process_grid_t *grid, const plait_nccl_id_t *id,
                           int n_ranks, int rank);
    /* Device memory that this rank needs besides. Called while planning, outside of enter and leave. */
    plait_status_t (*heevd_plan)(plait_process_grid_t *grid,
                                 const plait_joint_problem_t *heevd,
                                 int64_t *work_bytes_p);
    /* heevd_begin, heevd and heevd_end follow each other, unless a peer's begin has failed. */
    plait_status_t (*heevd_begin)(plait_process_grid_t *grid, plait_stream_t stream,
                                  const plait_joint_problem_t *heevd,
                                  const plait_grid_part_t *part);
    plait_status_t (*heevd)(plait_process_grid_t *grid); /* waits */
    /* Waits until the work is done on the stream. *info_p: not 0, no eigenvalues were found. */
    plait_status_t (*heevd_end)(plait_process_grid_t *grid, int32_t *info_p);
    void (*close)(plait_process_grid_t *grid); /* waits */
    /* For a grid that was not joined, or whose peers are not to be waited for. What the ranks share stays. */
    void (*abort)(plait_process_grid_t *grid);
} plait_device_grid_t;

typedef struct {
    const char *name; /* "cuda" */

    /* enter makes the device current on this thread; leave makes current what was so before. */
    plait_status_t (*enter)(plait_device_t *device);
    void (*leave)(plait_device_t *device);

    /* Device memory that stays until it is given back. Its use is ordered by the stream: the next user comes
     * after all work that was enqueued before `give`. */
    plait_status_t (*take)(plait_device_t *device, plait_stream_t stream,
                           int64_t n_bytes, void **memory_p);
    void (*give)(plait_device_t *device, plait_stream_t stream, void *memory);

    /* Pinned host memory from a pool. No stream orders its use. */
    plait_status_t (*host_take)(plait_device_t *device, int64_t n_bytes, void **host_p);
    void (*host_give)(plait_device_t *device, void *host);

    /* Copies between pinned and device memory. */
    plait_status_t (*to_host)(plait_device_t *device, plait_stream_t stream, void *host,
                              const void *src, int64_t n_bytes);
    plait_status_t (*to_device)(plait_device_t *device, plait_stream_t stream,
                                void *dst, const void *host, int64_t n_bytes);

    /* Destinations of boxes do not overlap, except for ADD, which is done in the order of the boxes. */
    plait_status_t (*boxes)(plait_device_t *device, plait_stream_t stream,
                            plait_dtype_t dtype, int64_t n_boxes,
                            const plait_device_box_t boxes[]);

    /* dst[i] = op over pieces[q][i] in their order; without pieces, op's identity. dst may be one of the
     * pieces. The bits are those of kernel/reduce.h. */
    plait_status_t (*reduce)(plait_device_t *device, plait_stream_t stream,
                             plait_reduce_t op, plait_dtype_t dtype, int64_t n,
                             int n_pieces, const void *const pieces[], void *dst);

    /* Whether `fft` can do the transform; work_bytes_p: device memory that it needs besides. Makes and keeps
     * what the device's library needs; called while planning. */
    plait_status_t (*fft_plan)(plait_device_t *device, const plait_device_fft_t *fft,
                               int64_t *work_bytes_p);
    plait_status_t (*fft)(plait_device_t *device, plait_stream_t stream,
                          const plait_device_fft_t *fft, const void *in, void *out,
                          void *work);

    /* x[i] *= factor for n elements of a float or complex dtype. */
    plait_status_t (*scale)(plait_device_t *device, plait_stream_t stream,
                            plait_dtype_t dtype, int64_t n, double factor, void *x);

    /* As fft_plan and fft; `tile_plan` looks at no address. */
    plait_status_t (*tile_plan)(plait_device_t *device, const plait_device_tile_t *tile,
                                int64_t *work_bytes_p);
    plait_status_t (*tile)(plait_device_t *device, plait_stream_t stream,
                           const plait_device_tile_t *tile, void *work);

    /* Streams of plait's own, for copies beside XLA's; events may be used on any stream. */
    plait_status_t (*stream_create)(plait_device_t *device, plait_stream_t *stream_p);
    void (*stream_destroy)(plait_device_t *device, plait_stream_t stream);
    plait_status_t (*event_create)(plait_device_t *device, plait_event_t **event_p);
    void (*event_destroy)(plait_device_t *device, plait_event_t *event);
    plait_status_t (*event_record)(plait_device_t *device, plait_event_t *event,
                                   plait_stream_t stream);
    /* The stream continues after the event, as last recorded before this call. */
    plait_status_t (*event_order)(plait_device_t *device, plait_event_t *event,
                                  plait_stream_t stream);
    /* This thread waits; only these two functions do. event_wait may be called inside another device. */
    plait_status_t (*event_wait)(plait_device_t *device, plait_event_t *event);
    plait_status_t (*stream_wait)(plait_device_t *device, plait_stream_t stream);

    /* Between devices of one process: event_order accepts the events of any of them. `from`: the device of
     * src; NULL: this device, or memory from memory_import. */
    plait_status_t (*copy)(plait_device_t *device, plait_stream_t stream, void *dst,
                           plait_device_t *from, const void *src, int64_t n_bytes);

    /* For other processes of this node; NULL: the device can show them nothing. The n_bytes at `memory` are in
     * one block. UNSUPPORTED: this memory cannot be shown, and why. Either all memory from `take` can be shown,
     * or none; once shown it stays allocated. may_be_virtual: also memory that an allocator has mapped to its
     * addresses itself. */
    plait_status_t (*memory_export)(plait_device_t *device, const void *memory,
                                    int64_t n_bytes, bool may_be_virtual,
                                    plait_device_shown_t *shown_p);
    /* The address of another process's block here, until it is dropped. No work may use the block at the drop.
     * UNSUPPORTED: virtual memory that cannot be mapped here. */
    plait_status_t (*memory_import)(plait_device_t *device,
                                    const plait_device_shown_t *shown, void **base_p);
    void (*memory_drop)(plait_device_t *device, void *base);
    /* Virtual memory, to try memory_export with. UNSUPPORTED: there is none. */
    plait_status_t (*virtual_take)(plait_device_t *device, int64_t n_bytes,
                                   void **memory_p);
    void (*virtual_give)(plait_device_t *device, void *memory);
    /* event_export makes an event like event_create; event_import opens another process's event. event_destroy
     * destroys either, even if other processes still use it. A stream waits for what was recorded before
     * event_order was called. */
    plait_status_t (*event_export)(plait_device_t *device, plait_event_t **event_p,
                                   plait_device_handle_t *handle_p);
    plait_status_t (*event_import)(plait_device_t *device,
                                   const plait_device_handle_t *handle,
                                   plait_event_t **event_p);

    /* Whether the stream has reached the event. */
    plait_status_t (*event_ask)(plait_device_t *device, plait_event_t *event,
                                bool *is_over_p);

    const plait_device_nccl_t *nccl;       /* NULL: no NCCL between such devices */
    const plait_device_nvshmem_t *nvshmem; /* NULL: no NVSHMEM */
    const plait_device_joint_t *joint;     /* NULL: each device works alone */
    const plait_device_grid_t *grid;       /* the same for several processes */

    /* The driver's version, in its own counting. May be called at any time. */
    int (*driver)(const plait_device_t *device);
} plait_device_table_t;

struct plait_device {
    const plait_device_table_t *table;
    int ordinal; /* among this process's devices of the same kind */
    void *state; /* the device's own */
};

#endif
