/* Where the elements of a distributed array are: index arithmetic only, no data.
 *
 * Ranks form a grid: a rank is the row-major index of its coordinates. Each array axis is whole, or it is
 * split over one or several grid axes, whose coordinates are joined, the first one slowest. Grid axes that
 * split nothing hold replicas. Each rank owns, per array axis, an ordered list of index intervals. Its local
 * array is the product of these lists, row-major. */
#ifndef PLAIT_LAYOUT_H
#define PLAIT_LAYOUT_H

#include "plait/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PLAIT_MAX_NDIM = 8, PLAIT_MAX_GRID = 4, PLAIT_LAYOUT_WORDS = 64 };

typedef enum {
    PLAIT_SPLIT_WHOLE = 0, /* every rank has the whole axis */
    PLAIT_SPLIT_EVEN = 1,  /* floor(n/P) each, the first n mod P coordinates one more */
    PLAIT_SPLIT_CEIL =
        2, /* ceil(n/P) each, the last ones fewer or none: JAX's shards */
    PLAIT_SPLIT_CYCLIC = 3 /* blocks of `block` dealt out in turn */
} plait_split_t;

typedef struct {
    plait_split_t split;
    int n_grid;                    /* grid axes that split this array axis */
    int grid_axis[PLAIT_MAX_GRID]; /* which ones, slowest first */
    int64_t block;                 /* CYCLIC: >= 1. CEIL: per rank; 0: ceil(n/P) */
} plait_axis_t;

/* Plain data; fill it by hand or with plait_layout_pencil, then call plait_layout_check. */
typedef struct {
    int ndim;                      /* 1..PLAIT_MAX_NDIM */
    int64_t shape[PLAIT_MAX_NDIM]; /* global shape, elements; 0 is legal */
    int grid_ndim;                 /* 1..PLAIT_MAX_GRID */
    int grid[PLAIT_MAX_GRID];      /* extents, >= 1; their product is the rank count */
    plait_axis_t axis[PLAIT_MAX_NDIM];
    /* Extents of every rank's array in memory, if they are larger than what the rank owns. The rest lies
     * behind along the axis; it is never read, and is zero in results. 0: not larger. */
    int64_t stored[PLAIT_MAX_NDIM];
} plait_layout_t;

/* Half-open interval of global indices. */
typedef struct {
    int64_t lo, hi;
} plait_interval_t;

/** Makes a layout whose axis a is split over grid axis split_over[a] (-1: whole). All axes follow the rule
 *  `split`; CYCLIC deals out blocks of 1.
 *  Collective: no.  Shapes: shape and split_over have ndim entries, grid has grid_ndim.
 *  Owns: nothing; everything is copied.
 *  Errors: as plait_layout_check; INVALID (NULL).  Source: own. */
PLAIT_EXPORT plait_status_t plait_layout_pencil(int ndim, const int64_t shape[],
                                                int grid_ndim, const int grid[],
                                                const int split_over[],
                                                plait_split_t split,
                                                plait_layout_t *layout_p);

/** Whether the numbers in a layout make sense.
 *  Collective: no.  Shapes: none.  Owns: nothing.
 *  Errors: INVALID, with the field and its value; OVERFLOW (2^31 ranks or 2^57 elements, or
 *  more).  Source: own. */
PLAIT_EXPORT plait_status_t plait_layout_check(const plait_layout_t *layout);

/** Number of ranks: the product of the grid.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT int plait_layout_n_ranks(const plait_layout_t *layout);

/** Shape of the local array of `rank`.
 *  Collective: no.  Shapes: local_shape gets ndim entries; each may be 0.
 *  Owns: nothing.  Errors: none; the layout was checked, 0 <= rank < n_ranks.
 *  Source: own. */
PLAIT_EXPORT void plait_layout_local_shape(const plait_layout_t *layout, int rank,
                                           int64_t local_shape[]);

/** Shape of the array of `rank` in memory: as plait_layout_local_shape, or what is stored.
 *  Collective: no.  Shapes: stored_shape gets ndim entries.
 *  Owns: nothing.  Errors: none; the layout was checked, 0 <= rank < n_ranks.
 *  Source: own. */
PLAIT_EXPORT void plait_layout_stored_shape(const plait_layout_t *layout, int rank,
                                            int64_t stored_shape[]);

/** Number of index intervals that `rank` owns along `axis`: 0 or 1, unless the split is CYCLIC.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT int64_t plait_layout_n_intervals(const plait_layout_t *layout, int rank,
                                              int axis);

/** The k-th index interval that `rank` owns along `axis`; *local_p gets the local index of its start, local_p
 *  may be NULL.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT plait_interval_t plait_layout_interval(const plait_layout_t *layout,
                                                    int rank, int axis, int64_t k,
                                                    int64_t *local_p);

/** Whether two layouts describe the same distribution, field by field.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT bool plait_layout_equal(const plait_layout_t *a, const plait_layout_t *b);

/** Writes a layout as int64 words, in which form it travels as an attribute; returns their number.
 *  Words: ndim, shape..., grid_ndim, grid..., then per axis: split, block, n_grid,
 *  grid_axis..., stored.
 *  Collective: no.  Shapes: words has room for PLAIT_LAYOUT_WORDS.  Owns: nothing.
 *  Errors: none.  Source: own. */
PLAIT_EXPORT int plait_layout_pack(const plait_layout_t *layout, int64_t words[]);

/** The inverse of plait_layout_pack; checks the layout.
 *  Collective: no.  Shapes: words has n_words entries.  Owns: nothing.
 *  Errors: INVALID (too few or too many words); as plait_layout_check.  Source: own. */
PLAIT_EXPORT plait_status_t plait_layout_unpack(const int64_t words[], int64_t n_words,
                                                plait_layout_t *layout_p);

/** Writes a layout as one line for people. In "256x256x256 over 2x1: /0 whole whole" axis 0 is split over
 *  grid axis 0 by PLAIT_SPLIT_EVEN. "|0" is CEIL, "%0b64" is CYCLIC with blocks of 64 in turn.
 *  Collective: no.  Shapes: none.  Owns: nothing; writes at most n_bytes.
 *  Errors: none.  Source: own. */
PLAIT_EXPORT void plait_layout_print(const plait_layout_t *layout, char *text,
                                     int n_bytes);

#ifdef __cplusplus
}
#endif
#endif
