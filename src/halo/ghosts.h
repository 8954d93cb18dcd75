/* Along one axis: which ghosts are copies of which cells. */
#ifndef PLAIT_HALO_GHOSTS_H
#define PLAIT_HALO_GHOSTS_H

#include "plait/halo.h"
#include "redist/blocks.h"

/* n cells, and how the axis continues beyond them. */
typedef struct {
    int64_t n;
    plait_boundary_t boundary;
} plait_halo_axis_t;

/* Appends the ghosts (indices, also outside [0, n)) that are copies of cells of `owned`. In the source's array
 * owned.lo is at src_start; in the destination's array ghosts.lo is at dst_start. */
plait_status_t plait_ghosts_add(const plait_halo_axis_t *axis, plait_interval_t owned,
                                int64_t src_start, plait_interval_t ghosts,
                                int64_t dst_start, plait_overlaps_t *list);

#endif
