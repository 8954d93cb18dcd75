/* Parameters of halo_exchange and halo_reduce. */
#ifndef PLAIT_HALO_PARAMS_H
#define PLAIT_HALO_PARAMS_H

#include "plait/layout.h"

typedef struct {
    int64_t n_layout, n_before, n_after, n_boundary;
    int64_t
        layout[PLAIT_LAYOUT_WORDS]; /* plait_layout_pack, of the cells without ghosts */
    int64_t before[PLAIT_MAX_NDIM]; /* ghosts before a rank's cells               */
    int64_t after[PLAIT_MAX_NDIM];  /* and after them                             */
    int64_t boundary[PLAIT_MAX_NDIM]; /* plait_boundary_t                           */
    int64_t bare; /* 1: exchange's operand and reduce's result have no ghosts */
} plait_halo_params_t;

#endif
