/* Shared by the fuzz targets: numbers from the input, and a problem for the ranks of a communicator made of
 * these numbers. Built with -DPLAIT_FUZZ=ON and clang, a target is libFuzzer's. Otherwise main runs it on
 * files, or on pseudo-random inputs, the same every time. */
#ifndef PLAIT_TESTS_FUZZ_H
#define PLAIT_TESTS_FUZZ_H

#include "base/hash.h"
#include "check.h"
#include "coll/coll.h"
#include "ops/list.h"
#include "plait/dense.h"
#include "plait/layout.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Inputs that got as far as an execution or a proof. */
static int64_t n_far;

/* ---- numbers from the input ---- */

typedef struct {
    const uint8_t *data;
    size_t size, at;
} input_t;

/* Zero after the end. */
static inline int next_byte(input_t *in)
{
    return (in->at < in->size) ? in->data[in->at++] : 0;
}

static inline int64_t next_word(input_t *in)
{
    uint64_t word = 0;

    for (int i = 0; i < 8; i++) {
        word = word << 8 | (uint64_t)next_byte(in);
    }
    return (int64_t)word;
}

/* Mostly small, at times at an edge, at times anything. */
static inline int64_t next_number(input_t *in)
{
    static const int64_t edges[] = {INT64_MIN, INT64_MAX, -1,
                                    INT32_MAX, 1LL << 31, (1LL << 31) + 1,
                                    INT32_MIN, 1LL << 32, INT64_MAX / 8,
                                    32767,     32768,     64};
    int byte = next_byte(in);

    return (byte < 224)   ? byte % 6
           : (byte < 248) ? edges[(size_t)byte % (sizeof(edges) / sizeof(edges[0]))]
                          : next_word(in);
}

/* ---- a problem ---- */

enum {
    FUZZ_MAX_P = 5,
    FUZZ_MAX_NDIM = 4,
    FUZZ_MAX_LIST = 4 * 16, /* words: pairs of ranks, edges */
    FUZZ_MAX_LISTS = 2
};

typedef struct {
    int ndim;
    int64_t dims[PLAIT_MAX_NDIM + 1];
    plait_dtype_t dtype;
} fuzz_array_t;

/* The arguments of every rank. Parameters may differ between ranks only if the operation allows it (blocks of
 * a route). */
typedef struct {
    const plait_op_t *op;
    int n_ranks;
    _Alignas(16) unsigned char params[FUZZ_MAX_P][PLAIT_MAX_PARAMS_BYTES];
    int64_t list[FUZZ_MAX_LIST];
    int64_t n_list;
    fuzz_array_t args[FUZZ_MAX_P][PLAIT_MAX_ARRAYS];
    fuzz_array_t rets[FUZZ_MAX_P][PLAIT_MAX_ARRAYS];
} fuzz_problem_t;

static inline const plait_attr_t *attr_of(const plait_op_t *op, const char *name)
{
    const plait_attr_t *found = NULL;

    for (const plait_attr_t *a = op->attrs; a->name != NULL && found == NULL; a++) {
        found = (strcmp(a->name, name) == 0) ? a : NULL;
    }
    return found;
}

static inline void set_int(fuzz_problem_t *p, const char *name, int64_t value)
{
    const plait_attr_t *attr = attr_of(p->op, name);

    for (int r = 0; r < p->n_ranks && attr != NULL; r++) {
        memcpy(p->params[r] + attr->offset, &value, sizeof(value));
    }
}

static inline int64_t get_int(const fuzz_problem_t *p, int rank, const char *name)
{
    const plait_attr_t *attr = attr_of(p->op, name);
    int64_t value = -1;

    if (attr != NULL) {
        memcpy(&value, p->params[rank] + attr->offset, sizeof(value));
    }
    return value;
}

