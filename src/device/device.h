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

/* The device's own: a CUstream, or what the tests' device has. */
typedef void *plait_stream_t;

/* A point of a stream. */
typedef struct plait_event plait_event_t;

/* One box, from src to dst: copied, added to what is there (dtype's own sum, float16 and bfloat16
 * rounded once from float32), or zeroed (src unused). */
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

/* A batch of one-dimensional transforms, or one of up to three dimensions: as cuFFT's advanced
 * layout, in elements. A length-n real side has n, the complex one n / 2 + 1 along the last axis. Either side
 * begins where a complex number may. C2R destroys what it reads. */
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

/* What is done with matrices of float32, float64, complex64 or complex128: column-major, ld elements
 * from column to column, as BLAS and LAPACK have it. c is m x n, neither is 0, and is what is written;
 * `trans` is that of a: 'N', 'T', 'C'. *info tells how all that was done with a matrix has ended so
 * far; work that finds it other than 0 may do anything with the matrix. */
typedef enum {
    PLAIT_TILE_GEMM, /* c = alpha op(a) op(b) + beta c, with k the extent of the sum */
    PLAIT_TILE_HERK, /* lower triangle of c = alpha a a^H + beta c, a being n x k */
    PLAIT_TILE_TRSM, /* c = op(a)^-1 c (side 'L') or c op(a)^-1 ('R'), a triangular */
    PLAIT_TILE_TRMM, /* the same with op(a) */
    /* c = its Cholesky factor L, from the lower triangle, above which it is not touched. The first
     * leading minor that is not positive, or not finite: *info = row + its order, where it was 0. */
    PLAIT_TILE_POTRF,
    /* c = L U of P c. extra: int32, row i was exchanged with row extra[i] - row. The first column
     * without a pivot, or with one that is not finite, counted from 1: as for POTRF. */
    PLAIT_TILE_GETRF,
    PLAIT_TILE_LASWP, /* row i of c is exchanged with row extra[i] - row, for i = 0 .. k - 1 */
    PLAIT_TILE_GEQRF, /* c = R and reflectors; extra: their min(m, n) factors */
    /* c = Q c ('N') or Q^H c ('C'), from what GEQRF has made of k columns of m rows, in a; extra */
    PLAIT_TILE_ORMQR,
    /* Eigenvalues, ascending, of c, of which the lower triangle is read, to extra; k = 1: vectors to
     * c, which else is destroyed. None found: *info is set where it was 0. */
    PLAIT_TILE_HEEVD,
    /* c[i, j] = a[i, j] for row + j <= i < k, else 0; of the first of these only the real part (diag
     * 'R'), or 1 ('U'). a may be c. */
    PLAIT_TILE_TRIM,
    PLAIT_TILE_SPOIL, /* c[i, j] = NaN for i >= row + j, where *info is not 0 */
    /* *info = k where it was 0 and one of c[i, j], i >= row + j, is not finite; then these are 0 */
    PLAIT_TILE_SCREEN,
    /* The first diagonal element of c that is not finite, as the last of the leading minor that POTRF
     * does not find positive: *info = row + its order, where it was 0. */
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

/* Memory or an event, for other processes of the node. */
typedef struct {
    unsigned char bytes[64];
} plait_device_handle_t;

/* An address of a device's memory, for other processes of the node. */
typedef struct {
    plait_device_handle_t handle; /* of the block that it is in */
    uint64_t base;                /* where that begins in its own process */
    uint64_t number;              /* no other block has or had or will have it */
    int64_t offset;               /* of the address in the block */
} plait_device_shown_t;

/* NCCL between ranks that have a device each. Nothing here waits: `ask` tells whether what was begun
 * is over, or how it failed. A group is what is between begin and end. */
typedef struct plait_nccl plait_nccl_t;

typedef struct {
    unsigned char bytes[128];
} plait_nccl_id_t;

typedef struct {
    plait_status_t (*can)(void); /* UNSUPPORTED: not found, or too old */
    plait_status_t (*id)(plait_nccl_id_t *id_p);
    /* For the device that is current. */
    plait_status_t (*open)(const plait_nccl_id_t *id, int n_ranks, int rank,
                           plait_nccl_t **nccl_p);
    plait_status_t (*ask)(plait_nccl_t *nccl, bool *is_over_p);
    plait_status_t (*begin)(plait_nccl_t *nccl);
    plait_status_t (*send)(plait_nccl_t *nccl, plait_stream_t stream, int peer,
                           const void *data, int64_t n_bytes);
    plait_status_t (*recv)(plait_nccl_t *nccl, plait_stream_t stream, int peer,
                           void *data, int64_t n_bytes);
    plait_status_t (*end)(plait_nccl_t *nccl);
    /* Waits for peers, which call it, too; not for ever. */
    void (*close)(plait_nccl_t *nccl);
    /* What is on streams ends soon, however it was; nobody is waited for. */
    void (*abort)(plait_nccl_t *nccl);
} plait_device_nccl_t;

/* NVSHMEM between processes that have a device each, its PEs. All of them have a pool of memory of one
 * size; an address in that of this PE stands for the same place of another's. What is enqueued by
 * put, signal, await and quiet is done in the stream's order; where one of them fails, NVSHMEM ends
 * the process. */
typedef struct {
    unsigned char bytes[128];
} plait_nvshmem_id_t;

typedef struct {
    int pe, n_pes;   /* 0 PEs: it was not started */
    uint64_t number; /* of no other start; 0: somebody else has started it */
    char *pool;      /* NULL: not yet */
    int64_t pool_bytes;
    void *
        book; /* who has which part of it: of who asked for it, and allocated; freed with the job */
} plait_nvshmem_job_t;

typedef struct {
    /* UNSUPPORTED: not found, too old, another device's, or what went wrong before. */
    plait_status_t (*can)(const plait_device_t *device);
    /* What this process is a part of, for as long as it lives. */
    plait_status_t (*look)(const plait_device_t *device, plait_nvshmem_job_t **job_p);
    plait_status_t (*id)(plait_nvshmem_id_t *id_p);
    /* The only functions that wait: for all PEs, which call them together. For the device that is
     * current. A failure of one PE may keep the others waiting. */
    plait_status_t (*start)(const plait_device_t *device, const plait_nvshmem_id_t *id,
                            int n_pes, int pe);
    plait_status_t (*allocate)(const plait_device_t *device, int64_t n_bytes);
    /* n_bytes to dst of the PE, from this one's pool, and then its signal. */
    void (*put)(plait_stream_t stream, int pe, void *dst, const void *src,
                int64_t n_bytes, uint64_t *signal, uint64_t value);
    void (*signal)(plait_stream_t stream, int pe, uint64_t *signal, uint64_t value);
    /* Until this PE's signal is the value or more. */
    void (*await)(plait_stream_t stream, uint64_t *signal, uint64_t value);
    /* Until what was put, and signals, are where they go. */
    void (*quiet)(plait_stream_t stream);
} plait_device_nvshmem_t;

/* Most devices that work as one. */
enum { PLAIT_MAX_JOINT = 16 };

/* What they do with a matrix, of which the lower triangle is read. */
typedef enum {
    PLAIT_JOINT_HEEVD, /* its eigenvalues, ascending; and vectors in its place */
    PLAIT_JOINT_POTRF, /* L in the place of its lower triangle; above, anything */
    PLAIT_JOINT_POTRS, /* (L L^H)^-1 b in the place of b, where it is L */
    PLAIT_JOINT_POTRI /* the lower triangle of (L L^H)^-1 in that of L; above, anything */
} plait_joint_op_t;

/* An n x n Hermitian matrix, column-major of leading dimension n, dealt out to devices: block k of
 * `block` columns, of which the last may have less, is device k mod n_devices's, its
 * (k div n_devices)-th. Each has a block at least, and room for as many as any of them. */
typedef struct {
    plait_joint_op_t op;
    int n_devices;
    plait_device_t *devices[PLAIT_MAX_JOINT]; /* of one process; else nobody looks */
    plait_dtype_t dtype; /* float32, float64, complex64 or complex128 */
    bool has_vectors;    /* of HEEVD */
    int64_t n, block;
    int64_t
        n_rhs; /* of POTRS: b is n x n_rhs and dealt out alike; devices may have none of it */
} plait_joint_problem_t;

/* What several devices of one process do as one: called for all of them by one thread, inside or
 * outside of enter and leave, which waits for them. */
typedef struct {
    /* Device memory that each wants besides. UNSUPPORTED: why they do not. Makes and keeps what the
     * library needs; called while planning. */
    plait_status_t (*plan)(const plait_joint_problem_t *problem, int64_t *work_bytes_p);
    /* Eigenvalues to w, which is in host memory; only HEEVD has it, and only POTRS has b. What comes
     * before it is done when it is called, and all of this when it returns, also where it fails.
     * *info_p: not 0, none were found, the order of the leading minor that is not positive, or of the
     * diagonal element that is 0. */
    plait_status_t (*run)(const plait_joint_problem_t *problem, int64_t work_bytes,
                          void *const a[], void *const b[], void *const work[], void *w,
                          int32_t *info_p);
} plait_device_joint_t;

/* One device's seat among those of several processes, one of each, that work as one: a grid of one row.
 * What `waits` is called by all ranks together, and waits for them within the library: nothing ends that
 * but the call itself, so they meet before it. The rest is each rank's own affair. */
typedef struct plait_process_grid plait_process_grid_t;

/* What a rank brings to a heevd, all of it on its device. */
typedef struct {
    void *matrix;  /* of which the lower triangle is read; overwritten */
    void *vectors; /* in the matrix' layout; NULL without them */
    void *w;       /* eigenvalues, ascending: all of them, on every rank */
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
    /* Device memory that this rank wants besides; called while planning, outside of enter and
     * leave. */
    plait_status_t (*heevd_plan)(plait_process_grid_t *grid,
                                 const plait_joint_problem_t *heevd,
                                 int64_t *work_bytes_p);
    /* The three follow each other, but where a peer's begin has failed. */
    plait_status_t (*heevd_begin)(plait_process_grid_t *grid, plait_stream_t stream,
                                  const plait_joint_problem_t *heevd,
                                  const plait_grid_part_t *part);
    plait_status_t (*heevd)(plait_process_grid_t *grid); /* waits */
    /* Until it is done on the stream. *info_p: not 0, none were found. */
    plait_status_t (*heevd_end)(plait_process_grid_t *grid, int32_t *info_p);
    void (*close)(plait_process_grid_t *grid); /* waits */
    /* Where it was not joined, or peers are not to be waited for. What they have together stays. */
    void (*abort)(plait_process_grid_t *grid);
} plait_device_grid_t;

typedef struct {
    const char *name; /* "cuda" */

    /* Makes the device current on this thread, and what was current so again. */
    plait_status_t (*enter)(plait_device_t *device);
    void (*leave)(plait_device_t *device);

    /* Memory of the device that stays until it is given back; ordered by the stream: who takes it
     * next does so after all that was enqueued before it was given. */
    plait_status_t (*take)(plait_device_t *device, plait_stream_t stream,
                           int64_t n_bytes, void **memory_p);
    void (*give)(plait_device_t *device, plait_stream_t stream, void *memory);

    /* Pinned host memory, from a pool; not ordered by any stream. */
    plait_status_t (*host_take)(plait_device_t *device, int64_t n_bytes, void **host_p);
    void (*host_give)(plait_device_t *device, void *host);

    /* Between pinned and device memory. */
    plait_status_t (*to_host)(plait_device_t *device, plait_stream_t stream, void *host,
                              const void *src, int64_t n_bytes);
    plait_status_t (*to_device)(plait_device_t *device, plait_stream_t stream,
                                void *dst, const void *host, int64_t n_bytes);

    /* Boxes do not overlap each other's destinations, but for ADD, which is done in their order. */
    plait_status_t (*boxes)(plait_device_t *device, plait_stream_t stream,
                            plait_dtype_t dtype, int64_t n_boxes,
                            const plait_device_box_t boxes[]);

    /* dst[i] = op over pieces[q][i] in their order; dst may be one of the pieces. Without pieces
     * op's identity. The same bits as kernel/reduce.h. */
    plait_status_t (*reduce)(plait_device_t *device, plait_stream_t stream,
                             plait_reduce_t op, plait_dtype_t dtype, int64_t n,
                             int n_pieces, const void *const pieces[], void *dst);

    /* Whether `fft` will do; work_bytes_p: device memory that it needs besides. Makes and keeps
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
    /* The stream goes on after the event, as it was recorded last before this call. */
    plait_status_t (*event_order)(plait_device_t *device, plait_event_t *event,
                                  plait_stream_t stream);
    /* This thread waits: the only functions that do. For an event also inside of another device. */
    plait_status_t (*event_wait)(plait_device_t *device, plait_event_t *event);
    plait_status_t (*stream_wait)(plait_device_t *device, plait_stream_t stream);

    /* Between devices of one process, whose events `event_order` takes on each of them. From
     * memory of another device; NULL: of this one, or what memory_import gave. */
    plait_status_t (*copy)(plait_device_t *device, plait_stream_t stream, void *dst,
                           plait_device_t *from, const void *src, int64_t n_bytes);

    /* For other processes of this node; NULL: nothing can be shown to them. n_bytes from there are
     * in one block. UNSUPPORTED: this memory cannot, and why. What `take` gives can, or none, and stays
     * allocated then. may_be_virtual: also what an allocator has mapped to its addresses itself. */
    plait_status_t (*memory_export)(plait_device_t *device, const void *memory,
                                    int64_t n_bytes, bool may_be_virtual,
                                    plait_device_shown_t *shown_p);
    /* The address here of another process's block, until it is dropped: nothing that uses it is
     * under way then. UNSUPPORTED: virtual memory that cannot be mapped here. */
    plait_status_t (*memory_import)(plait_device_t *device,
                                    const plait_device_shown_t *shown, void **base_p);
    void (*memory_drop)(plait_device_t *device, void *base);
    /* Such virtual memory, to try that with. UNSUPPORTED: there is none. */
    plait_status_t (*virtual_take)(plait_device_t *device, int64_t n_bytes,
                                   void **memory_p);
    void (*virtual_give)(plait_device_t *device, void *memory);
    /* An event as event_create makes it, and another process's: each is destroyed by
     * event_destroy, also one that other processes have not done with. A stream waits for what was
     * recorded before it was told to. */
    plait_status_t (*event_export)(plait_device_t *device, plait_event_t **event_p,
                                   plait_device_handle_t *handle_p);
    plait_status_t (*event_import)(plait_device_t *device,
                                   const plait_device_handle_t *handle,
                                   plait_event_t **event_p);

    /* Whether the event has come. */
    plait_status_t (*event_ask)(plait_device_t *device, plait_event_t *event,
                                bool *is_over_p);

    const plait_device_nccl_t *nccl;       /* NULL: it knows no such devices */
    const plait_device_nvshmem_t *nvshmem; /* the same */
    const plait_device_joint_t *joint;     /* NULL: each works alone */
    const plait_device_grid_t *grid;       /* the same, of several processes */

    /* Version of what drives it, a number of its own. Any time. */
    int (*driver)(const plait_device_t *device);
} plait_device_table_t;

struct plait_device {
    const plait_device_table_t *table;
    int ordinal; /* among this process's devices of the kind */
    void *state; /* the device's own */
};

#endif
