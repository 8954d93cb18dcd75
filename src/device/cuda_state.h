/* The state of a CUDA device in plait, for the files that fill its table. */
#ifndef PLAIT_DEVICE_CUDA_STATE_H
#define PLAIT_DEVICE_CUDA_STATE_H

#include "device/cuda/params.h"
#include "device/cuda_load.h"
#include "device/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef enum {
#define PLAIT_CUDA_KERNEL_ENUM(_kernel, _name, _params) PLAIT_CUDA_##_kernel,
    PLAIT_CUDA_KERNEL_FOR_EACH(PLAIT_CUDA_KERNEL_ENUM)
#undef PLAIT_CUDA_KERNEL_ENUM
        PLAIT_CUDA_N_KERNELS
} plait_cuda_kernel_t;

/* Memory that was given back waits here for its next user. */
typedef struct plait_cuda_buffer plait_cuda_buffer_t;
typedef struct {
    plait_cuda_buffer_t *buffers;
    int n_buffers, n_room;
} plait_cuda_pool_t;

/* An event that other processes may have open. */
typedef struct plait_cuda_shown plait_cuda_shown_t;

/* A block's handle for other processes, as last given; base 0: none. */
enum { PLAIT_CUDA_HANDED = 8 };
typedef struct {
    plait_cu_address_t base;
    uint64_t number;
    plait_cu_ipc_t handle;
} plait_cuda_handed_t;

/* A bit in the number of every block of virtual memory that other processes may map. */
#define PLAIT_CUDA_VIRTUAL (UINT64_C(1) << 63)

typedef struct plait_cuda_fft plait_cuda_fft_t;
typedef struct plait_cuda_room plait_cuda_room_t;
typedef struct plait_cuda_planned plait_cuda_planned_t;

typedef struct {
    plait_device_t device; /* seen by others; first, so that both have one address */
    const plait_cuda_t *cuda;
    plait_cu_device_t id;
    plait_cu_context_t context;
    plait_cu_module_t module;
    plait_cu_function_t kernel[PLAIT_CUDA_N_KERNELS];
    int capability; /* 90 for 9.0 */
    plait_cuda_pool_t memory, pinned;
    plait_cuda_handed_t handed[PLAIT_CUDA_HANDED];
    uint64_t n_handed;                  /* so far */
    plait_cuda_shown_t *shown;          /* a list, newest first */
    plait_cuda_fft_t *ffts;             /* the same */
    int64_t n_fft_uses;                 /* so far */
    struct plait_cuda_granted *granted; /* virtual memory that is shown, newest first */
    struct plait_cuda_mapped *mapped; /* other processes' virtual memory mapped here */
    uint64_t n_granted;               /* so far */
    /* NULL: not yet needed. This and the next two are used under the lock. */
    plait_cublas_t blas;
    plait_cusolver_t solver;
    plait_cusolver_params_t solver_params;
    plait_cuda_room_t *rooms;      /* host memory of cuSOLVER, the largest first */
    plait_cuda_planned_t *planned; /* what cuSOLVER was asked about, newest first */
    pthread_mutex_t lock;          /* guards pools, lists and libraries */
    _Atomic uint64_t reached;      /* bit i: the memory of device i is reached */
    _Atomic int dead; /* the first result after which the context cannot be used */
} plait_cuda_state_t;

static inline plait_cuda_state_t *plait_cuda_state(plait_device_t *device)
{
    return device->state;
}

static inline bool plait_cuda_is_single(plait_dtype_t dtype)
{
    return dtype == PLAIT_F32 || dtype == PLAIT_C64;
}

/* Real numbers of an element. */
static inline uint32_t plait_cuda_n_parts(plait_dtype_t dtype)
{
    return (plait_dtype_kind(dtype) == PLAIT_KIND_COMPLEX) ? 2 : 1;
}

static inline plait_cu_address_t plait_cu_address(const void *memory)
{
    return (plait_cu_address_t)(uintptr_t)memory;
}

