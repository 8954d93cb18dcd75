#include "base/alloc.h"
#include "base/checked.h"
#include "base/team.h"
#include "fft/pass_work.h"

#include <inttypes.h>
#include <string.h>

/* Up to this size a plane whose rows and columns are both transformed stays in cache. Larger planes are
 * transformed by rows, then by columns in place. */
enum { MAX_PLANE_BYTES = 8 << 20 };

/* Rows that are staged together: a multiple of the rows that are transformed at once, in the second-level
 * cache. If these do not fit there, rows are not staged. */
enum { ROWS_AT_ONCE = 16, ROWS_BYTES = 128 << 10, MAX_ROWS_BYTES = 1 << 20 };

/* Least bytes of a pass for each thread. */
enum { THREAD_BYTES = 256 << 10 };

void plait_pass_destroy(plait_pass_t **pass_p)
{
    plait_pass_t *pass = *pass_p;

    if (pass != NULL) {
        plait_fft1_destroy(&pass->rows);
        plait_fft1_destroy(&pass->columns);
        plait_rfft1_destroy(&pass->real);
        plait_free(pass->pieces);
        plait_free(pass->targets);
        plait_free(pass);
        *pass_p = NULL;
    }
}

static void pass_destroy(void *params)
{
    plait_pass_t *pass = params;

    plait_pass_destroy(&pass);
}

static bool is_plane_small(const plait_pass_t *pass)
{
    return pass->n_t * plait_pass_padded(pass->n_w * pass->item_bytes) <=
           MAX_PLANE_BYTES;
}

int64_t plait_pass_max_plane(int64_t item_bytes)
{
    return MAX_PLANE_BYTES / item_bytes;
}

/* Whether rows for this target begin within lines, as far as its strides tell. */
static bool is_misaligned_at(const plait_pass_t *pass, const plait_target_t *target)
{
    int64_t bits = target->offset | target->t_stride;

    for (int d = 0; d < pass->n_outer; d++) {
        bits |= target->outer_stride[d];
    }
    return bits % PLAIT_HOST_LINE != 0;
}

static bool is_misaligned(const plait_pass_t *pass)
{
    bool is = false;

    for (int i = 0; i < pass->n_targets; i++) {
        is = is || is_misaligned_at(pass, &pass->targets[i]);
    }
    return is;
}

/* Whether rows are transformed last. */
static bool ends_in_rows(const plait_pass_t *pass)
{
    return plait_pass_ends_real(pass) ||
           (pass->columns == NULL && !pass->is_real_columns);
}

/* Number of streams. Rows of a plane may follow each other; otherwise a row is followed by the next plane's
 * row, if by any. */
static int64_t n_streams_of(const plait_pass_t *pass)
{
    const bool is_run = pass->n_targets == 1 &&
                        pass->targets[0].t_stride == pass->n_w * pass->item_bytes;

    return (pass->n_staged == 0) ? 0 : (is_run || !is_misaligned(pass)) ? 1 : pass->n_t;
}

static plait_pass_scratch_t scratch_of(const plait_pass_t *pass,
                                       const plait_plan_t *plan)
{
    plait_pass_scratch_t s = {0};
    const bool has_rows = pass->rows != NULL || plait_pass_has_real_rows(pass);
    const bool has_plane = (pass->n_staged > 0 && !ends_in_rows(pass)) ||
                           (has_rows && pass->columns != NULL &&
                            (is_plane_small(pass) || plait_pass_ends_real(pass)));
    const int64_t plane_w = plait_pass_ends_real(pass) ? pass->src_n_w : pass->n_w;
    const int64_t plane_item =
        plait_pass_ends_real(pass) ? pass->src_bytes : pass->item_bytes;
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
    if (plait_gather_reads(pass, plan)) {
        s.plane += plait_gather_room(pass, plan, &s.strip_row);
    }
    s.plane_row = plait_pass_padded(plane_w * plane_item);
    s.rows = s.plane + (has_plane ? n_rows * s.plane_row : 0);
    s.rows_row = plait_pass_padded(pass->n_w * pass->item_bytes);
    s.box = s.rows + (ends_in_rows(pass) ? pass->n_staged * s.rows_row : 0);
    if (pass->n_box_rows > 0) {
        s.box_row = plait_pass_padded(plait_scatter_planes(pass) * pass->n_w *
                                      pass->item_bytes);
    }
    s.in = s.box + pass->n_box_rows * s.box_row;
    s.out = s.in + n_rows * (int64_t)sizeof(char *);
    s.staged = s.out + n_rows * (int64_t)sizeof(char *);
    s.streams = s.staged + n_rows * (int64_t)sizeof(char *);
    s.n_streams = n_streams_of(pass);
    s.total = s.streams + s.n_streams * (int64_t)sizeof(plait_host_stream_t);
    s.total = (s.total + 64 + 63) / 64 * 64;
    return s;
}

