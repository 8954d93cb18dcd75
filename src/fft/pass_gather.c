/* How a pass reads peers' memory: in strips or in runs. */
#include "base/checked.h"
#include "fft/pass_work.h"

enum { PAD_BYTES = 64 };

/* Data from a peer's memory are read in strips that stay in the cache. If planes are small and adjacent in
 * memory, a strip has several planes, so that its rows are long. If a plane is large, a strip has part of it,
 * but no rows shorter than a page: each page is looked up anew. Planes whose rows are next to each other come
 * whole, in one run from every peer: in huge pages this is 13 GB/s beyond 64 KiB, compared with 4 in rows of 4
 * KiB and 2 in rows of 2 KiB (Zen 4, Linux 6). */
enum { STRIP_BYTES = 1 << 20, MIN_STRIP_ROW = 4096, RUN_BYTES = 4 << 20 };

bool plait_gather_reads(const plait_pass_t *pass, const plait_plan_t *plan)
{
    bool is_remote = false;

    for (int i = 0; i < pass->n_pieces; i++) {
        is_remote = is_remote || pass->pieces[i].peer != plan->rank;
    }
    return is_remote && plan->direct == PLAIT_DIRECT_READ;
}

bool plait_gather_reads_now(const plait_pass_t *pass, const plait_exec_t *exec)
{
    bool reaches_all = true;

    for (int i = 0; i < pass->n_pieces; i++) {
        const plait_piece_t *p = &pass->pieces[i];
        reaches_all = reaches_all && plait_exec_reaches(exec, p->peer, p->slot);
    }
    return !reaches_all;
}

/* Whether pieces of n_bytes that are `step` bytes apart have so small gaps that the gaps may be read, too. */
static bool is_dense(int64_t step, int64_t n_bytes)
{
    return step >= n_bytes && step - n_bytes <= n_bytes / 8;
}

/* Bytes from a plane of a piece to the next plane. */
static int64_t plane_step(const plait_pass_t *pass, const plait_piece_t *piece)
{
    return (pass->n_outer > 0) ? piece->outer_stride[pass->n_outer - 1] : 0;
}

/* Bytes of n_planes planes of a piece, with the gaps between its rows. */
static int64_t run_bytes(const plait_pass_t *pass, const plait_piece_t *piece,
                         int64_t n_planes)
{
    return (n_planes - 1) * plane_step(pass, piece) +
           (piece->n_t - 1) * piece->t_stride + pass->src_n_w * pass->src_bytes;
}

/* Bytes for the runs of all peers. */
static int64_t runs_bytes(const plait_pass_t *pass, int rank, int64_t n_planes)
{
    int64_t n_bytes = 0;

    for (int i = 0; i < pass->n_pieces; i++) {
        if (pass->pieces[i].peer != rank) {
            n_bytes += (run_bytes(pass, &pass->pieces[i], n_planes) + 63) / 64 * 64;
        }
    }
    return n_bytes;
}

/* Whether planes come from every peer in one run. */
static bool has_runs(const plait_pass_t *pass, int rank)
{
    bool has_runs = runs_bytes(pass, rank, 1) <= RUN_BYTES;

    for (int i = 0; i < pass->n_pieces && has_runs; i++) {
        has_runs = is_dense(pass->pieces[i].t_stride, pass->src_n_w * pass->src_bytes);
    }
    return has_runs;
}

/* Planes in a run. */
static int64_t run_planes_at_once(const plait_pass_t *pass, int rank)
{
    int64_t n_bytes = 0;
    bool is_near = pass->n_outer > 0;

    for (int i = 0; i < pass->n_pieces && is_near; i++) {
        const plait_piece_t *p = &pass->pieces[i];
        n_bytes += (p->peer != rank) ? plane_step(pass, p) : 0;
        is_near = is_dense(plane_step(pass, p), run_bytes(pass, p, 1));
    }
    return is_near ? plait_max(1, plait_min(STRIP_BYTES / plait_max(n_bytes, 1),
                                            pass->outer_count[pass->n_outer - 1]))
                   : 1;
}

/* Elements of w that are read from peers together. */
static int64_t strip_width(const plait_pass_t *pass)
{
    int64_t width = STRIP_BYTES / (plait_max(pass->n_t, 1) * pass->src_bytes);

    width = plait_max(width, MIN_STRIP_ROW / pass->src_bytes);
    return plait_pass_has_real_rows(pass) ? pass->src_n_w
                                          : plait_min(pass->src_n_w, width);
}

/* Bytes from a plane's row to the same row of the next plane along the last outer axis, if this is little more
 * than a row: then both are read at once. Otherwise 0. */
static int64_t strip_step(const plait_pass_t *pass)
{
    int last = pass->n_outer - 1;
    int64_t row_bytes = pass->src_n_w * pass->src_bytes;
    int64_t step = (last >= 0) ? pass->pieces[0].outer_stride[last] : 0;
    bool is_near = is_dense(step, row_bytes);

    for (int i = 0; i < pass->n_pieces && is_near; i++) {
        is_near = pass->pieces[i].outer_stride[last] == step;
    }
    return is_near ? step : 0;
}

/* Planes that are read together, row by row. */
static int64_t strip_planes(const plait_pass_t *pass)
{
    int64_t step = strip_step(pass);
    int64_t n = (step > 0) ? STRIP_BYTES / plait_max(pass->n_t * step, 1) : 1;

    return (step > 0) ? plait_max(1, plait_min(n, pass->outer_count[pass->n_outer - 1]))
                      : 1;
}

