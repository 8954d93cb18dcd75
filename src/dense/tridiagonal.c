#include "dense/tridiagonal.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/merge.h"
#include "dense/scalar.h"
#include "kernel/blas.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* LAPACK solves the leaves of the tree. A leaf has an eighth of n, within these bounds. Leaves' vectors are
 * applied directly. */
enum { LEAF_PART = 8, MIN_LEAF = 8, MAX_LEAF = 256 };

/* Columns that go down the tree together, and columns of S that are made together. */
enum { COLUMNS = 256, STRIPE = 128 };

/* Arrays of n that are kept for each level, and arrays of n for the walk up. */
enum { N_LEVEL_NUMBERS = 6, N_LEVEL_INTS = 7, N_NUMBERS = 13, N_PAIRS = 1 };

/* The tree: level l has 2^l nodes, rows [n i / 2^l, n (i + 1) / 2^l) are those of node i. */
typedef struct {
    int64_t n;
    int n_levels; /* of merges */
    int64_t leaf; /* rows of the largest leaf */
    double *values, *first,
        *last;       /* plait_ends_t of all nodes of the level that is done */
    double *numbers; /* more arrays of n */
    plait_merge_pair_t *pairs;
    double *levels;
    double *leaves; /* vectors, node by node */
} tree_t;

static int n_levels_of(int64_t n)
{
    const int64_t leaf = plait_max(MIN_LEAF, plait_min(MAX_LEAF, n / LEAF_PART));
    int n_levels = 0;

    while ((n + (INT64_C(1) << n_levels) - 1) >> n_levels > leaf) {
        n_levels++;
    }
    return n_levels;
}

static int64_t level_words(int64_t n)
{
    return (N_LEVEL_NUMBERS + N_LEVEL_INTS) * n;
}

/* Words of the tree, for doubles and int64s alike. */
static int64_t tree_words(int64_t n, tree_t *tree)
{
    const int n_levels = n_levels_of(n);
    const int64_t leaf = (n + (INT64_C(1) << n_levels) - 1) >> n_levels;
    const int64_t numbers = (N_NUMBERS + 2 * N_PAIRS) * n;

    *tree = (tree_t){.n = n, .n_levels = n_levels, .leaf = leaf};
    return numbers + n_levels * level_words(n) + n * leaf;
}

int64_t plait_tridiagonal_bytes(const plait_tridiagonal_t *t)
{
    tree_t tree;

    return t->has_vectors ? tree_words(t->h.a.n, &tree) * (int64_t)sizeof(double) : 0;
}

static tree_t tree_at(int64_t n, void *memory)
{
    double *at = memory;
    tree_t tree;

    (void)tree_words(n, &tree);
    tree.values = at;
    tree.first = at + n;
    tree.last = at + 2 * n;
    tree.numbers = at + 3 * n;
    tree.pairs = (plait_merge_pair_t *)(void *)(at + N_NUMBERS * n);
    tree.levels = at + (N_NUMBERS + 2 * N_PAIRS) * n;
    tree.leaves = tree.levels + tree.n_levels * level_words(n);
    return tree;
}

static int64_t bound(const tree_t *tree, int level, int64_t i)
{
    return (tree->n * i) >> level;
}

/* The merge that made node i of a level. */
static plait_merge_t merge_at(const tree_t *tree, int level, int64_t i)
{
    const int64_t n = tree->n, row = bound(tree, level, i);
    double *x = tree->levels + level * level_words(n) + row;
    int64_t *y = (int64_t *)(void *)(x + N_LEVEL_NUMBERS * n);

    return (plait_merge_t){.n = bound(tree, level, i + 1) - row,
                           .n_first = bound(tree, level + 1, 2 * i + 1) - row,
                           .d = x,
                           .z = x + n,
                           .offset = x + 2 * n,
                           .scale = x + 3 * n,
                           .c = x + 4 * n,
                           .s = x + 5 * n,
                           .origin = y,
                           .from = y + n,
                           .order = y + 2 * n,
                           .left = y + 3 * n,
                           .right = y + 4 * n,
                           .n_kept_p = y + 5 * n,
                           .n_rotations_p = y + 6 * n};
}

/* ---- Up: eigenvalues, and what vectors are made of -------------------------------------------------- */