static int64_t choose_staged(const plait_pass_t *pass)
{
    const int64_t row_bytes = plait_pass_padded(pass->n_w * pass->item_bytes);
    int64_t n = 0;

    if (pass->store != PLAIT_FFT_STREAM || pass->is_real_columns) {
        n = 0;
    } else if (!ends_in_rows(pass)) {
        n = (is_misaligned(pass) && is_plane_small(pass)) ? pass->n_t : 0;
    } else if (ROWS_AT_ONCE * row_bytes <= MAX_ROWS_BYTES) {
        n = plait_max(ROWS_AT_ONCE,
                      ROWS_BYTES / row_bytes / ROWS_AT_ONCE * ROWS_AT_ONCE);
        n = plait_min(n, pass->n_t);
    }
    return n;
}

/* Transforms n rows, complex or real. */
static void run_rows(const plait_pass_work_t *w, int64_t n, const char *in,
                     int64_t in_stride, char *out, int64_t out_stride,
                     plait_fft_store_t store)
{
    const plait_pass_t *pass = w->pass;

    if (pass->real != NULL) {
        plait_rfft1_rows(pass->real, n, in, in_stride, out, out_stride, w->area);
    } else {
        plait_fft1_rows(pass->rows, n, in, in_stride, out, out_stride, w->area, store);
    }
}

static void stream_row(const plait_pass_work_t *w, int64_t t, char *to, const char *row)
{
    plait_host_stream_append(&w->streams[(w->scratch.n_streams == 1) ? 0 : t], to, row,
                             w->pass->n_w * w->pass->item_bytes);
}

static void finish_streams(const plait_pass_work_t *w)
{
    for (int64_t i = 0; i < w->scratch.n_streams; i++) {
        plait_host_stream_finish(&w->streams[i]);
    }
}

/* Transforms the target's rows of the plane, a few at a time through scratch. */
static void run_staged_rows(const plait_pass_work_t *w, const plait_target_t *target,
                            const char *in, int64_t in_stride, char *place,
                            int64_t stride)
{
    char *rows = w->area + w->scratch.rows;
    const int64_t pitch = w->scratch.rows_row;

    for (int64_t at = 0; at < target->n_t; at += w->pass->n_staged) {
        const int64_t n = plait_min(w->pass->n_staged, target->n_t - at);
        run_rows(w, n, in + at * in_stride, in_stride, rows, pitch, PLAIT_FFT_STORE);
        for (int64_t i = 0; i < n; i++) {
            stream_row(w, target->t_lo + at + i, place + (at + i) * stride,
                       rows + i * pitch);
        }
    }
}

/* Transforms the plane's rows to their destinations. */
static void run_last_rows(const plait_pass_work_t *w, const char *in, int64_t in_stride,
                          plait_fft_store_t store)
{
    for (int i = 0; i < w->pass->n_targets; i++) {
        const plait_target_t *target = &w->pass->targets[i];
        const char *from = in + target->t_lo * in_stride;
        char *place = NULL;
        int64_t stride = 0;
        if (!plait_scatter_place(w, target, &place, &stride)) {
            continue;
        }
        if (w->pass->n_staged > 0) {
            run_staged_rows(w, target, from, in_stride, place, stride);
        } else {
            run_rows(w, target->n_t, from, in_stride, place, stride, store);
        }
    }
}

static void run_columns(const plait_pass_work_t *w, const char *const in[],
                        char *const out[], plait_fft_store_t store)
{
    plait_fft1_columns(w->pass->columns,
                       plait_pass_ends_real(w->pass) ? w->pass->src_n_w : w->pass->n_w,
                       in, 0, out, 0, w->area, store);
}

/* Streams rows of the plane in scratch to their destinations. */
static void stream_staged(const plait_pass_work_t *w)
{
    for (int64_t t = 0; t < w->pass->n_t; t++) {
        stream_row(w, t, w->out[t], w->staged[t]);
    }
}

/* Transforms the plane's columns to the destinations of its rows. */
static void run_last_columns(const plait_pass_work_t *w)
{
    if (w->pass->n_staged > 0) {
        run_columns(w, w->in, w->staged, PLAIT_FFT_STORE);
        stream_staged(w);
    } else {
        run_columns(w, w->in, w->out, w->pass->store);
    }
}

