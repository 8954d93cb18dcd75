#include "fft/pass.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/team.h"
#include "plan/exec.h"

#include <inttypes.h>

/* A plane that both its rows and its columns pass through stays in cache up to here; larger
 * ones are transformed by rows, then by columns in place. */
enum { MAX_PLANE_BYTES = 8 << 20 };

/* Rows of the plane in scratch are this much longer than their data, so that columns do not
 * fall on the same cache sets when n_w is a power of two. */
enum { PAD_BYTES = 64 };

/* What is read from a peer's memory comes in strips that stay in the cache: several planes at
 * once where they are small and adjacent in memory, so that a row of the strip is long; part
 * of a plane where it is large, but not in rows shorter than a page: each is looked up anew.
 * Planes whose rows are next to each other come whole, in one run from every peer: in huge pages
 * that is 13 GB/s beyond 64 KiB, 4 in rows of 4 KiB, 2 in rows of 2 KiB (Zen 4, Linux 6). */
enum { STRIP_BYTES = 1 << 20, MIN_STRIP_ROW = 4096, RUN_BYTES = 4 << 20 };

/* What a thread reads of a pass at least. */
enum { THREAD_BYTES = 256 << 10 };

void plait_pass_destroy(plait_pass_t **pass_p)
{
    plait_pass_t *pass = *pass_p;

    if (pass != NULL) {
        plait_fft1_destroy(&pass->rows);
        plait_fft1_destroy(&pass->columns);
        plait_rfft1_destroy(&pass->real);
        plait_free(pass->pieces);
        plait_free(pass);
        *pass_p = NULL;
    }
}

static void pass_destroy(void *params)
{
    plait_pass_t *pass = params;

    plait_pass_destroy(&pass);
}

static bool reads_peers(const plait_pass_t *pass, const plait_plan_t *plan)
{
    bool is_remote = false;

    for (int i = 0; i < pass->n_pieces; i++) {
        is_remote = is_remote || pass->pieces[i].peer != plan->rank;
    }
    return is_remote && plan->direct == PLAIT_DIRECT_READ;
}

static bool is_plane_small(const plait_pass_t *pass)
{
    return pass->n_t * (pass->n_w * pass->item_bytes + PAD_BYTES) <= MAX_PLANE_BYTES;
}

int64_t plait_pass_max_plane(int64_t item_bytes)
{
    return MAX_PLANE_BYTES / item_bytes;
}

/* Real rows, before or after the columns. */
static bool has_real_rows(const plait_pass_t *pass)
{
    return pass->real != NULL && !pass->is_real_columns;
}

static bool ends_real(const plait_pass_t *pass)
{
    return has_real_rows(pass) && plait_rfft1_to_complex(pass->real) == false;
}

/* Whether what lies every `step` bytes is little more than n_bytes long, so that the gaps may be
 * read, too. */
static bool is_dense(int64_t step, int64_t n_bytes)
{
    return step >= n_bytes && step - n_bytes <= n_bytes / 8;
}

/* Bytes from a plane of a piece to the next one. */
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

/* Room for the runs of all peers. */
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

/* Whether planes come in one run from every peer. */
static bool has_runs(const plait_pass_t *pass, int rank)
{
    bool has_runs = runs_bytes(pass, rank, 1) <= RUN_BYTES;

    for (int i = 0; i < pass->n_pieces && has_runs; i++) {
        has_runs = is_dense(pass->pieces[i].t_stride, pass->src_n_w * pass->src_bytes);
    }
    return has_runs;
}

/* Planes that come in one run. */
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

/* Elements of w that are read from peers at a time. */
static int64_t strip_width(const plait_pass_t *pass)
{
    int64_t width = STRIP_BYTES / (plait_max(pass->n_t, 1) * pass->src_bytes);

    width = plait_max(width, MIN_STRIP_ROW / pass->src_bytes);
    return has_real_rows(pass) ? pass->src_n_w : plait_min(pass->src_n_w, width);
}

/* Bytes from a plane's row to that of the next plane along the last outer axis, where that is
 * little more than the row: then both are read at once. Else 0. */
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

/* Planes that are read at a time, row by row. */
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

/* Scratch: the 1-D engine's, the strip that is read, the plane between rows and columns, the row
 * pointers of both sides. Byte offsets. */
