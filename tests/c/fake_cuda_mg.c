/* A stand-in of cuSolverMg on the host, by the definition. It judges its arguments as the real one does,
 * or more severely: devices, grid, blocks, the order of calls, work memory of the size that was asked for
 * the same matrix, and that all devices reach each other. It leaves another device current.
 *
 * PLAIT_FAKE_MG_FAIL=name:result   that function returns the result
 * PLAIT_FAKE_MG_INFO=n             syevd, potrf, potrs and potri end with it and find nothing
 * PLAIT_FAKE_MG_MORE=n             they want so much more memory from now on */
#include "cholesky.h"
#include "fake_cuda_eigen.h"
#include "fake_cuda_matrix.h"

#include <dlfcn.h>

enum { NOT_INITIALIZED = 1, INVALID = 3, INTERNAL = 7, MAX_DEVICES = 32 };
enum { MOST_BLOCK = 1024, POTRF = 2, POTRS, POTRI };

struct plait_cusolver_mg {
    int n_devices; /* 0: none chosen yet */
    int ids[MAX_DEVICES];
};

struct plait_cusolver_mg_grid {
    int n_devices;
    int ids[MAX_DEVICES];
};

struct plait_cusolver_mg_matrix {
    int64_t m, n, block;
    int type;
    const struct plait_cusolver_mg_grid *grid;
    int64_t n_asked; /* work, for ... ; 0: not asked */
    int what;        /* has_vectors of syevd, POTRF, POTRS or POTRI */
};

static int result_of(const char *name)
{
    const char *text = getenv("PLAIT_FAKE_MG_FAIL");
    const size_t n = strlen(name);

    return (text != NULL && strncmp(text, name, n) == 0 && text[n] == ':')
               ? atoi(text + n + 1)
               : 0;
}

#define MAY_FAIL                          \
    do {                                  \
        int result = result_of(__func__); \
        if (result != 0) {                \
            return result;                \
        }                                 \
    } while (0)

/* A function of the driver's stand-in. */
static void *driver(const char *name)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *address = (handle != NULL) ? dlsym(handle, name) : NULL;

    if (handle != NULL) {
        (void)dlclose(handle);
    }
    return address;
}

static void change_current(int device)
{
    void (*change)(int) = NULL;
    void *address = driver("fake_cuda_set_current");

    memcpy((void *)&change, (const void *)&address, sizeof(change));
    change(device);
}

static bool reaches(int device, int peer)
{
    int (*is_enabled)(int, int) = NULL;
    void *address = driver("fake_cuda_is_enabled");

    memcpy((void *)&is_enabled, (const void *)&address, sizeof(is_enabled));
    return is_enabled(device, peer) != 0;
}

int cusolverMgCreate(plait_cusolver_mg_t *solver)
{
    MAY_FAIL;
    *solver = calloc(1, sizeof(**solver));
    return (*solver != NULL) ? 0 : 2;
}

int cusolverMgDestroy(plait_cusolver_mg_t solver)
{
    free(solver);
    return 0;
}

/* May be called only once. */
int cusolverMgDeviceSelect(plait_cusolver_mg_t solver, int n_devices, int ids[])
{
    MAY_FAIL;
    if (solver->n_devices != 0 || n_devices < 1 || n_devices > MAX_DEVICES) {
        return INVALID;
    }
    for (int i = 0; i < n_devices; i++) {
        solver->ids[i] = ids[i];
        for (int k = 0; k < i; k++) {
            if (ids[i] == ids[k]) {
                return INVALID;
            }
        }
    }
    solver->n_devices = n_devices;
    change_current(ids[n_devices - 1]);
    return 0;
}

int cusolverMgCreateDeviceGrid(plait_cusolver_mg_grid_t *grid, int32_t n_rows,
                               int32_t n_columns, const int32_t ids[], int mapping)
{
    MAY_FAIL;
    if (n_rows != 1 || n_columns < 1 || n_columns > MAX_DEVICES ||
        mapping != PLAIT_CUSOLVER_MG_COLUMNS) {
        return INVALID;
    }
    *grid = calloc(1, sizeof(**grid));
    if (*grid == NULL) {
        return 2;
    }
    (*grid)->n_devices = n_columns;
    memcpy((*grid)->ids, ids, (size_t)n_columns * sizeof(ids[0]));
    return 0;
}

int cusolverMgDestroyGrid(plait_cusolver_mg_grid_t grid)
{
    free(grid);
    return 0;
}

