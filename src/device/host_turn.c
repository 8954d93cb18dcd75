/* Tiles of src are copied to a scratch. Columns are read from there, because in src, where the step may be a
 * power of two, they would fall on one cache set. In the scratch small elements are transposed a few columns
 * at a time, larger ones are gathered, and each column leaves as one run. While a tile is written, the next
 * one is loaded row by row, and its rows are prefetched some time before, so that memory is read and written
 * all the time. For 256 MiB, elements of 4 bytes take the time of 0.7 memcpys, of 8 and 16 bytes 1.2.
 * Loading each tile first and then writing it took 2.8 and 1.5 (Xeon). */
#include "device/host_turn.h"

#include "base/checked.h"
#include "device/host_gather.h"
#include "device/host_stream.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    LINE = PLAIT_HOST_LINE,
    /* bytes that are transposed at once, in as many rows as make a square */
    VECTOR = 16,
    MOST_WIDTH = 256, /* of a tile's rows in src, bytes */
    MOST_ROWS = 32,   /* of a tile */
    MOST_RUN = 256,   /* of a tile's columns in dst, bytes */
    /* read past the last column; also keeps rows of the scratch off one cache set */
    PAD = VECTOR,
    /* rows; with a step that is a power of two all fall on one cache set, and 24 are lost again */
    AHEAD = 10,
    /* elements of 1 byte need most: 128 rows of 128 + 16 bytes, and 16 columns of 128 */
    SCRATCH_BYTES = 2 * LINE * (2 * LINE + PAD),
    COLUMNS_BYTES = VECTOR * 2 * LINE
};

/* Extents of a tile of elements of k bytes: a row in src; rows; rows together with those that complete the
 * last line in dst. */
static PLAIT_ALWAYS_INLINE int64_t width_of(int k)
{
    return (k == 1) ? 2 * LINE : MOST_WIDTH;
}

static PLAIT_ALWAYS_INLINE int64_t rows_of(int k)
{
    return plait_max(LINE / k, plait_min(MOST_ROWS, MOST_RUN / k));
}

static PLAIT_ALWAYS_INLINE int64_t step_of(int k)
{
    return width_of(k) + PAD;
}

static PLAIT_ALWAYS_INLINE int64_t rows_and_line(int k)
{
    return rows_of(k) + LINE / k;
}

/* Columns that are transposed at once; others are gathered one by one. */
static PLAIT_ALWAYS_INLINE int columns_of(int k)
{
    return (k < 8) ? VECTOR / k : 1;
}

/* Rows of tiles in reading order: tiles follow each other along src's rows. */
typedef struct {
    int64_t i, j; /* where the tile begins; j is n_j or more after the last one */
    int64_t n_rows, width; /* of the tile; width in bytes */
    int64_t row;           /* the next row */
} cursor_t;

/* A transposition under way. */
typedef struct {
    const plait_host_turn_t *turn;
    const char *src;
    char *dst;
    int64_t skew; /* rows that a tile shares with the next one */
    cursor_t loaded, asked;
} state_t;

static PLAIT_ALWAYS_INLINE cursor_t begin_tile(const state_t *t, int64_t i, int64_t j,
                                               int k)
{
    return (cursor_t){.i = i,
                      .j = j,
                      .n_rows = plait_min(rows_of(k) + t->skew, t->turn->n_j - j),
                      .width = plait_min(width_of(k), (t->turn->n_i - i) * k)};
}

static PLAIT_ALWAYS_INLINE bool is_past(const state_t *t, const cursor_t *c)
{
    return c->j >= t->turn->n_j;
}

static PLAIT_ALWAYS_INLINE void next_row(const state_t *t, cursor_t *c, int k)
{
    c->row++;
    if (c->row == c->n_rows) {
        const int64_t i = c->i + width_of(k) / k;
        const bool is_last = i >= t->turn->n_i; /* along src's rows */
        *c = begin_tile(t, is_last ? 0 : i, is_last ? c->j + rows_of(k) : c->j, k);
    }
}

static PLAIT_ALWAYS_INLINE const char *row_of(const state_t *t, const cursor_t *c,
                                              int k)
{
    return t->src + (c->j + c->row) * t->turn->src_step + c->i * k;
}

static PLAIT_ALWAYS_INLINE void copy_line(char *dst, const char *src)
{
    for (int q = 0; q < LINE; q += VECTOR) {
        memcpy(dst + q, src + q, VECTOR);
    }
}

/* Loads a row into the scratch, and prefetches a later one. */
static PLAIT_ALWAYS_INLINE void load_row(state_t *t, char *to, int k)
{
    const char *s = row_of(t, &t->loaded, k);
    const char *later = is_past(t, &t->asked) ? s : row_of(t, &t->asked, k);

    if (t->loaded.width == width_of(k)) {
#pragma GCC unroll 4
        for (int64_t at = 0; at < width_of(k); at += LINE) {
            __builtin_prefetch(later + at, 0, 3);
            copy_line(to + at, s + at);
        }
    } else {
        for (int64_t at = 0; at < width_of(k); at += LINE) {
            __builtin_prefetch(later + at, 0, 3);
        }
        memcpy(to, s, (size_t)t->loaded.width);
    }
}

