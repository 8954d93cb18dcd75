#include "dense/back.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/reflect.h"

#include <inttypes.h>

/* Reflectors that are applied together: 96 and 128 are not faster at n = 1000 and 2000 (EPYC, OpenBLAS), and
 * take more memory. */
enum { WIDTH = 64 };

typedef struct {
    plait_back_t b;
    int64_t first, width; /* reflectors of the panel */
} panel_t;

int64_t plait_back_bytes(const plait_hetrd_t *h)
{
    return h->a.n * plait_min(WIDTH, h->a.n) * plait_dealt_item(&h->a);
}

/* First row that is kept for a panel. Reflector j begins at row j + 1, or at the row where the band ends. All
 * reflectors of a panel are kept from the first reflector's row on. */
static int64_t row_of(const panel_t *p)
{
    return p->first + p->b.h.width;
}

static int64_t n_rows_of(const panel_t *p)
{
    return p->b.h.a.n - row_of(p);
}

static plait_reflect_t reflect_of(const panel_t *p)
{
    const plait_hetrd_t *h = &p->b.h;
    const int64_t item = plait_dealt_item(&h->a), n_rows = n_rows_of(p);

    return (plait_reflect_t){.dtype = h->a.dtype,
                             .panel = {.peer = h->rank,
                                       .slot = p->b.reflectors,
                                       .ld = n_rows,
                                       .n_rows = n_rows,
                                       .width = p->width},
                             .n = p->width,
                             .tau_slot = h->panel,
                             .tau_offset = plait_hetrd_room(h).tau + p->first * item,
                             .slot = p->b.z,
                             .offset = row_of(p) * item,
                             .ld = h->a.n,
                             .n_columns = p->b.n_columns};
}

static plait_status_t panel_run(const void *params, plait_exec_t *exec)
{
    const panel_t *p = params;
    const plait_reflect_t reflect = reflect_of(p);

    if (!plait_hetrd_has_failed(&p->b.h, exec)) {
        plait_reflect_run(&reflect, exec);
    }
    return PLAIT_OK;
}

static void panel_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const panel_t *p = params;
    const plait_reflect_t reflect = reflect_of(p);

    plait_reflect_touch(&reflect, p->b.h.rank, touch, context);
}

static void panel_print(const void *params, FILE *file)
{
    const panel_t *p = params;

    (void)fprintf(file, "reflectors %" PRId64 " to %" PRId64 " on %" PRId64 " vectors",
                  p->first, p->first + p->width - 1, p->b.n_columns);
}

static const plait_kernel_t panel_kernel = {
    .name = "back", .run = panel_run, .touch = panel_touch, .print = panel_print};

/* Moves columns [first, first + n) of the panel, all in one block of the matrix, to their place in the
 * panel. */
static plait_status_t add_columns(const plait_plan_t *plan, const panel_t *p,
                                  int64_t first, int64_t n, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    const plait_dealt_t *a = &p->b.h.a;
    const int64_t item = plait_dealt_item(a), n_rows = n_rows_of(p),
                  k = first / a->block;
    const int owner = plait_dealt_owner(a, k);
    plait_block_t block = {.peer = owner,
                           .src_slot = p->b.h.copy,
                           .dst_slot = p->b.reflectors,
                           .src_offset = plait_dealt_at(a, k, row_of(p)) +
                                         first % a->block * plait_dealt_ld_bytes(a),
                           .dst_offset = (first - p->first) * n_rows * item,
                           .box = plait_columns_box(n_rows, n, a->m, item)};

    block.box.dst_stride[0] = n_rows * item;
    plait_box_simplify(&block.box);
    PLAIT_TRY(plait_move_add_in(move, &block));
    for (int peer = 0; peer < plan->n_ranks; peer++) {
        block.peer = peer;
        if (plan->direct == PLAIT_DIRECT_NONE && plan->rank == owner && peer != owner) {
            PLAIT_TRY(plait_move_add_out(move, &block));
        }
    }
done:
    return status;
}

static plait_status_t add_panel(plait_plan_t *plan, const panel_t *p)
{
    plait_status_t status = PLAIT_OK;
    const int64_t block = p->b.h.a.block, end = p->first + p->width;
    plait_move_t move = {0};

    for (int64_t j = p->first; j < end;) {
        const int64_t next = plait_min(end, (j / block + 1) * block);
        PLAIT_TRY(add_columns(plan, p, j, next - j, &move));
        j = next;
    }
    PLAIT_TRY(plait_plan_move(plan, &move));
    PLAIT_TRY(plait_plan_kernel_copy(plan, &panel_kernel, p, sizeof(*p)));
done:
    plait_move_clear(&move);
    return status;
}

plait_status_t plait_back_add(plait_plan_t *plan, const plait_back_t *b)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n_reflectors = plait_max(0, b->h.a.n - b->h.width);

    plait_plan_need_scratch(plan,
                            plait_reflect_scratch(b->h.a.dtype, WIDTH, b->n_columns));
    for (int64_t first = (n_reflectors - 1) / WIDTH * WIDTH;
         first >= 0 && n_reflectors > 0; first -= WIDTH) {
        const panel_t panel = {
            .b = *b, .first = first, .width = plait_min(WIDTH, n_reflectors - first)};
        PLAIT_TRY(add_panel(plan, &panel));
    }
done:
    return status;
}
