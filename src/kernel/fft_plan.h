/* Internals of the one-dimensional transforms: the contents of plans and the arguments of kernels.
 *
 * A block is up to n_vectors groups of `lanes` neighbouring columns; rows become such columns. A direct
 * transform runs decimation-in-frequency passes in place over one work area. In this area element e of a block
 * is a pair of vectors, real parts then imaginary parts. The first pass reads the caller's memory, and the
 * last pass writes it in digit-reversed order, so that nothing is permuted or transposed anywhere. The sign +1
 * is the same transform with its outputs in the order -k mod n. If one radix is the whole transform, a single
 * pass reads and writes the caller's memory. */
#ifndef PLAIT_KERNEL_FFT_PLAN_H
#define PLAIT_KERNEL_FFT_PLAN_H

#include "kernel/cpu.h"
#include "kernel/fft.h"
#include "kernel/fft_twiddle.h"
#include "kernel/rfft.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    PLAIT_FFT_MAX_PASSES = 48,
    PLAIT_FFT_MAX_LANES = 16,
    PLAIT_FFT_MAX_RADIX = 16,  /* of a kernel made for one radix */
    PLAIT_FFT_MAX_ODD = 61,    /* of the kernel for any odd radix */
    PLAIT_FFT_MAX_VECTORS = 8, /* of a block */
    PLAIT_FFT_MAX_DIRECT =
        32768 /* scratch of `lanes` rows, twice, leaves the second-level cache */
};

typedef enum {
    PLAIT_FFT_FIRST,
    PLAIT_FFT_MIDDLE,
    PLAIT_FFT_LAST,
    PLAIT_FFT_ONLY,        /* first and last at once, without a work area */
    PLAIT_FFT_LAST_TURNED, /* results times factors: see plait_fft_split_t */
    PLAIT_FFT_ONLY_TURNED,
    PLAIT_FFT_ROLE_COUNT,
    PLAIT_FFT_REGISTERS = PLAIT_FFT_ROLE_COUNT /* of no pass: see short_rows */
} plait_fft_role_t;

/* Butterflies of one radix over blocks of radix * m elements. Leg k of butterfly p is element p + k * m.
 * twiddle holds w^(p k), p < m, 1 <= k < radix, with w = exp(-2 pi i / (radix m)); in the first pass times
 * scale. */
typedef struct {
    int radix;
    int64_t m;
    int64_t leg_bytes;
    void *twiddle;
    void *trig; /* odd radices without a kernel: cos, sin of 2 pi j k / radix, 1 <= j, k
                 */
    double scale;
} plait_fft_pass_t;

/* The part of the work area that a pass covers: n_outer x n_inner blocks from byte `at` on. */
typedef struct {
    int64_t at;
    int64_t position; /* of the first element in the order of the last pass */
    int64_t n_outer, outer_bytes;
    int64_t n_inner, inner_bytes;
} plait_fft_part_t;

typedef struct {
    const char *const *in; /* row j of the block is at in[j] + in_offset */
    int64_t in_offset;
    int64_t ahead; /* bytes from a row's element to what is needed next of this row */
    char *const *out; /* where position i goes, plus out_offset */
    int64_t out_offset;
    char *work;
    int64_t work_stride; /* bytes between the work areas of the block's vectors */
    int n_vectors;
    bool is_streamed; /* results go past the cache where they fill whole lines */
    const char
        *factors; /* for turned passes: pairs of vectors for each position and vector */
} plait_fft_block_t;

typedef void plait_fft_pass_fn(const plait_fft_pass_t *pass,
                               const plait_fft_block_t *block,
                               const plait_fft_part_t *part);

typedef struct {
    int64_t n_rows;
    const char *in;
    int64_t in_stride;
    char *out;
    int64_t out_stride;
    plait_fft_store_t store;
} plait_fft_rows_t;

/* Rows of `radix` numbers; their number is a multiple of `lanes`. May be in place. */
typedef void plait_fft_short_fn(const plait_fft_pass_t *pass, int sign,
                                const plait_fft_rows_t *job);

/* A row as a matrix of n1 rows and n2 columns, n2 a multiple of `lanes`, so that no copy is needed to put rows
 * into lanes. Transforms of n1 points, whose lanes are columns; multiplication by w^(k1 j2); then transforms of
 * n2 points, one radix, whose lanes are rows k1, as in plait_fft_large. */
