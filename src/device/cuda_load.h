/* CUDA's libraries, opened at run time. plait is not linked with them and does not need their headers. Types
 * and functions are declared here as in the libraries' ABI, by the names that the libraries export. A suffix
 * such as _v2 is part of the name, and the meaning of a name never changes.
 *
 * plait looks for the libraries in this order:
 *   PLAIT_CUDA_DIR     folders with ':' between them. The toolkit's libraries are then looked for
 *                      nowhere else; the driver is, if the folders have none
 *   loaded             libraries that the process has already loaded, by soname: JAX's
 *   wheels             site-packages/nvidia, from plait_cuda_wheels or the path of a loaded library
 *   the system         the loader's own search, then the usual folders
 * All libraries are of one major version of CUDA: that of the first one found, at most the driver's. */
#ifndef PLAIT_DEVICE_CUDA_LOAD_H
#define PLAIT_DEVICE_CUDA_LOAD_H

#include "plait/status.h"

#include <stddef.h>
#include <stdint.h>

/* The only list: enumerator, name, soname and folder of the wheel, for CUDA 13 and for CUDA 12. The first
 * libraries decide on the version. */
#define PLAIT_CUDA_LIBRARY_FOR_EACH(_row)                                             \
    _row(DRIVER, "driver", "libcuda.so.1", NULL, NULL, NULL)                          \
    _row(CUBLAS, "cuBLAS", "libcublas.so.13", "cu13/lib", "libcublas.so.12",          \
         "cublas/lib")                                                                \
    _row(CUFFT, "cuFFT", "libcufft.so.12", "cu13/lib", "libcufft.so.11", "cufft/lib") \
    _row(NVRTC, "NVRTC", "libnvrtc.so.13", "cu13/lib", "libnvrtc.so.12",              \
         "cuda_nvrtc/lib")                                                            \
    _row(CUSOLVER, "cuSOLVER", "libcusolver.so.12", "cu13/lib", "libcusolver.so.11",  \
         "cusolver/lib")                                                              \
    _row(NCCL, "NCCL", "libnccl.so.2", "nccl/lib", "libnccl.so.2", "nccl/lib")        \
    _row(CUSOLVER_MG, "cuSolverMg", "libcusolverMg.so.12", "cu13/lib",                \
         "libcusolverMg.so.11", "cusolver/lib")                                       \
    _row(CUSOLVER_MP, "cuSOLVERMp", "libcusolverMp.so.0", "cu13/lib",                 \
         "libcusolverMp.so.0", "cu12/lib")                                            \
    _row(NVSHMEM, "NVSHMEM", "libnvshmem_host.so.3", "nvshmem/lib",                   \
         "libnvshmem_host.so.3", "nvshmem/lib")

typedef enum {
#define PLAIT_CUDA_LIBRARY_ENUM(_library, ...) PLAIT_CUDA_##_library,
    PLAIT_CUDA_LIBRARY_FOR_EACH(PLAIT_CUDA_LIBRARY_ENUM)
#undef PLAIT_CUDA_LIBRARY_ENUM
        PLAIT_CUDA_N_LIBRARIES
} plait_cuda_library_t;

/* ---- Types: handles are pointers to what only the library knows ---------------------------- */

typedef struct plait_cu_context *plait_cu_context_t;
typedef struct plait_cu_module *plait_cu_module_t;
typedef struct plait_cu_function *plait_cu_function_t;
typedef struct plait_cu_stream *plait_cu_stream_t;
typedef struct plait_cu_event *plait_cu_event_t;
typedef struct plait_nvrtc_program *plait_nvrtc_program_t;
typedef int plait_cu_device_t;
typedef uint64_t plait_cu_address_t; /* CUdeviceptr: of the device, not of the host */
typedef int plait_cufft_t;
typedef struct plait_cublas *plait_cublas_t;
typedef struct plait_cusolver *plait_cusolver_t;
typedef struct plait_cusolver_params *plait_cusolver_params_t;
typedef struct plait_cusolver_mg *plait_cusolver_mg_t;
typedef struct plait_cusolver_mg_grid *plait_cusolver_mg_grid_t;
typedef struct plait_cusolver_mg_matrix *plait_cusolver_mg_matrix_t;
typedef struct plait_cusolver_mp *plait_cusolver_mp_t;
typedef struct plait_cusolver_mp_grid *plait_cusolver_mp_grid_t;
typedef struct plait_cusolver_mp_matrix *plait_cusolver_mp_matrix_t;

typedef struct plait_nccl_comm *plait_nccl_comm_t;
typedef struct plait_nccl_config plait_nccl_config_t;

/* ncclUniqueId, by value. */
typedef struct {
    char bytes[128];
} plait_nccl_unique_t;

