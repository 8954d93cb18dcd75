/* Where the array between two stages of a transform is kept, and its layout in memory. */
#ifndef PLAIT_FFT_SLOTS_H
#define PLAIT_FFT_SLOTS_H

#include "fft/stages.h"

typedef struct {
    const plait_layout_t *layout;
    bool is_real;
    int slot;
    int moved; /* see plait_fft_stage_t */
} plait_fft_array_t;

plait_fft_array_t plait_fft_result_of(const plait_fft_stage_t *stage);

int64_t plait_fft_item_bytes(const plait_fft_t *f, bool is_real);

/* Bytes of a rank's part of a layout, including padding. */
int64_t plait_fft_local_bytes(const plait_fft_t *f, const plait_layout_t *layout,
                              bool is_real, int rank);

bool plait_fft_has_padding(const plait_layout_t *layout);

/* Bytes from element to element of a rank's part of an array, along every axis, as passes see it. Returns the
 * bytes of the part. */
int64_t plait_fft_slot_strides(const plait_fft_t *f, const plait_fft_array_t *x,
                               int rank, int64_t stride[]);

/* The same for the whole result. */
void plait_fft_result_strides(const plait_fft_t *f, bool is_real, int rank,
                              int64_t stride[]);

/* Gives every stage of f->path its slot and order of axes, and f->plan the work arrays. */
plait_status_t plait_fft_assign_slots(plait_fft_t *f);

#endif
