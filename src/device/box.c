/* Geometry of box copies: size, and the shortest equal description. */
#include "device/box.h"

#include "device/host.h"

/* A stride of 0 (one place written again and again) becomes the outermost: rows stay long. */
static int64_t magnitude(int64_t stride)
{
    return (stride == 0) ? INT64_MAX : (stride < 0) ? -stride : stride;
}

static void set_dim(plait_box_copy_t *box, int to, const plait_box_copy_t *from, int d)
{
    box->count[to] = from->count[d];
    box->src_stride[to] = from->src_stride[d];
    box->dst_stride[to] = from->dst_stride[d];
}

/* Drops dimensions of count 1 and sorts the others by dst's strides, outermost first, so that dst is written
 * in order if the shapes allow it. */
static void sort_dims(plait_box_copy_t *box)
{
    const plait_box_copy_t old = *box;

    box->n_dims = 0;
    for (int d = 0; d < old.n_dims; d++) {
        int64_t key = magnitude(old.dst_stride[d]);
        int to = box->n_dims;

        if (old.count[d] == 1) {
            continue;
        }
        for (; (to > 0) && (magnitude(box->dst_stride[to - 1]) < key); to--) {
            set_dim(box, to, box, to - 1);
        }
        set_dim(box, to, &old, d);
        box->n_dims++;
    }
}

static void fold_into_row(plait_box_copy_t *box)
{
    for (; box->n_dims > 0; box->n_dims--) {
        int last = box->n_dims - 1;

        if ((box->src_stride[last] != box->row_bytes) ||
            (box->dst_stride[last] != box->row_bytes)) {
            return;
        }
        box->row_bytes *= box->count[last];
    }
}

/* Whether dimension d steps exactly over all of dimension e, on both sides. */
static bool continues(const plait_box_copy_t *box, int d, int e)
{
    return (box->src_stride[d] == box->src_stride[e] * box->count[e]) &&
           (box->dst_stride[d] == box->dst_stride[e] * box->count[e]);
}

static void merge_dims(plait_box_copy_t *box)
{
    int n = 0;

    for (int d = 0; d < box->n_dims; d++) {
        if ((n > 0) && continues(box, n - 1, d)) {
            box->count[n - 1] *= box->count[d];
            box->src_stride[n - 1] = box->src_stride[d];
            box->dst_stride[n - 1] = box->dst_stride[d];
        } else {
            set_dim(box, n, box, d);
            n++;
        }
    }
    box->n_dims = n;
}

void plait_box_simplify(plait_box_copy_t *box)
{
    if (plait_box_bytes(box) == 0) {
        box->n_dims = 1; /* the one form of all empty boxes */
        box->count[0] = 0;
        box->src_stride[0] = 0;
        box->dst_stride[0] = 0;
        return;
    }
    sort_dims(box);
    fold_into_row(box);
    merge_dims(box);
}

int64_t plait_box_bytes(const plait_box_copy_t *box)
{
    int64_t n_bytes = box->row_bytes;

    for (int d = 0; d < box->n_dims; d++) {
        if (box->count[d] == 0) {
            return 0;
        }
    }
    for (int d = 0; d < box->n_dims; d++) {
        n_bytes *= box->count[d];
    }
    return n_bytes;
}

/* Only boxes with shorter rows are transposed. */
enum { SHORT_ROW_BYTES = 64 };

int plait_box_turn_axis(const plait_box_copy_t *box)
{
    const int last = box->n_dims - 1;
    int axis = -1;

    for (int d = 0; d < last && box->row_bytes < SHORT_ROW_BYTES; d++) {
        if (box->src_stride[d] == box->row_bytes && box->count[d] > 1) {
            axis = d;
        }
    }
    return (axis >= 0 && box->dst_stride[last] == box->row_bytes) ? axis : -1;
}

int64_t plait_box_run(const plait_box_copy_t *box, bool at_source)
{
    const int64_t *stride = at_source ? box->src_stride : box->dst_stride;
    int64_t n_bytes = box->row_bytes;
    bool is_found = true;

    while (is_found) {
        is_found = false;
        for (int d = 0; d < box->n_dims && !is_found; d++) {
            is_found = stride[d] == n_bytes && box->count[d] > 1;
            n_bytes *= is_found ? box->count[d] : 1;
        }
    }
    return n_bytes;
}