/* Rows, then columns; through scratch if the plane stays in the cache. */
static void run_rows_first(plait_pass_work_t *w)
{
    const plait_pass_t *pass = w->pass;
    const plait_piece_t *own = &pass->pieces[0];
    const char *src = w->exec->slot[own->slot] + own->offset +
                      plait_pass_outer_at(pass, w->index, own->outer_stride);
    char *plane = w->area + w->scratch.plane;

    if (pass->columns == NULL) {
        run_last_rows(w, src, own->t_stride, pass->store);
    } else if (is_plane_small(pass)) {
        run_rows(w, pass->n_t, src, own->t_stride, plane, w->scratch.plane_row,
                 PLAIT_FFT_STORE);
        for (int64_t t = 0; t < pass->n_t; t++) {
            w->in[t] = w->staged[t];
        }
        run_last_columns(w);
    } else {
        run_last_rows(w, src, own->t_stride, PLAIT_FFT_STORE);
        run_columns(w, (const char *const *)w->out, w->out, PLAIT_FFT_STORE);
    }
}

/* Columns, read through w->in, into scratch; then real rows. */
static void run_columns_first(plait_pass_work_t *w)
{
    run_columns(w, w->in, w->staged, PLAIT_FFT_STORE);
    run_last_rows(w, w->area + w->scratch.plane, w->scratch.plane_row, PLAIT_FFT_STORE);
}

static void run_plane(plait_pass_work_t *w)
{
    const plait_pass_t *pass = w->pass;

    plait_scatter_out(w);
    if (pass->is_real_columns) {
        plait_gather_in_place(w);
        plait_rfft1_columns(pass->real, pass->n_w, w->in, 0, w->out, 0, w->area);
    } else if (plait_pass_ends_real(pass) && pass->columns != NULL) {
        plait_gather_in_place(w);
        run_columns_first(w);
    } else if (pass->rows != NULL || pass->real != NULL) {
        run_rows_first(w);
    } else {
        plait_gather_in_place(w);
        run_last_columns(w);
    }
}

static void count_plane(plait_pass_work_t *w)
{
    if (w->pass->n_outer > 0) {
        w->index[w->pass->n_outer - 1]++;
    }
    w->box_plane++;
}

/* Runs n_planes adjacent planes; w->in points to the rows of the first one. */
static void run_gathered(plait_pass_work_t *w, int64_t n_planes)
{
    for (int64_t i = 0; i < n_planes; i++) {
        if (plait_pass_ends_real(w->pass)) {
            run_columns_first(w);
        } else {
            plait_scatter_out(w);
            run_last_columns(w);
        }
        plait_gather_next(w);
        count_plane(w);
    }
}

/* Runs n_planes adjacent planes whose rows come from peers. If less than a plane is read at a time, n_planes is
 * 1. */