/* Any numbers in all parameters. */
static inline void fill_params(fuzz_problem_t *p, input_t *in)
{
    p->n_list = next_byte(in) % FUZZ_MAX_LIST;
    for (int64_t i = 0; i < p->n_list; i++) {
        p->list[i] = next_number(in);
    }
    for (const plait_attr_t *a = p->op->attrs; a->name != NULL; a++) {
        int64_t n = next_byte(in) % (a->n_max + 1);
        const int64_t *list = p->list;
        if (a->kind == PLAIT_PARAM_LIST) {
            memcpy(p->params[0] + a->offset, &list, sizeof(list));
            memcpy(p->params[0] + a->count_offset, &p->n_list, sizeof(n));
        } else if (a->kind == PLAIT_PARAM_ARRAY) {
            for (int64_t i = 0; i < n; i++) {
                int64_t word = next_number(in);
                memcpy(p->params[0] + a->offset + 8 * i, &word, sizeof(word));
            }
            memcpy(p->params[0] + a->count_offset, &n, sizeof(n));
        } else {
            int64_t word = next_number(in);
            memcpy(p->params[0] + a->offset, &word, sizeof(word));
        }
    }
    for (int r = 1; r < p->n_ranks; r++) {
        memcpy(p->params[r], p->params[0], sizeof(p->params[0]));
    }
}

static inline fuzz_array_t fuzz_array(input_t *in, plait_dtype_t dtype)
{
    fuzz_array_t array = {.ndim = next_byte(in) % FUZZ_MAX_NDIM, .dtype = dtype};

    for (int d = 0; d < array.ndim; d++) {
        int64_t n = next_number(in);
        array.dims[d] = (n < 0) ? 0 : n; /* XLA has no other sizes */
    }
    return array;
}

static inline fuzz_array_t with_rows(const fuzz_array_t *part, int64_t n_rows)
{
    fuzz_array_t joined = {.ndim = part->ndim + 1, .dtype = part->dtype};

    joined.dims[0] = n_rows;
    memcpy(joined.dims + 1, part->dims, sizeof(part->dims) - sizeof(part->dims[0]));
    return joined;
}

/* ---- problems that make sense, except for what is changed afterwards ---- */

/* The roles of operand 0 and result 0: all alike; one rank's block or all blocks; rows that go to all and come
 * from all; blocks of a route. */
typedef enum { ALIKE, PART, JOINED, SENT, RECEIVED, BLOCKS_IN, BLOCKS_OUT } fuzz_role_t;

typedef struct {
    const char *op;
    fuzz_role_t arg, ret;
} fuzz_shape_t;

static inline fuzz_shape_t shape_of(const char *op)
{
    static const fuzz_shape_t shapes[] = {
        {"allgather", PART, JOINED}, {"alltoall", SENT, RECEIVED},
        {"gather", PART, JOINED},    {"reduce_scatter", JOINED, PART},
        {"scatter", JOINED, PART},   {"route", BLOCKS_IN, BLOCKS_OUT},
    };
    fuzz_shape_t found = {op, ALIKE, ALIKE};

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        found = (strcmp(shapes[i].op, op) == 0) ? shapes[i] : found;
    }
    return found;
}

static inline int64_t rows_of(const fuzz_problem_t *p, fuzz_role_t role, int rank)
{
    int64_t n_rows = 0;
    int64_t n = p->n_list;

    if (role == BLOCKS_IN || role == BLOCKS_OUT) {
        return get_int(p, rank, (role == BLOCKS_IN) ? "n_in" : "n_out");
    }
    for (int r = 0; r < p->n_ranks; r++) {
        n_rows += (n == 0)             ? 1
                  : (role == JOINED)   ? p->list[r]
                  : (role == SENT)     ? p->list[rank * p->n_ranks + r]
                  : (role == RECEIVED) ? p->list[r * p->n_ranks + rank]
                                       : 0;
    }
    return (role == PART) ? p->list[rank] : n_rows;
}

static inline fuzz_array_t array_in_role(const fuzz_problem_t *p, fuzz_role_t role,
                                         int rank, const fuzz_array_t *row)
{
    int64_t root = get_int(p, rank, "root");
    bool is_elsewhere = role == JOINED && root >= 0 && root != rank;

    role = is_elsewhere ? PART : role;
    if (role == ALIKE || (role == PART && p->n_list == 0)) {
        return *row;
    }
    return with_rows(row, rows_of(p, role, rank));
}