/* nvshmemx_uniqueid_t and nvshmemx_init_attr_t. */
typedef struct plait_nvshmem_unique plait_nvshmem_unique_t;
typedef struct plait_nvshmem_attr plait_nvshmem_attr_t;

/* CUmemGenericAllocationHandle, CUmemAllocationProp, CUmemAccessDesc. */
typedef unsigned long long plait_cu_memory_t;
typedef struct plait_cu_memory_prop plait_cu_memory_prop_t;
typedef struct plait_cu_memory_access plait_cu_memory_access_t;

/* CUipcMemHandle and CUipcEventHandle. */
typedef struct {
    char bytes[64];
} plait_cu_ipc_t;

enum {
    PLAIT_CU_OK = 0,
    PLAIT_CU_NO_MEMORY = 2,
    PLAIT_CU_STUB = 34,
    PLAIT_CU_NOT_READY = 600,
    PLAIT_CU_NOT_SUPPORTED = 801,

    PLAIT_CU_MAJOR = 75, /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR */
    PLAIT_CU_MINOR = 76,
    PLAIT_CU_STREAM_NON_BLOCKING = 1,
    PLAIT_CU_EVENT_NO_TIMING = 2,
    PLAIT_CU_HOST_PORTABLE = 1, /* pinned for every context */

    PLAIT_CUFFT_R2C = 0x2a,
    PLAIT_CUFFT_C2R = 0x2c,
    PLAIT_CUFFT_C2C = 0x29,
    PLAIT_CUFFT_D2Z = 0x6a,
    PLAIT_CUFFT_Z2D = 0x6c,
    PLAIT_CUFFT_Z2Z = 0x69,

    PLAIT_CUDA_R_32F = 0, /* cudaDataType */
    PLAIT_CUDA_R_64F = 1,
    PLAIT_CUDA_C_32F = 4,
    PLAIT_CUDA_C_64F = 5,

    PLAIT_CUBLAS_N = 0, /* cublasOperation_t */
    PLAIT_CUBLAS_T = 1,
    PLAIT_CUBLAS_C = 2,
    PLAIT_CUBLAS_LOWER = 0, /* cublasFillMode_t */
    PLAIT_CUBLAS_UPPER = 1,
    PLAIT_CUBLAS_NON_UNIT = 0, /* cublasDiagType_t */
    PLAIT_CUBLAS_UNIT = 1,
    PLAIT_CUBLAS_LEFT = 0, /* cublasSideMode_t */
    PLAIT_CUBLAS_RIGHT = 1,

    PLAIT_CUSOLVER_MG_COLUMNS = 0, /* cusolverMgGridMapping_t: column-major */
    PLAIT_CUSOLVER_MP_COLUMNS = 0  /* cusolverMpGridMapping_t: the same */
};

/* ---- Functions: library, type of the result, name, types of the arguments ------------------ */

/* Functions that exist for four dtypes have untyped pointers here; scalars are on the host. */
#define PLAIT_CUBLAS_GEMM(_row, _name)                                             \
    _row(CUBLAS, int, _name,                                                       \
         (plait_cublas_t blas, int trans_a, int trans_b, int64_t m, int64_t n,     \
          int64_t k, const void *alpha, const void *a, int64_t lda, const void *b, \
          int64_t ldb, const void *beta, void *c, int64_t ldc))
#define PLAIT_CUBLAS_HERK(_row, _name)                                              \
    _row(CUBLAS, int, _name,                                                        \
         (plait_cublas_t blas, int uplo, int trans, int64_t n, int64_t k,           \
          const void *alpha, const void *a, int64_t lda, const void *beta, void *c, \
          int64_t ldc))
#define PLAIT_CUBLAS_TRSM(_row, _name)                                             \
    _row(CUBLAS, int, _name,                                                       \
         (plait_cublas_t blas, int side, int uplo, int trans, int diag, int64_t m, \
          int64_t n, const void *alpha, const void *a, int64_t lda, void *b,       \
          int64_t ldb))
#define PLAIT_CUBLAS_TRMM(_row, _name)                                             \
    _row(CUBLAS, int, _name,                                                       \
         (plait_cublas_t blas, int side, int uplo, int trans, int diag, int64_t m, \
          int64_t n, const void *alpha, const void *a, int64_t lda, const void *b, \
          int64_t ldb, void *c, int64_t ldc))
#define PLAIT_CUSOLVER_ORMQR_SIZE(_row, _name)                               \
    _row(CUSOLVER, int, _name,                                               \
         (plait_cusolver_t solver, int side, int trans, int m, int n, int k, \
          const void *a, int lda, const void *tau, const void *c, int ldc,   \
          int *n_work))
#define PLAIT_CUSOLVER_ORMQR(_row, _name)                                        \
    _row(CUSOLVER, int, _name,                                                   \
         (plait_cusolver_t solver, int side, int trans, int m, int n, int k,     \
          const void *a, int lda, const void *tau, void *c, int ldc, void *work, \
          int n_work, int *info))

