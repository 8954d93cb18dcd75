#include "kernel/blas.h"

#include "base/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_DTYPES = 4, N_POINTERS = PLAIT_BLAS_N_OPS * N_DTYPES };
enum { PATH_BYTES = 1024, TEXT_BYTES = 2048, MAX_HANDLES = 4, NAME_BYTES = 48 };

/* In the order of the letters s, d, c, z. Pointer and name of op o, dtype d are at 4 o + d. */
static const char *const names[N_POINTERS] = {
#define NAMES(_op, _real, _complex) \
    "s" #_real, "d" #_real, "c" #_complex, "z" #_complex,
    PLAIT_BLAS_FOR_EACH(NAMES)
#undef NAMES
};

/* Setter and getter of a library's number of threads. Integers go by value, so that a library may take int or
 * int64_t: both find the number in the same register. */
typedef struct {
    const char *set, *get;
} control_name_t;

static const control_name_t control_names[] = {
    {"scipy_openblas_set_num_threads", "scipy_openblas_get_num_threads"},
    {"scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_"},
    {"openblas_set_num_threads", "openblas_get_num_threads"},
    {"openblas_set_num_threads64_", "openblas_get_num_threads64_"},
    {"MKL_Set_Num_Threads", "MKL_Get_Max_Threads"},
    {"bli_thread_set_num_threads", "bli_thread_get_num_threads"},
};

static const char *const core_names[] = {
    "scipy_openblas_get_corename",
    "scipy_openblas_get_corename64_",
    "openblas_get_corename",
    "openblas_get_corename64_",
};

static const char *const usual[] = {"libopenblas.so.0", "libopenblas.so",
                                    "liblapack.so.3", "libmkl_rt.so.3",
                                    "libmkl_rt.so.2"};

static struct {
    plait_blas_fn_t pointer[N_POINTERS];
    _Atomic int int_bytes; /* not 0: the table is complete */
    char library[PATH_BYTES], core[NAME_BYTES];
    void (*set_threads)(int64_t n);
    int64_t (*get_threads)(void);
} table;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    int n_inside;
    int n_before; /* threads that the first one found */
} use;
static pthread_mutex_t use_lock = PTHREAD_MUTEX_INITIALIZER;

/* ISO C has no conversion from void * to a pointer to a function. */
static plait_blas_fn_t to_function(void *address)
{
    plait_blas_fn_t function = NULL;

    memcpy((void *)&function, (const void *)&address, sizeof(function));
    return function;
}

static void *to_address(plait_blas_fn_t function)
{
    void *address = NULL;

    memcpy((void *)&address, (const void *)&function, sizeof(address));
    return address;
}

/* ---- What the library says of itself ---------------------------------------------------------- */

static bool find_control(void *library, const control_name_t *name)
{
    void *set = dlsym(library, name->set);
    void *get = dlsym(library, name->get);
    bool is_found = (set != NULL) && (get != NULL);

    if (is_found) {
        memcpy((void *)&table.set_threads, (const void *)&set, sizeof(set));
        memcpy((void *)&table.get_threads, (const void *)&get, sizeof(get));
    }
    return is_found;
}

static void find_core(void *library)
{
    const int n = (int)(sizeof(core_names) / sizeof(core_names[0]));
    char *(*core)(void) = NULL;

    for (int i = 0; (core == NULL) && (i < n); i++) {
        void *address = dlsym(library, core_names[i]);
        memcpy((void *)&core, (const void *)&address, sizeof(core));
    }
    if (core != NULL) {
        (void)snprintf(table.core, sizeof(table.core), "%s", core());
    }
}

/* The file that a function is in; "" if the system does not know. */
static void find_file(void *function, char path[PATH_BYTES])
{
    Dl_info info = {0};

    path[0] = '\0';
    if ((dladdr(function, &info) != 0) && (info.dli_fname != NULL)) {
        (void)snprintf(path, PATH_BYTES, "%s", info.dli_fname);
    }
}

/* The pointers may belong to a module that only calls the library: symbols are also looked for in what a module
 * depends on. */
static void find_controls(plait_blas_fn_t gemm)
{
    const int n = (int)(sizeof(control_names) / sizeof(control_names[0]));
    void *library = NULL;

    table.core[0] = '\0';
    table.set_threads = NULL;
    table.get_threads = NULL;
    find_file(to_address(gemm), table.library);
    library = dlopen(table.library, RTLD_LAZY | RTLD_NOLOAD);
    if (library != NULL) {
        for (int i = 0; (table.set_threads == NULL) && (i < n); i++) {
            if (find_control(library, &control_names[i])) {
                find_file(dlsym(library, control_names[i].set), table.library);
            }
        }
        find_core(library);
        (void)dlclose(library); /* its opener keeps it open */
    }
}

/* A Cholesky factorisation of nothing writes info = 0, into four bytes or into eight. */
static int probe_int_bytes(plait_blas_fn_t potrf)
{
    const int64_t n = 0, lda = 1;
    int64_t info = -1;
    double a = 1;

    ((void (*)(const char *, const int64_t *, double *, const int64_t *, int64_t *,
               size_t))potrf)("L", &n, &a, &lda, &info, 1);
    return (info == 0) ? 8 : ((int32_t)info == 0) ? 4 : 0;
}

