/* Texts that grow in an array of fixed size. */
#ifndef PLAIT_BASE_TEXT_H
#define PLAIT_BASE_TEXT_H

#include <stddef.h>

/* Appends as far as there is room; room: bytes of `text`, which ends with 0. */
void plait_text_append(char *text, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