/* Makes edges, most of them with distinct blocks. Each rank has its own number of blocks. */
static inline void make_route(fuzz_problem_t *p, input_t *in)
{
    int64_t n = next_byte(in) % (FUZZ_MAX_LIST / PLAIT_EDGE_WORDS);
    int64_t n_in[FUZZ_MAX_P] = {0};
    int64_t n_out[FUZZ_MAX_P] = {0};

    for (int r = 0; r < p->n_ranks; r++) {
        n_in[r] = next_byte(in) % 3;
        n_out[r] = next_byte(in) % 2;
    }
    p->n_list = 0;
    for (int64_t i = 0; i < n; i++) {
        int source = next_byte(in) % p->n_ranks;
        int dest = next_byte(in) % p->n_ranks;
        if (n_in[source] > 0) {
            int64_t *edge = p->list + p->n_list;
            edge[PLAIT_EDGE_SOURCE] = source;
            edge[PLAIT_EDGE_SOURCE_BLOCK] = next_byte(in) % n_in[source];
            edge[PLAIT_EDGE_DEST] = dest;
            bool is_taken = n_out[dest] > 0 && next_byte(in) % 32 == 0; /* a fault */
            edge[PLAIT_EDGE_DEST_BLOCK] =
                is_taken ? next_byte(in) % n_out[dest] : n_out[dest]++;
            p->n_list += PLAIT_EDGE_WORDS;
        }
    }
    const plait_attr_t *edges = attr_of(p->op, "edges");
    const plait_attr_t *ins = attr_of(p->op, "n_in");
    const plait_attr_t *outs = attr_of(p->op, "n_out");
    for (int r = 0; r < p->n_ranks; r++) {
        memcpy(p->params[r] + edges->count_offset, &p->n_list, sizeof(p->n_list));
        memcpy(p->params[r] + ins->offset, &n_in[r], sizeof(n_in[r]));
        memcpy(p->params[r] + outs->offset, &n_out[r], sizeof(n_out[r]));
    }
}

static inline void make_counts(fuzz_problem_t *p, input_t *in,
                               const plait_attr_t *counts)
{
    bool has_pairs = shape_of(p->op->name).arg == SENT;
    int n = p->n_ranks * (has_pairs ? p->n_ranks : 1);

    p->n_list = (next_byte(in) % 2 == 0) ? 0 : n;
    for (int i = 0; i < p->n_list; i++) {
        p->list[i] = next_byte(in) % 4;
    }
    for (int r = 0; r < p->n_ranks; r++) {
        memcpy(p->params[r] + counts->count_offset, &p->n_list, sizeof(p->n_list));
    }
}

/* A split of `shape` over all ranks. */
static inline bool make_layout(const fuzz_problem_t *p, input_t *in, int ndim,
                               const int64_t shape[], plait_layout_t *layout)
{
    int first = 1 + next_byte(in) % p->n_ranks;
    bool is_plane = p->n_ranks % first == 0;
    const int grid[] = {is_plane ? first : p->n_ranks, p->n_ranks / first};
    plait_split_t split = (plait_split_t)(1 + next_byte(in) % 2);
    int over[PLAIT_MAX_NDIM];

    for (int a = 0; a < ndim; a++) {
        over[a] = next_byte(in) % 3 - 1;
    }
    return plait_layout_pencil(ndim, shape, is_plane ? 2 : 1, grid, over, split,
                               layout) == PLAIT_OK;
}

static inline void set_array(fuzz_problem_t *p, const char *name, const int64_t words[],
                             int64_t n)
{
    const plait_attr_t *attr = attr_of(p->op, name);

    for (int r = 0; r < p->n_ranks && attr != NULL; r++) {
        memcpy(p->params[r] + attr->offset, words, (size_t)n * sizeof(words[0]));
        memcpy(p->params[r] + attr->count_offset, &n, sizeof(n));
    }
}

