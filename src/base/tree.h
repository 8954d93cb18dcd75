/* A number for the arrays that were joined into one message. It is the same if dtypes and shapes are the
 * same, and 0 for one array alone. Ranks compare it. A compiled program has two such numbers of 31 bits: in
 * the lower half that of the arrays it sends, in the upper half that of the arrays it receives. The text of
 * a number is kept here, once per process, for error messages. */
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

/* Gives the tree a text; long texts lose their end. If there is no room, the tree is printed as a number. */
PLAIT_EXPORT void plait_tree_put(uint32_t tree, const char *text);

/* "float32[4] int32[2]", or "#5f3a" for a tree that this process does not know. */
void plait_tree_print(uint32_t tree, char text[PLAIT_TREE_TEXT_BYTES]);

#endif
