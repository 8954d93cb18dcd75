#include "ops/list.h"

#include <string.h>

#define ENTRY(_name) &plait_op_##_name,
static const plait_op_t *const ops[] = {PLAIT_OP_FOR_EACH(ENTRY)};
#undef ENTRY

int plait_op_count(void)
{
    return (int)(sizeof(ops) / sizeof(ops[0]));
}

const plait_op_t *plait_op_at(int i)
{
    return (i >= 0 && i < plait_op_count()) ? ops[i] : NULL;
}

const plait_op_t *plait_op_find(const char *name)
{
    const plait_op_t *found = NULL;

    for (int i = 0; i < plait_op_count() && found == NULL; i++) {
        found = (strcmp(ops[i]->name, name) == 0) ? ops[i] : NULL;
    }
    return found;
}