typedef struct {
    plait_fft1_t *first; /* n1 points, by the direct method; NULL: rows are not split */
    plait_fft_pass_t second;
    void *factors; /* pairs of vectors in the order of positions of first's last pass */
    int n_vectors; /* n2 / lanes */
} plait_fft_split_t;

/* A row of real numbers times a factor; place -1: a row of zeros. */
typedef struct {
    int64_t place;
    double factor;
} plait_fft_single_t;

/* Two rows of real numbers, and a row of complex numbers: re = f[0] a + f[1] b, im = f[2] a + f[3] b; or a =
 * f[0] re + f[1] im, b = f[2] re + f[3] im. b = -1: there is no b. */
typedef struct {
    int64_t a, b;
    double f[4];
} plait_fft_pair_t;

/* The kernels of one instruction set for one real type. */
typedef struct {
    int lanes;
    int pair_bytes; /* of an element in the work area */
    /* [role][radix]; NULL if missing. Radix 1, which only moves data, exists in every role. [MIDDLE][0]: middle
     * passes of any other odd radix up to PLAIT_FFT_MAX_ODD. */
    plait_fft_pass_fn *const (*pass)[PLAIT_FFT_MAX_RADIX + 1];
    plait_fft_short_fn *const *short_rows; /* [radix]; NULL where ONLY is missing */
    plait_fft_short_fn *const *short_turned;
    /* Makes n_pairs pairs of vectors of real and imaginary parts, in the lanes' order, from as many numbers in
     * memory. */
    void (*pairs_of)(int64_t n_pairs, const void *numbers, void *pairs);
    /* Moves n numbers of each of `lanes` rows to columns side by side: number j of row l is at columns + j *
     * pitch + l * itemsize. The bytes of a row that are `ahead` are needed next. */
    void (*rows_in)(int64_t n, const char *const row[], int64_t ahead, char *columns,
                    int64_t pitch);
    void (*rows_out)(int64_t n, const char *columns, int64_t pitch, char *const row[]);
    /* y[i][c] = x[i][c] * w[i] for n_rows rows of n numbers, n a multiple of lanes. Rows are at x[i] + x_offset
     * and y[i] + y_offset. May be in place. */
    void (*scale_rows)(int64_t n_rows, int64_t n, const char *const x[],
                       int64_t x_offset, const void *w, char *const y[],
                       int64_t y_offset);
    /* y[c] += x[c] * w, n a multiple of lanes. */
    void (*add_scaled)(int64_t n, const void *x, const void *w, void *y);
    /* y[i] = y[i] * w[i], any n. */
    void (*multiply)(int64_t n, const void *w, void *y);
    /* For real transforms, see rfft.c. In place: the transform of m numbers, which hold 2 m real numbers,
     * becomes the m + 1 numbers of the real transform. */
    void (*split_row)(int64_t m, const void *u, double edge, void *row);
    /* The way back, to m numbers. */
    void (*merge_row)(int64_t m, const void *u, double edge, const void *from,
                      void *to);
    /* Results k of 2 n real columns from results k (x) and -k (p) of n complex ones. */
    void (*split_columns)(int64_t n, double factor, const void *x, const void *p,
                          void *to);
    /* The way back: x and p. merge_edge: for k = 0 and n / 2, where imaginary parts are ignored. */
    void (*merge_columns)(int64_t n, const void *from, void *x, void *p);
    void (*merge_edge)(int64_t n, double edge, const void *from, void *to);
    /* Sums of magnitudes: of n real numbers; of each of n_columns columns. Not of squares, which may leave the
     * range. A sum with a number that is not finite is not finite. */
    double (*row_size)(const void *row, int64_t n);
    void (*column_sizes)(int64_t n_rows, const char *const rows[], int64_t offset,
                         int64_t n_columns, double *sizes);
    /* For waves, see fft_wave.c. scale: n numbers times a factor. join: complex numbers from two rows of real
     * numbers, re = f[0] a + f[1] b, im = f[2] a + f[3] b. part: back, a = f[0] re + f[1] im, b = f[2] re +
     * f[3] im. turn: columns of n numbers from rows. */
    void (*scale_reals)(int64_t n, double factor, const void *from, void *to);
    void (*join_reals)(int64_t n, const double f[4], const void *a, const void *b,
                       void *to);
    void (*part_reals)(int64_t n, const double f[4], const void *from, void *a,
                       void *b);
    /* The same for numbers of one row, by tables. */
    void (*take_singles)(int64_t n, const plait_fft_single_t *singles, const void *from,
                         void *to);
    void (*put_singles)(int64_t n, const plait_fft_single_t *singles, const void *from,
                        void *to);
    void (*take_pairs)(int64_t n, const plait_fft_pair_t *pairs, const void *from,
                       void *to);
    void (*put_pairs)(int64_t n, const plait_fft_pair_t *pairs, const void *from,
                      void *to);
    void (*turn_reals)(int64_t n_rows, int64_t n, const char *from, int64_t from_pitch,
                       char *to, int64_t to_pitch);
} plait_fft_kernels_t;

