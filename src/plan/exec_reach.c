/* Boxes between this rank's memory and a peer's, by one-copy reads and writes. Long rows go straight from place
 * to place. Short rows, and data to be added, pass through a buffer in the cache, which has rows as long as
 * they are in the peer's memory. Data read from a peer go from there to their places by this rank's own
 * stores; data written to a peer come there by its own loads. Boxes that lie across (plait_box_turn_axis) are
 * turned on the way. */
#include "base/checked.h"
#include "device/box.h"
#include "device/host.h"
#include "plan/exec_steps.h"

enum { MAX_IOVECS = 512 };

/* A piece of a box that lies across has this many bytes along the axis that the peer's rows do not follow: when
 * it is taken, this rank writes whole lines; when it is put, this rank reads rows that are worth asking for. */
enum { TAKEN_ACROSS_BYTES = 256, PUT_ACROSS_BYTES = 512 };

/* Bytes of such pieces. Two ranks at once, 8192^2 float64 with half of it put in rows of 32 KiB: 1.9 memcpys,
 * 2.0 with 16 KiB, 2.3 with 8 KiB; taken in rows of 16 KiB 1.8 (Zen 4). */
enum { TAKEN_BYTES = 512 << 10, PUT_BYTES = PLAIT_TURN_CHUNK };

/* Padding between the rows of such a piece, which would otherwise fall on few sets of the cache. */
enum { PAD_BYTES = 64, PADDED_ROW_BYTES = 4 << 10 };

/* Pads are one part in PADDED_ROW_BYTES / PAD_BYTES. */
_Static_assert(PLAIT_TURN_CHUNK + PLAIT_TURN_CHUNK / (PADDED_ROW_BYTES / PAD_BYTES) <=
                   PLAIT_TURN_SCRATCH,
               "a piece fits the scratch");

/* A block on its way through scratch. */
typedef struct {
    plait_exec_t *exec;
    const plait_block_t *block;
    const plait_move_t *move; /* NULL: to the peer */
    int along,
        across; /* of a box that lies across: the peer's rows follow `along`; else -1 */
} way_t;

/* A box between this rank's memory and a peer's. */
static plait_status_t reach_box(plait_exec_t *exec, int peer, bool is_write,
                                const plait_box_copy_t *box, char *from, char *to)
{
    plait_status_t status = PLAIT_OK;
    const plait_transport_t *transport = exec->session.end->transport;
    struct iovec source[MAX_IOVECS];
    struct iovec target[MAX_IOVECS];
    plait_box_walk_t walk = {0};
    int n = 0;
    bool is_more = plait_box_bytes(box) > 0;

    while (is_more) {
        source[n] = (struct iovec){from + walk.src, (size_t)box->row_bytes};
        target[n] = (struct iovec){to + walk.dst, (size_t)box->row_bytes};
        n++;
        is_more = plait_box_next(box, box->n_dims, &walk);
        if (n == MAX_IOVECS || !is_more) {
            PLAIT_TRY(
                is_write ? transport->write(&exec->session, peer, source, n, target, n)
                         : transport->read(&exec->session, peer, target, n, source, n));
            n = 0;
        }
    }
done:
    return status;
}

plait_status_t plait_exec_read_box(plait_exec_t *exec, int peer, int slot,
                                   int64_t offset, const plait_box_copy_t *box,
                                   char *to)
{
    plait_status_t status = PLAIT_OK;
    const char *from = plait_exec_peer(exec, peer, slot) + offset;

    if (plait_exec_is_shown(exec, peer, slot)) {
        plait_host_copy_box(box, from, to);
    } else {
        status = reach_box(exec, peer, false, box, (char *)(uintptr_t)from, to);
    }
    return status;
}

plait_status_t plait_exec_write_box(plait_exec_t *exec, int peer, int slot,
                                    int64_t offset, const plait_box_copy_t *box,
                                    const char *from)
{
    char *to =
        (char *)(uintptr_t)plait_peer_record(&exec->session, peer)->slot[slot] + offset;

    /* Not by own stores to memory that the peer shows: the peer might have given up and use it for something
     * else. */
    return reach_box(exec, peer, true, box, (char *)(uintptr_t)from, to);
}