typedef struct {
    int64_t strip, plane, in, out, total;
    int64_t strip_row, plane_row; /* bytes from row to row */
} scratch_t;

static int64_t padded(int64_t row_bytes)
{
    return (row_bytes + PAD_BYTES + 63) / 64 * 64;
}

static scratch_t scratch_of(const plait_pass_t *pass, const plait_plan_t *plan)
{
    scratch_t s = {0};
    const bool has_rows = pass->rows != NULL || has_real_rows(pass);
    const bool has_plane =
        has_rows && pass->columns != NULL && (is_plane_small(pass) || ends_real(pass));
    const int64_t plane_w = ends_real(pass) ? pass->src_n_w : pass->n_w;
    const int64_t plane_item = ends_real(pass) ? pass->src_bytes : pass->item_bytes;
    const int64_t n_rows = plait_max(pass->n_t, pass->src_n_t);

    if (pass->rows != NULL) {
        s.strip = plait_fft1_scratch_bytes(pass->rows);
    }
    if (pass->columns != NULL) {
        s.strip = plait_max(s.strip, plait_fft1_scratch_bytes(pass->columns));
    }
    if (pass->real != NULL) {
        s.strip = plait_max(s.strip, plait_rfft1_scratch_bytes(pass->real));
    }
    s.strip = (s.strip + 63) / 64 * 64;
    s.plane = s.strip;
    if (reads_peers(pass, plan) && has_runs(pass, plan->rank)) {
        s.plane += runs_bytes(pass, plan->rank, run_planes_at_once(pass, plan->rank));
    } else if (reads_peers(pass, plan)) {
        s.strip_row = padded((strip_width(pass) < pass->src_n_w)
                                 ? strip_width(pass) * pass->src_bytes
                                 : strip_row_bytes(pass, strip_planes(pass)));
        s.plane += n_rows * s.strip_row;
    }
    s.plane_row = padded(plane_w * plane_item);
    s.in = s.plane + (has_plane ? n_rows * s.plane_row : 0);
    s.out = s.in + n_rows * (int64_t)sizeof(char *);
    s.total = (s.out + n_rows * (int64_t)sizeof(char *) + 64 + 63) / 64 * 64;
    return s;
}

/* What one plane needs while it is worked on. */
typedef struct {
    const plait_pass_t *pass;
    plait_exec_t *exec;
    scratch_t scratch;
    char *area;                    /* this thread's scratch */
    int64_t index[PLAIT_MAX_NDIM]; /* of the plane */
    const char **in;
    char **out;
    char *dst; /* of row 0 */
} work_t;

static int64_t outer_at(const plait_pass_t *pass, const int64_t index[],
                        const int64_t stride[])
{
    int64_t at = 0;

    for (int d = 0; d < pass->n_outer; d++) {
        at += index[d] * stride[d];
    }
    return at;
}

static void set_out(work_t *w)
{
    for (int64_t t = 0; t < w->pass->n_t; t++) {
        w->out[t] = w->dst + t * w->pass->dst_t_stride;
    }
}

/* Rows that can be read where they are. */
static void set_in(work_t *w)
{
    for (int i = 0; i < w->pass->n_pieces; i++) {
        const plait_piece_t *p = &w->pass->pieces[i];
        const char *base = plait_exec_peer(w->exec, p->peer, p->slot) + p->offset +
                           outer_at(w->pass, w->index, p->outer_stride);
        for (int64_t t = 0; t < p->n_t; t++) {
            w->in[p->t_lo + t] = base + t * p->t_stride;
        }
    }
}

/* Rows of this rank, complex or real, to `out`. */
static void run_rows(const work_t *w, const char *in, int64_t in_stride, char *out,
                     int64_t out_stride, plait_fft_store_t store)
{
    const plait_pass_t *pass = w->pass;

    if (pass->real != NULL) {
        plait_rfft1_rows(pass->real, pass->n_t, in, in_stride, out, out_stride,
                         w->area);
    } else {
        plait_fft1_rows(pass->rows, pass->n_t, in, in_stride, out, out_stride, w->area,
                        store);
    }
}

static void run_columns(const work_t *w, const char *const in[], char *const out[],
                        plait_fft_store_t store)
{
    plait_fft1_columns(w->pass->columns,
                       ends_real(w->pass) ? w->pass->src_n_w : w->pass->n_w, in, 0, out,
                       0, w->area, store);
}