#define PLAIT_CUDA_SYMBOL_FOR_EACH(_row)                                               \
    _row(DRIVER, int, cuInit, (unsigned flags))                                        \
    _row(DRIVER, int, cuDriverGetVersion, (int *version))                              \
    _row(DRIVER, int, cuGetErrorName, (int result, const char **name))                 \
    _row(DRIVER, int, cuGetErrorString, (int result, const char **text))               \
    _row(DRIVER, int, cuDeviceGet, (plait_cu_device_t * device, int ordinal))          \
    _row(DRIVER, int, cuDeviceGetCount, (int *n_devices))                              \
    _row(DRIVER, int, cuDeviceGetName, (char *name, int n, plait_cu_device_t device))  \
    _row(DRIVER, int, cuDeviceTotalMem_v2, (size_t * n, plait_cu_device_t device))     \
    _row(DRIVER, int, cuDeviceGetAttribute,                                            \
         (int *value, int attribute, plait_cu_device_t device))                        \
    _row(DRIVER, int, cuDevicePrimaryCtxRetain,                                        \
         (plait_cu_context_t * context, plait_cu_device_t device))                     \
    _row(DRIVER, int, cuDevicePrimaryCtxRelease_v2, (plait_cu_device_t device))        \
    _row(DRIVER, int, cuCtxPushCurrent_v2, (plait_cu_context_t context))               \
    _row(DRIVER, int, cuCtxPopCurrent_v2, (plait_cu_context_t * context))              \
    _row(DRIVER, int, cuCtxSynchronize, (void))                                        \
    _row(DRIVER, int, cuMemAlloc_v2, (plait_cu_address_t * memory, size_t n))          \
    _row(DRIVER, int, cuMemFree_v2, (plait_cu_address_t memory))                       \
    _row(DRIVER, int, cuMemHostAlloc, (void **host, size_t n, unsigned flags))         \
    _row(DRIVER, int, cuMemFreeHost, (void *host))                                     \
    _row(DRIVER, int, cuMemcpyDtoHAsync_v2,                                            \
         (void *dst, plait_cu_address_t src, size_t n, plait_cu_stream_t stream))      \
    _row(                                                                              \
        DRIVER, int, cuMemcpyHtoDAsync_v2,                                             \
        (plait_cu_address_t dst, const void *src, size_t n, plait_cu_stream_t stream)) \
    _row(DRIVER, int, cuMemcpyDtoDAsync_v2,                                            \
         (plait_cu_address_t dst, plait_cu_address_t src, size_t n,                    \
          plait_cu_stream_t stream))                                                   \
    _row(DRIVER, int, cuMemcpyPeerAsync,                                               \
         (plait_cu_address_t dst, plait_cu_context_t to, plait_cu_address_t src,       \
          plait_cu_context_t from, size_t n, plait_cu_stream_t stream))                \
    _row(DRIVER, int, cuDeviceCanAccessPeer,                                           \
         (int *can, plait_cu_device_t device, plait_cu_device_t peer))                 \
    _row(DRIVER, int, cuCtxEnablePeerAccess,                                           \
         (plait_cu_context_t peer, unsigned flags))                                    \
    _row(DRIVER, int, cuPointerGetAttribute,                                           \
         (void *value, int attribute, plait_cu_address_t memory))                      \
    _row(DRIVER, int, cuMemGetAddressRange_v2,                                         \
         (plait_cu_address_t * base, size_t * n, plait_cu_address_t memory))           \
    _row(DRIVER, int, cuIpcGetMemHandle,                                               \
         (plait_cu_ipc_t * handle, plait_cu_address_t base))                           \
    _row(DRIVER, int, cuIpcOpenMemHandle_v2,                                           \
         (plait_cu_address_t * base, plait_cu_ipc_t handle, unsigned flags))           \
    _row(DRIVER, int, cuIpcCloseMemHandle, (plait_cu_address_t base))                  \
    _row(DRIVER, int, cuIpcGetEventHandle,                                             \
         (plait_cu_ipc_t * handle, plait_cu_event_t event))                            \
    _row(DRIVER, int, cuIpcOpenEventHandle,                                            \
         (plait_cu_event_t * event, plait_cu_ipc_t handle))                            \
    _row(DRIVER, int, cuStreamCreate, (plait_cu_stream_t * stream, unsigned flags))    \
    _row(DRIVER, int, cuStreamDestroy_v2, (plait_cu_stream_t stream))                  \
    _row(DRIVER, int, cuStreamSynchronize, (plait_cu_stream_t stream))                 \
    _row(DRIVER, int, cuStreamWaitEvent,                                               \
         (plait_cu_stream_t stream, plait_cu_event_t event, unsigned flags))           \
    _row(DRIVER, int, cuEventCreate, (plait_cu_event_t * event, unsigned flags))       \
    _row(DRIVER, int, cuEventDestroy_v2, (plait_cu_event_t event))                     \
    _row(DRIVER, int, cuEventRecord,                                                   \
         (plait_cu_event_t event, plait_cu_stream_t stream))                           \
    _row(DRIVER, int, cuEventQuery, (plait_cu_event_t event))                          \
    _row(DRIVER, int, cuEventSynchronize, (plait_cu_event_t event))                    \
    _row(DRIVER, int, cuModuleLoadDataEx,                                              \
         (plait_cu_module_t * module, const void *image, unsigned n_options,           \
          int *options, void **values))                                                \
    _row(DRIVER, int, cuModuleUnload, (plait_cu_module_t module))                      \
    _row(DRIVER, int, cuModuleGetFunction,                                             \
         (plait_cu_function_t * function, plait_cu_module_t module, const char *name)) \
    _row(DRIVER, int, cuLaunchKernel,                                                  \
         (plait_cu_function_t function, unsigned grid_x, unsigned grid_y,              \
          unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,       \
          unsigned n_shared, plait_cu_stream_t stream, void **params, void **extra))   \
                                                                                       \
    _row(NVRTC, int, nvrtcVersion, (int *major, int *minor))                           \
    _row(NVRTC, const char *, nvrtcGetErrorString, (int result))                       \
    _row(NVRTC, int, nvrtcGetNumSupportedArchs, (int *n))                              \
    _row(NVRTC, int, nvrtcGetSupportedArchs, (int *archs))                             \
    _row(NVRTC, int, nvrtcCreateProgram,                                               \
         (plait_nvrtc_program_t * program, const char *source, const char *name,       \
          int n_headers, const char *const *headers, const char *const *names))        \
    _row(NVRTC, int, nvrtcDestroyProgram, (plait_nvrtc_program_t * program))           \
    _row(NVRTC, int, nvrtcCompileProgram,                                              \
         (plait_nvrtc_program_t program, int n_options, const char *const *options))   \
    _row(NVRTC, int, nvrtcGetProgramLogSize,                                           \
         (plait_nvrtc_program_t program, size_t * n))                                  \
    _row(NVRTC, int, nvrtcGetProgramLog, (plait_nvrtc_program_t program, char *log))   \
    _row(NVRTC, int, nvrtcGetPTXSize, (plait_nvrtc_program_t program, size_t * n))     \
    _row(NVRTC, int, nvrtcGetPTX, (plait_nvrtc_program_t program, char *ptx))          \
    _row(NVRTC, int, nvrtcGetCUBINSize, (plait_nvrtc_program_t program, size_t * n))   \
    _row(NVRTC, int, nvrtcGetCUBIN, (plait_nvrtc_program_t program, char *cubin))      \
                                                                                       \
    _row(CUFFT, int, cufftGetProperty, (int which, int *value))                        \
    _row(CUFFT, int, cufftCreate, (plait_cufft_t * plan))                              \
    _row(CUFFT, int, cufftDestroy, (plait_cufft_t plan))                               \
    _row(CUFFT, int, cufftSetAutoAllocation, (plait_cufft_t plan, int is_automatic))   \
    _row(CUFFT, int, cufftMakePlanMany64,                                              \
         (plait_cufft_t plan, int ndim, long long *n, long long *in_embed,             \
          long long in_stride, long long in_distance, long long *out_embed,            \
          long long out_stride, long long out_distance, int type, long long n_batch,   \
          size_t *n_work))                                                             \
    _row(CUFFT, int, cufftSetWorkArea, (plait_cufft_t plan, void *work))               \
    _row(CUFFT, int, cufftSetStream, (plait_cufft_t plan, plait_cu_stream_t stream))   \
    _row(CUFFT, int, cufftXtExec, (plait_cufft_t plan, void *in, void *out, int sign)) \
                                                                                       \
    _row(CUBLAS, int, cublasGetProperty, (int which, int *value))                      \
    _row(CUBLAS, int, cublasCreate_v2, (plait_cublas_t * blas))                        \
    _row(CUBLAS, int, cublasDestroy_v2, (plait_cublas_t blas))                         \
    _row(CUBLAS, int, cublasSetStream_v2,                                              \
         (plait_cublas_t blas, plait_cu_stream_t stream))                              \
    _row(CUBLAS, int, cublasSetWorkspace_v2,                                           \
         (plait_cublas_t blas, void *work, size_t n_bytes))                            \
    PLAIT_CUBLAS_GEMM(_row, cublasSgemm_v2_64)                                         \
    PLAIT_CUBLAS_GEMM(_row, cublasDgemm_v2_64)                                         \
    PLAIT_CUBLAS_GEMM(_row, cublasCgemm_v2_64)                                         \
    PLAIT_CUBLAS_GEMM(_row, cublasZgemm_v2_64)                                         \
    PLAIT_CUBLAS_HERK(_row, cublasSsyrk_v2_64)                                         \
    PLAIT_CUBLAS_HERK(_row, cublasDsyrk_v2_64)                                         \
    PLAIT_CUBLAS_HERK(_row, cublasCherk_v2_64)                                         \
    PLAIT_CUBLAS_HERK(_row, cublasZherk_v2_64)                                         \
    PLAIT_CUBLAS_TRSM(_row, cublasStrsm_v2_64)                                         \
    PLAIT_CUBLAS_TRSM(_row, cublasDtrsm_v2_64)                                         \
    PLAIT_CUBLAS_TRSM(_row, cublasCtrsm_v2_64)                                         \
    PLAIT_CUBLAS_TRSM(_row, cublasZtrsm_v2_64)                                         \
    PLAIT_CUBLAS_TRMM(_row, cublasStrmm_v2_64)                                         \
    PLAIT_CUBLAS_TRMM(_row, cublasDtrmm_v2_64)                                         \
    PLAIT_CUBLAS_TRMM(_row, cublasCtrmm_v2_64)                                         \
    PLAIT_CUBLAS_TRMM(_row, cublasZtrmm_v2_64)                                         \
                                                                                       \
    _row(CUSOLVER, int, cusolverGetProperty, (int which, int *value))                  \
    _row(CUSOLVER, int, cusolverDnCreate, (plait_cusolver_t * solver))                 \
    _row(CUSOLVER, int, cusolverDnDestroy, (plait_cusolver_t solver))                  \
    _row(CUSOLVER, int, cusolverDnSetStream,                                           \
         (plait_cusolver_t solver, plait_cu_stream_t stream))                          \
    _row(CUSOLVER, int, cusolverDnCreateParams, (plait_cusolver_params_t * params))    \
    _row(CUSOLVER, int, cusolverDnDestroyParams, (plait_cusolver_params_t params))     \
    _row(CUSOLVER, int, cusolverDnXpotrf_bufferSize,                                   \
         (plait_cusolver_t solver, plait_cusolver_params_t params, int uplo,           \
          int64_t n, int type, const void *a, int64_t lda, int compute,                \
          size_t *n_device, size_t *n_host))                                           \
    _row(CUSOLVER, int, cusolverDnXpotrf,                                              \
         (plait_cusolver_t solver, plait_cusolver_params_t params, int uplo,           \
          int64_t n, int type, void *a, int64_t lda, int compute, void *device,        \
          size_t n_device, void *host, size_t n_host, int *info))                      \
    _row(CUSOLVER, int, cusolverDnXgetrf_bufferSize,                                   \
         (plait_cusolver_t solver, plait_cusolver_params_t params, int64_t m,          \
          int64_t n, int type, const void *a, int64_t lda, int compute,                \
          size_t *n_device, size_t *n_host))                                           \
    _row(CUSOLVER, int, cusolverDnXgetrf,                                              \
         (plait_cusolver_t solver, plait_cusolver_params_t params, int64_t m,          \
          int64_t n, int type, void *a, int64_t lda, int64_t *pivots, int compute,     \
          void *device, size_t n_device, void *host, size_t n_host, int *info))        \
    _row(CUSOLVER, int, cusolverDnXgeqrf_bufferSize,                                   \
         (plait_cusolver_t solver, plait_cusolver_params_t params, int64_t m,          \
          int64_t n, int type, const void *a, int64_t lda, int type_tau,               \
          const void *tau, int compute, size_t *n_device, size_t *n_host))             \
    _row(CUSOLVER, int, cusolverDnXgeqrf,                                              \
         (plait_cusolver_t solver, plait_cusolver_params_t params, int64_t m,          \
          int64_t n, int type, void *a, int64_t lda, int type_tau, void *tau,          \
          int compute, void *device, size_t n_device, void *host, size_t n_host,       \
          int *info))                                                                  \
    _row(CUSOLVER, int, cusolverDnXsyevd_bufferSize,                                   \
         (plait_cusolver_t solver, plait_cusolver_params_t params, int has_vectors,    \
          int uplo, int64_t n, int type, const void *a, int64_t lda, int type_w,       \
          const void *w, int compute, size_t *n_device, size_t *n_host))               \
    _row(CUSOLVER, int, cusolverDnXsyevd,                                              \
         (plait_cusolver_t solver, plait_cusolver_params_t params, int has_vectors,    \
          int uplo, int64_t n, int type, void *a, int64_t lda, int type_w, void *w,    \
          int compute, void *device, size_t n_device, void *host, size_t n_host,       \
          int *info))                                                                  \
    PLAIT_CUSOLVER_ORMQR_SIZE(_row, cusolverDnSormqr_bufferSize)                       \
    PLAIT_CUSOLVER_ORMQR_SIZE(_row, cusolverDnDormqr_bufferSize)                       \
    PLAIT_CUSOLVER_ORMQR_SIZE(_row, cusolverDnCunmqr_bufferSize)                       \
    PLAIT_CUSOLVER_ORMQR_SIZE(_row, cusolverDnZunmqr_bufferSize)                       \
    PLAIT_CUSOLVER_ORMQR(_row, cusolverDnSormqr)                                       \
    PLAIT_CUSOLVER_ORMQR(_row, cusolverDnDormqr)                                       \
    PLAIT_CUSOLVER_ORMQR(_row, cusolverDnCunmqr)                                       \
    PLAIT_CUSOLVER_ORMQR(_row, cusolverDnZunmqr)                                       \
                                                                                       \
    _row(NCCL, int, ncclGetVersion, (int *version))                                    \
    _row(NCCL, const char *, ncclGetErrorString, (int result))                         \
    _row(NCCL, const char *, ncclGetLastError, (plait_nccl_comm_t comm))               \
    _row(NCCL, int, ncclGetUniqueId, (plait_nccl_unique_t * id))                       \
    _row(NCCL, int, ncclCommInitRankConfig,                                            \
         (plait_nccl_comm_t * comm, int n_ranks, plait_nccl_unique_t id, int rank,     \
          plait_nccl_config_t *config))                                                \
    _row(NCCL, int, ncclCommGetAsyncError, (plait_nccl_comm_t comm, int *result))      \
    _row(NCCL, int, ncclCommAbort, (plait_nccl_comm_t comm))                           \
    _row(NCCL, int, ncclCommDestroy, (plait_nccl_comm_t comm))                         \
    _row(NCCL, int, ncclGroupStart, (void))                                            \
    _row(NCCL, int, ncclGroupEnd, (void))                                              \
    _row(NCCL, int, ncclSend,                                                          \
         (const void *data, size_t n, int type, int peer, plait_nccl_comm_t comm,      \
          plait_cu_stream_t stream))                                                   \
    _row(NCCL, int, ncclRecv,                                                          \
         (void *data, size_t n, int type, int peer, plait_nccl_comm_t comm,            \
          plait_cu_stream_t stream))                                                   \
                                                                                       \
    _row(CUSOLVER_MG, int, cusolverMgCreate, (plait_cusolver_mg_t * solver))           \
    _row(CUSOLVER_MG, int, cusolverMgDestroy, (plait_cusolver_mg_t solver))            \
    _row(CUSOLVER_MG, int, cusolverMgDeviceSelect,                                     \
         (plait_cusolver_mg_t solver, int n_devices, int ids[]))                       \
    _row(CUSOLVER_MG, int, cusolverMgCreateDeviceGrid,                                 \
         (plait_cusolver_mg_grid_t * grid, int32_t n_rows, int32_t n_columns,          \
          const int32_t ids[], int mapping))                                           \
    _row(CUSOLVER_MG, int, cusolverMgDestroyGrid, (plait_cusolver_mg_grid_t grid))     \
    _row(CUSOLVER_MG, int, cusolverMgCreateMatrixDesc,                                 \
         (plait_cusolver_mg_matrix_t * matrix, int64_t m, int64_t n,                   \
          int64_t row_block, int64_t column_block, int type,                           \
          plait_cusolver_mg_grid_t grid))                                              \
    _row(CUSOLVER_MG, int, cusolverMgDestroyMatrixDesc,                                \
         (plait_cusolver_mg_matrix_t matrix))                                          \
    _row(CUSOLVER_MG, int, cusolverMgSyevd_bufferSize,                                 \
         (plait_cusolver_mg_t solver, int has_vectors, int uplo, int n, void *a[],     \
          int row, int column, plait_cusolver_mg_matrix_t matrix, void *w, int type_w, \
          int compute, int64_t *n_work))                                               \
    _row(CUSOLVER_MG, int, cusolverMgSyevd,                                            \
         (plait_cusolver_mg_t solver, int has_vectors, int uplo, int n, void *a[],     \
          int row, int column, plait_cusolver_mg_matrix_t matrix, void *w, int type_w, \
          int compute, void *work[], int64_t n_work, int *info))                       \
    _row(CUSOLVER_MG, int, cusolverMgPotrf_bufferSize,                                 \
         (plait_cusolver_mg_t solver, int uplo, int n, void *a[], int row, int column, \
          plait_cusolver_mg_matrix_t matrix, int compute, int64_t *n_work))            \
    _row(CUSOLVER_MG, int, cusolverMgPotrf,                                            \
         (plait_cusolver_mg_t solver, int uplo, int n, void *a[], int row, int column, \
          plait_cusolver_mg_matrix_t matrix, int compute, void *work[],                \
          int64_t n_work, int *info))                                                  \
    _row(CUSOLVER_MG, int, cusolverMgPotrs_bufferSize,                                 \
         (plait_cusolver_mg_t solver, int uplo, int n, int n_rhs, void *a[], int row,  \
          int column, plait_cusolver_mg_matrix_t matrix, void *b[], int row_b,         \
          int column_b, plait_cusolver_mg_matrix_t rhs, int compute, int64_t *n_work)) \
    _row(CUSOLVER_MG, int, cusolverMgPotrs,                                            \
         (plait_cusolver_mg_t solver, int uplo, int n, int n_rhs, void *a[], int row,  \
          int column, plait_cusolver_mg_matrix_t matrix, void *b[], int row_b,         \
          int column_b, plait_cusolver_mg_matrix_t rhs, int compute, void *work[],     \
          int64_t n_work, int *info))                                                  \
    _row(CUSOLVER_MG, int, cusolverMgPotri_bufferSize,                                 \
         (plait_cusolver_mg_t solver, int uplo, int n, void *a[], int row, int column, \
          plait_cusolver_mg_matrix_t matrix, int compute, int64_t *n_work))            \
    _row(CUSOLVER_MG, int, cusolverMgPotri,                                            \
         (plait_cusolver_mg_t solver, int uplo, int n, void *a[], int row, int column, \
          plait_cusolver_mg_matrix_t matrix, int compute, void *work[],                \
          int64_t n_work, int *info))                                                  \
                                                                                       \
    _row(CUSOLVER_MP, int, cusolverMpCreate,                                           \
         (plait_cusolver_mp_t * solver, int id, plait_cu_stream_t stream))             \
    _row(CUSOLVER_MP, int, cusolverMpDestroy, (plait_cusolver_mp_t solver))            \
    _row(CUSOLVER_MP, int, cusolverMpGetVersion,                                       \
         (plait_cusolver_mp_t solver, int *version))                                   \
    _row(CUSOLVER_MP, int, cusolverMpSetStream,                                        \
         (plait_cusolver_mp_t solver, plait_cu_stream_t stream))                       \
    _row(CUSOLVER_MP, int, cusolverMpCreateDeviceGrid,                                 \
         (plait_cusolver_mp_t solver, plait_cusolver_mp_grid_t * grid,                 \
          plait_nccl_comm_t comm, int32_t n_rows, int32_t n_columns, int mapping))     \
    _row(CUSOLVER_MP, int, cusolverMpDestroyGrid, (plait_cusolver_mp_grid_t grid))     \
    _row(CUSOLVER_MP, int, cusolverMpCreateMatrixDesc,                                 \
         (plait_cusolver_mp_matrix_t * matrix, plait_cusolver_mp_grid_t grid,          \
          int type, int64_t m, int64_t n, int64_t row_block, int64_t column_block,     \
          uint32_t first_row, uint32_t first_column, int64_t ld))                      \
    _row(CUSOLVER_MP, int, cusolverMpDestroyMatrixDesc,                                \
         (plait_cusolver_mp_matrix_t matrix))                                          \
    _row(CUSOLVER_MP, int, cusolverMpSyevd_bufferSize,                                 \
         (plait_cusolver_mp_t solver, char *job, int uplo, int64_t n, void *a,         \
          int64_t row, int64_t column, plait_cusolver_mp_matrix_t matrix, void *w,     \
          void *v, int64_t row_v, int64_t column_v,                                    \
          plait_cusolver_mp_matrix_t matrix_v, int compute, size_t *n_device,          \
          size_t *n_host))                                                             \
    _row(CUSOLVER_MP, int, cusolverMpSyevd,                                            \
         (plait_cusolver_mp_t solver, char *job, int uplo, int64_t n, void *a,         \
          int64_t row, int64_t column, plait_cusolver_mp_matrix_t matrix, void *w,     \
          void *v, int64_t row_v, int64_t column_v,                                    \
          plait_cusolver_mp_matrix_t matrix_v, int compute, void *device,              \
          size_t n_device, void *host, size_t n_host, int *info))                      \
                                                                                       \
    _row(NVSHMEM, void, nvshmemx_vendor_get_version_info,                              \
         (int *major, int *minor, int *patch))                                         \
    _row(NVSHMEM, int, nvshmemx_init_status, (void))                                   \
    _row(NVSHMEM, int, nvshmemx_get_uniqueid, (plait_nvshmem_unique_t * id))           \
    _row(NVSHMEM, int, nvshmemx_set_attr_uniqueid_args,                                \
         (int pe, int n_pes, const plait_nvshmem_unique_t *id,                         \
          plait_nvshmem_attr_t *attr))                                                 \
    _row(NVSHMEM, int, nvshmemx_hostlib_init_attr,                                     \
         (unsigned flags, plait_nvshmem_attr_t *attr))                                 \
    _row(NVSHMEM, int, nvshmem_my_pe, (void))                                          \
    _row(NVSHMEM, int, nvshmem_n_pes, (void))                                          \
    _row(NVSHMEM, void *, nvshmem_malloc, (size_t n))                                  \
    _row(NVSHMEM, void, nvshmemx_putmem_signal_on_stream,                              \
         (void *dst, const void *src, size_t n, uint64_t *signal, uint64_t value,      \
          int operation, int pe, plait_cu_stream_t stream))                            \
    _row(NVSHMEM, void, nvshmemx_signal_op_on_stream,                                  \
         (uint64_t * signal, uint64_t value, int operation, int pe,                    \
          plait_cu_stream_t stream))                                                   \
    _row(NVSHMEM, void, nvshmemx_signal_wait_until_on_stream,                          \
         (uint64_t * signal, int compare, uint64_t value, plait_cu_stream_t stream))   \
    _row(NVSHMEM, void, nvshmemx_quiet_on_stream, (plait_cu_stream_t stream))

