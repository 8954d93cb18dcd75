/* A stand-in of cuSOLVERMp between threads of one process, whose devices are check devices (check_device.h):
 * a call is done when the streams of all ranks have come to it, by the definition. It judges its arguments
 * as the real one does, or more severely: one handle for a device, a communicator that blocks, whole columns in
 * square blocks of a power of two, the memory that was asked for the same matrix. Where one rank fails in
 * what all call together the others end with argument 3 wrong: the real one would wait for ever.
 *
 * PLAIT_FAKE_MP_FAIL=name:result:device   that function returns the result; device -1: every one's
 * PLAIT_FAKE_MP_INFO=n                    syevd ends with it and finds nothing
 * PLAIT_FAKE_MP_MORE=n                    syevd wants so much more memory from now on
 * PLAIT_FAKE_MP_VERSION                   what it says it is */
#include "device/device.h"
#include "fake_cuda_eigen.h"
#include "fake_cuda_matrix.h"

#include <dlfcn.h>
#include <pthread.h>

enum { NO_MEMORY = 2, INVALID = 3, INTERNAL = 7, MAX_DEVICES = 16, BROKEN = -3 };

/* The ranks of one communicator. */
typedef struct world {
    uint64_t id;
    int n_ranks, n_joined, n_in; /* in a call */
    unsigned turn;               /* of calls */
    bool is_broken;
    struct part *parts[MAX_DEVICES];
    struct plait_cusolver_mp_grid *grids[MAX_DEVICES]; /* by rank */
    struct world *next;
} world_t;

struct plait_cusolver_mp {
    int id;
    plait_cu_stream_t stream;
};

struct plait_cusolver_mp_grid {
    world_t *world;
    int rank, id;
};

struct plait_cusolver_mp_matrix {
    int64_t n, block;
    int type;
    struct plait_cusolver_mp_grid *grid;
    int64_t n_device, n_host; /* asked for; 0: not yet */
    char job;
};

/* A rank's arguments; addresses as its device sees them, then as the host sees them. */
typedef struct part {
    world_t *world;
    int rank;
    int64_t n, block, n_device;
    int type;
    char job;
    void *a, *w, *v, *work;
    int *info;
} part_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static world_t *worlds;
static int n_handles[MAX_DEVICES];

static int result_of(const char *name, int device)
{
    const char *text = getenv("PLAIT_FAKE_MP_FAIL");
    const size_t n = strlen(name);
    int result = 0, which = -1;

    if (text != NULL && strncmp(text, name, n) == 0 && text[n] == ':') {
        (void)sscanf(text + n + 1, "%d:%d", &result, &which);
    }
    return (which < 0 || which == device) ? result : 0;
}

#define MAY_FAIL(_device)                          \
    do {                                           \
        int result = result_of(__func__, _device); \
        if (result != 0) {                         \
            return result;                         \
        }                                          \
    } while (0)

/* A function of the test itself, or of NCCL's stand-in. */
static void find(const char *library, const char *name, void *function_p)
{
    void *handle = (library != NULL) ? dlopen(library, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *address = dlsym((handle != NULL) ? handle : RTLD_DEFAULT, name);

    memcpy(function_p, &address, sizeof(address));
    if (handle != NULL) {
        (void)dlclose(handle);
    }
}

int cusolverMpCreate(plait_cusolver_mp_t *solver, int id, plait_cu_stream_t stream)
{
    MAY_FAIL(id);
    (void)pthread_mutex_lock(&mutex);
    const bool is_good =
        id >= 0 && id < MAX_DEVICES && stream != NULL && n_handles[id] == 0;
    if (is_good) {
        n_handles[id]++;
    }
    (void)pthread_mutex_unlock(&mutex);
    if (!is_good) {
        return INVALID;
    }
    *solver = calloc(1, sizeof(**solver));
    **solver = (struct plait_cusolver_mp){.id = id, .stream = stream};
    return 0;
}

int cusolverMpDestroy(plait_cusolver_mp_t solver)
{
    (void)pthread_mutex_lock(&mutex);
    n_handles[solver->id]--;
    (void)pthread_mutex_unlock(&mutex);
    free(solver);
    return 0;
}

int cusolverMpGetVersion(plait_cusolver_mp_t solver, int *version)
{
    MAY_FAIL(solver->id);
    *version = number_of_environment("PLAIT_FAKE_MP_VERSION", 901);
    return 0;
}

int cusolverMpSetStream(plait_cusolver_mp_t solver, plait_cu_stream_t stream)
{
    MAY_FAIL(solver->id);
    solver->stream = stream;
    return (stream != NULL) ? 0 : INVALID;
}

/* Under the mutex. */
static world_t *world_of(uint64_t id, int n_ranks)
{
    world_t *world = worlds;

    while (world != NULL && world->id != id) {
        world = world->next;
    }
    if (world == NULL) {
        world = calloc(1, sizeof(*world));
        *world = (world_t){.id = id, .n_ranks = n_ranks, .next = worlds};
        worlds = world;
    }
    return world;
}

/* At unload: frees grids that nobody could destroy because peers did not come, and their worlds. */
__attribute__((destructor)) static void forget_worlds(void)
{
    while (worlds != NULL) {
        world_t *world = worlds;

        worlds = world->next;
        for (int r = 0; r < MAX_DEVICES; r++) {
            free(world->grids[r]);
        }
        free(world);
    }
}

static int break_world(world_t *world, int result)
{
    (void)pthread_mutex_lock(&mutex);
    world->is_broken = true;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&mutex);
    return result;
}

