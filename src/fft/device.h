/* Local transforms on a device, by the device's own library; fft/pass.h does the same in host memory. An array
 * that one rank has whole takes one call. Without direct access nothing can be fused with moves. */
#ifndef PLAIT_FFT_DEVICE_H
#define PLAIT_FFT_DEVICE_H

#include "fft/stages.h"

/* Merges consecutive local stages into one. */
void plait_fft_device_merge(plait_fft_path_t *path);

/* Adds the transforms of a local stage, from the array in src_slot to stage->slot. */
plait_status_t plait_fft_device_stage(plait_fft_t *f, const plait_layout_t *from,
                                      const plait_fft_stage_t *stage, int src_slot);

/* Adds complex transforms along one axis of the array that a move has brought to stage->slot. */
plait_status_t plait_fft_device_axis(plait_fft_t *f, const plait_fft_stage_t *stage);

#endif