/* Blocks are of whole columns. */
int cusolverMgCreateMatrixDesc(plait_cusolver_mg_matrix_t *matrix, int64_t m, int64_t n,
                               int64_t row_block, int64_t column_block, int type,
                               plait_cusolver_mg_grid_t grid)
{
    MAY_FAIL;
    if (grid == NULL || m < 1 || n < 1 || row_block != m || column_block < 1 ||
        column_block > MOST_BLOCK) {
        return INVALID;
    }
    *matrix = calloc(1, sizeof(**matrix));
    if (*matrix == NULL) {
        return 2;
    }
    **matrix = (struct plait_cusolver_mg_matrix){
        .m = m, .n = n, .block = column_block, .type = type, .grid = grid};
    return 0;
}

int cusolverMgDestroyMatrixDesc(plait_cusolver_mg_matrix_t matrix)
{
    free(matrix);
    return 0;
}

/* Checks what all functions require of a matrix. */
static int judge_matrix(plait_cusolver_mg_t solver, int uplo, int n, void *a[], int row,
                        int column, plait_cusolver_mg_matrix_t matrix, int compute)
{
    const bool is_good = uplo == PLAIT_CUBLAS_LOWER && row == 1 && column == 1 &&
                         matrix != NULL && matrix->n == n && matrix->m == n &&
                         compute == matrix->type;
    int result = is_good ? 0 : INVALID;

    if (solver == NULL || solver->n_devices == 0) {
        return NOT_INITIALIZED;
    }
    if (result == 0 &&
        (matrix->grid->n_devices != solver->n_devices ||
         memcmp(matrix->grid->ids, solver->ids,
                (size_t)solver->n_devices * sizeof(solver->ids[0])) != 0)) {
        result = INVALID;
    }
    for (int i = 0; result == 0 && i < solver->n_devices; i++) {
        result = (a[i] != NULL) ? 0 : INVALID;
        for (int k = 0; result == 0 && k < solver->n_devices; k++) {
            result = reaches(solver->ids[i], solver->ids[k]) ? 0 : INTERNAL;
        }
    }
    return result;
}

static int judge(plait_cusolver_mg_t solver, int has_vectors, int uplo, int n,
                 void *a[], int row, int column, plait_cusolver_mg_matrix_t matrix,
                 const void *w, int type_w, int compute)
{
    const int result = judge_matrix(solver, uplo, n, a, row, column, matrix, compute);
    const bool is_good = (has_vectors == 0 || has_vectors == 1) && w != NULL &&
                         matrix != NULL && type_w == real_type(matrix->type);

    return (result == 0 && !is_good) ? INVALID : result;
}

static void ask(plait_cusolver_mg_t solver, int what, plait_cusolver_mg_matrix_t matrix,
                int64_t *n_work)
{
    matrix->n_asked = 3 * matrix->n + 7 * solver->n_devices + 5 * what +
                      number_of_environment("PLAIT_FAKE_MG_MORE", 0);
    matrix->what = what;
    *n_work = matrix->n_asked;
    change_current(solver->ids[solver->n_devices - 1]);
}

/* Work memory must be asked for the same operation and matrix; the library overwrites it. */
static int take_work(plait_cusolver_mg_t solver, int what,
                     plait_cusolver_mg_matrix_t matrix, void *work[], int64_t n_work)
{
    int result =
        (n_work > 0 && n_work == matrix->n_asked && what == matrix->what) ? 0 : INVALID;

    for (int i = 0; result == 0 && i < solver->n_devices; i++) {
        for (int64_t k = 0; work[i] != NULL && k < n_work; k++) {
            put(matrix->type, work[i], k, (double complex)NAN);
        }
        result = (work[i] != NULL) ? 0 : INVALID;
    }
    return result;
}

int cusolverMgSyevd_bufferSize(plait_cusolver_mg_t solver, int has_vectors, int uplo,
                               int n, void *a[], int row, int column,
                               plait_cusolver_mg_matrix_t matrix, void *w, int type_w,
                               int compute, int64_t *n_work)
{
    MAY_FAIL;
    const int result =
        judge(solver, has_vectors, uplo, n, a, row, column, matrix, w, type_w, compute);

    if (result == 0) {
        ask(solver, has_vectors, matrix, n_work);
    }
    return result;
}

/* The place of column j of the matrix, in columns. */
static int64_t place_of(const struct plait_cusolver_mg_matrix *m, int64_t j,
                        int *device_p)
{
    const int64_t k = j / m->block;

    *device_p = (int)(k % m->grid->n_devices);
    return k / m->grid->n_devices * m->block + j % m->block;
}

