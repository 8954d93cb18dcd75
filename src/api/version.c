#include "plait/version.h"

/* The build sets PLAIT_VERSION from the file VERSION. */
const char *plait_version(void)
{
    return PLAIT_VERSION;
}
