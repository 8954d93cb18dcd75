#include "base/alloc.h"
#include "base/checked.h"
#include "kernel/fft_plan.h"
#include "kernel/fft_twiddle.h"

#include <string.h>

enum {
    NEAR_BYTES = 32 << 10,  /* work that stays in the first-level cache */
    BLOCK_BYTES = 64 << 10, /* work areas of a block of columns together */
    PAGE = 4096
};

/* ---- planning */

static plait_status_t fill_twiddle(plait_fft_pass_t *pass, const plait_roots_t *roots,
                                   plait_dtype_t dtype, double scale)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n = roots->n, step = n / (pass->radix * pass->m);
    int64_t at = 0;

    pass->twiddle = plait_alloc((pass->radix - 1) * pass->m, plait_dtype_bytes(dtype));
    PLAIT_CHECK(pass->twiddle != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for %lld twiddles",
                (long long)((pass->radix - 1) * pass->m));
    for (int64_t p = 0; p < pass->m; p++) {
        for (int64_t k = 1; k < pass->radix; k++) {
            double w[2];

            plait_roots_get(roots, p * k * step, w);
            w[0] *= scale;
            w[1] *= scale;
            plait_fft_set(dtype, pass->twiddle, at++, w);
        }
    }
done:
    return status;
}

/* cos and +sin, as the kernel for any odd radix needs them. */
static plait_status_t fill_trig(plait_fft_pass_t *pass, plait_dtype_t dtype)
{
    plait_status_t status = PLAIT_OK;
    const int radix = pass->radix, half = radix / 2;
    plait_roots_t roots = {0};
    int64_t at = 0;

    PLAIT_TRY(plait_roots_create(radix, &roots));
    pass->trig = plait_alloc((int64_t)half * half, plait_dtype_bytes(dtype));
    PLAIT_CHECK(pass->trig != NULL, PLAIT_ERR_NO_MEMORY, "no memory for radix %d",
                radix);
    for (int k = 1; k <= half; k++) {
        for (int j = 1; j <= half; j++) {
            double w[2];

            plait_roots_get(&roots, j * k % radix, w);
            w[1] = -w[1];
            plait_fft_set(dtype, pass->trig, at++, w);
        }
    }
done:
    plait_roots_destroy(&roots);
    return status;
}

/* Digit reversal: the number with digits q1, q2, ... (first pass first) in bases R1, R2, ... is the position.
 * The result's index has the same digits, with the first one lowest. */
static void fill_order(plait_fft_direct_t *direct, int64_t n, int sign)
{
    int64_t weight[PLAIT_FFT_MAX_PASSES] = {1};
    int digit[PLAIT_FFT_MAX_PASSES] = {0};
    int64_t k = 0;

    for (int l = 1; l < direct->n_passes; l++) {
        weight[l] = weight[l - 1] * direct->pass[l - 1].radix;
    }
    for (int64_t position = 0; position < n; position++) {
        int l = direct->n_passes - 1;

        direct->order[position] = (sign < 0) ? k : (n - k) % n;
        k += weight[l];
        while (++digit[l] == direct->pass[l].radix && l > 0) {
            k -= weight[l] * digit[l];
            digit[l--] = 0;
            k += weight[l];
        }
    }
}

/* If the leg stride were a multiple of a quarter page, all legs of the first pass would fall into few sets of
 * the cache. */
static int64_t first_leg_bytes(int64_t m, int64_t pair_bytes)
{
    return m * pair_bytes + (((m * pair_bytes) % (PAGE / 4) == 0) ? pair_bytes : 0);
}

static plait_status_t fill_passes(plait_fft1_t *fft, const int radix[])
{
    plait_status_t status = PLAIT_OK;
    plait_fft_direct_t *direct = &fft->u.direct;
    const int64_t pair_bytes = fft->kernels->pair_bytes;
    plait_roots_t roots = {0};
    int64_t m = fft->n;

    PLAIT_TRY(plait_roots_create(fft->n, &roots));
    for (int l = 0; l < direct->n_passes; l++) {
        plait_fft_pass_t *pass = &direct->pass[l];

        m /= radix[l];
        pass->radix = radix[l];
        pass->m = m;
        pass->scale = fft->scale;
        pass->leg_bytes = (l == 0) ? first_leg_bytes(m, pair_bytes) : m * pair_bytes;
        PLAIT_TRY(fill_twiddle(pass, &roots, fft->dtype, (l == 0) ? fft->scale : 1.0));
        if (pass->radix > PLAIT_FFT_MAX_RADIX) {
            PLAIT_TRY(fill_trig(pass, fft->dtype));
        }
    }
done:
    plait_roots_destroy(&roots);
    return status;
}

