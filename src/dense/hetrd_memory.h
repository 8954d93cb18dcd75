/* Where the kernels of a reduction (hetrd.h) find its data, and which parts of it they touch. */
#ifndef PLAIT_DENSE_HETRD_MEMORY_H
#define PLAIT_DENSE_HETRD_MEMORY_H

#include "dense/hetrd.h"

/* d, e and tau stand above a reflector, so that all of it is one message. */
enum { PLAIT_HETRD_HEAD = 2 };

/* What a kernel of one column works on. */
typedef struct {
    plait_hetrd_t h;
    int64_t j; /* column */
} plait_hetrd_step_t;

/* Bytes of an element; which of the kept pieces is this rank's; how many columns it has. */
int64_t plait_hetrd_item(const plait_hetrd_t *h);
int64_t plait_hetrd_own_piece(const plait_hetrd_t *h);

/* Byte offset in the panel of this rank's part of a sum, from row 0. */
int64_t plait_hetrd_part_at(const plait_hetrd_t *h);
int64_t plait_hetrd_n_owned(const plait_hetrd_t *h);

/* Of a local column: which one it is. The first local column that is column j of the matrix or behind
 * it. Whether column j is a local one. */
int64_t plait_hetrd_column(const plait_hetrd_t *h, int64_t l);
int64_t plait_hetrd_local(const plait_hetrd_t *h, int64_t j);
bool plait_hetrd_is_owner(const plait_hetrd_t *h, int64_t j);

/* Columns [from, to) of a rank's part, of one block or of whole small ones: those from local column l on, n at
 * most. */
typedef struct {
    int64_t from, to;
} plait_hetrd_chunk_t;

plait_hetrd_chunk_t plait_hetrd_chunk(const plait_hetrd_t *h, int64_t l, int64_t n);

/* Row `row` of vector c of the panel, from its beginning: v0 w0 v1 w1 ... */
int64_t plait_hetrd_pair_at(const plait_hetrd_t *h, int64_t c, int64_t row);

/* Memory of a rank while a kernel runs: at an offset of the panel; row `row` of vector c of it; of a
 * vector that is summed, this rank's part, or the sum; row `row` of a local column. */
char *plait_hetrd_panel(const plait_hetrd_t *h, const plait_exec_t *exec,
                        int64_t offset);
char *plait_hetrd_pair(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t c,
                       int64_t row);
char *plait_hetrd_part(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t row);
char *plait_hetrd_sum(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t row);
char *plait_hetrd_at(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t l,
                     int64_t row);

/* For kernels' touch. */
typedef struct {
    plait_touch_fn_t touch;
    void *context;
    const plait_hetrd_t *h;
} plait_hetrd_touch_t;

/* Columns at an offset of a slot, if there are any; bytes of the panel; rows [row, n) of n_columns of
 * its vectors; rows [j, n) of this rank's columns from j on. */
void plait_hetrd_touch_columns(const plait_hetrd_touch_t *t, bool is_write, int slot,
                               int64_t offset, int64_t n_rows, int64_t n_columns,
                               int64_t ld);
void plait_hetrd_touch_bytes(const plait_hetrd_touch_t *t, bool is_write,
                             int64_t offset, int64_t n_bytes);
void plait_hetrd_touch_pairs(const plait_hetrd_touch_t *t, bool is_write, int64_t first,
                             int64_t n_columns, int64_t row);
void plait_hetrd_touch_trailing(const plait_hetrd_touch_t *t, bool is_write, int64_t j);

/* Kernels of plait_hetrd_t: the operand to the copy, and its largest element (hetrd_copy.c); and of
 * plait_hetrd_step_t: a product with the trailing matrix (hetrd_product.c). */
extern const plait_kernel_t plait_hetrd_copy_kernel;
extern const plait_kernel_t plait_hetrd_scale_kernel;
extern const plait_kernel_t plait_hetrd_product_kernel;

#endif
