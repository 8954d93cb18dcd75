#include "plan/describe.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const plait_op_t *op;
    const void *params;
    const plait_array_t *args;
    const plait_array_t *rets;
    const char *title;
} subject_t;

static const plait_attr_t *find_scalar(const plait_op_t *op, const char *name, size_t n)
{
    const plait_attr_t *found = NULL;

    for (const plait_attr_t *a = op->attrs; a->name != NULL && found == NULL; a++) {
        bool is_it = strncmp(a->name, name, n) == 0 && a->name[n] == '\0';
        found = (is_it && a->kind == PLAIT_PARAM_INT) ? a : NULL;
    }
    return found;
}

static int64_t scalar(const subject_t *s, const plait_attr_t *attr)
{
    int64_t value = 0;

    memcpy(&value, (const char *)s->params + attr->offset, sizeof(value));
    return value;
}

static long long items(const plait_array_t *arrays, int n_arrays)
{
    int64_t n = 0;
    int64_t n_bytes = 0;

    if (n_arrays == 0 || plait_array_size(&arrays[0], &n, &n_bytes) != PLAIT_OK) {
        n = 0;
    }
    return (long long)n;
}

static bool is_word(const char *word, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(word, name, n) == 0;
}

/* Replaces one word in braces; an unknown name stands for itself. */
static int write_word(const subject_t *s, const char *word, size_t n, char *text,
                      size_t room)
{
    const plait_op_t *op = s->op;
    const plait_attr_t *attr = find_scalar(op, word, n);
    int written = 0;

    if (is_word(word, n, "items")) {
        written = snprintf(text, room, "%lld", items(s->args, op->n_args));
    } else if (is_word(word, n, "result")) {
        written = snprintf(text, room, "%lld", items(s->rets, op->n_rets));
    } else if (is_word(word, n, "dtype") && op->n_args > 0) {
        written = snprintf(text, room, "%s", plait_dtype_name(s->args[0].dtype));
    } else if (is_word(word, n, "title")) {
        written = snprintf(text, room, "%s", s->title);
    } else if (is_word(word, n, "reduce") && attr != NULL) {
        written = snprintf(text, room, "%s",
                           plait_reduce_name((plait_reduce_t)scalar(s, attr)));
    } else if (attr != NULL) {
        written = snprintf(text, room, "%lld", (long long)scalar(s, attr));
    } else {
        written = snprintf(text, room, "%.*s", (int)n, word);
    }
    return written;
}

static void write_line(const subject_t *s, const char *from, char *text, size_t room)
{
    size_t used = 0;

    while (*from != '\0' && used + 1 < room) {
        const char *close = (*from == '{') ? strchr(from, '}') : NULL;
        if (close != NULL) {
            int n = write_word(s, from + 1, (size_t)(close - from) - 1, text + used,
                               room - used);
            used += (n > 0) ? (size_t)n : 0;
            from = close + 1;
        } else {
            text[used++] = *from++;
        }
    }
    text[(used < room) ? used : room - 1] = '\0';
}

void plait_about_op(const plait_op_t *op, const void *params,
                    const plait_array_t args[], const plait_array_t rets[],
                    const char *title, plait_about_t *about)
{
    static const char *const partners[] = {"root", "dest", "source"};
    const subject_t s = {op, params, args, rets, title};

    write_line(&s, (op->line != NULL) ? op->line : "{title}", about->line,
               sizeof(about->line));
    about->peer = -1;
    for (int i = 0; i < 3 && about->peer < 0; i++) {
        const plait_attr_t *attr = find_scalar(op, partners[i], strlen(partners[i]));
        about->peer = (attr != NULL) ? (int)scalar(&s, attr) : -1;
    }
    about->peer = (about->peer >= 0) ? about->peer : -1;
}
