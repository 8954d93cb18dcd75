/* Where the kernels of a reduction (hetrd.h) find its data, and which parts of it they touch. */
#ifndef PLAIT_DENSE_HETRD_MEMORY_H
#define PLAIT_DENSE_HETRD_MEMORY_H

#include "dense/hetrd.h"

/* d, e and tau are stored above a reflector, so that one message carries all of it. */
enum { PLAIT_HETRD_HEAD = 2 };

/* What a kernel of one column works on. */
typedef struct {
    plait_hetrd_t h;
    int64_t j; /* column */
} plait_hetrd_step_t;

/* Bytes of an element; number of this rank's piece among the pieces that are kept. */
int64_t plait_hetrd_item(const plait_hetrd_t *h);
int64_t plait_hetrd_own_piece(const plait_hetrd_t *h);

/* Byte offset in the panel of this rank's part of a sum, from row 0; number of this rank's columns. */
int64_t plait_hetrd_part_at(const plait_hetrd_t *h);
int64_t plait_hetrd_n_owned(const plait_hetrd_t *h);

/* The matrix column that local column l is. The first local column at or behind column j of the matrix. Whether
 * this rank owns column j. */
int64_t plait_hetrd_column(const plait_hetrd_t *h, int64_t l);
int64_t plait_hetrd_local(const plait_hetrd_t *h, int64_t j);
bool plait_hetrd_is_owner(const plait_hetrd_t *h, int64_t j);

/* Columns [from, to) of a rank's part, in one block or in whole small blocks. plait_hetrd_chunk: from local
 * column l on, at most n columns. */
typedef struct {
    int64_t from, to;
} plait_hetrd_chunk_t;

plait_hetrd_chunk_t plait_hetrd_chunk(const plait_hetrd_t *h, int64_t l, int64_t n);

/* Byte offset of row `row` of vector c, from the beginning of the panel: v0 w0 v1 w1 ... */
int64_t plait_hetrd_pair_at(const plait_hetrd_t *h, int64_t c, int64_t row);

/* Addresses in a rank's memory while a kernel runs: an offset of the panel; row `row` of its vector c; of a
 * vector that is summed, this rank's part, or the sum; row `row` of a local column. */
char *plait_hetrd_panel(const plait_hetrd_t *h, const plait_exec_t *exec,
                        int64_t offset);
char *plait_hetrd_pair(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t c,
                       int64_t row);
char *plait_hetrd_part(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t row);
char *plait_hetrd_sum(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t row);
char *plait_hetrd_at(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t l,
                     int64_t row);

/* For kernels' touch functions. */
typedef struct {
    plait_touch_fn_t touch;
    void *context;
    const plait_hetrd_t *h;
} plait_hetrd_touch_t;

/* Columns at an offset of a slot, if there are any; bytes of the panel; rows [row, n) of n_columns vectors of
 * the panel; rows [j, n) of this rank's columns from j on. */
void plait_hetrd_touch_columns(const plait_hetrd_touch_t *t, bool is_write, int slot,
                               int64_t offset, int64_t n_rows, int64_t n_columns,
                               int64_t ld);
void plait_hetrd_touch_bytes(const plait_hetrd_touch_t *t, bool is_write,
                             int64_t offset, int64_t n_bytes);
void plait_hetrd_touch_pairs(const plait_hetrd_touch_t *t, bool is_write, int64_t first,
                             int64_t n_columns, int64_t row);
void plait_hetrd_touch_trailing(const plait_hetrd_touch_t *t, bool is_write, int64_t j);

/* Kernels with plait_hetrd_t as params: they copy the operand and find its largest element, and scale the copy
 * (hetrd_copy.c). With plait_hetrd_step_t: a product with the trailing matrix (hetrd_product.c). */
extern const plait_kernel_t plait_hetrd_copy_kernel;
extern const plait_kernel_t plait_hetrd_scale_kernel;
extern const plait_kernel_t plait_hetrd_product_kernel;

#endif
