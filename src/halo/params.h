/* Parameters of halo_exchange and halo_reduce. */
#ifndef PLAIT_HALO_PARAMS_H
#define PLAIT_HALO_PARAMS_H

#include "plait/layout.h"

typedef struct {
    int64_t n_layout, n_extents, n_periodic;
    int64_t layout[PLAIT_LAYOUT_WORDS]; /* plait_layout_pack, of the interior */
    int64_t extents[PLAIT_MAX_NDIM];    /* ghost cells on each side           */
    int64_t periodic[PLAIT_MAX_NDIM];   /* 0 or 1                             */
} plait_halo_params_t;

#endif