/* Gathers the lower triangle, and mirrors it to the upper triangle. */
static void gather(const struct plait_cusolver_mg_matrix *d, void *const a[],
                   double complex *m, double complex *v)
{
    int device = 0;

    for (int64_t j = 0; j < d->n; j++) {
        const int64_t at = place_of(d, j, &device) * d->n;
        v[j * d->n + j] = 1;
        m[j * d->n + j] = creal(get(d->type, a[device], at + j));
        for (int64_t i = j + 1; i < d->n; i++) {
            m[j * d->n + i] = get(d->type, a[device], at + i);
            m[i * d->n + j] = conj(m[j * d->n + i]);
        }
    }
}

static void write_results(const struct plait_cusolver_mg_matrix *d, void *const a[],
                          void *w, int has_vectors, const double complex *m,
                          const double complex *v, bool *is_taken)
{
    int device = 0;

    for (int64_t j = 0; j < d->n; j++) {
        const int64_t k = smallest_from(d->n, m, is_taken);
        const int64_t at = place_of(d, j, &device) * d->n;
        is_taken[k] = true;
        put(real_type(d->type), w, j, creal(m[k * d->n + k]));
        for (int64_t i = 0; i < d->n; i++) {
            put(d->type, a[device], at + i,
                (has_vectors != 0) ? v[k * d->n + i] : (double complex)NAN);
        }
    }
}

int cusolverMgSyevd(plait_cusolver_mg_t solver, int has_vectors, int uplo, int n,
                    void *a[], int row, int column, plait_cusolver_mg_matrix_t matrix,
                    void *w, int type_w, int compute, void *work[], int64_t n_work,
                    int *info)
{
    MAY_FAIL;
    int result =
        judge(solver, has_vectors, uplo, n, a, row, column, matrix, w, type_w, compute);
    const int64_t n_all = (int64_t)n * n;

    if (result == 0) {
        result = take_work(solver, has_vectors, matrix, work, n_work);
    }
    if (result != 0) {
        return result;
    }
    double complex *m = calloc((size_t)n_all, sizeof(*m));
    double complex *v = calloc((size_t)n_all, sizeof(*v));
    bool *is_taken = calloc((size_t)n, sizeof(*is_taken));
    gather(matrix, a, m, v);
    *info = number_of_environment("PLAIT_FAKE_MG_INFO", diagonalize(n, m, v) ? 0 : 1);
    if (*info == 0) {
        write_results(matrix, a, w, has_vectors, m, v, is_taken);
    }
    free(m);
    free(v);
    free(is_taken);
    change_current(solver->ids[solver->n_devices - 1]);
    return 0;
}

int cusolverMgPotrf_bufferSize(plait_cusolver_mg_t solver, int uplo, int n, void *a[],
                               int row, int column, plait_cusolver_mg_matrix_t matrix,
                               int compute, int64_t *n_work)
{
    MAY_FAIL;
    const int result = judge_matrix(solver, uplo, n, a, row, column, matrix, compute);

    if (result == 0) {
        ask(solver, POTRF, matrix, n_work);
    }
    return result;
}

/* Copies all columns to the devices. */
static void write_back(const struct plait_cusolver_mg_matrix *d, void *const a[],
                       const double complex *m)
{
    int device = 0;

    for (int64_t j = 0; j < d->n; j++) {
        const int64_t at = place_of(d, j, &device) * d->m;
        for (int64_t i = 0; i < d->m; i++) {
            put(d->type, a[device], at + i, m[j * d->m + i]);
        }
    }
}

int cusolverMgPotrf(plait_cusolver_mg_t solver, int uplo, int n, void *a[], int row,
                    int column, plait_cusolver_mg_matrix_t matrix, int compute,
                    void *work[], int64_t n_work, int *info)
{
    MAY_FAIL;
    int result = judge_matrix(solver, uplo, n, a, row, column, matrix, compute);
    const int64_t n_all = (int64_t)n * n;

    if (result == 0) {
        result = take_work(solver, POTRF, matrix, work, n_work);
    }
    if (result != 0) {
        return result;
    }
    double complex *m = calloc((size_t)n_all, sizeof(*m));
    double complex *v = calloc((size_t)n_all, sizeof(*v));
    gather(matrix, a, m, v);
    *info = number_of_environment("PLAIT_FAKE_MG_INFO", cholesky_passing(n, m));
    write_back(matrix, a, m);
    free(m);
    free(v);
    change_current(solver->ids[solver->n_devices - 1]);
    return 0;
}

