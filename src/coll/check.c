/* Checks of arguments. Their texts say what was expected and what was given. */
#include "base/hash.h"
#include "base/status.h"
#include "coll/coll.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TAG = INT32_MAX }; /* the transport may have a smaller bound */

plait_shape_text_t plait_coll_shape(const plait_array_t *array)
{
    plait_shape_text_t shape = {"("};
    size_t at = 1;

    for (int d = 0; d < array->ndim && at + 24 < sizeof(shape.text); d++) {
        at += (size_t)snprintf(shape.text + at, sizeof(shape.text) - at, "%s%lld",
                               (d > 0) ? ", " : "", (long long)array->dims[d]);
    }
    (void)snprintf(shape.text + at, sizeof(shape.text) - at,
                   (array->ndim == 1) ? ",)" : ")");
    return shape;
}

/* A list while it is written. */
typedef struct {
    plait_list_text_t list;
    size_t at;
    bool is_cut;
} writer_t;

enum { ROOM_OF_END = sizeof(", ...] #12345678") };

static void begin_list(writer_t *w, const char *name)
{
    w->at = (size_t)snprintf(w->list.text, sizeof(w->list.text), "%s [", name);
}

static void add_item(writer_t *w, bool is_first, const char *item)
{
    const size_t room = sizeof(w->list.text) - ROOM_OF_END - w->at;

    w->is_cut = w->is_cut || strlen(item) + 2 >= room;
    if (!w->is_cut) {
        w->at += (size_t)snprintf(w->list.text + w->at, room, "%s%s",
                                  is_first ? "" : ", ", item);
    }
}

static plait_list_text_t end_list(writer_t *w, int64_t n_words, const int64_t words[])
{
    char *end = w->list.text + w->at;
    const size_t room = sizeof(w->list.text) - w->at;

    if (w->is_cut) {
        const uint64_t hash = plait_hash_bytes(PLAIT_HASH_SEED, words,
                                               (size_t)n_words * sizeof(words[0]));
        (void)snprintf(end, room, ", ...] #%08x", (unsigned)(hash >> 32));
    } else {
        (void)snprintf(end, room, "]");
    }
    return w->list;
}

plait_list_text_t plait_coll_counts(int64_t n, const int64_t counts[])
{
    writer_t w = {0};
    char item[24];

    if (n == 0) {
        return w.list;
    }
    begin_list(&w, ", counts");
    for (int64_t i = 0; i < n && !w.is_cut; i++) {
        (void)snprintf(item, sizeof(item), "%lld", (long long)counts[i]);
        add_item(&w, i == 0, item);
    }
    return end_list(&w, n, counts);
}

static void print_end(char text[44], int64_t rank, int64_t block)
{
    if (block == 0) {
        (void)snprintf(text, 44, "%lld", (long long)rank);
    } else {
        (void)snprintf(text, 44, "%lld.%lld", (long long)rank, (long long)block);
    }
}

plait_list_text_t plait_coll_edges(int64_t n, const int64_t words[])
{
    writer_t w = {0};
    char from[44];
    char to[44];
    char item[sizeof(from) + sizeof(to)];

    begin_list(&w, "edges");
    for (int64_t i = 0; i < n && !w.is_cut; i++) {
        const int64_t *edge = words + i * PLAIT_EDGE_WORDS;
        print_end(from, edge[PLAIT_EDGE_SOURCE], edge[PLAIT_EDGE_SOURCE_BLOCK]);
        print_end(to, edge[PLAIT_EDGE_DEST], edge[PLAIT_EDGE_DEST_BLOCK]);
        (void)snprintf(item, sizeof(item), "%s-%s", from, to);
        add_item(&w, i == 0, item);
    }
    return end_list(&w, n * PLAIT_EDGE_WORDS, words);
}

plait_status_t plait_coll_same_dtype(const char *op, const plait_array_t *x,
                                     const plait_array_t *y)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(x->dtype == y->dtype, PLAIT_ERR_INVALID,
                "%s: operand is %s, result is %s", op, plait_dtype_name(x->dtype),
                plait_dtype_name(y->dtype));
done:
    return status;
}

plait_status_t plait_coll_same(const char *op, const plait_array_t *x,
                               const plait_array_t *y)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(plait_coll_same_dtype(op, x, y));
    PLAIT_CHECK(x->ndim == y->ndim &&
                    (x->ndim == 0 || memcmp(x->dims, y->dims,
                                            (size_t)x->ndim * sizeof(x->dims[0])) == 0),
                PLAIT_ERR_INVALID,
                "%s: operand and result have different shapes, %s and %s", op,
                plait_coll_shape(x).text, plait_coll_shape(y).text);
done:
    return status;
}

plait_status_t plait_coll_check_root(const char *op, int64_t root, int n_ranks)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(root >= 0 && root < n_ranks, PLAIT_ERR_INVALID,
                "%s: root %lld is not a rank of this communicator (size %d)", op,
                (long long)root, n_ranks);
done:
    return status;
}

plait_status_t plait_coll_check_reduce(const char *op, int64_t reduce,
                                       plait_dtype_t dtype)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(reduce >= 0 && reduce < PLAIT_REDUCE_COUNT, PLAIT_ERR_INVALID,
                "%s: op is %lld, known are 0 to %d", op, (long long)reduce,
                PLAIT_REDUCE_COUNT - 1);
    PLAIT_CHECK(plait_dtype_bytes(dtype) > 0, PLAIT_ERR_INVALID,
                "%s: dtype is %d, which is no dtype", op, (int)dtype);
    PLAIT_CHECK(plait_reduce_is_defined((plait_reduce_t)reduce, dtype),
                PLAIT_ERR_INVALID, "%s: %s is not defined for %s", op,
                plait_reduce_name((plait_reduce_t)reduce), plait_dtype_name(dtype));
done:
    return status;
}

plait_status_t plait_coll_check_flag(const char *op, const char *name, int64_t flag)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(flag == 0 || flag == 1, PLAIT_ERR_INVALID,
                "%s: %s is %lld, expected 0 or 1", op, name, (long long)flag);
done:
    return status;
}

plait_status_t plait_coll_check_peer(const char *op, const char *name, int64_t peer,
                                     int n_ranks, bool is_recv)
{
    plait_status_t status = PLAIT_OK;
    const int64_t given = (peer < PLAIT_NEGATIVE) ? peer - PLAIT_NEGATIVE : peer;

    PLAIT_CHECK((peer >= 0 && peer < n_ranks) || peer == PLAIT_NO_RANK ||
                    (is_recv && peer == PLAIT_ANY),
                PLAIT_ERR_INVALID,
                "%s: %s %lld is not a rank of this communicator (size %d)", op, name,
                (long long)given, n_ranks);
done:
    return status;
}

plait_status_t plait_coll_check_tag(const char *op, const char *name, int64_t tag,
                                    bool is_recv)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK((tag >= 0 && tag <= MAX_TAG) || (is_recv && tag == PLAIT_ANY),
                PLAIT_ERR_INVALID, "%s: %s %lld is outside 0..%d", op, name,
                (long long)tag, MAX_TAG);
done:
    return status;
}
