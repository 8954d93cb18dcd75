/* Parameters of the dense operations, as XLA gives them; see include/plait/dense.h. */
#ifndef PLAIT_DENSE_PARAMS_H
#define PLAIT_DENSE_PARAMS_H

#include <stdint.h>

typedef struct {
    int64_t n, block;
} plait_potrf_params_t;

typedef struct {
    int64_t m, n, block;
} plait_getrf_params_t;

typedef struct {
    int64_t m, n, block;
} plait_geqrf_params_t;

#endif