/* Loads n rows, or what is left of them, into the scratch; they belong to the tile that begins as `tile`
 * does. */
static PLAIT_ALWAYS_INLINE void load_rows(state_t *t, const cursor_t *tile, int64_t n,
                                          char *scratch, int k)
{
    for (; n > 0 && t->loaded.i == tile->i && t->loaded.j == tile->j; n--) {
        load_row(t, scratch + t->loaded.row * step_of(k), k);
        next_row(t, &t->loaded, k);
        if (!is_past(t, &t->asked)) {
            next_row(t, &t->asked, k);
        }
    }
}

#if defined(__SSE2__)
static PLAIT_ALWAYS_INLINE __m128i unpack_low(__m128i x, __m128i y, int k)
{
    return (k == 8)   ? _mm_unpacklo_epi64(x, y)
           : (k == 4) ? _mm_unpacklo_epi32(x, y)
           : (k == 2) ? _mm_unpacklo_epi16(x, y)
                      : _mm_unpacklo_epi8(x, y);
}

static PLAIT_ALWAYS_INLINE __m128i unpack_high(__m128i x, __m128i y, int k)
{
    return (k == 8)   ? _mm_unpackhi_epi64(x, y)
           : (k == 4) ? _mm_unpackhi_epi32(x, y)
           : (k == 2) ? _mm_unpackhi_epi16(x, y)
                      : _mm_unpackhi_epi8(x, y);
}

/* A square of n = 16 / k rows of n elements. Each of log2(n) perfect shuffles of all rows moves one bit of
 * an element's number from its place in the row to the row. */