/* Wide blocks have long pieces of each row. At least two vectors, if these do not leave the second-level
 * cache. */
static int block_vectors(int64_t work_bytes)
{
    const int64_t least = (work_bytes <= BLOCK_BYTES) ? 2 : 1;
    const int64_t n_vectors = plait_max(BLOCK_BYTES / work_bytes, least);

    return (int)plait_min(n_vectors, PLAIT_FFT_MAX_VECTORS);
}

/* Short rows: as many together as stay in the first-level cache with their work areas, so that they share the
 * cost of a block. Never more than for columns: NEAR_BYTES is less than BLOCK_BYTES. */
static int row_vectors(int64_t work_bytes)
{
    return (int)plait_max(
        1, plait_min(NEAR_BYTES / 2 / work_bytes, PLAIT_FFT_MAX_VECTORS));
}

/* Scratch: n pointers for results, n for sources, the work areas, and n padded rows or the columns that rows
 * become. */
plait_status_t plait_fft_direct_passes(plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_direct_t *direct = &fft->u.direct;
    int radix[PLAIT_FFT_MAX_PASSES];
    double cost = 0;
    bool is_smooth = plait_fft_choose_radices(fft->n, radix, &direct->n_passes, &cost);

    PLAIT_CHECK(is_smooth, PLAIT_ERR_INTERNAL, "%lld points have a large prime factor",
                (long long)fft->n);
    PLAIT_TRY(fill_passes(fft, radix));
    direct->order = plait_alloc(fft->n, sizeof *direct->order);
    PLAIT_CHECK(direct->order != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for %lld indices", (long long)fft->n);
    fill_order(direct, fft->n, fft->sign);
    direct->work_bytes = radix[0] * direct->pass[0].leg_bytes;
    direct->n_vectors = block_vectors(direct->work_bytes);
    direct->n_row_vectors = row_vectors(direct->work_bytes);
    fft->scratch_bytes = 2 * plait_fft_line_up(fft->n * (int64_t)sizeof(char *)) +
                         direct->n_vectors * direct->work_bytes +
                         fft->n * direct->n_row_vectors * fft->kernels->pair_bytes;
done:
    return status;
}

static plait_status_t create(plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(plait_fft_direct_passes(fft));
    PLAIT_TRY(plait_fft_split_create(fft));
done:
    return status;
}

static void destroy(plait_fft1_t *fft)
{
    plait_fft_split_destroy(&fft->u.direct.split);
    for (int l = 0; l < fft->u.direct.n_passes; l++) {
        plait_free(fft->u.direct.pass[l].twiddle);
        plait_free(fft->u.direct.pass[l].trig);
    }
    plait_free(fft->u.direct.order);
}

/* ---- execution */

typedef struct {
    const char **in;
    char **out;
    char *work, *pad;
} areas_t;

static areas_t areas_of(const plait_fft1_t *fft, char *scratch)
{
    const int64_t pointer_bytes = plait_fft_line_up(fft->n * (int64_t)sizeof(char *));
    areas_t areas = {.in = (const char **)(void *)scratch};

    areas.out = (char **)(void *)(scratch + pointer_bytes);
    areas.work = scratch + 2 * pointer_bytes;
    areas.pad = areas.work + fft->u.direct.n_vectors * fft->u.direct.work_bytes;
    return areas;
}

typedef struct {
    const plait_fft_direct_t *direct;
    const plait_fft_kernels_t *kernels;
    const plait_fft_block_t *block;
    bool is_turned;
} run_t;

/* First and only passes cover everything: part may be NULL. */
static void run_pass(const run_t *run, plait_fft_role_t role, int l,
                     const plait_fft_part_t *part)
{
    const plait_fft_pass_t *pass = &run->direct->pass[l];
    const int index = (pass->radix > PLAIT_FFT_MAX_RADIX) ? 0 : pass->radix;

    run->kernels->pass[role][index](pass, run->block, part);
}

static plait_fft_role_t last_of(const run_t *run)
{
    return run->is_turned ? PLAIT_FFT_LAST_TURNED : PLAIT_FFT_LAST;
}

/* Passes l and later, each over the whole part. The part's blocks have the size of pass l. */
static void run_level(const run_t *run, int l, plait_fft_part_t part)
{
    for (; l < run->direct->n_passes; l++) {
        const plait_fft_pass_t *pass = &run->direct->pass[l];
        const bool is_last = l + 1 == run->direct->n_passes;

        run_pass(run, is_last ? last_of(run) : PLAIT_FFT_MIDDLE, l, &part);
        part.n_inner *= pass->radix;
        part.inner_bytes = pass->leg_bytes;
    }
}

/* One block of pass l, cut up until the remaining work stays in the nearest cache. */
static void run_deep(const run_t *run, int l, const plait_fft_part_t *part)
{
    const plait_fft_pass_t *pass = &run->direct->pass[l];
    plait_fft_part_t leg = *part;

    if (l + 1 == run->direct->n_passes) {
        run_pass(run, last_of(run), l, part);
        return;
    }
    if (pass->radix * pass->leg_bytes <= NEAR_BYTES) {
        run_level(run, l, leg);
        return;
    }
    run_pass(run, PLAIT_FFT_MIDDLE, l, part);
    for (int q = 0; q < pass->radix; q++) {
        run_deep(run, l + 1, &leg);
        leg.at += pass->leg_bytes;
        leg.position += pass->m;
    }
}

/* The passes after the first one. */
static void run_rest(const run_t *run)
{
    const plait_fft_pass_t *pass = &run->direct->pass[0];
    plait_fft_part_t part = {
        .n_outer = 1, .n_inner = 1, .outer_bytes = pass->leg_bytes};

    if (run->direct->n_passes == 2 ||
        run->block->n_vectors * run->direct->work_bytes <= NEAR_BYTES) {
        part.n_outer = pass->radix;
        run_level(run, 1, part);
        return;
    }
    for (int q = 0; q < pass->radix; q++) {
        run_deep(run, 1, &part);
        part.at += pass->leg_bytes;
        part.position += pass->m;
    }
}

void plait_fft_direct_block(const plait_fft1_t *fft, const plait_fft_block_t *block)
{
    const run_t run = {&fft->u.direct, fft->kernels, block, block->factors != NULL};

    if (run.direct->n_passes == 1) {
        run_pass(&run, run.is_turned ? PLAIT_FFT_ONLY_TURNED : PLAIT_FFT_ONLY, 0, NULL);
    } else {
        run_pass(&run, PLAIT_FFT_FIRST, 0, NULL);
        run_rest(&run);
    }
}

static void copy_numbers(char *to, const char *from, int64_t n, int64_t itemsize)
{
    for (int64_t i = 0; i < n; i++) {
        if (itemsize == 16) {
            memcpy(to + 16 * i, from + 16 * i, 16);
        } else {
            memcpy(to + 8 * i, from + 8 * i, 8);
        }
    }
}

/* A block of n_vectors vectors of columns, side by side in scratch, to be transformed in place. */
static plait_fft_block_t block_of_pad(const plait_fft1_t *fft, const areas_t *areas,
                                      int n_vectors)
{
    const int64_t pitch = n_vectors * (int64_t)fft->kernels->pair_bytes;

    for (int64_t j = 0; j < fft->n; j++) {
        areas->in[j] = areas->pad + j * pitch;
        areas->out[j] = areas->pad + fft->u.direct.order[j] * pitch;
    }
    return (plait_fft_block_t){.in = areas->in,
                               .out = areas->out,
                               .work = areas->work,
                               .work_stride = fft->u.direct.work_bytes,
                               .n_vectors = n_vectors};
}

/* Fewer columns than lanes go through padded rows, so that the arithmetic is the same. */
static void run_tail(const plait_fft1_t *fft, const plait_fft_columns_t *job,
                     int64_t column, const areas_t *areas)
{
    const int64_t pair_bytes = fft->kernels->pair_bytes, at = column * fft->itemsize;
    const int64_t n_left = job->n_columns - column;
    const plait_fft_block_t block = block_of_pad(fft, areas, 1);

    memset(areas->pad, 0, (size_t)(fft->n * pair_bytes));
    for (int64_t j = 0; j < fft->n; j++) {
        copy_numbers(areas->pad + j * pair_bytes, job->in[j] + job->in_offset + at,
                     n_left, fft->itemsize);
    }
    plait_fft_direct_block(fft, &block);
    for (int64_t k = 0; k < fft->n; k++) {
        copy_numbers(job->out[k] + job->out_offset + at, areas->pad + k * pair_bytes,
                     n_left, fft->itemsize);
    }
}

static void columns(const plait_fft1_t *fft, const plait_fft_columns_t *job,
                    char *scratch)
{
    const plait_fft_direct_t *direct = &fft->u.direct;
    const int64_t lanes = fft->kernels->lanes, n_whole = job->n_columns / lanes;
    const areas_t areas = areas_of(fft, scratch);
    plait_fft_block_t block = {.in = job->in, .out = areas.out, .work = areas.work};

    block.in_offset = job->in_offset;
    block.work_stride = direct->work_bytes;
    block.is_streamed = job->store == PLAIT_FFT_STREAM;
    for (int64_t i = 0; (n_whole > 0) && (i < fft->n); i++) {
        areas.out[i] = job->out[direct->order[i]] + job->out_offset;
    }
    for (int64_t v = 0; v < n_whole; v += block.n_vectors) {
        int64_t block_bytes = 0;

        block.n_vectors = (int)plait_min(direct->n_vectors, n_whole - v);
        block_bytes = block.n_vectors * (int64_t)fft->kernels->pair_bytes;
        block.ahead = (v + 2 * block.n_vectors <= n_whole) ? block_bytes : 0;
        plait_fft_direct_block(fft, &block);
        block.in_offset += block_bytes;
        block.out_offset += block_bytes;
    }
    if (n_whole * lanes < job->n_columns) {
        run_tail(fft, job, n_whole * lanes, &areas);
    }
}

/* Lanes beyond the last row do the last row again. It is read before it is written. */
static void take_rows(const plait_fft1_t *fft, const plait_fft_rows_t *job, int64_t row,
                      char *columns, int64_t pitch)
{
    const int64_t lanes = fft->kernels->lanes;
    const int64_t ahead = (row + 2 * lanes <= job->n_rows) ? lanes * job->in_stride : 0;
    const char *from[PLAIT_FFT_MAX_LANES];

    for (int64_t l = 0; l < lanes; l++) {
        from[l] = job->in + plait_min(row + l, job->n_rows - 1) * job->in_stride;
    }
    fft->kernels->rows_in(fft->n, from, ahead, columns, pitch);
}

static void put_rows(const plait_fft1_t *fft, const plait_fft_rows_t *job, int64_t row,
                     const char *columns, int64_t pitch)
{
    char *to[PLAIT_FFT_MAX_LANES];

    for (int64_t l = 0; l < fft->kernels->lanes; l++) {
        to[l] = job->out + plait_min(row + l, job->n_rows - 1) * job->out_stride;
    }
    fft->kernels->rows_out(fft->n, columns, pitch, to);
}

static void copy_rows(const plait_fft1_t *fft, char *to, int64_t to_stride,
                      const char *from, int64_t from_stride, int64_t n_rows)
{
    for (int64_t r = 0; r < n_rows; r++) {
        copy_numbers(to + r * to_stride, from + r * from_stride, fft->n, fft->itemsize);
    }
}

/* Rows of a single pass. Fewer rows than lanes go through scratch, beside zeros. */
static void short_rows(const plait_fft1_t *fft, const plait_fft_rows_t *job, char *pad)
{
    const int64_t lanes = fft->kernels->lanes, pitch = fft->n * fft->itemsize;
    const plait_fft_pass_t *pass = &fft->u.direct.pass[0];
    plait_fft_short_fn *const kernel = fft->kernels->short_rows[pass->radix];
    plait_fft_rows_t some = *job;
    const int64_t n_left = job->n_rows % lanes;
    const char *in = job->in + (job->n_rows - n_left) * job->in_stride;
    char *out = job->out + (job->n_rows - n_left) * job->out_stride;

    some.n_rows -= n_left;
    kernel(pass, fft->sign, &some);
    if (n_left > 0) {
        memset(pad, 0, (size_t)(lanes * pitch));
        copy_rows(fft, pad, pitch, in, job->in_stride, n_left);
        some = (plait_fft_rows_t){.n_rows = lanes,
                                  .in = pad,
                                  .in_stride = pitch,
                                  .out = pad,
                                  .out_stride = pitch};
        kernel(pass, fft->sign, &some);
        copy_rows(fft, out, job->out_stride, pad, pitch, n_left);
    }
}

/* Reads and writes whole cache lines of `lanes` rows at a time, whatever is between them. If rows are a power
 * of two apart, the cache keeps few of their lines, and numbers of one line would be needed passes apart. */
static void long_rows(const plait_fft1_t *fft, const plait_fft_rows_t *job,
                      const areas_t *areas)
{
    const int64_t lanes = fft->kernels->lanes, pair_bytes = fft->kernels->pair_bytes;
    const int64_t pitch = fft->u.direct.n_row_vectors * pair_bytes;
    plait_fft_block_t block = block_of_pad(fft, areas, fft->u.direct.n_row_vectors);

    for (int64_t r = 0; r < job->n_rows; r += block.n_vectors * lanes) {
        const int64_t n_left = (job->n_rows - r + lanes - 1) / lanes;

        block.n_vectors = (int)plait_min(block.n_vectors, n_left);
        for (int v = 0; v < block.n_vectors; v++) {
            take_rows(fft, job, r + v * lanes, areas->pad + v * pair_bytes, pitch);
        }
        plait_fft_direct_block(fft, &block);
        for (int v = 0; v < block.n_vectors; v++) {
            put_rows(fft, job, r + v * lanes, areas->pad + v * pair_bytes, pitch);
        }
    }
}

static void rows(const plait_fft1_t *fft, const plait_fft_rows_t *job, char *scratch)
{
    const areas_t areas = areas_of(fft, scratch);

    if (fft->u.direct.n_passes == 1) {
        short_rows(fft, job, areas.pad);
    } else if (fft->u.direct.split.first != NULL) {
        plait_fft_split_rows(fft, job, scratch);
    } else {
        long_rows(fft, job, &areas);
    }
}

void plait_fft_direct_transposed(const plait_fft1_t *fft, const plait_fft_rows_t *job,
                                 char *scratch)
{
    const int64_t lanes = fft->kernels->lanes, itemsize = fft->itemsize;
    const int64_t pair_bytes = fft->kernels->pair_bytes, *order = fft->u.direct.order;
    const areas_t areas = areas_of(fft, scratch);
    plait_fft_block_t block = block_of_pad(fft, &areas, 1);

    for (int64_t r = 0; r < job->n_rows; r += lanes) {
        const int64_t n_left = plait_min(job->n_rows - r, lanes);
        const bool is_whole = n_left == lanes;

        for (int64_t i = 0; (r == 0 || !is_whole) && (i < fft->n); i++) {
            areas.out[i] = is_whole ? job->out + order[i] * job->n_rows * itemsize
                                    : areas.pad + order[i] * pair_bytes;
        }
        block.out_offset = is_whole ? r * itemsize : 0;
        block.is_streamed = is_whole && job->store == PLAIT_FFT_STREAM;
        take_rows(fft, job, r, areas.pad, pair_bytes);
        plait_fft_direct_block(fft, &block);
        for (int64_t k = 0; !is_whole && (k < fft->n); k++) {
            copy_numbers(job->out + (k * job->n_rows + r) * itemsize,
                         areas.pad + k * pair_bytes, n_left, itemsize);
        }
    }
}

const plait_fft_method_t plait_fft_direct = {.name = "direct",
                                             .create = create,
                                             .destroy = destroy,
                                             .columns = columns,
                                             .rows = rows};
