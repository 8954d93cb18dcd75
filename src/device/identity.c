/* The identity of each reduction, as the bits of one element. */
#include "device/identity.h"

#include <string.h>

static uint64_t one_of(plait_dtype_t dtype)
{
    switch (dtype) {
    case PLAIT_F16:
        return 0x3c00;
    case PLAIT_BF16:
        return 0x3f80;
    case PLAIT_F32:
    case PLAIT_C64: /* the real part comes first */
        return 0x3f800000;
    case PLAIT_F64:
    case PLAIT_C128:
        return UINT64_C(0x3ff0000000000000);
    default:
        return 1;
    }
}

static uint64_t infinity_of(plait_dtype_t dtype)
{
    switch (dtype) {
    case PLAIT_F16:
        return 0x7c00;
    case PLAIT_BF16:
        return 0x7f80;
    case PLAIT_F32:
        return 0x7f800000;
    default:
        return UINT64_C(0x7ff0000000000000);
    }
}

/* MIN: the largest value there is; MAX: the smallest. */
static uint64_t extreme_of(plait_reduce_t op, plait_dtype_t dtype)
{
    uint64_t sign = UINT64_C(1) << (8 * plait_dtype_bytes(dtype) - 1);
    plait_kind_t kind = plait_dtype_kind(dtype);

    if (kind == PLAIT_KIND_FLOAT) {
        return infinity_of(dtype) | ((op == PLAIT_MAX) ? sign : 0);
    }
    if (kind == PLAIT_KIND_UINT) {
        return (op == PLAIT_MAX) ? 0 : UINT64_MAX;
    }
    return (op == PLAIT_MAX) ? sign : sign - 1;
}

static uint64_t bits_of(plait_reduce_t op, plait_dtype_t dtype)
{
    switch (op) {
    case PLAIT_PROD:
    case PLAIT_LAND:
        return one_of(dtype);
    case PLAIT_MIN:
    case PLAIT_MAX:
        return extreme_of(op, dtype);
    case PLAIT_BAND:
        return (dtype == PLAIT_BOOL) ? 1 : UINT64_MAX;
    default:
        return 0;
    }
}

void plait_identity(plait_reduce_t op, plait_dtype_t dtype,
                    unsigned char element[PLAIT_ELEMENT_MAX_BYTES])
{
    uint64_t bits = bits_of(op, dtype); /* little-endian */
    size_t size = (size_t)plait_dtype_bytes(dtype);

    memset(element, 0, PLAIT_ELEMENT_MAX_BYTES);
    memcpy(element, &bits, (size < sizeof(bits)) ? size : sizeof(bits));
}