/* Bytes of a strip's row of n_planes planes. */
static int64_t strip_row_bytes(const plait_pass_t *pass, int64_t n_planes)
{
    return (n_planes - 1) * strip_step(pass) + pass->src_n_w * pass->src_bytes;
}

int64_t plait_gather_planes(const plait_pass_t *pass, const plait_plan_t *plan)
{
    return has_runs(pass, plan->rank) ? run_planes_at_once(pass, plan->rank)
                                      : strip_planes(pass);
}

int64_t plait_gather_width(const plait_pass_t *pass, const plait_plan_t *plan)
{
    return has_runs(pass, plan->rank) ? pass->src_n_w : strip_width(pass);
}

int64_t plait_gather_room(const plait_pass_t *pass, const plait_plan_t *plan,
                          int64_t *strip_row_p)
{
    int64_t n_bytes = 0;

    if (has_runs(pass, plan->rank)) {
        n_bytes = runs_bytes(pass, plan->rank, run_planes_at_once(pass, plan->rank));
    } else {
        *strip_row_p =
            plait_pass_padded((strip_width(pass) < pass->src_n_w)
                                  ? strip_width(pass) * pass->src_bytes
                                  : strip_row_bytes(pass, strip_planes(pass)));
        n_bytes = pass->src_n_t * *strip_row_p;
    }
    return n_bytes;
}

/* For rows that can be read in place. */
void plait_gather_in_place(plait_pass_work_t *w)
{
    for (int i = 0; i < w->pass->n_pieces; i++) {
        const plait_piece_t *p = &w->pass->pieces[i];
        const char *base = plait_exec_peer(w->exec, p->peer, p->slot) + p->offset +
                           plait_pass_outer_at(w->pass, w->index, p->outer_stride);
        for (int64_t t = 0; t < p->n_t; t++) {
            w->in[p->t_lo + t] = base + t * p->t_stride;
        }
    }
}

/* Reads n_bytes, from byte `at` on, of every row of the plane from peers into scratch, for as many planes as
 * the strip holds. Own rows are used in place. */
static plait_status_t read_strip(plait_pass_work_t *w, int64_t at, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    const plait_pass_t *pass = w->pass;
    char *strip = w->area + w->scratch.strip;

    for (int i = 0; i < pass->n_pieces; i++) {
        const plait_piece_t *p = &pass->pieces[i];
        int64_t offset =
            p->offset + plait_pass_outer_at(pass, w->index, p->outer_stride) + at;
        bool is_own = p->peer == w->exec->plan->rank;
        char *to = strip + p->t_lo * w->scratch.strip_row;
        const char *base = is_own ? w->exec->slot[p->slot] + offset : to;
        int64_t stride = is_own ? p->t_stride : w->scratch.strip_row;
        const plait_box_copy_t box = {.n_dims = 1,
                                      .count = {p->n_t},
                                      .src_stride = {p->t_stride},
                                      .dst_stride = {w->scratch.strip_row},
                                      .row_bytes = n_bytes};
        if (!is_own) {
            PLAIT_TRY(plait_exec_read_box(w->exec, p->peer, p->slot, offset, &box, to));
        }
        for (int64_t t = 0; t < p->n_t; t++) {
            w->in[p->t_lo + t] = base + t * stride;
        }
    }
done:
    return status;
}

/* Reads n_planes planes from peers into scratch; w->in gets the rows of the first plane. */
static plait_status_t read_runs(plait_pass_work_t *w, int64_t n_planes)
{
    plait_status_t status = PLAIT_OK;
    const plait_pass_t *pass = w->pass;
    char *to = w->area + w->scratch.strip;

    for (int i = 0; i < pass->n_pieces; i++) {
        const plait_piece_t *p = &pass->pieces[i];
        const int64_t offset =
            p->offset + plait_pass_outer_at(pass, w->index, p->outer_stride);
        const bool is_own = p->peer == w->exec->plan->rank;
        const plait_box_copy_t run = {.row_bytes = run_bytes(pass, p, n_planes)};
        const char *base = is_own ? w->exec->slot[p->slot] + offset : to;
        if (!is_own) {
            PLAIT_TRY(plait_exec_read_box(w->exec, p->peer, p->slot, offset, &run, to));
            to += (run.row_bytes + 63) / 64 * 64;
        }
        for (int64_t t = 0; t < p->n_t; t++) {
            w->in[p->t_lo + t] = base + t * p->t_stride;
        }
    }
done:
    return status;
}

plait_status_t plait_gather_read(plait_pass_work_t *w, int64_t at, int64_t n,
                                 int64_t n_planes)
{
    const plait_pass_t *pass = w->pass;
    const int64_t n_bytes =
        (n < pass->src_n_w) ? n * pass->src_bytes : strip_row_bytes(pass, n_planes);

    return has_runs(pass, w->exec->plan->rank)
               ? read_runs(w, n_planes)
               : read_strip(w, at * pass->src_bytes, n_bytes);
}

void plait_gather_next(plait_pass_work_t *w)
{
    for (int i = 0; i < w->pass->n_pieces; i++) {
        const plait_piece_t *p = &w->pass->pieces[i];
        for (int64_t t = 0; t < p->n_t; t++) {
            w->in[p->t_lo + t] += plane_step(w->pass, p);
        }
    }
}