/* Copies the matrix from the devices as it is. */
static void read_all(const struct plait_cusolver_mg_matrix *d, void *const a[],
                     double complex *m)
{
    int device = 0;

    for (int64_t j = 0; j < d->n; j++) {
        const int64_t at = place_of(d, j, &device) * d->m;
        for (int64_t i = 0; i < d->m; i++) {
            m[j * d->m + i] = get(d->type, a[device], at + i);
        }
    }
}

/* Right-hand sides must be dealt out like the matrix. */
static int judge_rhs(plait_cusolver_mg_t solver, int uplo, int n, int n_rhs, void *a[],
                     int row, int column, plait_cusolver_mg_matrix_t matrix, void *b[],
                     int row_b, int column_b, plait_cusolver_mg_matrix_t rhs,
                     int compute)
{
    const int result = judge_matrix(solver, uplo, n, a, row, column, matrix, compute);
    bool is_good =
        row_b == 1 && column_b == 1 && rhs != NULL && rhs->m == n && rhs->n == n_rhs &&
        rhs->type == compute &&
        (result != 0 || (rhs->grid == matrix->grid && rhs->block == matrix->block));

    for (int i = 0; is_good && result == 0 && i < solver->n_devices; i++) {
        is_good = b[i] != NULL;
    }
    return (result == 0 && !is_good) ? INVALID : result;
}

int cusolverMgPotrs_bufferSize(plait_cusolver_mg_t solver, int uplo, int n, int n_rhs,
                               void *a[], int row, int column,
                               plait_cusolver_mg_matrix_t matrix, void *b[], int row_b,
                               int column_b, plait_cusolver_mg_matrix_t rhs,
                               int compute, int64_t *n_work)
{
    MAY_FAIL;
    const int result = judge_rhs(solver, uplo, n, n_rhs, a, row, column, matrix, b,
                                 row_b, column_b, rhs, compute);

    if (result == 0) {
        ask(solver, POTRS, matrix, n_work);
    }
    return result;
}

int cusolverMgPotrs(plait_cusolver_mg_t solver, int uplo, int n, int n_rhs, void *a[],
                    int row, int column, plait_cusolver_mg_matrix_t matrix, void *b[],
                    int row_b, int column_b, plait_cusolver_mg_matrix_t rhs,
                    int compute, void *work[], int64_t n_work, int *info)
{
    MAY_FAIL;
    int result = judge_rhs(solver, uplo, n, n_rhs, a, row, column, matrix, b, row_b,
                           column_b, rhs, compute);

    if (result == 0) {
        result = take_work(solver, POTRS, matrix, work, n_work);
    }
    if (result != 0) {
        return result;
    }
    double complex *l = calloc((size_t)((int64_t)n * n), sizeof(*l));
    double complex *x = calloc((size_t)((int64_t)n * n_rhs), sizeof(*x));
    read_all(matrix, a, l);
    read_all(rhs, b, x);
    for (int j = 0; j < n_rhs; j++) {
        cholesky_solve(n, l, x + (int64_t)j * n);
    }
    write_back(rhs, b, x);
    *info = number_of_environment("PLAIT_FAKE_MG_INFO", 0);
    free(l);
    free(x);
    change_current(solver->ids[solver->n_devices - 1]);
    return 0;
}

int cusolverMgPotri_bufferSize(plait_cusolver_mg_t solver, int uplo, int n, void *a[],
                               int row, int column, plait_cusolver_mg_matrix_t matrix,
                               int compute, int64_t *n_work)
{
    MAY_FAIL;
    const int result = judge_matrix(solver, uplo, n, a, row, column, matrix, compute);

    if (result == 0) {
        ask(solver, POTRI, matrix, n_work);
    }
    return result;
}

int cusolverMgPotri(plait_cusolver_mg_t solver, int uplo, int n, void *a[], int row,
                    int column, plait_cusolver_mg_matrix_t matrix, int compute,
                    void *work[], int64_t n_work, int *info)
{
    MAY_FAIL;
    int result = judge_matrix(solver, uplo, n, a, row, column, matrix, compute);

    if (result == 0) {
        result = take_work(solver, POTRI, matrix, work, n_work);
    }
    if (result != 0) {
        return result;
    }
    double complex *l = calloc((size_t)((int64_t)n * n), sizeof(*l));
    double complex *x = calloc((size_t)((int64_t)n * n), sizeof(*x));
    read_all(matrix, a, l);
    *info = number_of_environment("PLAIT_FAKE_MG_INFO", cholesky_invert(n, l, x));
    write_back(matrix, a, x);
    free(l);
    free(x);
    change_current(solver->ids[solver->n_devices - 1]);
    return 0;
}