/* Virtual memory that other processes may map. */
#define PLAIT_CUDA_VIRTUAL_FOR_EACH(_row)                                              \
    _row(DRIVER, int, cuMemGetAllocationGranularity,                                   \
         (size_t * grain, const plait_cu_memory_prop_t *prop, int option))             \
    _row(DRIVER, int, cuMemCreate,                                                     \
         (plait_cu_memory_t * memory, size_t n, const plait_cu_memory_prop_t *prop,    \
          unsigned long long flags))                                                   \
    _row(DRIVER, int, cuMemRelease, (plait_cu_memory_t memory))                        \
    _row(DRIVER, int, cuMemRetainAllocationHandle,                                     \
         (plait_cu_memory_t * memory, void *address))                                  \
    _row(DRIVER, int, cuMemExportToShareableHandle,                                    \
         (void *handle, plait_cu_memory_t memory, int type, unsigned long long flags)) \
    _row(DRIVER, int, cuMemImportFromShareableHandle,                                  \
         (plait_cu_memory_t * memory, void *handle, int type))                         \
    _row(DRIVER, int, cuMemAddressReserve,                                             \
         (plait_cu_address_t * base, size_t n, size_t alignment,                       \
          plait_cu_address_t wish, unsigned long long flags))                          \
    _row(DRIVER, int, cuMemAddressFree, (plait_cu_address_t base, size_t n))           \
    _row(DRIVER, int, cuMemMap,                                                        \
         (plait_cu_address_t base, size_t n, size_t offset, plait_cu_memory_t memory,  \
          unsigned long long flags))                                                   \
    _row(DRIVER, int, cuMemUnmap, (plait_cu_address_t base, size_t n))                 \
    _row(DRIVER, int, cuMemSetAccess,                                                  \
         (plait_cu_address_t base, size_t n, const plait_cu_memory_access_t *access,   \
          size_t n_access))