/* Completes the table. `found` has all pointers, and may be the table itself. The lock is held. */
static plait_status_t complete(const plait_blas_fn_t found[])
{
    plait_status_t status = PLAIT_OK;
    int int_bytes = probe_int_bytes(found[4 * PLAIT_BLAS_POTRF + 1]);

    PLAIT_CHECK(int_bytes != 0, PLAIT_ERR_UNSUPPORTED,
                "blas: dpotrf of a matrix without rows does not return info 0");
    memmove((void *)table.pointer, (const void *)found, sizeof(table.pointer));
    find_controls(table.pointer[4 * PLAIT_BLAS_GEMM + 1]);
    atomic_store(&table.int_bytes, int_bytes);
done:
    return status;
}

/* ---- Filling -------------------------------------------------------------------------------- */

int plait_blas_count(void)
{
    return N_POINTERS;
}

const char *plait_blas_name(int i)
{
    return (i >= 0 && i < N_POINTERS) ? names[i] : NULL;
}

plait_status_t plait_blas_fill(const char *name, void *pointer)
{
    plait_status_t status = PLAIT_OK;
    int i = 0;

    PLAIT_CHECK(name != NULL && pointer != NULL, PLAIT_ERR_INVALID, "blas: %s is NULL",
                (name == NULL) ? "the name" : name);
    PLAIT_CHECK(!plait_blas_is_complete(), PLAIT_ERR_INVALID,
                "blas: %s comes too late, plait uses its BLAS already: fill in all "
                "functions before the first operation",
                name);
    while (i < N_POINTERS && strcmp(name, names[i]) != 0) {
        i++;
    }
    PLAIT_CHECK(i < N_POINTERS, PLAIT_ERR_INVALID, "blas: no function is called %s",
                name);
    pthread_mutex_lock(&table_lock);
    table.pointer[i] = to_function(pointer);
    pthread_mutex_unlock(&table_lock);
done:
    return status;
}

/* Looks up name i, with this prefix and suffix, in the first of the handles that has it. */
static void *look_up(void *const handles[], int n_handles, int i, const char *prefix,
                     const char *suffix)
{
    char symbol[NAME_BYTES];
    void *address = NULL;

    (void)snprintf(symbol, sizeof(symbol), "%s%s%s", prefix, names[i], suffix);
    for (int h = 0; (address == NULL) && (h < n_handles); h++) {
        address = dlsym(handles[h], symbol);
    }
    return address;
}

/* Looks up all pointers, in the spelling that the first one has; *missing_p: the first name that is missing. */
static bool gather(void *const handles[], int n_handles, plait_blas_fn_t found[],
                   const char **missing_p)
{
    static const char *const prefixes[] = {"", "scipy_"};
    static const char *const suffixes[] = {"_", "64_", "_64_", ""};
    int p = 0, s = 0, i = 0;
    bool is_spelled = false;

    for (int way = 0; !is_spelled && way < 8; way++) {
        p = way / 4;
        s = way % 4;
        is_spelled = look_up(handles, n_handles, 0, prefixes[p], suffixes[s]) != NULL;
    }
    while (is_spelled && i < N_POINTERS) {
        found[i] =
            to_function(look_up(handles, n_handles, i, prefixes[p], suffixes[s]));
        if (found[i] == NULL) {
            break;
        }
        i++;
    }
    *missing_p = (i < N_POINTERS) ? names[i] : NULL;
    return i == N_POINTERS;
}

/* Opens the parts of a path that are separated by ':'; "" is the program itself. */
static plait_status_t open_all(const char *path, void *handles[], int *n_handles_p)
{
    plait_status_t status = PLAIT_OK;
    char part[PATH_BYTES];
    const char *end = path;

    do {
        end = path + strcspn(path, ":");
        PLAIT_CHECK(*n_handles_p < MAX_HANDLES && end - path < PATH_BYTES,
                    PLAIT_ERR_UNSUPPORTED, "blas: more than %d libraries in %s",
                    MAX_HANDLES, path);
        (void)snprintf(part, sizeof(part), "%.*s", (int)(end - path), path);
        handles[*n_handles_p] =
            dlopen((part[0] != '\0') ? part : NULL, RTLD_NOW | RTLD_LOCAL);
        PLAIT_CHECK(handles[*n_handles_p] != NULL, PLAIT_ERR_UNSUPPORTED, "%s",
                    dlerror());
        *n_handles_p += 1;
        path = end + 1;
    } while (*end == ':');
done:
    return status;
}

static plait_status_t load(const char *path)
{
    plait_status_t status = PLAIT_OK;
    void *handles[MAX_HANDLES] = {NULL};
    plait_blas_fn_t found[N_POINTERS];
    const char *missing = NULL;
    int n_handles = 0;

    PLAIT_TRY(open_all(path, handles, &n_handles));
    PLAIT_CHECK(gather(handles, n_handles, found, &missing), PLAIT_ERR_UNSUPPORTED,
                "%s has no %s", (path[0] != '\0') ? path : "the program", missing);
    PLAIT_TRY(complete(found));
    n_handles = 0; /* they stay open as long as the process runs */
done:
    for (int h = 0; h < n_handles; h++) {
        (void)dlclose(handles[h]);
    }
    return status;
}

