/* ELPA's one-stage solver, on ScaLAPACK's arrays. */
#ifndef BENCH_DENSE_ELPA_H
#define BENCH_DENSE_ELPA_H

#include "dense_sides.h"

extern const dense_kind_t dense_of_elpa; /* of op syevd */

#endif
