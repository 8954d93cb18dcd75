/* The identity of each reduction, as the bytes of one element. */
#ifndef PLAIT_DEVICE_IDENTITY_H
#define PLAIT_DEVICE_IDENTITY_H

#include "plait/dtype.h"
#include "plait/reduce.h"

enum { PLAIT_ELEMENT_MAX_BYTES = 16 };

/* The operation must be defined for the dtype. Bytes behind the element become 0. */
void plait_identity(plait_reduce_t op, plait_dtype_t dtype,
                    unsigned char element[PLAIT_ELEMENT_MAX_BYTES]);

#endif
