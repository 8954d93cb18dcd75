#include "dense/hetrd_memory.h"

#include "base/checked.h"
#include "dense/scalar.h"

int64_t plait_hetrd_item(const plait_hetrd_t *h)
{
    return plait_dealt_item(&h->a);
}

static int64_t line(int64_t n_bytes)
{
    return (n_bytes + 63) / 64 * 64;
}

plait_hetrd_room_t plait_hetrd_room(const plait_hetrd_t *h)
{
    const int64_t n = h->a.n, item = plait_hetrd_item(h);
    const int64_t real = plait_dtype_bytes(plait_real_of(h->a.dtype));
    plait_hetrd_room_t r = {.pairs = 0, .ld = n + PLAIT_HETRD_HEAD};

    r.stride = line((n * h->width + 2 * PLAIT_HETRD_WIDTH) * item);
    r.pieces = line(2 * PLAIT_HETRD_WIDTH * r.ld * item);
    r.sum = r.pieces + (h->is_native ? 1 : h->n_pieces) * r.stride;
    r.d = r.sum + r.stride;
    r.e = r.d + line(n * real);
    r.tau = r.e + line(n * real);
    r.state = r.tau + line(n * item);
    r.norms = r.state + line((int64_t)sizeof(plait_hetrd_state_t));
    r.head = r.norms + line(h->n_pieces * (int64_t)sizeof(double));
    r.n_bytes = r.head + line((h->width > 1) ? 2 * h->width * h->width * item : 0);
    return r;
}

int64_t plait_hetrd_own_piece(const plait_hetrd_t *h)
{
    return (h->n_pieces > 1) ? h->rank : 0;
}

int64_t plait_hetrd_n_owned(const plait_hetrd_t *h)
{
    return plait_dealt_owned(&h->a, h->rank);
}

int64_t plait_hetrd_column(const plait_hetrd_t *h, int64_t l)
{
    return (l / h->a.block * h->a.n_ranks + h->rank) * h->a.block + l % h->a.block;
}

int64_t plait_hetrd_local(const plait_hetrd_t *h, int64_t j)
{
    const int64_t k = j / h->a.block;
    const int64_t next = plait_dealt_next(&h->a, h->rank, k);

    return plait_min(plait_hetrd_n_owned(h), plait_dealt_local(&h->a, next) +
                                                 ((next == k) ? j % h->a.block : 0));
}

bool plait_hetrd_is_owner(const plait_hetrd_t *h, int64_t j)
{
    return plait_dealt_owner(&h->a, j / h->a.block) == h->rank;
}

plait_hetrd_chunk_t plait_hetrd_chunk(const plait_hetrd_t *h, int64_t l, int64_t n)
{
    const int64_t block = h->a.block;
    plait_hetrd_chunk_t c = {l, plait_min(l + n, plait_hetrd_n_owned(h))};

    if (block >= n) {
        c.to = plait_min(c.to, (l / block + 1) * block);
    }
    return c;
}

int64_t plait_hetrd_pair_at(const plait_hetrd_t *h, int64_t c, int64_t row)
{
    return (c * plait_hetrd_room(h).ld + PLAIT_HETRD_HEAD + row) * plait_hetrd_item(h);
}

char *plait_hetrd_panel(const plait_hetrd_t *h, const plait_exec_t *exec,
                        int64_t offset)
{
    return exec->slot[h->panel] + offset;
}

char *plait_hetrd_pair(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t c,
                       int64_t row)
{
    return plait_hetrd_panel(h, exec, plait_hetrd_pair_at(h, c, row));
}

int64_t plait_hetrd_part_at(const plait_hetrd_t *h)
{
    const plait_hetrd_room_t room = plait_hetrd_room(h);

    return room.pieces + (h->is_native ? 0 : plait_hetrd_own_piece(h) * room.stride);
}

char *plait_hetrd_part(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t row)
{
    return plait_hetrd_panel(h, exec,
                             plait_hetrd_part_at(h) + row * plait_hetrd_item(h));
}

char *plait_hetrd_sum(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t row)
{
    return plait_hetrd_panel(h, exec,
                             plait_hetrd_room(h).sum + row * plait_hetrd_item(h));
}

char *plait_hetrd_at(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t l,
                     int64_t row)
{
    return exec->slot[h->copy] + (l * h->a.n + row) * plait_hetrd_item(h);
}

void plait_hetrd_touch_columns(const plait_hetrd_touch_t *t, bool is_write, int slot,
                               int64_t offset, int64_t n_rows, int64_t n_columns,
                               int64_t ld)
{
    const plait_box_copy_t box =
        plait_columns_box(n_rows, n_columns, ld, plait_hetrd_item(t->h));

    if (n_rows > 0 && n_columns > 0) {
        t->touch(t->context, is_write, t->h->rank, slot, offset, &box);
    }
}

void plait_hetrd_touch_bytes(const plait_hetrd_touch_t *t, bool is_write,
                             int64_t offset, int64_t n_bytes)
{
    const plait_box_copy_t box = {.row_bytes = n_bytes};

    t->touch(t->context, is_write, t->h->rank, t->h->panel, offset, &box);
}

void plait_hetrd_touch_pairs(const plait_hetrd_touch_t *t, bool is_write, int64_t first,
                             int64_t n_columns, int64_t row)
{
    plait_hetrd_touch_columns(t, is_write, t->h->panel,
                              plait_hetrd_pair_at(t->h, first, row), t->h->a.n - row,
                              n_columns, plait_hetrd_room(t->h).ld);
}

void plait_hetrd_touch_trailing(const plait_hetrd_touch_t *t, bool is_write, int64_t j)
{
    const int64_t l = plait_hetrd_local(t->h, j), n = t->h->a.n;

    plait_hetrd_touch_columns(t, is_write, t->h->copy,
                              (l * n + j) * plait_hetrd_item(t->h), n - j,
                              plait_hetrd_n_owned(t->h) - l, n);
}
