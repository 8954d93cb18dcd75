/* Which arrays were joined in one, so that they travel as one message: a number that is the same where
 * dtypes and shapes are, and 0 where there is one array alone. Ranks compare it. A program carries two of
 * 31 bits, that of what it sends in the lower half, that of what it receives in the upper one. The text
 * is kept here, once for each process, for messages. */
#ifndef PLAIT_BASE_TREE_H
#define PLAIT_BASE_TREE_H

#include "plait/status.h"

#include <stdint.h>

enum { PLAIT_TREE_TEXT_BYTES = 72 };

static inline uint32_t plait_tree_sent(uint64_t trees)
{
    return (uint32_t)trees;
}

static inline uint32_t plait_tree_received(uint64_t trees)
{
    return (uint32_t)(trees >> 32);
}

/* From now on the tree is known as that; long texts lose their end. Where there is no room for it it stays
 * a number. */
PLAIT_EXPORT void plait_tree_put(uint32_t tree, const char *text);

/* "float32[4] int32[2]", or "#5f3a" of one that this process does not know. */
void plait_tree_print(uint32_t tree, char text[PLAIT_TREE_TEXT_BYTES]);

#endif