/* The diagonals as the tree needs them: norm 1, couplings of leaves subtracted from the diagonal. Returns the
 * number that they were divided by. */
static double tear(const plait_tridiagonal_t *t, plait_exec_t *exec, const tree_t *tree,
                   double *d, double *e)
{
    const plait_hetrd_room_t room = plait_hetrd_room(&t->h);
    const plait_dtype_t real = plait_real_of(t->h.a.dtype);
    const char *panel = exec->slot[t->h.panel];
    const int64_t n = tree->n;
    double norm = 0;

    for (int64_t i = 0; i < n; i++) {
        d[i] = creal(plait_scalar_get(real, panel + room.d, i));
        e[i] = (i + 1 < n) ? creal(plait_scalar_get(real, panel + room.e, i)) : 0;
        norm = fmax(norm, fmax(fabs(d[i]), fabs(e[i])));
    }
    norm = (norm > 0) ? norm : 1;
    for (int64_t i = 0; i < n; i++) {
        d[i] /= norm;
        e[i] /= norm;
    }
    for (int64_t i = 1; i < INT64_C(1) << tree->n_levels; i++) {
        const int64_t row = bound(tree, tree->n_levels, i);
        d[row - 1] -= fabs(e[row - 1]);
        d[row] -= fabs(e[row - 1]);
    }
    return norm;
}

static int64_t stedc_words(int64_t n)
{
    plait_blas_work_t work = {.n = -1};

    (void)plait_blas_stedc(PLAIT_F64, 'I', n, NULL, NULL, NULL, n, &work);
    return work.n + work.n_ints;
}

/* Computes the vectors of leaf i, and their first and last rows. scratch: for stedc. */
static int64_t solve_leaf(const tree_t *tree, int64_t i, double *e, void *scratch,
                          plait_dtype_t real)
{
    const int64_t row = bound(tree, tree->n_levels, i);
    const int64_t n = bound(tree, tree->n_levels, i + 1) - row;
    double *q = tree->leaves + row * tree->leaf;
    plait_blas_work_t work = {.n = -1};

    (void)plait_blas_stedc(PLAIT_F64, 'I', n, NULL, NULL, NULL, n, &work);
    work.work = scratch;
    work.ints = (double *)scratch + work.n;
    const int64_t info =
        plait_blas_stedc(PLAIT_F64, 'I', n, tree->values + row, e + row, q, n, &work);
    for (int64_t j = 0; j < n; j++) {
        tree->first[row + j] = q[j * n];
        tree->last[row + j] = q[j * n + n - 1];
    }
    for (int64_t j = 0; j < n * n && real == PLAIT_F32; j++) {
        plait_scalar_put(real, q, j,
                         q[j]); /* in place: never behind the element that is read */
    }
    return info;
}

/* Returns LAPACK's info. Eigenvalues are to be multiplied by the norm. */
static int64_t go_up(const plait_tridiagonal_t *t, plait_exec_t *exec,
                     const tree_t *tree, double *norm_p)
{
    const int64_t n = tree->n;
    double *x = tree->numbers, *e = x + 7 * n, *leaf_e = x + 8 * n;
    const plait_merge_room_t room = {.z = x,
                                     .rows = {x + n, x + 2 * n},
                                     .packed = {x + 3 * n, x + 4 * n},
                                     .values = x + 5 * n,
                                     .weights = x + 6 * n,
                                     .base = x + 9 * n,
                                     .pairs = tree->pairs};
    int64_t info = 0;

    *norm_p = tear(t, exec, tree, tree->values, e);
    memcpy(leaf_e, e, (size_t)n * sizeof(*e));
    for (int64_t i = 0; i < INT64_C(1) << tree->n_levels && info == 0; i++) {
        info = solve_leaf(tree, i, leaf_e, exec->scratch, plait_real_of(t->h.a.dtype));
    }
    for (int level = tree->n_levels - 1; level >= 0 && info == 0; level--) {
        for (int64_t i = 0; i < INT64_C(1) << level; i++) {
            const int64_t row = bound(tree, level, i);
            const plait_merge_t m = merge_at(tree, level, i);
            const plait_ends_t ends = {tree->values + row, tree->first + row,
                                       tree->last + row};
            plait_merge(&m, e[row + m.n_first - 1], &ends, &room);
        }
    }
    return info;
}

