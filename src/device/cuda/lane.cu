// What the kernels share: lanes, the place of a thread, 16 bytes as elements. The files of this folder
// are one program, in the order device/element.h, params.h, lane.cu, boxes.cu, reduce.cu, scale.cu,
// matrix.cu.
// They need no header and keep to what C and CUDA have in common, so that the same text runs on a
// host, thread by thread: there the including file defines KERNEL.
#ifdef __CUDACC__
#define KERNEL     extern "C" __global__ void __launch_bounds__(PLAIT_CUDA_THREADS)
#define INLINE     static __device__ __forceinline__
#define SHARED     __shared__
#define PARAMS(_t) const __grid_constant__ _t
#define ANY_TYPE
#define NO_UNROLL _Pragma("unroll 1")
#define UNROLL    _Pragma("unroll")
#else
#define INLINE     static inline
#define SHARED     static
#define PARAMS(_t) const _t
#define ANY_TYPE   __attribute__((may_alias))
#define NO_UNROLL
#define UNROLL
#endif

typedef uint8_t lane1_t ANY_TYPE;
typedef uint16_t lane2_t ANY_TYPE;
typedef uint32_t lane4_t ANY_TYPE;
typedef uint64_t lane8_t ANY_TYPE;
#ifdef __CUDACC__
typedef ulonglong2 lane16_t; // a struct of plait's own is loaded in halves
#else
typedef struct {
    uint64_t word[2];
} __attribute__((aligned(16))) ANY_TYPE lane16_t;
#endif

// 16 bytes and their elements, which are named by their type.
typedef union {
    lane16_t lane;
    int8_t of_int8_t[16];
    int16_t of_int16_t[8];
    int32_t of_int32_t[4];
    int64_t of_int64_t[2];
    uint8_t of_uint8_t[16];
    uint16_t of_uint16_t[8];
    uint32_t of_uint32_t[4];
    uint64_t of_uint64_t[2];
    float of_float[4];
    double of_double[2];
} wide_t;

INLINE lane16_t load_wide(const char *p)
{
    return *(const lane16_t *)p;
}

INLINE void store_wide(char *p, lane16_t lane)
{
    *(lane16_t *)p = lane;
}

INLINE int64_t this_thread(void)
{
    return (int64_t)blockIdx.x * PLAIT_CUDA_THREADS + threadIdx.x;
}