/* [0] single precision, [1] double precision. */
extern const plait_fft_kernels_t plait_fft_kernels_generic[2];
#if defined(__x86_64__) && !defined(PLAIT_GENERIC_KERNELS)
extern const plait_fft_kernels_t plait_fft_kernels_avx2[2];
extern const plait_fft_kernels_t plait_fft_kernels_avx512[2];
#endif

/* Passes in place; n <= PLAIT_FFT_MAX_DIRECT and prime factors <= PLAIT_FFT_MAX_ODD. */
typedef struct {
    int n_passes;
    plait_fft_pass_t pass[PLAIT_FFT_MAX_PASSES];
    int64_t *order;     /* index of the result at each position of the last pass */
    int64_t work_bytes; /* per vector */
    int n_vectors;      /* of a block of columns */
    int n_row_vectors;  /* of a block of rows */
    plait_fft_split_t split;
} plait_fft_direct_t;

/* n = n1 * n2: columns of n1, a multiplication, rows of n2 (Gentleman and Sande, 1966).
 */
typedef struct {
    plait_fft1_t *first, *second; /* n1 and n2 points */
    void *twiddle;                /* w^(k1 j2) as [k1][j2] */
    int64_t n_block;              /* columns at a time */
} plait_fft_large_t;

/* Prime n: a cyclic convolution of n - 1 points, in the order of a generator's powers (Rader, 1968). */
typedef struct {
    plait_fft1_t *inner;
    int64_t *power; /* generator^i mod n, 0 <= i < n - 1 */
    void *filter;   /* the roots' transform times scale / (n - 1) */
    void *scale;    /* as a complex number */
    int64_t n_block;
} plait_fft_rader_t;

/* A convolution with a chirp, of n_conv >= 2 n - 1 points (Bluestein, 1970). */
typedef struct {
    plait_fft1_t *inner;
    int64_t n_conv;
    void *chirp_in, *chirp_out; /* n numbers; scale is in chirp_out */
    void *filter;               /* the chirp's transform / n_conv, n_conv numbers */
    int64_t n_block;            /* columns at a time */
} plait_fft_bluestein_t;

/* By cosines or sines: a Fourier transform, and tables for the work before and after it. */
typedef struct {
    plait_rfft1_t *real;   /* types 1 to 3 */
    plait_fft1_t *complex; /* type 4 */
    int64_t n_singles;     /* real rows of the Fourier transform; 0 if it has none */
    plait_fft_single_t *singles;
    bool is_plain; /* all factors are 1: rows need no copies */
    int64_t n_in;  /* pairs before the Fourier transform */
    int64_t n_out; /* pairs after it */
    plait_fft_pair_t *pairs;
    int64_t n_rows; /* complex rows of the Fourier transform */
    int64_t n_block;
} plait_fft_wave_t;

typedef struct {
    int64_t n_columns;
    const char *const *in;
    int64_t in_offset;
    char *const *out;
    int64_t out_offset;
    plait_fft_store_t store;
} plait_fft_columns_t;

/* create fills fft->u and fft->scratch_bytes of a plan whose other members are set. destroy frees what is
 * there, also after a failure. */
