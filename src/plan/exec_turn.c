/* Boxes that lie across: short rows that follow each other along one axis at the source and along
 * another at the destination. Between ranks they are turned in the cache by one of the two, and pass
 * from memory to memory in rows of many KiB, which is what one-copy reads and writes are fast at. */
#include "base/checked.h"
#include "device/box.h"
#include "device/host.h"
#include "plan/exec_steps.h"

/* Rows are shorter. A piece has so many bytes along the axis that the peer's rows do not follow: of
 * what this rank writes whole lines, of what it reads rows that are worth asking for. */
enum { SHORT_ROW_BYTES = 64, IN_ACROSS_BYTES = 256, OUT_ACROSS_BYTES = 512 };

/* Bytes of a piece. Two ranks at once, 8192^2 float64 with half of it put in rows of 32 KiB: 1.9
 * memcpys, 2.0 with 16 KiB, 2.3 with 8 KiB; taken in rows of 16 KiB 1.8 (Zen 4). */
enum { IN_BYTES = 512 << 10, OUT_BYTES = PLAIT_TURN_CHUNK };

/* Between the rows of a piece, which would else fall on few sets of the cache. */
enum { PAD_BYTES = 64, LONG_ROW_BYTES = 4 << 10 };

/* Pads are one part in LONG_ROW_BYTES / PAD_BYTES. */
_Static_assert(PLAIT_TURN_CHUNK + PLAIT_TURN_CHUNK / (LONG_ROW_BYTES / PAD_BYTES) <=
                   PLAIT_TURN_SCRATCH,
               "a piece fits the scratch");

typedef struct {
    plait_exec_t *exec;
    const plait_block_t *block;
    const plait_move_t *move; /* NULL: to the peer */
    int along, across; /* the axes: the one that the peer's rows follow is `along` */
} turn_t;

int plait_turn_axis(const plait_box_copy_t *box)
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

/* The piece's strides in scratch, with the peer's rows one after the other. */
static void set_rows(const turn_t *t, const plait_box_copy_t *piece, int64_t stride[])
{
    const int64_t n_bytes = piece->count[t->along] * piece->row_bytes;

    for (int d = 0; d < piece->n_dims; d++) {
        stride[d] = 0; /* of one row */
    }
    stride[t->along] = piece->row_bytes;
    stride[t->across] = n_bytes + ((n_bytes >= LONG_ROW_BYTES) ? PAD_BYTES : 0);
}

/* src, dst: bytes from the box's first row on both sides. */
static plait_status_t turn_piece(const turn_t *t, const plait_box_copy_t *piece,
                                 int64_t src, int64_t dst)
{
    plait_status_t status = PLAIT_OK;
    const plait_block_t *b = t->block;
    plait_exec_t *exec = t->exec;
    plait_box_copy_t far = *piece;
    plait_box_copy_t near = *piece;

    src += b->src_offset;
    dst += b->dst_offset;
    if (t->move != NULL) {
        set_rows(t, piece, far.dst_stride);
        set_rows(t, piece, near.src_stride);
        plait_box_simplify(&far);
        PLAIT_TRY(
            plait_exec_read_box(exec, b->peer, b->src_slot, src, &far, exec->scratch));
        plait_exec_apply(b, t->move, &near, exec->scratch,
                         exec->slot[b->dst_slot] + dst);
    } else {
        set_rows(t, piece, near.dst_stride);
        set_rows(t, piece, far.src_stride);
        plait_box_simplify(&far);
        plait_host_copy_box(&near, exec->slot[b->src_slot] + src, exec->scratch);
        PLAIT_TRY(
            plait_exec_write_box(exec, b->peer, b->dst_slot, dst, &far, exec->scratch));
    }
done:
    return status;
}

/* The extents of a piece: what fits the scratch. */
static void set_extents(const turn_t *t, const plait_box_copy_t *box,
                        int64_t *n_along_p, int64_t *n_across_p)
{
    const bool is_in = t->move != NULL;
    const int64_t n_rows = (is_in ? IN_BYTES : OUT_BYTES) / box->row_bytes;
    const int64_t n_across =
        plait_min(box->count[t->across],
                  (is_in ? IN_ACROSS_BYTES : OUT_ACROSS_BYTES) / box->row_bytes);

    *n_along_p = plait_min(box->count[t->along], n_rows / n_across);
    *n_across_p = plait_min(box->count[t->across], n_rows / *n_along_p);
}

/* One plane of the two axes. */
static plait_status_t turn_plane(const turn_t *t, const plait_box_copy_t *plane,
                                 int64_t src, int64_t dst)
{
    plait_status_t status = PLAIT_OK;
    const int along = t->along;
    const int across = t->across;
    plait_box_copy_t piece = *plane;
    int64_t n_along = 0;
    int64_t n_across = 0;

    set_extents(t, plane, &n_along, &n_across);
    for (int64_t i = 0; i < plane->count[along]; i += n_along) {
        piece.count[along] = plait_min(n_along, plane->count[along] - i);
        for (int64_t j = 0; j < plane->count[across]; j += n_across) {
            piece.count[across] = plait_min(n_across, plane->count[across] - j);
            PLAIT_TRY(turn_piece(
                t, &piece,
                src + i * plane->src_stride[along] + j * plane->src_stride[across],
                dst + i * plane->dst_stride[along] + j * plane->dst_stride[across]));
        }
    }
done:
    return status;
}

static plait_status_t turn_box(const turn_t *t)
{
    plait_status_t status = PLAIT_OK;
    plait_box_copy_t others = t->block->box;
    plait_box_copy_t plane = t->block->box;
    plait_box_walk_t walk = {0};

    if (plait_box_bytes(&others) > 0) {
        for (int d = 0; d < plane.n_dims; d++) {
            if (d == t->along || d == t->across) {
                others.count[d] = 1;
            } else {
                plane.count[d] = 1;
            }
        }
        do {
            PLAIT_TRY(turn_plane(t, &plane, walk.src, walk.dst));
        } while (plait_box_next(&others, others.n_dims, &walk));
    }
done:
    return status;
}

plait_status_t plait_exec_turn_in(plait_exec_t *exec, const plait_block_t *block,
                                  const plait_move_t *move)
{
    const turn_t t = {.exec = exec,
                      .block = block,
                      .move = move,
                      .along = plait_turn_axis(&block->box),
                      .across = block->box.n_dims - 1};

    return turn_box(&t);
}

plait_status_t plait_exec_turn_out(plait_exec_t *exec, const plait_block_t *block)
{
    const turn_t t = {.exec = exec,
                      .block = block,
                      .along = block->box.n_dims - 1,
                      .across = plait_turn_axis(&block->box)};

    return turn_box(&t);
}