static inline void set_layout(fuzz_problem_t *p, const char *name,
                              const plait_layout_t *layout)
{
    int64_t words[PLAIT_LAYOUT_WORDS];

    set_array(p, name, words, plait_layout_pack(layout, words));
}

/* Makes global arrays: operand and result each have a layout, with ghosts if the operation has them. */
static inline void make_mesh(fuzz_problem_t *p, input_t *in)
{
    int ndim = 1 + next_byte(in) % 3;
    int64_t shape[PLAIT_MAX_NDIM] = {0};
    int64_t axes[PLAIT_MAX_NDIM] = {0};
    int64_t extents[PLAIT_MAX_NDIM] = {0};
    int64_t periodic[PLAIT_MAX_NDIM] = {0};
    plait_layout_t from;
    plait_layout_t to;
    bool has_ghosts = attr_of(p->op, "extents") != NULL;

    for (int a = 0; a < ndim; a++) {
        shape[a] = next_byte(in) % 8;
        axes[a] = ndim - 1 - a;
        extents[a] = has_ghosts ? next_byte(in) % 3 : 0;
        periodic[a] = next_byte(in) % 2;
    }
    if (!make_layout(p, in, ndim, shape, &from) ||
        !make_layout(p, in, ndim, shape, &to)) {
        return;
    }
    to = has_ghosts ? from : to;
    set_layout(p, has_ghosts ? "layout" : "from", &from);
    if (!has_ghosts) {
        set_layout(p, "to", &to);
    }
    if (attr_of(p->op, "axes") != NULL) {
        set_array(p, "axes", axes, 1 + next_byte(in) % ndim);
        set_int(p, "sign", next_byte(in) % 2 ? 1 : -1);
    }
    if (has_ghosts) {
        set_array(p, "extents", extents, ndim);
        set_array(p, "periodic", periodic, ndim);
    }
    for (int r = 0; r < p->n_ranks; r++) {
        p->args[r][0].ndim = p->rets[r][0].ndim = ndim;
        plait_layout_local_shape(&from, r, p->args[r][0].dims);
        plait_layout_local_shape(&to, r, p->rets[r][0].dims);
        for (int a = 0; a < ndim; a++) {
            p->args[r][0].dims[a] += 2 * extents[a];
            p->rets[r][0].dims[a] += 2 * extents[a];
        }
    }
}

/* Rows and columns of an operation's dealt matrices, named by its attributes: operands, then the result. */
typedef struct {
    const char *op;
    const char *extents[3][2];
} fuzz_dense_t;

static inline const fuzz_dense_t *dense_of(const char *op)
{
    static const fuzz_dense_t table[] = {
        {"gemm", {{"m", "k"}, {"k", "n"}, {"m", "n"}}},
        {"trsm", {{"n", "n"}, {"n", "n_rhs"}, {"n", "n_rhs"}}},
    };
    const fuzz_dense_t *found = NULL;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        found = (strcmp(table[i].op, op) == 0) ? &table[i] : found;
    }
    return found;
}

static inline void make_dense(fuzz_problem_t *p, input_t *in, const fuzz_dense_t *dense)
{
    static const char *const extents[] = {"m", "n", "k", "n_rhs"};
    const int64_t block = 1 + next_byte(in) % 4;

    for (size_t i = 0; i < sizeof(extents) / sizeof(extents[0]); i++) {
        set_int(p, extents[i], next_byte(in) % 8);
    }
    set_int(p, "block", block);
    set_int(p, "trans", next_byte(in) % 3);
    set_int(p, "uplo", next_byte(in) % 2);
    set_int(p, "diag", next_byte(in) % 2);
    set_int(p, "form", next_byte(in) % 8 == 0);
    set_int(p, "form_a", next_byte(in) % 5);
    set_int(p, "form_c", next_byte(in) % 2);
    for (int r = 0; r < p->n_ranks; r++) {
        for (int i = 0; i < 3; i++) {
            const bool is_turned = i == 0 && get_int(p, r, "trans") > 0;
            const int64_t m = get_int(p, r, dense->extents[i][is_turned]);
            const int64_t n = get_int(p, r, dense->extents[i][!is_turned]);
            fuzz_array_t *array = (i < 2) ? &p->args[r][i] : &p->rets[r][0];
            array->ndim = 2;
            array->dims[0] = plait_dense_columns(n, block, p->n_ranks);
            array->dims[1] = m;
            array->dtype = p->args[0][0].dtype;
        }
    }
}