/* ---- Down: a rank's vectors --------------------------------------------------------------------------- */

/* Columns on the way down: real, n rows, leading dimension n. */
typedef struct {
    plait_dtype_t real;
    int64_t size; /* of a number */
    int64_t n, n_columns;
    int64_t first; /* index of the eigenvector that the first column is */
    char *x;
    char *packed, *product; /* n x COLUMNS each */
    char *stripe;           /* n x STRIPE */
    double *column;
} down_t;

static int64_t down_bytes(int64_t n, int64_t size)
{
    return (2 * COLUMNS + STRIPE) * n * size + n * (int64_t)sizeof(double);
}

static inline void copy_number(int64_t size, char *to, const char *from)
{
    if (size == 8) {
        memcpy(to, from, 8);
    } else {
        memcpy(to, from, 4);
    }
}

/* Writes column j of S to `to`. */
static void make_column(const down_t *q, const plait_merge_t *m, int64_t j, char *to)
{
    const plait_secular_t s = plait_merge_secular(m);

    plait_secular_column(&s, m->origin[j], m->offset[j], m->scale[j],
                         (q->real == PLAIT_F64) ? (double *)(void *)to : q->column);
    for (int64_t i = 0; i < s.n && q->real != PLAIT_F64; i++) {
        ((float *)(void *)to)[i] = (float)q->column[i];
    }
}

/* At the root the columns are columns of the identity: their products are columns of S. */
static void begin(const down_t *q, const plait_merge_t *m)
{
    const int64_t n_kept = *m->n_kept_p, ld = m->n * q->size;

    memset(q->packed, 0, (size_t)(q->n_columns * ld));
    for (int64_t c = 0; c < q->n_columns; c++) {
        const int64_t p = m->order[q->first + c];
        if (p < n_kept) {
            make_column(q, m, p, q->product + c * n_kept * q->size);
        } else {
            memset(q->product + c * n_kept * q->size, 0, (size_t)(n_kept * q->size));
            plait_scalar_put(q->real, q->packed + c * ld, p, 1);
        }
    }
}

/* Brings rows to the order of F, and multiplies S with the rows that it has. */
static void multiply(const down_t *q, const plait_merge_t *m, int64_t row)
{
    const int64_t n_kept = *m->n_kept_p, ld = m->n * q->size, size = q->size;

    for (int64_t c = 0; c < q->n_columns; c++) {
        const char *from = q->x + (c * q->n + row) * size;
        for (int64_t i = 0; i < m->n; i++) {
            copy_number(size, q->packed + c * ld + m->order[i] * size, from + i * size);
        }
    }
    for (int64_t j = 0; j < n_kept; j += STRIPE) {
        const int64_t width = plait_min(STRIPE, n_kept - j);
        for (int64_t k = 0; k < width; k++) {
            make_column(q, m, j + k, q->stripe + k * n_kept * size);
        }
        plait_blas_gemm(q->real, 'N', 'N', n_kept, q->n_columns, width, 1, q->stripe,
                        n_kept, q->packed + j * size, m->n, (j > 0) ? 1 : 0, q->product,
                        n_kept);
    }
}

/* Brings rows to the order of the halves' vectors, and undoes the rotations, the last one first. */
static void unpack(const down_t *q, const plait_merge_t *m, int64_t row)
{
    const int64_t n_kept = *m->n_kept_p, size = q->size;

    for (int64_t c = 0; c < q->n_columns; c++) {
        char *x = q->x + (c * q->n + row) * size;
        const char *kept = q->product + c * n_kept * size;
        const char *rest = q->packed + c * m->n * size;
        for (int64_t p = 0; p < m->n; p++) {
            copy_number(size, x + m->from[p] * size,
                        (p < n_kept) ? kept + p * size : rest + p * size);
        }
        for (int64_t k = *m->n_rotations_p - 1; k >= 0; k--) {
            const double a = creal(plait_scalar_get(q->real, x, m->left[k]));
            const double b = creal(plait_scalar_get(q->real, x, m->right[k]));
            plait_scalar_put(q->real, x, m->left[k], m->c[k] * a - m->s[k] * b);
            plait_scalar_put(q->real, x, m->right[k], m->s[k] * a + m->c[k] * b);
        }
    }
}

