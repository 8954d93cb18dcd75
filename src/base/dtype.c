#include "plait/dtype.h"

#include <stddef.h>

typedef struct {
    plait_dtype_t dtype;
    const char *name;
    int64_t n_bytes;
    plait_kind_t kind;
} row_t;

#define ROW(_name, _code, _text, _bytes, _kind) \
    {PLAIT_##_name, _text, _bytes, PLAIT_KIND_##_kind},
static const row_t rows[] = {PLAIT_DTYPE_FOR_EACH(ROW)};
#undef ROW

static const row_t *row_of(plait_dtype_t dtype)
{
    for (int i = 0; i < plait_dtype_count(); i++) {
        if (rows[i].dtype == dtype) {
            return &rows[i];
        }
    }
    return NULL;
}

int plait_dtype_count(void)
{
    return (int)(sizeof(rows) / sizeof(rows[0]));
}

plait_dtype_t plait_dtype_at(int i)
{
    return ((i >= 0) && (i < plait_dtype_count())) ? rows[i].dtype : (plait_dtype_t)0;
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
