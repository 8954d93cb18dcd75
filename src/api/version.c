#include "plait/version.h"

/* PLAIT_VERSION: of the file VERSION, by the build. */
const char *plait_version(void)
{
    return PLAIT_VERSION;
}