static void apply_leaf(const down_t *q, const tree_t *tree, int64_t i)
{
    const int64_t row = bound(tree, tree->n_levels, i), size = q->size;
    const int64_t n = bound(tree, tree->n_levels, i + 1) - row;

    for (int64_t c = 0; c < q->n_columns; c++) {
        memcpy(q->packed + c * n * size, q->x + (c * q->n + row) * size,
               (size_t)(n * size));
    }
    plait_blas_gemm(q->real, 'N', 'N', n, q->n_columns, n, 1,
                    tree->leaves + row * tree->leaf, n, q->packed, n, 0,
                    q->x + row * size, q->n);
}

static void go_down(const down_t *q, const tree_t *tree)
{
    for (int level = 0; level < tree->n_levels; level++) {
        for (int64_t i = 0; i < INT64_C(1) << level; i++) {
            const plait_merge_t m = merge_at(tree, level, i);
            if (level == 0) {
                begin(q, &m);
            } else {
                multiply(q, &m, bound(tree, level, i));
            }
            unpack(q, &m, bound(tree, level, i));
        }
    }
    for (int64_t c = 0; c < q->n_columns && tree->n_levels == 0; c++) {
        memset(q->x + c * q->n * q->size, 0, (size_t)(q->n * q->size));
        plait_scalar_put(q->real, q->x, c * q->n + q->first + c, 1);
    }
    for (int64_t i = 0; i < INT64_C(1) << tree->n_levels; i++) {
        apply_leaf(q, tree, i);
    }
}

/* Computes all vectors of this rank. They stay real until the last one is done. */
static void make_vectors(const plait_tridiagonal_t *t, plait_exec_t *exec,
                         const tree_t *tree)
{
    const plait_dtype_t dtype = t->h.a.dtype, real = plait_real_of(dtype);
    const int64_t n = tree->n, size = plait_dtype_bytes(real);
    char *v = exec->slot[t->v], *scratch = exec->scratch;
    down_t q = {.real = real, .size = size, .n = n};

    q.column = (double *)(void *)scratch;
    q.packed = scratch + n * (int64_t)sizeof(double);
    q.product = q.packed + COLUMNS * n * size;
    q.stripe = q.product + COLUMNS * n * size;
    for (int64_t c = 0; c < t->n_columns; c += COLUMNS) {
        q.first = t->first + c;
        q.n_columns = plait_min(COLUMNS, t->n_columns - c);
        q.x = v + c * n * size;
        go_down(&q, tree);
    }
    for (int64_t i = n * t->n_columns - 1; i >= 0 && dtype != real; i--) {
        plait_scalar_put(dtype, v, i, creal(plait_scalar_get(real, v, i)));
    }
}

/* ---- The step ------------------------------------------------------------------------------------------ */

/* Computes eigenvalues alone: all of them on every rank, at a cost of n^2. */
static int64_t solve_values(const plait_tridiagonal_t *t, plait_exec_t *exec)
{
    const plait_dtype_t real = plait_real_of(t->h.a.dtype);
    const plait_hetrd_room_t room = plait_hetrd_room(&t->h);
    const int64_t n = t->h.a.n, size = plait_dtype_bytes(real);
    char *panel = exec->slot[t->h.panel], *w = exec->slot[t->w];
    plait_blas_work_t work = {.n = -1};

    (void)plait_blas_stedc(real, 'N', n, NULL, NULL, NULL, n, &work);
    work.ints = exec->scratch;
    work.work = exec->scratch + work.n_ints * 8;
    memcpy(w, panel + room.d, (size_t)(n * size));
    memcpy(panel + room.sum, panel + room.e,
           (size_t)(n * size)); /* stedc destroys it */
    return plait_blas_stedc(real, 'N', n, w, panel + room.sum, NULL, n, &work);
}

static int64_t solve_all(const plait_tridiagonal_t *t, plait_exec_t *exec)
{
    const plait_dtype_t real = plait_real_of(t->h.a.dtype);
    const tree_t tree = tree_at(t->h.a.n, exec->slot[t->tree]);
    double norm = 0;
    const int64_t info = go_up(t, exec, &tree, &norm);

    if (info == 0) {
        for (int64_t i = 0; i < tree.n; i++) {
            plait_scalar_put(real, exec->slot[t->w], i, norm * tree.values[i]);
        }
        make_vectors(t, exec, &tree);
    }
    return info;
}