/* The status of a driver function's result; `what`: what it was doing. NO_MEMORY, UNSUPPORTED, TRANSPORT. */
plait_status_t plait_cuda_must(plait_cuda_state_t *state, int result, const char *what);

/* Results of a library's functions, 0 for success: names by value, NULL for values without a name. */
typedef struct {
    const char *library;
    const char *const *names;
    int n_names;
    int no_memory;
    int unsupported[2];
} plait_cuda_results_t;

/* The same for a library's function. */
plait_status_t plait_cuda_library_must(const plait_device_t *device,
                                       const plait_cuda_results_t *results, int result,
                                       const char *what);

/* The results of cuSOLVER, cuSolverMg and cuSOLVERMp. */
extern const plait_cuda_results_t plait_cuda_solver_results, plait_cuda_mg_results,
    plait_cuda_mp_results;

/* `params` as the kernel's row says. */
plait_status_t plait_cuda_launch(plait_cuda_state_t *state, plait_stream_t stream,
                                 plait_cuda_kernel_t kernel, int64_t n_blocks,
                                 const void *params);

/* ---- The table's functions, by file --------------------------------------------------------- */

plait_status_t plait_cuda_take(plait_device_t *device, plait_stream_t stream,
                               int64_t n_bytes, void **memory_p);
void plait_cuda_give(plait_device_t *device, plait_stream_t stream, void *memory);
plait_status_t plait_cuda_host_take(plait_device_t *device, int64_t n_bytes,
                                    void **host_p);
void plait_cuda_host_give(plait_device_t *device, void *host);
/* Whether memory of plait's own begins there. If so, it is not freed while the device lives. */
bool plait_cuda_keep(plait_cuda_state_t *state, const void *memory);
/* Forgets a stream that is destroyed: the next stream may have its address. */
void plait_cuda_forget_stream(plait_cuda_state_t *state, plait_stream_t stream);
void plait_cuda_pools_release(plait_cuda_state_t *state);

plait_status_t plait_cuda_copy(plait_device_t *device, plait_stream_t stream, void *dst,
                               plait_device_t *from, const void *src, int64_t n_bytes);
/* Lets this device, whose context is current, reach the other one's memory if it can. *can_p: whether it can;
 * can_p may be NULL. */
plait_status_t plait_cuda_reach(plait_cuda_state_t *state, plait_cuda_state_t *from,
                                bool *can_p);

plait_status_t plait_cuda_memory_export(plait_device_t *device, const void *memory,
                                        int64_t n_bytes, bool may_be_virtual,
                                        plait_device_shown_t *shown_p);
plait_status_t plait_cuda_memory_import(plait_device_t *device,
                                        const plait_device_shown_t *shown,
                                        void **base_p);
void plait_cuda_memory_drop(plait_device_t *device, void *base);
plait_status_t plait_cuda_event_export(plait_device_t *device, plait_event_t **event_p,
                                       plait_device_handle_t *handle_p);
plait_status_t plait_cuda_event_import(plait_device_t *device,
                                       const plait_device_handle_t *handle,
                                       plait_event_t **event_p);
/* Whether other processes may have the event. If so, it is destroyed with the device. */
bool plait_cuda_event_is_shown(plait_cuda_state_t *state, const plait_event_t *event);
void plait_cuda_shown_release(plait_cuda_state_t *state);

/* The same for virtual memory. UNSUPPORTED: the memory is not virtual, or is in several blocks. */
plait_status_t plait_cuda_virtual_export(plait_cuda_state_t *state,
                                         plait_cu_address_t address, int64_t n_bytes,
                                         plait_device_shown_t *shown_p);
plait_status_t plait_cuda_virtual_import(plait_cuda_state_t *state,
                                         const plait_device_handle_t *handle,
                                         void **base_p);
/* Unmaps memory that import or take has mapped; false: neither has. */
bool plait_cuda_virtual_drop(plait_cuda_state_t *state, const void *base);
plait_status_t plait_cuda_virtual_take(plait_device_t *device, int64_t n_bytes,
                                       void **memory_p);