static inline void make_sense(fuzz_problem_t *p, input_t *in)
{
    fuzz_array_t row = {.ndim = next_byte(in) % 3, .dtype = p->args[0][0].dtype};
    fuzz_shape_t shape = shape_of(p->op->name);
    const plait_attr_t *counts = attr_of(p->op, "counts");

    for (int d = 0; d < row.ndim; d++) {
        row.dims[d] = next_byte(in) % 5 * (next_byte(in) % 16 == 0 ? 700 : 1);
    }
    set_int(p, "root", next_byte(in) % p->n_ranks);
    set_int(p, "source", next_byte(in) % p->n_ranks);
    set_int(p, "dest", next_byte(in) % p->n_ranks);
    set_int(p, "reduce", next_byte(in) % PLAIT_REDUCE_COUNT);
    set_int(p, "elsewhere", shape.ret != ALIKE || next_byte(in) % 2);
    set_int(p, "exclusive", next_byte(in) % 2);
    set_int(p, "reverse", next_byte(in) % 2);
    p->n_list = 0;
    if (attr_of(p->op, "edges") != NULL) {
        make_route(p, in);
    } else if (counts != NULL) {
        make_counts(p, in, counts);
    }
    for (int r = 0; r < p->n_ranks; r++) {
        for (int i = 0; i < PLAIT_MAX_ARRAYS; i++) {
            p->args[r][i] = array_in_role(p, shape.arg, r, &row);
            p->rets[r][i] = array_in_role(p, shape.ret, r, &row);
        }
        /* operand 0 is followed by a template of the result, then by pairs of rank and tag */
        p->args[r][1] = p->rets[r][0];
        for (int i = 2; i < PLAIT_MAX_ARRAYS; i++) {
            p->args[r][i] = (fuzz_array_t){.ndim = 1, .dims = {2}, .dtype = PLAIT_S32};
        }
        p->rets[r][1] = p->args[r][2];
    }
    if (dense_of(p->op->name) != NULL) {
        make_dense(p, in, dense_of(p->op->name));
    } else if (strcmp(p->op->model, "mesh") == 0) {
        make_mesh(p, in);
    }
}

/* Changes one number somewhere. */
static inline void make_fault(fuzz_problem_t *p, input_t *in)
{
    int rank = next_byte(in) % p->n_ranks;
    size_t word = (size_t)next_byte(in) % (p->op->params_size / 8);
    fuzz_array_t *array = (next_byte(in) % 2) ? &p->args[rank][0] : &p->rets[rank][0];
    const plait_attr_t *list = NULL;
    int64_t value = next_number(in);

    for (const plait_attr_t *a = p->op->attrs; a->name != NULL; a++) {
        list = (a->kind == PLAIT_PARAM_LIST) ? a : list;
    }
    switch (next_byte(in) % 4) {
    case 0:
        array->dims[next_byte(in) % FUZZ_MAX_NDIM] = (value < 0) ? 0 : value;
        break;
    case 1:
        array->ndim = next_byte(in) % FUZZ_MAX_NDIM;
        break;
    case 2:
        if (list == NULL) { /* a list's address and length are XLA's */
            for (int r = 0; r < p->n_ranks; r++) {
                memcpy(p->params[r] + 8 * word, &value, sizeof(value));
            }
        }
        break;
    default:
        p->list[next_byte(in) % FUZZ_MAX_LIST] = value;
        break;
    }
    for (const plait_attr_t *a = p->op->attrs; a->name != NULL; a++) {
        for (int r = 0; r < p->n_ranks && a->kind == PLAIT_PARAM_ARRAY; r++) {
            int64_t n = 0; /* within what the decoder lets through */
            memcpy(&n, p->params[r] + a->count_offset, sizeof(n));
            n = (n < 0) ? 0 : (n > a->n_max) ? a->n_max : n;
            memcpy(p->params[r] + a->count_offset, &n, sizeof(n));
        }
    }
}