/* Rows, then columns; through scratch where the plane stays in the cache. */
static void run_rows_first(work_t *w)
{
    const plait_pass_t *pass = w->pass;
    const plait_piece_t *own = &pass->pieces[0];
    const char *src = w->exec->slot[own->slot] + own->offset +
                      outer_at(pass, w->index, own->outer_stride);
    char *plane = w->area + w->scratch.plane;

    if (pass->columns == NULL) {
        run_rows(w, src, own->t_stride, w->dst, pass->dst_t_stride, pass->store);
    } else if (is_plane_small(pass)) {
        run_rows(w, src, own->t_stride, plane, w->scratch.plane_row, PLAIT_FFT_STORE);
        for (int64_t t = 0; t < pass->n_t; t++) {
            w->in[t] = plane + t * w->scratch.plane_row;
        }
        run_columns(w, w->in, w->out, pass->store);
    } else {
        run_rows(w, src, own->t_stride, w->dst, pass->dst_t_stride, PLAIT_FFT_STORE);
        run_columns(w, (const char *const *)w->out, w->out, PLAIT_FFT_STORE);
    }
}

/* Columns from where w->in points to, into scratch; then real rows. */
static void run_columns_first(work_t *w)
{
    const plait_pass_t *pass = w->pass;
    char *plane = w->area + w->scratch.plane;

    for (int64_t t = 0; t < pass->n_t; t++) {
        w->out[t] = plane + t * w->scratch.plane_row;
    }
    run_columns(w, w->in, w->out, PLAIT_FFT_STORE);
    run_rows(w, plane, w->scratch.plane_row, w->dst, pass->dst_t_stride,
             PLAIT_FFT_STORE);
}

static void run_plane(work_t *w)
{
    const plait_pass_t *pass = w->pass;

    if (pass->is_real_columns) {
        set_in(w);
        plait_rfft1_columns(pass->real, pass->n_w, w->in, 0, w->out, 0, w->area);
    } else if (ends_real(pass) && pass->columns != NULL) {
        set_in(w);
        run_columns_first(w);
    } else if (pass->rows != NULL || pass->real != NULL) {
        run_rows_first(w);
    } else {
        set_in(w);
        run_columns(w, w->in, w->out, pass->store);
    }
}

/* Reads n_bytes from `at` of every row of the plane, as many as the strip holds, from peers into
 * the scratch; own rows are used where they are. */