/* All ranks must come. */
int cusolverMpCreateDeviceGrid(plait_cusolver_mp_t solver,
                               plait_cusolver_mp_grid_t *grid, plait_nccl_comm_t comm,
                               int32_t n_rows, int32_t n_columns, int mapping)
{
    const int failure = result_of(__func__, solver->id);
    uint64_t (*seat)(plait_nccl_comm_t, int *, int *) = NULL;
    int rank = 0, n_ranks = 0;

    find("libnccl.so.2", "fake_nccl_seat", &seat);
    const uint64_t id = seat(comm, &rank, &n_ranks);
    if (id == 0 || n_rows != 1 || n_columns != n_ranks || n_ranks > MAX_DEVICES ||
        mapping != PLAIT_CUSOLVER_MP_COLUMNS) {
        return INVALID;
    }
    (void)pthread_mutex_lock(&mutex);
    world_t *world = world_of(id, n_ranks);
    world->n_joined++;
    world->is_broken = world->is_broken || failure != 0;
    (void)pthread_cond_broadcast(&changed);
    while (world->n_joined < n_ranks && !world->is_broken) {
        (void)pthread_cond_wait(&changed, &mutex);
    }
    const bool is_broken = world->is_broken;
    (void)pthread_mutex_unlock(&mutex);
    if (failure != 0 || is_broken) {
        return (failure != 0) ? failure : INTERNAL;
    }
    *grid = calloc(1, sizeof(**grid));
    **grid =
        (struct plait_cusolver_mp_grid){.world = world, .rank = rank, .id = solver->id};
    world->grids[rank] = *grid;
    return 0;
}

/* The world stays known, since its number is not used again. */
int cusolverMpDestroyGrid(plait_cusolver_mp_grid_t grid)
{
    grid->world->grids[grid->rank] = NULL;
    free(grid);
    return 0;
}

int cusolverMpCreateMatrixDesc(plait_cusolver_mp_matrix_t *matrix,
                               plait_cusolver_mp_grid_t grid, int type, int64_t m,
                               int64_t n, int64_t row_block, int64_t column_block,
                               uint32_t first_row, uint32_t first_column, int64_t ld)
{
    MAY_FAIL(grid->id);
    if (m != n || n < 1 || row_block != column_block || column_block < 1 ||
        (column_block & (column_block - 1)) != 0 || first_row != 0 ||
        first_column != 0 || ld < m) {
        return INVALID;
    }
    *matrix = calloc(1, sizeof(**matrix));
    **matrix = (struct plait_cusolver_mp_matrix){
        .n = n, .block = column_block, .type = type, .grid = grid};
    return 0;
}

int cusolverMpDestroyMatrixDesc(plait_cusolver_mp_matrix_t matrix)
{
    free(matrix);
    return 0;
}

/* Checks the arguments of both functions. */
static bool is_good(plait_cusolver_mp_t solver, const char *job, int uplo, int64_t n,
                    const void *a, int64_t row, int64_t column,
                    plait_cusolver_mp_matrix_t matrix, const void *w, const void *v,
                    int64_t row_v, int64_t column_v,
                    plait_cusolver_mp_matrix_t matrix_v, int compute)
{
    return (job[0] == 'V' || job[0] == 'N') && job[1] == '\0' &&
           uplo == PLAIT_CUBLAS_LOWER && row == 1 && column == 1 && row_v == 1 &&
           column_v == 1 && matrix != NULL && matrix_v == matrix && matrix->n == n &&
           matrix->grid->id == solver->id && compute == matrix->type && a != NULL &&
           w != NULL && (v != NULL || job[0] == 'N');
}

int cusolverMpSyevd_bufferSize(plait_cusolver_mp_t solver, char *job, int uplo,
                               int64_t n, void *a, int64_t row, int64_t column,
                               plait_cusolver_mp_matrix_t matrix, void *w, void *v,
                               int64_t row_v, int64_t column_v,
                               plait_cusolver_mp_matrix_t matrix_v, int compute,
                               size_t *n_device, size_t *n_host)
{
    MAY_FAIL(solver->id);
    const int more = number_of_environment("PLAIT_FAKE_MP_MORE", 0);

    if (!is_good(solver, job, uplo, n, a, row, column, matrix, w, v, row_v, column_v,
                 matrix_v, compute)) {
        return INVALID;
    }
    matrix->n_device = 24 * n + 8 * matrix->grid->rank + more;
    matrix->n_host = 5 * n + 3;
    matrix->job = job[0];
    *n_device = (size_t)matrix->n_device;
    *n_host = (size_t)matrix->n_host;
    return 0;
}

