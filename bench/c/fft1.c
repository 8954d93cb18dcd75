/* One-dimensional transforms of one core, in cache, beside FFTW's (MEASURE) on the same
 * arrays: columns and rows of a plane, and rows that follow each other, out of place, for
 * every length from 2 to n whose prime factors are 2, 3, 5 and 7.
 *
 *   fft1 op=fft n=1024 rounds=15 limit=60 seconds=1 out=FILE      (seconds: of a length) */
#include "base/alloc.h"
#include "kernel/fft.h"
#include "problems.h"

#include <fftw3.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Operand and result together fit into a second-level cache of 512 KiB. */
enum { PLANE_BYTES = 128 << 10, LINE_BYTES = 64, MIN_COLUMNS = 8, MAX_COLUMNS = 256 };

/* n x n_columns of columns, or n_rows = n_columns rows of n. Neither pitch of the plane is a
 * power of two: a line of cache more. Rows that follow each other are as users have them. */
typedef struct {
    int64_t n, n_columns;
    int64_t column_pitch,
        row_pitch, /* bytes from an element of a column to the next; of rows */
        packed_pitch;
    size_t n_bytes;
    plait_fft1_t *fft;
    char *in, *out, *other, *scratch;
    const char **in_row;
    char **out_row;
    FFTW(plan) columns, rows, packed;
} lines_t;

static void plait_columns(void *state)
{
    const lines_t *l = state;

    plait_fft1_columns(l->fft, l->n_columns, l->in_row, 0, l->out_row, 0, l->scratch,
                       PLAIT_FFT_STORE);
}

static void plait_rows(void *state)
{
    const lines_t *l = state;

    plait_fft1_rows(l->fft, l->n_columns, l->in, l->row_pitch, l->out, l->row_pitch,
                    l->scratch, PLAIT_FFT_STORE);
}

static void plait_packed(void *state)
{
    const lines_t *l = state;

    plait_fft1_rows(l->fft, l->n_columns, l->in, l->packed_pitch, l->out,
                    l->packed_pitch, l->scratch, PLAIT_FFT_STORE);
}

static void fftw_columns(void *state)
{
    const lines_t *l = state;

    FFTW(execute)(l->columns);
}

static void fftw_rows(void *state)
{
    const lines_t *l = state;

    FFTW(execute)(l->rows);
}

static void fftw_packed(void *state)
{
    const lines_t *l = state;

    FFTW(execute)(l->packed);
}

static FFTW(plan) fftw_plan_of(const lines_t *l, int stride, int distance)
{
    const int n = (int)l->n;
    FFTW(plan)
    plan = FFTW(plan_many_dft)(1, &n, (int)l->n_columns, (void *)l->in, NULL, stride,
                               distance, (void *)l->out, NULL, stride, distance,
                               FFTW_FORWARD, FFTW_MEASURE);
    bench_must(plan != NULL, "FFTW made no plan");
    return plan;
}

static void fill(lines_t *l)
{
    for (size_t k = 0; k < l->n_bytes / sizeof(real_t); k++) {
        ((real_t *)l->in)[k] = problem_value((int64_t)k);
    }
}

static void lines_create(lines_t *l, int64_t n)
{
    int64_t n_columns =
        PLANE_BYTES / BENCH_COMPLEX_BYTES / n / MIN_COLUMNS * MIN_COLUMNS;

    n_columns = (n_columns > MAX_COLUMNS) ? MAX_COLUMNS : n_columns;
    *l = (lines_t){.n = n,
                   .n_columns = (n_columns < MIN_COLUMNS) ? MIN_COLUMNS : n_columns};
    bench_must(plait_fft1_create(n, BENCH_DTYPE, -1, 1.0, &l->fft) == PLAIT_OK,
               "plait made no plan");
    l->column_pitch = l->n_columns * BENCH_COMPLEX_BYTES + LINE_BYTES;
    l->packed_pitch = n * BENCH_COMPLEX_BYTES;
    l->row_pitch = l->packed_pitch + LINE_BYTES;
    const int64_t columns_bytes = n * l->column_pitch;
    const int64_t rows_bytes = l->n_columns * l->row_pitch;
    l->n_bytes = (size_t)((columns_bytes > rows_bytes) ? columns_bytes : rows_bytes);
    l->in = plait_alloc_aligned((int64_t)l->n_bytes);
    l->out = plait_alloc_aligned((int64_t)l->n_bytes);
    l->other = plait_alloc_aligned((int64_t)l->n_bytes);
    l->scratch = plait_alloc_aligned(plait_fft1_scratch_bytes(l->fft));
    l->in_row = calloc((size_t)n, sizeof(*l->in_row));
    l->out_row = calloc((size_t)n, sizeof(*l->out_row));
    bench_must(l->in && l->out && l->other && l->scratch && l->in_row && l->out_row,
               "out of memory");
    for (int64_t j = 0; j < n; j++) {
        l->in_row[j] = l->in + j * l->column_pitch;
        l->out_row[j] = l->out + j * l->column_pitch;
    }
    l->columns = fftw_plan_of(l, (int)(l->column_pitch / BENCH_COMPLEX_BYTES), 1);
    l->rows = fftw_plan_of(l, 1, (int)(l->row_pitch / BENCH_COMPLEX_BYTES));
    l->packed = fftw_plan_of(l, 1, (int)n);
    fill(l); /* FFTW has written there while planning */
}