/* The piece's strides in scratch: rows as the peer has them, one after the other. */
static void set_rows(const way_t *way, const plait_box_copy_t *piece, int64_t stride[])
{
    if (way->along < 0) {
        plait_box_set_dense(piece, stride);
    } else {
        const int64_t n_bytes = piece->count[way->along] * piece->row_bytes;
        for (int d = 0; d < piece->n_dims; d++) {
            stride[d] = 0; /* of a single row */
        }
        stride[way->along] = piece->row_bytes;
        stride[way->across] = n_bytes + ((n_bytes >= PADDED_ROW_BYTES) ? PAD_BYTES : 0);
    }
}

/* A box that fits the scratch. src, dst: bytes from the block's first row on both sides. */
static plait_status_t pass_piece(const way_t *way, const plait_box_copy_t *piece,
                                 int64_t src, int64_t dst)
{
    plait_status_t status = PLAIT_OK;
    const plait_block_t *b = way->block;
    plait_exec_t *exec = way->exec;
    plait_box_copy_t far = *piece;
    plait_box_copy_t near = *piece;

    src += b->src_offset;
    dst += b->dst_offset;
    if (way->move != NULL) {
        set_rows(way, piece, far.dst_stride);
        set_rows(way, piece, near.src_stride);
        plait_box_simplify(&far); /* a piece that is dense at the peer is one row */
        PLAIT_TRY(
            plait_exec_read_box(exec, b->peer, b->src_slot, src, &far, exec->scratch));
        plait_exec_apply(b, way->move, &near, exec->scratch,
                         exec->slot[b->dst_slot] + dst);
    } else {
        set_rows(way, piece, near.dst_stride);
        set_rows(way, piece, far.src_stride);
        plait_box_simplify(&far);
        plait_host_copy_box(&near, exec->slot[b->src_slot] + src, exec->scratch);
        PLAIT_TRY(
            plait_exec_write_box(exec, b->peer, b->dst_slot, dst, &far, exec->scratch));
    }
done:
    return status;
}

/* The dimension along which a box of more than a chunk is cut (the slowest), and how much of it a piece has.
 * n_dims: along its rows. */
static int cut_of(const plait_box_copy_t *box, int64_t *n_p)
{
    int d = 0;

    while (d < box->n_dims && box->count[d] == 1) {
        d++;
    }
    if (d < box->n_dims) {
        *n_p =
            plait_max(1, box->count[d] / (plait_box_bytes(box) / PLAIT_READ_CHUNK + 1));
    }
    return d;
}

/* Cuts a box into pieces that fit the scratch. */
static plait_status_t pass_box(const way_t *way, const plait_box_copy_t *box,
                               int64_t src, int64_t dst)
{
    plait_status_t status = PLAIT_OK;
    plait_box_copy_t piece = *box;
    const bool is_piece = plait_box_bytes(box) <= PLAIT_READ_CHUNK;
    int64_t n = 0;
    const int d = is_piece ? 0 : cut_of(box, &n);

    if (is_piece) {
        status = pass_piece(way, box, src, dst);
    } else if (d < box->n_dims) {
        for (int64_t i = 0; i < box->count[d]; i += n) {
            piece.count[d] = plait_min(n, box->count[d] - i);
            PLAIT_TRY(pass_box(way, &piece, src + i * box->src_stride[d],
                               dst + i * box->dst_stride[d]));
        }
    } else {
        for (int64_t at = 0; at < box->row_bytes; at += PLAIT_READ_CHUNK) {
            piece.row_bytes = plait_min(PLAIT_READ_CHUNK, box->row_bytes - at);
            PLAIT_TRY(pass_piece(way, &piece, src + at, dst + at));
        }
    }
done:
    return status;
}

/* The extents of a piece that fits the scratch, of a box that lies across. */
static void set_extents(const way_t *way, const plait_box_copy_t *box,
                        int64_t *n_along_p, int64_t *n_across_p)
{
    const bool is_taken = way->move != NULL;
    const int64_t n_rows = (is_taken ? TAKEN_BYTES : PUT_BYTES) / box->row_bytes;
    const int64_t n_across =
        plait_min(box->count[way->across],
                  (is_taken ? TAKEN_ACROSS_BYTES : PUT_ACROSS_BYTES) / box->row_bytes);

    *n_along_p = plait_min(box->count[way->along], n_rows / n_across);
    *n_across_p = plait_min(box->count[way->across], n_rows / *n_along_p);
}