/* The place of column j of the matrix, in columns. */
static int64_t place_of(const part_t *p, int64_t j, int *rank_p)
{
    const int64_t k = j / p->block;

    *rank_p = (int)(k % p->world->n_ranks);
    return k / p->world->n_ranks * p->block + j % p->block;
}

/* Gathers the lower triangle, and mirrors it to the upper triangle. */
static void gather(const part_t *p, double complex *m, double complex *v)
{
    int rank = 0;

    for (int64_t j = 0; j < p->n; j++) {
        const int64_t at = place_of(p, j, &rank) * p->n;
        const void *a = p->world->parts[rank]->a;
        v[j * p->n + j] = 1;
        m[j * p->n + j] = creal(get(p->type, a, at + j));
        for (int64_t i = j + 1; i < p->n; i++) {
            m[j * p->n + i] = get(p->type, a, at + i);
            m[i * p->n + j] = conj(m[j * p->n + i]);
        }
    }
}

static void write_column(const part_t *p, int64_t j, double w, const double complex *v)
{
    int owner = 0;
    const int64_t at = place_of(p, j, &owner) * p->n;
    part_t *const *parts = p->world->parts;

    for (int r = 0; r < p->world->n_ranks; r++) {
        put(real_type(p->type), parts[r]->w, j, w);
    }
    for (int64_t i = 0; i < p->n; i++) {
        put(p->type, parts[owner]->a, at + i, (double complex)NAN);
        if (p->job == 'V') {
            put(p->type, parts[owner]->v, at + i, v[i]);
        }
    }
}

/* Called by the last rank that comes. */
static void solve(const part_t *p)
{
    const int64_t n = p->n;
    double complex *m = calloc((size_t)(n * n), sizeof(*m));
    double complex *v = calloc((size_t)(n * n), sizeof(*v));
    bool *is_taken = calloc((size_t)n, sizeof(*is_taken));

    gather(p, m, v);
    const int info =
        number_of_environment("PLAIT_FAKE_MP_INFO", diagonalize(n, m, v) ? 0 : 1);
    for (int64_t j = 0; j < n && info == 0; j++) {
        const int64_t k = smallest_from(n, m, is_taken);
        is_taken[k] = true;
        write_column(p, j, creal(m[k * n + k]), &v[k * n]);
    }
    for (int r = 0; r < p->world->n_ranks; r++) {
        *p->world->parts[r]->info = info;
    }
    free(m);
    free(v);
    free(is_taken);
}

/* Runs in the order of its device's stream. */
static void run_syevd(plait_device_t *device, void *argument)
{
    part_t *p = argument;
    world_t *world = p->world;
    void *(*view_of)(const plait_device_t *, const void *) = NULL;

    find(NULL, "check_device_view", &view_of);
    p->a = view_of(device, p->a);
    p->w = view_of(device, p->w);
    p->v = (p->v != NULL) ? view_of(device, p->v) : NULL;
    p->work = view_of(device, p->work);
    p->info = view_of(device, p->info);
    memset(p->work, 0xa7, (size_t)p->n_device);
    (void)pthread_mutex_lock(&mutex);
    const unsigned turn = world->turn;
    world->parts[p->rank] = p;
    *p->info = BROKEN;
    if (++world->n_in == world->n_ranks) {
        solve(p);
        world->n_in = 0;
        world->turn++;
        (void)pthread_cond_broadcast(&changed);
    }
    while (world->turn == turn && !world->is_broken) {
        (void)pthread_cond_wait(&changed, &mutex);
    }
    (void)pthread_mutex_unlock(&mutex);
}

int cusolverMpSyevd(plait_cusolver_mp_t solver, char *job, int uplo, int64_t n, void *a,
                    int64_t row, int64_t column, plait_cusolver_mp_matrix_t matrix,
                    void *w, void *v, int64_t row_v, int64_t column_v,
                    plait_cusolver_mp_matrix_t matrix_v, int compute, void *device,
                    size_t n_device, void *host, size_t n_host, int *info)
{
    void (*enqueue)(void *, void (*)(plait_device_t *, void *), const void *, size_t) =
        NULL;
    const int failure = result_of(__func__, solver->id);

    if (failure != 0 ||
        !is_good(solver, job, uplo, n, a, row, column, matrix, w, v, row_v, column_v,
                 matrix_v, compute) ||
        (int64_t)n_device != matrix->n_device || (int64_t)n_host != matrix->n_host ||
        n_host == 0 || job[0] != matrix->job || device == NULL || host == NULL ||
        info == NULL || a == v) {
        return break_world(matrix->grid->world, (failure != 0) ? failure : INVALID);
    }
    memset(host, 0xa7, n_host);
    const part_t part = {.world = matrix->grid->world,
                         .rank = matrix->grid->rank,
                         .n = n,
                         .block = matrix->block,
                         .n_device = matrix->n_device,
                         .type = matrix->type,
                         .job = job[0],
                         .a = a,
                         .w = w,
                         .v = v,
                         .work = device,
                         .info = info};
    find(NULL, "check_device_enqueue", &enqueue);
    enqueue(solver->stream, run_syevd, &part, sizeof(part));
    return 0;
}
