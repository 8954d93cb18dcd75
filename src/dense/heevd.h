/* What tests may choose of heevd. */
#ifndef PLAIT_DENSE_HEEVD_H
#define PLAIT_DENSE_HEEVD_H

#include "plait/dtype.h"

#include <stdint.h>

/* Largest n whose matrix goes to every rank as a whole; negative: what was measured. Plans that
 * are made afterwards, on all ranks. */
PLAIT_EXPORT void plait_heevd_choose_whole(int64_t n);

#endif
