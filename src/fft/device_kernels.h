/* Kernels of transforms on a device: a call of its library, and what surrounds it. */
#ifndef PLAIT_FFT_DEVICE_KERNELS_H
#define PLAIT_FFT_DEVICE_KERNELS_H

#include "plait/layout.h"
#include "plan/plan.h"

/* One of the library's transforms, repeated along loops. */
typedef struct {
    plait_device_fft_t fft;
    int rank, src_slot, dst_slot;
    int64_t src_bytes, dst_bytes; /* of an element */
    int n_loops;
    int64_t count[PLAIT_MAX_NDIM];
    int64_t src_stride[PLAIT_MAX_NDIM], dst_stride[PLAIT_MAX_NDIM]; /* elements */
    plait_box_copy_t src, dst; /* all elements that are read and written */
    /* Either side may be in scratch, from scratch_at on: operands are brought there before, results are taken
     * from there afterwards. */
    bool is_from_scratch, is_to_scratch;
    int64_t scratch_at, n_scratch;
    plait_box_copy_t bring, take;
} plait_fft_call_t;

extern const plait_kernel_t plait_fft_call_kernel;

/* Number of calls of the library: one for each index of the loops. */
int64_t plait_fft_call_count(const plait_fft_call_t *call);

/* Of n complex numbers, multiplies those in `part`, from byte `middle` on, by `weight`, then conjugates all n.
 * Works through a copy in scratch. */
typedef struct {
    int rank, slot;
    plait_dtype_t dtype;
    double weight;
    bool conjugates;
    int64_t n, item_bytes, middle;
    plait_box_copy_t part, all;
} plait_fft_weight_t;

extern const plait_kernel_t plait_fft_weight_kernel;

typedef struct {
    int rank, slot;
    plait_dtype_t dtype;
    int64_t n;
    double factor;
    plait_box_copy_t all;
} plait_fft_scale_t;

extern const plait_kernel_t plait_fft_scale_kernel;

#endif