static plait_status_t read_strip(work_t *w, int64_t at, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    const plait_pass_t *pass = w->pass;
    char *strip = w->area + w->scratch.strip;

    for (int i = 0; i < pass->n_pieces; i++) {
        const plait_piece_t *p = &pass->pieces[i];
        int64_t offset = p->offset + outer_at(pass, w->index, p->outer_stride) + at;
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

/* Reads n_planes planes from peers into the scratch; w->in is the first one's rows. */
static plait_status_t read_runs(work_t *w, int64_t n_planes)
{
    plait_status_t status = PLAIT_OK;
    const plait_pass_t *pass = w->pass;
    char *to = w->area + w->scratch.strip;

    for (int i = 0; i < pass->n_pieces; i++) {
        const plait_piece_t *p = &pass->pieces[i];
        const int64_t offset = p->offset + outer_at(pass, w->index, p->outer_stride);
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

static void next_plane(work_t *w)
{
    for (int i = 0; i < w->pass->n_pieces; i++) {
        const plait_piece_t *p = &w->pass->pieces[i];
        for (int64_t t = 0; t < p->n_t; t++) {
            w->in[p->t_lo + t] += plane_step(w->pass, p);
        }
    }
}

/* As run_plane for n_planes adjacent planes that come from peers in runs. */
static plait_status_t run_runs(work_t *w, int64_t n_planes)
{
    plait_status_t status = PLAIT_OK;
    const plait_pass_t *pass = w->pass;
    const int64_t dst_step =
        (pass->n_outer > 0) ? pass->dst_outer_stride[pass->n_outer - 1] : 0;

    PLAIT_TRY(read_runs(w, n_planes));
    for (int64_t i = 0; i < n_planes; i++) {
        if (ends_real(pass)) {
            run_columns_first(w);
            w->dst += dst_step;
        } else {
            plait_fft1_columns(pass->columns, pass->n_w, w->in, 0, w->out, i * dst_step,
                               w->area, pass->store);
        }
        next_plane(w);
    }
done:
    return status;
}

/* As run_plane for n_planes adjacent planes whose rows come from peers, strip by strip. */
static plait_status_t run_strips(work_t *w, int64_t n_planes)
{
    plait_status_t status = PLAIT_OK;
    const plait_pass_t *pass = w->pass;
    int64_t width = strip_width(pass);
    int64_t src_step = strip_step(pass);
    int64_t dst_step =
        (pass->n_outer > 0) ? pass->dst_outer_stride[pass->n_outer - 1] : 0;

    if (width < pass->src_n_w) {
        for (int64_t at = 0; at < pass->src_n_w; at += width) {
            int64_t n = plait_min(width, pass->src_n_w - at);
            PLAIT_TRY(read_strip(w, at * pass->src_bytes, n * pass->src_bytes));
            plait_fft1_columns(pass->columns, n, w->in, 0, w->out,
                               at * pass->item_bytes, w->area, pass->store);
        }
    } else {
        PLAIT_TRY(read_strip(w, 0, strip_row_bytes(pass, n_planes)));
        for (int64_t i = 0; i < n_planes; i++) {
            if (ends_real(pass)) {
                run_columns_first(w);
                w->dst += dst_step;
                for (int64_t t = 0; t < pass->src_n_t; t++) {
                    w->in[t] += src_step;
                }
            } else {
                plait_fft1_columns(pass->columns, pass->n_w, w->in, i * src_step,
                                   w->out, i * dst_step, w->area, pass->store);
            }
        }
    }
done:
    return status;
}

static int64_t n_planes_of(const plait_pass_t *pass)
{
    int64_t n = 1;

    for (int d = 0; d < pass->n_outer; d++) {
        n *= pass->outer_count[d];
    }
    return n;
}

/* Goes to the plane of that number, the last outer axis fastest. */
static void go_to(work_t *w, int64_t number)
{
    const plait_pass_t *pass = w->pass;

    for (int d = pass->n_outer - 1; d >= 0; d--) {
        w->index[d] = number % pass->outer_count[d];
        number /= pass->outer_count[d];
    }
    w->dst = w->exec->slot[pass->dst_slot] + pass->dst_offset +
             outer_at(pass, w->index, pass->dst_outer_stride);
}

/* Planes [first, end). */
static plait_status_t run_planes(work_t *w, int64_t first, int64_t end)
{
    plait_status_t status = PLAIT_OK;
    const plait_pass_t *pass = w->pass;
    const int last = pass->n_outer - 1;
    const int rank = w->exec->plan->rank;
    const bool reads = reads_peers(pass, w->exec->plan);
    const bool in_runs = reads && has_runs(pass, rank);
    const int64_t n_at_most = in_runs ? run_planes_at_once(pass, rank)
                              : reads ? strip_planes(pass)
                                      : 1;
    int64_t n = 1;

    for (int64_t at = first; at < end; at += n) {
        go_to(w, at);
        set_out(w);
        if (reads) {
            n = (last >= 0)
                    ? plait_min(n_at_most, pass->outer_count[last] - w->index[last])
                    : 1;
            n = plait_min(n, end - at);
            PLAIT_TRY(in_runs ? run_runs(w, n) : run_strips(w, n));
        } else {
            run_plane(w);
        }
    }
done:
    if (pass->store == PLAIT_FFT_STREAM) {
        plait_host_stream_fence();
    }
    return status;
}

/* Threads for a pass: none has less to do than it costs to call it. */
static int n_threads_of(const plait_pass_t *pass, const plait_plan_t *plan)
{
    const int64_t n_bytes =
        n_planes_of(pass) * plait_max(pass->n_t * pass->n_w * pass->item_bytes,
                                      pass->src_n_t * pass->src_n_w * pass->src_bytes);
    const int64_t n = plait_min(plan->n_threads, n_bytes / THREAD_BYTES);

    return (int)plait_max(1, plait_min(n, n_planes_of(pass)));
}

typedef struct {
    const plait_pass_t *pass;
    plait_exec_t *exec;
} job_t;

/* Every plane is one thread's, and by whom it is done does not change its bits. */
static plait_status_t run_part(void *context, int i, int n)
{
    const job_t *job = context;
    const int64_t n_planes = n_planes_of(job->pass);
    work_t w = {.pass = job->pass,
                .exec = job->exec,
                .scratch = scratch_of(job->pass, job->exec->plan)};

    w.area = job->exec->scratch + i * w.scratch.total;
    w.in = (const char **)(void *)(w.area + w.scratch.in);
    w.out = (char **)(void *)(w.area + w.scratch.out);
    return run_planes(&w, n_planes * i / n, n_planes * (i + 1) / n);
}

static plait_status_t pass_run(const void *params, plait_exec_t *exec)
{
    job_t job = {.pass = params, .exec = exec};
    const int n_threads = n_threads_of(job.pass, exec->plan);

    return (n_threads == 1) ? run_part(&job, 0, 1)
                            : plait_team_run(n_threads, run_part, &job);
}

static plait_box_copy_t box_of(const plait_pass_t *pass, const int64_t outer_stride[],
                               int64_t n_t, int64_t t_stride, int64_t row_bytes)
{
    plait_box_copy_t box = {.n_dims = pass->n_outer + 1, .row_bytes = row_bytes};

    for (int d = 0; d < pass->n_outer; d++) {
        box.count[d] = pass->outer_count[d];
        box.src_stride[d] = outer_stride[d];
    }
    box.count[pass->n_outer] = n_t;
    box.src_stride[pass->n_outer] = t_stride;
    return box;
}

static void pass_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_pass_t *pass = params;

    for (int i = 0; i < pass->n_pieces; i++) {
        const plait_piece_t *p = &pass->pieces[i];
        plait_box_copy_t box = box_of(pass, p->outer_stride, p->n_t, p->t_stride,
                                      pass->src_n_w * pass->src_bytes);
        touch(context, false, p->peer, p->slot, p->offset, &box);
    }
    plait_box_copy_t box = box_of(pass, pass->dst_outer_stride, pass->n_t,
                                  pass->dst_t_stride, pass->n_w * pass->item_bytes);
    touch(context, true, PLAIT_ANY, pass->dst_slot, pass->dst_offset, &box);
}

static const char *what_of(const plait_pass_t *pass)
{
    bool to_complex = pass->real != NULL && plait_rfft1_to_complex(pass->real);

    if (pass->is_real_columns) {
        return to_complex ? "real columns" : "columns to real";
    }
    if (pass->real != NULL && pass->columns != NULL) {
        return to_complex ? "real rows and columns" : "columns and rows to real";
    }
    if (pass->real != NULL) {
        return to_complex ? "real rows" : "rows to real";
    }
    return (pass->rows == NULL)      ? "columns"
           : (pass->columns == NULL) ? "rows"
                                     : "rows and columns";
}

static void pass_print(const void *params, FILE *file)
{
    const plait_pass_t *pass = params;
    const int64_t n_planes = n_planes_of(pass);

    (void)fprintf(file, "%" PRId64 " planes of %" PRId64 " x %" PRId64 ", %s", n_planes,
                  pass->n_t, pass->n_w, what_of(pass));
    (void)fprintf(file, ", gathered from %d rank%s (%" PRId64 " bytes)%s",
                  pass->n_pieces, (pass->n_pieces == 1) ? "" : "s",
                  n_planes * pass->src_n_t * pass->src_n_w * pass->src_bytes,
                  (pass->store == PLAIT_FFT_STREAM) ? ", written past the cache" : "");
}

static const plait_kernel_t pass_kernel = {
    .name = "fft",
    .run = pass_run,
    .touch = pass_touch,
    .print = pass_print,
    .destroy = pass_destroy,
};

plait_status_t plait_pass_add(plait_plan_t *plan, plait_pass_t **pass_p)
{
    plait_status_t status = PLAIT_OK;
    plait_pass_t *pass = *pass_p;
    int64_t n_elements = n_planes_of(pass) * pass->n_t * pass->n_w;

    *pass_p = NULL;
    if (n_elements == 0) {
        plait_pass_destroy(&pass);
    } else {
        plait_plan_need_scratch(plan, n_threads_of(pass, plan) *
                                          scratch_of(pass, plan).total);
        status = plait_plan_kernel(plan, &pass_kernel, pass);
    }
    return status;
}
