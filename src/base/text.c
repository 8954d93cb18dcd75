#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void plait_text_append(char *text, size_t room, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text + used, room - used, format, args);
    va_end(args);
}