static PLAIT_ALWAYS_INLINE void turn_square(const char *src, int64_t src_step,
                                            char *dst, int64_t dst_step, int k)
{
    const int n = VECTOR / k;
    __m128i x[VECTOR];
    __m128i y[VECTOR];

#pragma GCC unroll 16
    for (int r = 0; r < n; r++) {
        x[r] = _mm_loadu_si128((const __m128i *)(const void *)(src + r * src_step));
    }
#pragma GCC unroll 4
    for (int bit = 1; bit < n; bit *= 2) {
#pragma GCC unroll 8
        for (int r = 0; r < n / 2; r++) {
            y[2 * r] = unpack_low(x[r], x[r + n / 2], k);
            y[2 * r + 1] = unpack_high(x[r], x[r + n / 2], k);
        }
#pragma GCC unroll 16
        for (int r = 0; r < n; r++) {
            x[r] = y[r];
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < n; r++) {
        _mm_storeu_si128((__m128i *)(void *)(dst + r * dst_step), x[r]);
    }
}
#else
static PLAIT_ALWAYS_INLINE void turn_square(const char *src, int64_t src_step,
                                            char *dst, int64_t dst_step, int k)
{
    for (int r = 0; r < VECTOR / k; r++) {
        for (int c = 0; c < VECTOR / k; c++) {
            memcpy(dst + c * dst_step + r * k, src + r * src_step + c * k, (size_t)k);
        }
    }
}
#endif

/* Writes adjacent columns of n_rows each to `columns`, one after the other. May read and write up to
 * columns_of(k) - 1 more rows and columns. */
static PLAIT_ALWAYS_INLINE void turn_columns(const char *scratch, int64_t n_rows, int k,
                                             char *columns)
{
    for (int64_t r = 0; r < n_rows; r += columns_of(k)) {
        turn_square(scratch + r * step_of(k), step_of(k), columns + r * k,
                    rows_and_line(k) * k, k);
    }
}

/* The first element at or after j that begins a line of a row of dst. */
static PLAIT_ALWAYS_INLINE int64_t line_start(const state_t *t, const char *row,
                                              int64_t j, int k)
{
    const uintptr_t past = ((uintptr_t)row + (uintptr_t)(j * k)) % LINE;

    if ((j == 0) || (past == 0)) {
        return j;
    }
    return plait_min(j + (int64_t)(LINE - past) / k, t->turn->n_j);
}

/* Streams n bytes, which begin or end within a line only where a row of dst begins or ends. */
static PLAIT_ALWAYS_INLINE void stream_run(char *dst, const char *run, int64_t n)
{
    int64_t at = plait_min(n, (int64_t)(-(uintptr_t)dst % LINE));

    if (at > 0) {
        memcpy(dst, run, (size_t)at);
    }
    for (; n - at >= LINE; at += LINE) {
        plait_host_stream_line(dst + at, run + at);
    }
    if (at < n) {
        memcpy(dst + at, run + at, (size_t)(n - at));
    }
}

/* Writes n elements of a tile's column, which are `step` apart or contiguous. */
static PLAIT_ALWAYS_INLINE void write_run(char *dst, const char *column, int64_t n,
                                          int k, bool is_streamed)
{
    if (columns_of(k) == 1) {
        plait_gather(n, column, step_of(k), dst, k, is_streamed);
    } else if (is_streamed) {
        stream_run(dst, column, n * k);
    } else {
        memcpy(dst, column, (size_t)(n * k));
    }
}

/* Writes a tile's column to its place in its row of dst. */
static PLAIT_ALWAYS_INLINE void write_column(const state_t *t, const cursor_t *tile,
                                             int64_t c, const char *column, int k,
                                             bool is_streamed)
{
    char *row = t->dst + (tile->i + c) * t->turn->dst_step;
    const int64_t end = plait_min(tile->j + rows_of(k), t->turn->n_j);

    if (t->skew > 0) {
        const int64_t from = line_start(t, row, tile->j, k);
        const int64_t to = line_start(t, row, end, k);
        const int64_t step = (columns_of(k) == 1) ? step_of(k) : k;
        write_run(row + from * k, column + (from - tile->j) * step, to - from, k,
                  is_streamed);
    } else if (end - tile->j == rows_of(k)) {
        write_run(row + tile->j * k, column, rows_of(k), k, is_streamed);
    } else {
        write_run(row + tile->j * k, column, end - tile->j, k, is_streamed);
    }
}

/* Writes a tile, and loads the next one. */
static PLAIT_ALWAYS_INLINE void turn_tile(state_t *t, const cursor_t *tile,
                                          const char *scratch, char *next_scratch,
                                          int k, bool is_streamed)
{
    _Alignas(LINE) char columns[COLUMNS_BYTES];
    const cursor_t next = t->loaded;
    const int64_t n_columns = tile->width / k;
    const int64_t n_turns = (n_columns + columns_of(k) - 1) / columns_of(k);
    const int64_t share = is_past(t, &next) ? 0 : (next.n_rows + n_turns - 1) / n_turns;

    for (int64_t c = 0; c < n_columns; c += columns_of(k)) {
        const int64_t n = plait_min(columns_of(k), n_columns - c);
        if (columns_of(k) == 1) {
            write_column(t, tile, c, scratch + c * k, k, is_streamed);
        } else {
            turn_columns(scratch + c * k, tile->n_rows, k, columns);
            for (int64_t e = 0; e < n; e++) {
                write_column(t, tile, c + e, columns + e * rows_and_line(k) * k, k,
                             is_streamed);
            }
        }
        load_rows(t, &next, share, next_scratch, k);
    }
}

/* Tiles are shifted to whole lines in each row of dst, since streaming a line in two parts costs two transfers
 * and a read. So if rows of dst do not begin lines, a tile has up to a line more in j. */
static PLAIT_ALWAYS_INLINE void turn_all(const plait_host_turn_t *turn, const char *src,
                                         char *dst, int k, bool is_streamed)
{
    _Alignas(LINE) char scratch[2][SCRATCH_BYTES];
    const bool is_even = (((uintptr_t)dst | (uintptr_t)turn->dst_step) % LINE) == 0;
    state_t t = {.turn = turn, .src = src, .dst = dst};
    int number = 0;

    t.skew = (is_streamed && !is_even) ? LINE / k - 1 : 0;
    t.loaded = begin_tile(&t, 0, 0, k);
    t.asked = t.loaded;
    for (int n = 0; n < AHEAD && !is_past(&t, &t.asked); n++) {
        next_row(&t, &t.asked, k);
    }
    for (cursor_t tile = t.loaded, next; !is_past(&t, &tile); tile = next, number++) {
        if (number == 0) {
            load_rows(&t, &tile, tile.n_rows, scratch[0], k);
        }
        next = t.loaded;
        turn_tile(&t, &tile, scratch[number % 2], scratch[1 - number % 2], k,
                  is_streamed);
    }
}

/* One set of kernels per size. Elements that straddle lines of dst cannot be streamed. */
#define SIZE_KERNEL(_k)                                                              \
    static void turn_##_k(const plait_host_turn_t *turn, const char *src, char *dst) \
    {                                                                                \
        if (turn->is_streamed &&                                                     \
            ((uintptr_t)dst | (uintptr_t)turn->dst_step) % _k == 0) {                \
            turn_all(turn, src, dst, _k, true);                                      \
        } else {                                                                     \
            turn_all(turn, src, dst, _k, false);                                     \
        }                                                                            \
    }
PLAIT_GATHER_FOR_EACH(SIZE_KERNEL)

void plait_host_turn(const plait_host_turn_t *turn, const char *src, char *dst)
{
#define SIZE_CASE(_k)              \
    case _k:                       \
        turn_##_k(turn, src, dst); \
        break;
    switch (turn->n_bytes) {
        PLAIT_GATHER_FOR_EACH(SIZE_CASE)
    default:
        break;
    }
}