typedef struct {
    const char *name;
    plait_status_t (*create)(plait_fft1_t *fft);
    void (*destroy)(plait_fft1_t *fft);
    void (*columns)(const plait_fft1_t *fft, const plait_fft_columns_t *job,
                    char *scratch);
    void (*rows)(const plait_fft1_t *fft, const plait_fft_rows_t *job, char *scratch);
} plait_fft_method_t;

extern const plait_fft_method_t plait_fft_direct, plait_fft_large, plait_fft_rader,
    plait_fft_bluestein, plait_fft_wave;

struct plait_fft1 {
    int64_t n;
    plait_dtype_t dtype;
    int64_t itemsize;
    int sign;
    double scale;
    plait_wave_t wave;
    const plait_fft_kernels_t *kernels;
    const plait_fft_method_t *method;
    union {
        plait_fft_direct_t direct;
        plait_fft_large_t large;
        plait_fft_rader_t rader;
        plait_fft_bluestein_t bluestein;
        plait_fft_wave_t wave;
    } u;
    int64_t scratch_bytes;
    /* for fft_shared.c */
    bool is_made;
    int64_t n_users;
    int64_t n_bytes; /* including the transforms that it uses */
    struct plait_fft1 *next;
};

/* Checks n, dtype, sign, scale and wave. */
plait_status_t plait_fft_check(const plait_fft1_t *fft);

/* Makes everything else, after the check. */
plait_status_t plait_fft_make(plait_fft1_t *fft);

/* Also for a transform that could not be made. */
void plait_fft_unmake(plait_fft1_t *fft);

/* Result k of row r goes to out + (r + k * n_rows) * itemsize. For direct plans; not in place. */
void plait_fft_direct_transposed(const plait_fft1_t *fft, const plait_fft_rows_t *job,
                                 char *scratch);

/* The passes of a direct plan, without its method for rows. */
plait_status_t plait_fft_direct_passes(plait_fft1_t *fft);

/* Takes one block through all passes. */
void plait_fft_direct_block(const plait_fft1_t *fft, const plait_fft_block_t *block);

/* Decides how rows of a direct plan are split, if this is faster. Makes scratch larger. */
plait_status_t plait_fft_split_create(plait_fft1_t *fft);
void plait_fft_split_destroy(plait_fft_split_t *split);
void plait_fft_split_rows(const plait_fft1_t *fft, const plait_fft_rows_t *job,
                          char *scratch);

/* Radices of the direct method in the order of the passes; false if n has a prime factor above
 * PLAIT_FFT_MAX_ODD. cost_p: time per element, in the unit of pass_cost (fft_radices.c). */
bool plait_fft_choose_radices(int64_t n, int radix[PLAIT_FFT_MAX_PASSES],
                              int *n_passes_p, double *cost_p);

/* The method with the least estimated cost, and this cost in the same unit. */
const plait_fft_method_t *plait_fft_choose_method(int64_t n, double *cost_p);

/* The largest divisor of n up to its square root: n1 of the large method; 1 if n is prime. */
int64_t plait_fft_divisor(int64_t n);

/* Length of Bluestein's convolution for n points. */
int64_t plait_fft_chirp_length(int64_t n);

/* Columns that are done together, if n rows of them should stay in the second-level cache. */
int64_t plait_fft_block_columns(const plait_fft1_t *fft, int64_t n);

/* Does rows as columns of a copy with rows in lanes, by fft->method->columns. scratch: plait_fft_rows_bytes(),
 * then as columns needs it. */
void plait_fft_rows_by_columns(const plait_fft1_t *fft, const plait_fft_rows_t *job,
                               char *scratch);
int64_t plait_fft_rows_bytes(const plait_fft1_t *fft);

/* Stores w, as real numbers of the plan's type, at index i of table. */
void plait_fft_set(plait_dtype_t dtype, void *table, int64_t i, const double w[2]);

/* Writes the plan's root to the powers k j, 0 <= j < count, to table. row: room for these as doubles. */
void plait_fft_powers(const plait_fft1_t *fft, const plait_roots_t *roots, int64_t k,
                      int64_t count, double *row, void *table);

static inline int64_t plait_fft_line_up(int64_t n_bytes)
{
    return (n_bytes + 63) & ~(int64_t)63;
}

#endif
