#include "plait/dtype.h"

#include <stddef.h>

/* Bits of MPI's handles, numbers in the words of identities, and integers that BLAS takes by address in either
 * length are read this way. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a little-endian processor");

typedef struct {
    const char *name; /* NULL: no dtype has this code */
    int64_t n_bytes;
    plait_kind_t kind;
} row_t;

/* By code; then the codes in their order. */
#define ROW(_name, _code, _text, _bytes, _kind) \
    [_code] = {_text, _bytes, PLAIT_KIND_##_kind},
static const row_t rows[] = {PLAIT_DTYPE_FOR_EACH(ROW)};
#undef ROW

_Static_assert(sizeof(rows) / sizeof(rows[0]) == PLAIT_DTYPE_LAST + 1,
               "PLAIT_DTYPE_LAST is the largest code");

#define CODE(_name, _code, _text, _bytes, _kind) PLAIT_##_name,
static const plait_dtype_t dtypes[] = {PLAIT_DTYPE_FOR_EACH(CODE)};
#undef CODE

static const row_t *row_of(plait_dtype_t dtype)
{
    size_t code = (size_t)dtype;

    return (code < sizeof(rows) / sizeof(rows[0]) && rows[code].name != NULL)
               ? &rows[code]
               : NULL;
}

int plait_dtype_count(void)
{
    return (int)(sizeof(dtypes) / sizeof(dtypes[0]));
}

plait_dtype_t plait_dtype_at(int i)
{
    return ((i >= 0) && (i < plait_dtype_count())) ? dtypes[i] : (plait_dtype_t)0;
}

const char *plait_dtype_name(plait_dtype_t dtype)
{
    const row_t *row = row_of(dtype);

    return (row != NULL) ? row->name : "unknown";
}

int64_t plait_dtype_bytes(plait_dtype_t dtype)
{
    const row_t *row = row_of(dtype);

    return (row != NULL) ? row->n_bytes : 0;
}

plait_kind_t plait_dtype_kind(plait_dtype_t dtype)
{
    const row_t *row = row_of(dtype);

    return (row != NULL) ? row->kind : PLAIT_KIND_OPAQUE;
}
