/* Coordinates of ranks in a layout's grid. */
#ifndef PLAIT_LAYOUT_COORDS_H
#define PLAIT_LAYOUT_COORDS_H

#include "plait/layout.h"

/* coords gets grid_ndim entries. */
void plait_layout_coords(const plait_layout_t *layout, int rank, int coords[]);

int plait_layout_rank(const plait_layout_t *layout, const int coords[]);

#endif