static plait_status_t run_read(plait_pass_work_t *w, int64_t n_planes)
{
    plait_status_t status = PLAIT_OK;
    const plait_pass_t *pass = w->pass;
    const int64_t width = plait_gather_width(pass, w->exec->plan);
    const bool is_staged = pass->n_staged > 0;

    if (width == pass->src_n_w) {
        PLAIT_TRY(plait_gather_read(w, 0, width, n_planes));
        run_gathered(w, n_planes);
        goto done;
    }
    plait_scatter_out(w);
    for (int64_t at = 0; at < pass->src_n_w; at += width) {
        int64_t n = plait_min(width, pass->src_n_w - at);
        PLAIT_TRY(plait_gather_read(w, at, n, 1));
        plait_fft1_columns(pass->columns, n, w->in, 0, is_staged ? w->staged : w->out,
                           at * pass->item_bytes, w->area,
                           is_staged ? PLAIT_FFT_STORE : pass->store);
    }
    if (is_staged) {
        stream_staged(w);
    }
    count_plane(w);
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

/* Goes to the plane with this number; the last outer axis is the fastest. */
static void go_to(plait_pass_work_t *w, int64_t number)
{
    const plait_pass_t *pass = w->pass;

    for (int d = pass->n_outer - 1; d >= 0; d--) {
        w->index[d] = number % pass->outer_count[d];
        number /= pass->outer_count[d];
    }
    w->box_plane = 0;
}

/* Runs n_planes planes from w's plane on, all in one row of the last outer axis. */
static plait_status_t run_group(plait_pass_work_t *w, int64_t n_planes)
{
    plait_status_t status = PLAIT_OK;
    const plait_pass_t *pass = w->pass;
    const plait_plan_t *plan = w->exec->plan;
    const int64_t at = (pass->n_outer > 0) ? w->index[pass->n_outer - 1] : 0;
    const int64_t n_at_most = w->reads ? plait_gather_planes(pass, plan) : 1;
    int64_t n = 1;

    for (int64_t i = 0; i < n_planes; i += n) {
        n = plait_min(n_at_most, n_planes - i);
        if (w->reads) {
            PLAIT_TRY(run_read(w, n));
        } else {
            run_plane(w);
            count_plane(w);
        }
    }
    finish_streams(w);
    if (pass->n_box_rows > 0) {
        PLAIT_TRY(plait_scatter_write(w, at, n_planes));
    }
done:
    return status;
}

/* Runs planes [first, end). */
static plait_status_t run_planes(plait_pass_work_t *w, int64_t first, int64_t end)
{
    plait_status_t status = PLAIT_OK;
    const plait_pass_t *pass = w->pass;
    const int last = pass->n_outer - 1;
    int64_t n = 1;

    for (int64_t at = first; at < end; at += n) {
        go_to(w, at);
        n = end - at;
        if (last >= 0) {
            n = plait_min(n, pass->outer_count[last] - w->index[last]);
        }
        n = (pass->n_box_rows > 0) ? plait_min(n, plait_scatter_planes(pass)) : n;
        PLAIT_TRY(run_group(w, n));
    }
done:
    if (pass->store == PLAIT_FFT_STREAM) {
        plait_host_stream_fence();
    }
    return status;
}

/* Threads for a pass: no thread gets less work than it costs to call it. */
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

/* Each plane is done by one thread. Which thread does it does not change the bits. */
static plait_status_t run_part(void *context, int i, int n)
{
    const job_t *job = context;
    const int64_t n_planes = n_planes_of(job->pass);
    plait_pass_work_t w = {.pass = job->pass,
                           .exec = job->exec,
                           .scratch = scratch_of(job->pass, job->exec->plan),
                           .reads = plait_gather_reads_now(job->pass, job->exec)};

    w.area = job->exec->scratch + i * w.scratch.total;
    w.in = (const char **)(void *)(w.area + w.scratch.in);
    w.out = (char **)(void *)(w.area + w.scratch.out);
    w.staged = (char **)(void *)(w.area + w.scratch.staged);
    w.streams = (plait_host_stream_t *)(void *)(w.area + w.scratch.streams);
    memset(w.streams, 0, (size_t)w.scratch.n_streams * sizeof(*w.streams));
    for (int64_t t = 0; t < plait_max(job->pass->n_t, job->pass->src_n_t); t++) {
        w.staged[t] = w.area + w.scratch.plane + t * w.scratch.plane_row;
    }
    return run_planes(&w, n_planes * i / n, n_planes * (i + 1) / n);
}

static plait_status_t pass_run(const void *params, plait_exec_t *exec)
{
    job_t job = {.pass = params, .exec = exec};
    const int n_threads = n_threads_of(job.pass, exec->plan);

    return (n_threads == 1) ? run_part(&job, 0, 1)
                            : plait_team_run(n_threads, run_part, &job);
}

static plait_box_copy_t box_of(const plait_pass_t *pass, const int64_t outer_count[],
                               const int64_t outer_stride[], int64_t n_t,
                               int64_t t_stride, int64_t row_bytes)
{
    plait_box_copy_t box = {.n_dims = pass->n_outer + 1, .row_bytes = row_bytes};

    for (int d = 0; d < pass->n_outer; d++) {
        box.count[d] = outer_count[d];
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
        plait_box_copy_t box = box_of(pass, pass->outer_count, p->outer_stride, p->n_t,
                                      p->t_stride, pass->src_n_w * pass->src_bytes);
        touch(context, false, p->peer, p->slot, p->offset, &box);
    }
    for (int i = 0; i < pass->n_targets; i++) {
        const plait_target_t *p = &pass->targets[i];
        plait_box_copy_t box = box_of(pass, p->n_outer, p->outer_stride, p->n_t,
                                      p->t_stride, pass->n_w * pass->item_bytes);
        touch(context, true, p->peer, pass->dst_slot,
              p->offset + p->t_lo * p->t_stride +
                  plait_pass_outer_at(pass, p->outer_lo, p->outer_stride),
              &box);
    }
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
    if (pass->n_targets > 1) {
        (void)fprintf(file, ", put to %d ranks", pass->n_targets);
    }
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
        plait_scatter_plan(pass, plan);
        pass->n_staged = choose_staged(pass);
        plait_plan_need_scratch(plan, n_threads_of(pass, plan) *
                                          scratch_of(pass, plan).total);
        status = plait_plan_kernel(plan, &pass_kernel, pass);
    }
    return status;
}
