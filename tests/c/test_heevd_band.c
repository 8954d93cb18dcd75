/* Eigendecompositions in two stages, through a band and by chasing bulges: plans proven for P = 1..17 in every
 * way of reaching a peer's memory, and executed by threads; judged by their residuals and by the eigenvalues of
 * one stage. Without a LAPACK library: skipped, with the reason. */
#include "dense/band.h"
#include "dense/whole.h"
#include "device/pool.h"
#include "heevd_cases.h"
#include "kernel/blas.h"

enum { SKIPPED = 77 };

/* Sets two stages or one, whichever is faster. */
static void choose(bool has_two)
{
    plait_band_choose(has_two ? 0 : INT64_MAX);
}

static double complex *values_of(const matrix_t *a, const case_t *c, bool has_two)
{
    double complex *values = dealt_matrix(c->n, 1);
    dealt_run_t t = heevd_run(c, describe(c, has_two ? "two" : "one"), NULL);

    choose(has_two);
    memcpy(t.args[0].whole, a->x, (size_t)(c->n * c->n) * sizeof(*a->x));
    execute(&t, c);
    memcpy(values, t.rets[0].whole, (size_t)c->n * sizeof(*values));
    choose(true);
    dealt_clear(&t);
    return values;
}

/* All vectors or some, by their residuals; eigenvalues alone, within the difference of two ways of rounding. */
static void check_both(kind_t kind, const case_t *c)
{
    matrix_t a = make_matrix(kind, c->dtype, c->n);
    case_t part = *c;

    round_matrix(&a, c->dtype);
    part.first = c->n / 4;
    part.n_vectors = c->n / 2;
    check_run(&a, kinds[kind], &part);
    part.first = 0;
    part.n_vectors = c->n;
    check_run(&a, kinds[kind], &part);
    check_run(&a, kinds[kind], c);
    double complex *one = values_of(&a, c, false), *two = values_of(&a, c, true);
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < c->n; i++) {
        largest = fmax(largest, fabs(creal(one[i])));
        worst = fmax(worst, fabs(creal(one[i]) - creal(two[i])));
    }
    CHECK(worst <= 10 * sqrt((double)c->n) * element_unit(c->dtype) * largest,
          "%s: %g of %g", describe(c, kinds[kind]), worst, largest);
    plait_free(one);
    plait_free(two);
    plait_free(a.x);
}

/* Extents around one panel and two, below the number of ranks, and 0; blocks that a panel divides, that divide
 * a panel, that cross panels, and that hold many panels. */
static void execute_all(int n_ranks)
{
    static const int64_t blocks[] = {1, 5, 16, 32, 48, 64, 1000};
    static const int64_t sizes[] = {0,  1,  2,  3,  31, 32, 33,
                                    34, 63, 64, 65, 66, 97, 130};
    int turn = n_ranks;

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (int b = 0; b < 7; b++, turn++) {
            const case_t c = {.dtype = dealt_dtypes[turn % 4],
                              .n = sizes[s],
                              .block = blocks[b],
                              .n_ranks = n_ranks,
                              .direct = dealt_directs[turn / 4 % 3]};
            if (!is_quick() || turn % 3 == 0) {
                check_both(RANDOM, &c);
            }
        }
    }
    for (int kind = 0; kind < N_KINDS; kind++) {
        for (int d = 0; d < 4; d += is_quick() ? 2 : 1, turn++) {
            const case_t c = {.dtype = dealt_dtypes[d],
                              .n = 101,
                              .block = (turn % 2 == 0) ? 8 : 64,
                              .n_ranks = n_ranks,
                              .direct = dealt_directs[turn % 3]};
            check_both((kind_t)kind, &c);
        }
    }
}

static void prove_all(int n_ranks)
{
    static const int64_t blocks[] = {1, 24, 32, 64};
    static const int64_t sizes[] = {0, 1, 33, 64, 71};

    for (int s = 0; s < 5; s++) {
        const int64_t n = sizes[s], block = blocks[(s + n_ranks) % 4];
        prove_part(n_ranks, n, block, 0, 0, dealt_dtypes[n_ranks % 4]);
        prove_part(n_ranks, n, block, n / 3, n / 2, dealt_dtypes[(n_ranks + s) % 4]);
        prove_part(n_ranks, n, block, 0, n, dealt_dtypes[(n_ranks + s + 1) % 4]);
    }
}

/* By default larger matrices are reduced in two stages. */
static void check_choice(void)
{
    const case_t c = {.dtype = PLAIT_F64, .n = 1024, .block = 64, .n_ranks = 2};
    matrix_t a = make_matrix(RANDOM, c.dtype, c.n);

    plait_band_choose(-1);
    plait_dense_choose_whole(-1);
    check_run(&a, "chosen", &c);
    plait_free(a.x);
}

int main(void)
{
    static const int sizes[] = {1, 2, 3, 4, 7};

#ifdef __SANITIZE_THREAD__ /* does not see how the library's own threads meet */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
#endif
    if (plait_blas_require() != PLAIT_OK) {
        (void)printf("test_heevd_band: skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    plait_dense_choose_whole(0);
    choose(true);
    for (int n_ranks = 1; n_ranks <= DEALT_MAX_RANKS; n_ranks += is_quick() ? 4 : 1) {
        prove_all(n_ranks);
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i += is_quick() ? 2 : 1) {
        execute_all(sizes[i]);
        for (int d = 0; d < 3; d++) {
            check_not_finite(sizes[i], dealt_directs[d]);
        }
    }
    check_choice();
    (void)plait_pool_trim();
    return report("test_heevd_band");
}
