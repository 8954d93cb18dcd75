#include "base/tree.h"

#include <pthread.h>
#include <stdio.h>

enum { ROOM = 1 << 10 };

typedef struct {
    uint32_t tree; /* 0: free */
    char text[PLAIT_TREE_TEXT_BYTES];
} entry_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static entry_t table[ROOM];

/* The entry of a tree, or the free entry where it belongs; NULL: the table is full and does not have it. */
static entry_t *place_of(uint32_t tree)
{
    entry_t *found = NULL;

    for (uint32_t i = 0; i < ROOM && found == NULL; i++) {
        entry_t *e = &table[(tree + i) % ROOM];
        found = (e->tree == tree || e->tree == 0) ? e : NULL;
    }
    return found;
}

void plait_tree_put(uint32_t tree, const char *text)
{
    (void)pthread_mutex_lock(&mutex);
    entry_t *e = (tree != 0) ? place_of(tree) : NULL;
    if (e != NULL && e->tree == 0) {
        (void)snprintf(e->text, sizeof(e->text), "%s", text);
        e->tree = tree;
    }
    (void)pthread_mutex_unlock(&mutex);
}

void plait_tree_print(uint32_t tree, char text[PLAIT_TREE_TEXT_BYTES])
{
    (void)pthread_mutex_lock(&mutex);
    const entry_t *e = place_of(tree);
    if (e != NULL && e->tree == tree && tree != 0) {
        (void)snprintf(text, PLAIT_TREE_TEXT_BYTES, "%s", e->text);
    } else {
        (void)snprintf(text, PLAIT_TREE_TEXT_BYTES, "#%x", tree);
    }
    (void)pthread_mutex_unlock(&mutex);
}
