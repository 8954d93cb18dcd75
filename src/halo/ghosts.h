/* Along one axis: which ghosts are copies of which cells. */
#ifndef PLAIT_HALO_GHOSTS_H
#define PLAIT_HALO_GHOSTS_H

#include "plait/halo.h"
#include "redist/blocks.h"

/* n cells, and what continues them. */
typedef struct {
    int64_t n;
    plait_boundary_t boundary;
} plait_halo_axis_t;

/* Appends the ghosts (indices, also outside [0, n)) that are copies of cells of `owned`. The
 * source's array has owned.lo at src_start, the destination's has ghosts.lo at dst_start. */
plait_status_t plait_ghosts_add(const plait_halo_axis_t *axis, plait_interval_t owned,
                                int64_t src_start, plait_interval_t ghosts,
                                int64_t dst_start, plait_overlaps_t *list);

#endif
