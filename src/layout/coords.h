/* Coordinates of ranks in a layout's grid. */
#ifndef PLAIT_LAYOUT_COORDS_H
#define PLAIT_LAYOUT_COORDS_H

#include "plait/layout.h"

/* coords gets grid_ndim entries. */
void plait_layout_coords(const plait_layout_t *layout, int rank, int coords[]);

int plait_layout_rank(const plait_layout_t *layout, const int coords[]);

/* Byte strides of a row-major array. */
void plait_row_major_strides(int ndim, const int64_t shape[], int64_t item_bytes,
                             int64_t stride[]);

#endif