plait_status_t plait_blas_load(const char *path)
{
    plait_status_t status = PLAIT_OK;

    pthread_mutex_lock(&table_lock);
    PLAIT_CHECK(path != NULL && path[0] != '\0', PLAIT_ERR_INVALID,
                "blas: the path of the library is NULL or empty");
    PLAIT_TRY(load(path));
done:
    if (status != PLAIT_OK) {
        plait_error_prefix("blas: ");
    }
    pthread_mutex_unlock(&table_lock);
    return status;
}

/* Tries the program itself, which may be linked with LAPACK, then the usual libraries. */
static plait_status_t load_usual(void)
{
    const int n = (int)(sizeof(usual) / sizeof(usual[0]));
    plait_status_t status = load("");
    char why[TEXT_BYTES];
    int n_bytes = 0;

    for (int i = 0; (status != PLAIT_OK) && (i < n); i++) {
        if (n_bytes < (int)sizeof(why)) {
            n_bytes += snprintf(why + n_bytes, sizeof(why) - (size_t)n_bytes, "\n  %s",
                                plait_error_text());
        }
        status = load(usual[i]);
    }
    if (status != PLAIT_OK) {
        char last[TEXT_BYTES / 4];
        (void)snprintf(last, sizeof(last), "%s", plait_error_text());
        (void)plait_fail(status,
                         "no BLAS and LAPACK; PLAIT_BLAS=/path/to/library names one. "
                         "Looked for, in order:%s\n  %s",
                         why, last);
    }
    return status;
}

static bool is_filled(void)
{
    int n = 0;

    while (n < N_POINTERS && table.pointer[n] != NULL) {
        n++;
    }
    return n == N_POINTERS;
}

plait_status_t plait_blas_require(void)
{
    plait_status_t status = PLAIT_OK;
    const char *path = getenv("PLAIT_BLAS");

    pthread_mutex_lock(&table_lock);
    if (atomic_load(&table.int_bytes) != 0) {
        goto done;
    }
    if (is_filled()) {
        PLAIT_TRY(complete(table.pointer));
    } else if (path != NULL && path[0] != '\0') {
        status = load(path);
        if (status != PLAIT_OK) {
            plait_error_prefix("no BLAS and LAPACK where PLAIT_BLAS says: ");
        }
    } else {
        PLAIT_TRY(load_usual());
    }
done:
    pthread_mutex_unlock(&table_lock);
    return status;
}

bool plait_blas_is_complete(void)
{
    return plait_blas_int_bytes() != 0;
}

void plait_blas_clear(void)
{
    pthread_mutex_lock(&table_lock);
    atomic_store(&table.int_bytes, 0);
    memset((void *)table.pointer, 0, sizeof(table.pointer));
    table.library[0] = table.core[0] = '\0';
    table.set_threads = NULL;
    table.get_threads = NULL;
    pthread_mutex_unlock(&table_lock);
}

/* ---- Reading -------------------------------------------------------------------------------- */

static int column_of(plait_dtype_t dtype)
{
    static const plait_dtype_t column[N_DTYPES] = {PLAIT_F32, PLAIT_F64, PLAIT_C64,
                                                   PLAIT_C128};
    int d = 0;

    while (d < N_DTYPES && column[d] != dtype) {
        d++;
    }
    return d;
}

plait_blas_fn_t plait_blas_find(plait_blas_op_t op, plait_dtype_t dtype)
{
    int d = column_of(dtype);

    return (d < N_DTYPES) ? table.pointer[N_DTYPES * (int)op + d] : NULL;
}

int plait_blas_int_bytes(void)
{
    return atomic_load(&table.int_bytes);
}

plait_status_t plait_blas_fits(int64_t n)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(n <= INT32_MAX || plait_blas_int_bytes() == 8, PLAIT_ERR_OVERFLOW,
                "blas: %lld does not fit the 32-bit integers of %s", (long long)n,
                table.library);
done:
    return status;
}

const char *plait_blas_library(void)
{
    return table.library;
}

const char *plait_blas_core(void)
{
    return table.core;
}

/* ---- Threads -------------------------------------------------------------------------------- */

int plait_blas_n_threads(void)
{
    return (table.get_threads != NULL) ? (int32_t)table.get_threads() : 0;
}

void plait_blas_enter(void)
{
    pthread_mutex_lock(&use_lock);
    use.n_inside++;
    if (use.n_inside == 1) {
        use.n_before = plait_blas_n_threads();
        if (use.n_before > 1) {
            table.set_threads(1);
        }
    }
    pthread_mutex_unlock(&use_lock);
}

void plait_blas_leave(void)
{
    pthread_mutex_lock(&use_lock);
    use.n_inside--;
    if (use.n_inside == 0 && use.n_before > 1) {
        table.set_threads(use.n_before);
    }
    pthread_mutex_unlock(&use_lock);
}