/* A driver may lack these: the pointers are NULL then. */
#define PLAIT_CUDA_OPTIONAL_FOR_EACH(_row) \
    PLAIT_CUDA_VIRTUAL_FOR_EACH(_row)      \
    _row(DRIVER, int, cuFuncLoad, (plait_cu_function_t function))

/* Pointers to the functions of the libraries that plait_cuda_require has opened. */
typedef struct {
#define PLAIT_CUDA_SYMBOL_MEMBER(_library, _type, _symbol, _arguments) \
    _type(*_symbol) _arguments;
    PLAIT_CUDA_SYMBOL_FOR_EACH(PLAIT_CUDA_SYMBOL_MEMBER)
    PLAIT_CUDA_OPTIONAL_FOR_EACH(PLAIT_CUDA_SYMBOL_MEMBER)
#undef PLAIT_CUDA_SYMBOL_MEMBER
} plait_cuda_t;

/** Opens a library if needed; from any thread. UNSUPPORTED: what was looked for and where, or what the library
 *  lacks. The answer is kept. */
plait_status_t plait_cuda_require(plait_cuda_library_t library,
                                  const plait_cuda_t **cuda_p);

/** The driver, after cuInit. UNSUPPORTED: there is no driver, or the driver says that there is no device. */
plait_status_t plait_cuda_start(const plait_cuda_t **cuda_p);

/** File of an open library; "" if it is not known. */
const char *plait_cuda_path(plait_cuda_library_t library);

/** site-packages/nvidia, from Python, which knows its path. Called before the first library is opened. */
PLAIT_EXPORT void plait_cuda_wheels(const char *folder);

/** What was found of library i, for people: its name, and "13.0, file (where)" or why it was not found. NULL
 *  outside 0 <= i < PLAIT_CUDA_N_LIBRARIES. Opens the library. Static until plait_cuda_forget. */
PLAIT_EXPORT const char *plait_cuda_name(int i);
PLAIT_EXPORT const char *plait_cuda_say(int i);

/** Forgets everything, for tests: no other function may be running. */
void plait_cuda_forget(void);

#endif