void plait_cuda_virtual_give(plait_device_t *device, void *memory);
void plait_cuda_virtual_release(plait_cuda_state_t *state);

plait_status_t plait_cuda_boxes(plait_device_t *device, plait_stream_t stream,
                                plait_dtype_t dtype, int64_t n_boxes,
                                const plait_device_box_t boxes[]);

plait_status_t plait_cuda_reduce(plait_device_t *device, plait_stream_t stream,
                                 plait_reduce_t op, plait_dtype_t dtype, int64_t n,
                                 int n_pieces, const void *const pieces[], void *dst);
plait_status_t plait_cuda_scale(plait_device_t *device, plait_stream_t stream,
                                plait_dtype_t dtype, int64_t n, double factor, void *x);

plait_status_t plait_cuda_fft_plan(plait_device_t *device,
                                   const plait_device_fft_t *fft,
                                   int64_t *work_bytes_p);
plait_status_t plait_cuda_fft(plait_device_t *device, plait_stream_t stream,
                              const plait_device_fft_t *fft, const void *in, void *out,
                              void *work);
void plait_cuda_ffts_release(plait_cuda_state_t *state);

plait_status_t plait_cuda_tile_plan(plait_device_t *device,
                                    const plait_device_tile_t *tile,
                                    int64_t *work_bytes_p);
plait_status_t plait_cuda_tile(plait_device_t *device, plait_stream_t stream,
                               const plait_device_tile_t *tile, void *work);

/* Several devices that work as one, and what is kept for that. */
extern const plait_device_joint_t plait_cuda_joint;
void plait_cuda_joint_release(void);

/* ---- Of tiles, by library; under the lock ----------------------------------------------------- */

/* cudaDataType of a matrix, and of its eigenvalues. */
int plait_cuda_type(plait_dtype_t dtype);
int plait_cuda_real_type(plait_dtype_t dtype);

/* cublasOperation_t: the adjoint of real numbers is their transpose. */
int plait_cuda_trans(plait_dtype_t dtype, char trans);

plait_status_t plait_cuda_blas_plan(plait_cuda_state_t *state, int64_t *work_bytes_p);
plait_status_t plait_cuda_blas(plait_cuda_state_t *state, plait_stream_t stream,
                               const plait_device_tile_t *tile, void *work);
void plait_cuda_blas_release(plait_cuda_state_t *state);

plait_status_t plait_cuda_solver_plan(plait_cuda_state_t *state,
                                      const plait_device_tile_t *tile,
                                      int64_t *work_bytes_p);
plait_status_t plait_cuda_solver(plait_cuda_state_t *state, plait_stream_t stream,
                                 const plait_device_tile_t *tile, void *work);

/* Runs a kernel for matrices (params.h) on the tile's matrices. */
plait_status_t plait_cuda_matrix(plait_cuda_state_t *state, plait_stream_t stream,
                                 const plait_device_tile_t *tile,
                                 plait_cuda_kernel_t of_single,
                                 plait_cuda_kernel_t of_double, double fill);

/* What cuSOLVER's eigenvalues need before and after. sizes: two numbers on the device, kept in between. */
plait_status_t plait_cuda_before(plait_cuda_state_t *state, plait_stream_t stream,
                                 const plait_device_tile_t *tile, int32_t *sizes);
plait_status_t plait_cuda_after(plait_cuda_state_t *state, plait_stream_t stream,
                                const plait_device_tile_t *tile, const int32_t *sizes);

/* Converts a library's outcome to *info, and pivots, if any, to the table's form. */
plait_status_t plait_cuda_judge(plait_cuda_state_t *state, plait_stream_t stream,
                                const plait_device_tile_t *tile, const int32_t *found,
                                const int64_t *pivots);
void plait_cuda_solver_release(plait_cuda_state_t *state);

#endif