static void lines_destroy(lines_t *l)
{
    FFTW(destroy_plan)(l->columns);
    FFTW(destroy_plan)(l->rows);
    FFTW(destroy_plan)(l->packed);
    plait_fft1_destroy(&l->fft);
    plait_free(l->in);
    plait_free(l->out);
    plait_free(l->other);
    plait_free(l->scratch);
    free(l->in_row);
    free(l->out_row);
}

/* Of both ways, over the largest number of the result. */
static double difference(lines_t *l, void (*ours)(void *), void (*theirs)(void *))
{
    double worst = 0;
    double largest = 0;

    memset(l->out, 0, l->n_bytes);
    theirs(l);
    memcpy(l->other, l->out, l->n_bytes);
    memset(l->out, 0, l->n_bytes);
    ours(l);
    for (size_t k = 0; k < l->n_bytes / sizeof(real_t); k++) {
        const double want = (double)((const real_t *)l->other)[k];
        worst = fmax(worst, fabs((double)((const real_t *)l->out)[k] - want));
        largest = fmax(largest, fabs(want));
    }
    return worst / largest;
}

static void measure(team_t *team, const bench_options_t *o, int64_t n)
{
    lines_t l;
    char name[32];
    char facts[256];

    lines_create(&l, n);
    const double of_columns = difference(&l, plait_columns, fftw_columns);
    const double of_rows = fmax(difference(&l, plait_rows, fftw_rows),
                                difference(&l, plait_packed, fftw_packed));
    (void)snprintf(name, sizeof(name), "fft1 %" PRId64, n);
    (void)snprintf(facts, sizeof(facts),
                   "\"n\": %" PRId64 ", \"n_columns\": %" PRId64
                   ", \"difference\": %.3e, \"isa\": \"%s\", \"fftw\": \"%s\"",
                   n, l.n_columns, fmax(of_columns, of_rows), plait_fft1_isa(),
                   FFTW(version));
    const bench_case_t cases[] = {
        {.name = "plait columns", .run = plait_columns, .state = &l},
        {.name = "fftw columns", .run = fftw_columns, .state = &l},
        {.name = "plait rows", .run = plait_rows, .state = &l},
        {.name = "fftw rows", .run = fftw_rows, .state = &l},
        {.name = "plait packed rows", .run = plait_packed, .state = &l},
        {.name = "fftw packed rows", .run = fftw_packed, .state = &l}};
    bench_rounds(team, o, name, facts, 6, cases);
    lines_destroy(&l);
}

static void no_barrier(team_t *team)
{
    (void)team;
}

static double own_value(team_t *team, double value)
{
    (void)team;
    return value;
}

static bool is_smooth(int64_t n)
{
    static const int64_t primes[] = {2, 3, 5, 7};

    for (size_t i = 0; i < sizeof(primes) / sizeof(primes[0]); i++) {
        while (n % primes[i] == 0) {
            n /= primes[i];
        }
    }
    return n == 1;
}

int main(int argc, char **argv)
{
    const bench_options_t options = bench_options(argc, argv);
    team_t team = {.size = 1, .barrier = no_barrier, .max = own_value};

    for (int64_t n = 2; n <= options.n; n++) {
        if (is_smooth(n)) {
            measure(&team, &options, n);
        }
    }
    return 0;
}