/* One plane of these two axes. */
static plait_status_t turn_plane(const way_t *way, const plait_box_copy_t *plane,
                                 int64_t src, int64_t dst)
{
    plait_status_t status = PLAIT_OK;
    const int along = way->along;
    const int across = way->across;
    plait_box_copy_t piece = *plane;
    int64_t n_along = 0;
    int64_t n_across = 0;

    set_extents(way, plane, &n_along, &n_across);
    for (int64_t i = 0; i < plane->count[along]; i += n_along) {
        piece.count[along] = plait_min(n_along, plane->count[along] - i);
        for (int64_t j = 0; j < plane->count[across]; j += n_across) {
            piece.count[across] = plait_min(n_across, plane->count[across] - j);
            PLAIT_TRY(pass_piece(
                way, &piece,
                src + i * plane->src_stride[along] + j * plane->src_stride[across],
                dst + i * plane->dst_stride[along] + j * plane->dst_stride[across]));
        }
    }
done:
    return status;
}

static plait_status_t turn_box(const way_t *way, const plait_box_copy_t *box)
{
    plait_status_t status = PLAIT_OK;
    plait_box_copy_t others = *box;
    plait_box_copy_t plane = *box;
    plait_box_walk_t walk = {0};

    for (int d = 0; d < box->n_dims; d++) {
        if (d == way->along || d == way->across) {
            others.count[d] = 1;
        } else {
            plane.count[d] = 1;
        }
    }
    do {
        PLAIT_TRY(turn_plane(way, &plane, walk.src, walk.dst));
    } while (plait_box_next(&others, others.n_dims, &walk));
done:
    return status;
}

static plait_status_t pass_block(way_t *way)
{
    const plait_box_copy_t *box = &way->block->box;
    const int axis = plait_box_turn_axis(box);
    plait_status_t status = PLAIT_OK;

    way->along = -1;
    way->across = -1;
    if (plait_box_bytes(box) > 0 && axis >= 0) {
        way->along = (way->move != NULL) ? axis : box->n_dims - 1;
        way->across = (way->move != NULL) ? box->n_dims - 1 : axis;
        status = turn_box(way, box);
    } else if (plait_box_bytes(box) > 0) {
        status = pass_box(way, box, 0, 0);
    }
    return status;
}

plait_status_t plait_exec_take(plait_exec_t *exec, const plait_block_t *block,
                               const plait_move_t *move)
{
    way_t way = {.exec = exec, .block = block, .move = move};
    const bool is_long =
        block->kind == PLAIT_BLOCK_COPY && block->box.row_bytes >= PLAIT_LONG_ROW;

    return is_long
               ? plait_exec_read_box(exec, block->peer, block->src_slot,
                                     block->src_offset, &block->box,
                                     exec->slot[block->dst_slot] + block->dst_offset)
               : pass_block(&way);
}

plait_status_t plait_exec_put(plait_exec_t *exec, const plait_block_t *block)
{
    way_t way = {.exec = exec, .block = block};

    return pass_block(&way);
}

/* Whether the ranks here can do everything that the plan was made for. */
static bool suits(const plait_plan_t *plan, const plait_endpoint_t *end)
{
    const plait_caps_t *caps = &end->caps;
    const bool has_messages =
        plan->n_ranks == 1 || plan->device != NULL || end->transport->exchange != NULL;
    const bool reaches =
        (plan->direct == PLAIT_DIRECT_NONE)
            ? has_messages
            : plan->direct == caps->direct && (!plan->can_write || caps->can_write);

    return reaches && plan->publish_bytes <= caps->publish_bytes &&
           (!plan->has_native || caps->has_native);
}

plait_status_t plait_exec_check(const plait_plan_t *plan, const plait_endpoint_t *end)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(end->size == plan->n_ranks && end->rank == plan->rank,
                PLAIT_ERR_INVALID,
                "%s: the plan is for rank %d of %d, the communicator is rank %d of %d",
                plan->title, plan->rank, plan->n_ranks, end->rank, end->size);
    PLAIT_CHECK(
        suits(plan, end), PLAIT_ERR_INVALID,
        "%s: the plan is for a communicator whose ranks reach each other in another "
        "way; here they do so by %s: make a plan for this communicator",
        plan->title, end->transport->name);
done:
    return status;
}