static inline void fuzz_problem(fuzz_problem_t *p, input_t *in, int n_ranks)
{
    int dtype = next_byte(in);
    int way = next_byte(in);

    memset(p, 0, sizeof(*p));
    p->op = plait_op_at(next_byte(in) % plait_op_count());
    p->n_ranks = n_ranks;
    dtype =
        (dtype >= 250) ? dtype - 230 : (int)plait_dtype_at(dtype % plait_dtype_count());
    if (strcmp(p->op->name, "fft") == 0 && way % 4 > 0) {
        dtype = (dtype % 2) ? PLAIT_C64 : PLAIT_C128;
    }
    if (dense_of(p->op->name) != NULL && way % 4 > 0) {
        static const plait_dtype_t numbers[] = {PLAIT_F32, PLAIT_F64, PLAIT_C64,
                                                PLAIT_C128};
        dtype = (int)numbers[dtype % 4];
    }
    fill_params(p, in);
    for (int r = 0; r < n_ranks; r++) {
        for (int i = 0; i < PLAIT_MAX_ARRAYS; i++) {
            p->args[r][i] = fuzz_array(in, (plait_dtype_t)dtype);
            p->rets[r][i] = fuzz_array(in, (plait_dtype_t)dtype);
        }
    }
    if (way % 4 > 0) {
        make_sense(p, in);
    }
    if (way % 4 == 1) {
        make_fault(p, in);
    }
}

static inline plait_array_t plain_array(const fuzz_array_t *array, void *data)
{
    return (plait_array_t){
        .dtype = array->dtype, .ndim = array->ndim, .dims = array->dims, .data = data};
}

/* Bytes of an array, -1 if there are more than `most`. An element of unknown type counts as 16. */
static inline int64_t fuzz_bytes(const fuzz_array_t *array, int64_t most)
{
    int64_t item = plait_dtype_bytes(array->dtype);
    int64_t n = (item > 0) ? item : 16;

    for (int d = 0; d < array->ndim && n >= 0; d++) {
        n = (array->dims[d] == 0)         ? 0
            : (n > most / array->dims[d]) ? -1
                                          : n * array->dims[d];
    }
    for (int d = 0; d < array->ndim; d++) {
        n = (array->dims[d] == 0) ? 0 : n;
    }
    return n;
}

static inline void fault(const fuzz_problem_t *p, const char *what)
{
    printf("%s, %d ranks: %s (%s)\n", p->op->name, p->n_ranks, what,
           plait_error_text());
    (void)fflush(stdout);
    abort();
}

#ifndef PLAIT_FUZZ

static void run_file(const char *path)
{
    static uint8_t data[1 << 16];
    FILE *file = fopen(path, "rb");

    if (file == NULL) {
        perror(path);
        exit(2);
    }
    size_t n = fread(data, 1, sizeof(data), file);
    (void)fclose(file);
    (void)LLVMFuzzerTestOneInput(data, n);
}

int main(int argc, char **argv)
{
    enum { MAX_INPUT = 400 };
    int n_inputs = is_quick() ? 4000 : 20000;
    uint64_t state = 1;

    for (int i = 1; i < argc; i++) {
        run_file(argv[i]);
    }
    for (int i = 0; i < n_inputs && argc == 1; i++) {
        uint8_t data[MAX_INPUT];
        for (int k = 0; k < MAX_INPUT; k++) {
            state =
                state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            data[k] = (uint8_t)(state >> 56);
        }
        (void)LLVMFuzzerTestOneInput(data, MAX_INPUT);
        n_checked++;
    }
    CHECK(argc > 1 || n_far > n_inputs / 8, "%lld inputs of %d came far enough",
          (long long)n_far, n_inputs);
    printf("fuzz: %d checks, %d failed\n", n_checked, n_failed);
    return n_failed != 0;
}

#endif

#endif
