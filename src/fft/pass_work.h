/* The working state of a thread's passes, for pass.c and the files by which it reads and writes. */
#ifndef PLAIT_FFT_PASS_WORK_H
#define PLAIT_FFT_PASS_WORK_H

#include "device/host_stream.h"
#include "fft/pass.h"
#include "plan/exec.h"

/* Scratch, in byte offsets: for the 1-D transforms; for reads from peers; the plane between rows and columns;
 * rows that are staged after it; data for peers; row pointers of both sides and of the plane; the streams. */
typedef struct {
    int64_t strip, plane, rows, box, in, out, staged, streams, total;
    int64_t strip_row, plane_row, rows_row, box_row; /* bytes from row to row */
    int64_t n_streams;
} plait_pass_scratch_t;

/* Work state of one plane. */
typedef struct {
    const plait_pass_t *pass;
    plait_exec_t *exec;
    plait_pass_scratch_t scratch;
    char *area; /* this thread's scratch */
    bool reads; /* peers' rows come by plait_gather_read, not from where they are */
    int64_t index[PLAIT_MAX_NDIM]; /* of the plane */
    int64_t box_plane;             /* its number among the planes collected */
    const char **in;
    char **out;
    char **staged; /* rows of the plane in scratch */
    plait_host_stream_t
        *streams; /* for a staged plane's rows; one if rows follow each other */
} plait_pass_work_t;

/* Whether there are real rows, before or after the columns. */
static inline bool plait_pass_has_real_rows(const plait_pass_t *pass)
{
    return pass->real != NULL && !pass->is_real_columns;
}

static inline bool plait_pass_ends_real(const plait_pass_t *pass)
{
    return plait_pass_has_real_rows(pass) && !plait_rfft1_to_complex(pass->real);
}

/* Bytes from row to row of an area in scratch. Even if the row length is a power of two, columns do not fall on
 * the same sets of the cache. */
static inline int64_t plait_pass_padded(int64_t row_bytes)
{
    return (row_bytes + 64 + 63) / 64 * 64;
}

/* Bytes from the beginning of a buffer to a plane. */
static inline int64_t plait_pass_outer_at(const plait_pass_t *pass,
                                          const int64_t index[], const int64_t stride[])
{
    int64_t at = 0;

    for (int d = 0; d < pass->n_outer; d++) {
        at += index[d] * stride[d];
    }
    return at;
}

/* ------------------------------------------------------------------ pass_gather.c */

/* Whether rows in peers' memory may have to be copied before use. */
bool plait_gather_reads(const plait_pass_t *pass, const plait_plan_t *plan);

/* Whether they are copied in this execution: memory that peers show is read in place. */
bool plait_gather_reads_now(const plait_pass_t *pass, const plait_exec_t *exec);

/* Amount that is read at a time: adjacent planes, or elements of the rows of one plane. */
int64_t plait_gather_planes(const plait_pass_t *pass, const plait_plan_t *plan);
int64_t plait_gather_width(const plait_pass_t *pass, const plait_plan_t *plan);

/* Bytes of scratch for these reads. */
int64_t plait_gather_room(const plait_pass_t *pass, const plait_plan_t *plan,
                          int64_t *strip_row_p);

/* Sets w->in to the rows of w's plane, in place. */
void plait_gather_in_place(plait_pass_work_t *w);

/* Reads n elements, from `at` on, of the rows of n_planes planes; afterwards w->in points to the rows of w's
 * plane. */
plait_status_t plait_gather_read(plait_pass_work_t *w, int64_t at, int64_t n,
                                 int64_t n_planes);

/* Advances w->in to the next plane that was read. */
void plait_gather_next(plait_pass_work_t *w);

/* ------------------------------------------------------------------ pass_scatter.c */

/* Gives rows for peers their places in scratch; called once, while planning. */
void plait_scatter_plan(plait_pass_t *pass, const plait_plan_t *plan);

/* Planes that are collected before they go to peers. */
int64_t plait_scatter_planes(const plait_pass_t *pass);

/* Whether the plane has rows for a target; where the first of these is written, and bytes from row to row
 * there. */
bool plait_scatter_place(const plait_pass_work_t *w, const plait_target_t *target,
                         char **place_p, int64_t *stride_p);

/* Sets w->out to where the rows of w's plane are written. */
void plait_scatter_out(plait_pass_work_t *w);

/* Sends peers the rows of n_planes planes, which begin at index `at` of the last outer axis. */
plait_status_t plait_scatter_write(plait_pass_work_t *w, int64_t at, int64_t n_planes);

#endif