static plait_status_t solve_run(const void *params, plait_exec_t *exec)
{
    const plait_tridiagonal_t *t = params;
    const plait_hetrd_t *h = &t->h;
    const plait_dtype_t dtype = h->a.dtype, real = plait_real_of(dtype);
    const int64_t n = h->a.n, n_vectors = n * t->n_columns;
    plait_hetrd_state_t *state = plait_hetrd_state(h, exec);
    char *w = exec->slot[t->w], *v = exec->slot[t->v];
    int64_t info = n + 1;

    if (!plait_hetrd_has_failed(h, exec)) {
        info = t->has_vectors ? solve_all(t, exec) : solve_values(t, exec);
    }
    state->norm = (info == 0) ? state->norm : (double)NAN;
    for (int64_t i = 0; i < n; i++) {
        plait_scalar_put(real, w, i,
                         (info == 0) ? plait_scalar_get(real, w, i) / state->scale
                                     : (double)NAN);
    }
    for (int64_t i = 0; i < n_vectors && info != 0; i++) {
        plait_scalar_put(dtype, v, i, (double)NAN);
    }
    if (t->n_stored > 0) {
        memset(v + n_vectors * plait_dtype_bytes(dtype), 0,
               (size_t)((n * t->n_stored - n_vectors) * plait_dtype_bytes(dtype)));
    }
    *(int32_t *)(void *)exec->slot[t->info] = (int32_t)info;
    return PLAIT_OK;
}

static void solve_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_tridiagonal_t *t = params;
    const plait_hetrd_t *h = &t->h;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const int64_t n = h->a.n, real = plait_dtype_bytes(plait_real_of(h->a.dtype));
    const plait_box_copy_t line = {.row_bytes = n * real};
    const plait_box_copy_t tree = {.row_bytes = plait_tridiagonal_bytes(t)};
    const plait_box_copy_t vectors = {.row_bytes =
                                          n * t->n_stored * plait_dealt_item(&h->a)};
    const plait_box_copy_t info = {.row_bytes = sizeof(int32_t)};
    const plait_box_copy_t state = {.row_bytes = sizeof(plait_hetrd_state_t)};

    touch(context, false, h->rank, h->panel, room.state, &state);
    touch(context, false, h->rank, h->panel, room.d, &line);
    touch(context, false, h->rank, h->panel, room.e, &line);
    touch(context, true, h->rank, h->panel, room.state, &state);
    touch(context, true, h->rank, h->panel, room.sum, &line);
    touch(context, true, h->rank, t->tree, 0, &tree);
    touch(context, true, h->rank, t->w, 0, &line);
    touch(context, true, h->rank, t->v, 0, &vectors);
    touch(context, true, h->rank, t->info, 0, &info);
}

static void solve_print(const void *params, FILE *file)
{
    const plait_tridiagonal_t *t = params;

    (void)fprintf(file, "%" PRId64 " eigenvalues, %" PRId64 " vectors", t->h.a.n,
                  t->n_columns);
}

static const plait_kernel_t solve_kernel = {.name = "tridiagonal",
                                            .run = solve_run,
                                            .touch = solve_touch,
                                            .print = solve_print};

/* The walks up and down use the scratch in turn. */
static int64_t scratch_bytes(const plait_tridiagonal_t *t)
{
    const plait_dtype_t real = plait_real_of(t->h.a.dtype);
    plait_blas_work_t work = {.n = -1};
    int64_t n_bytes = 0;
    tree_t tree;

    if (t->has_vectors) {
        (void)tree_words(t->h.a.n, &tree);
        n_bytes = plait_max(stedc_words(tree.leaf) * (int64_t)sizeof(double),
                            down_bytes(t->h.a.n, plait_dtype_bytes(real)));
    } else {
        (void)plait_blas_stedc(real, 'N', t->h.a.n, NULL, NULL, NULL, t->h.a.n, &work);
        n_bytes = (work.n + work.n_ints) * 8;
    }
    return n_bytes;
}

plait_status_t plait_tridiagonal_add(plait_plan_t *plan, const plait_tridiagonal_t *t)
{
    plait_plan_need_scratch(plan, scratch_bytes(t));
    return plait_plan_kernel_copy(plan, &solve_kernel, t, sizeof(*t));
}
