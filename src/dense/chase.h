/* The second stage of a reduction in two (band.h): from a band to tridiagonal form, T = Q^H B Q, on the
 * rank that has the band.
 *
 * Sweep s brings column s to its form in T. Its first reflector, which has as many rows as the band has
 * diagonals, fills a bulge below the band. The next reflector, on the next rows, removes the first column of
 * this bulge and makes a bulge further down; this goes on to the end of the band. Later sweeps work on what
 * is left of the bulges. Step k of a sweep follows step k + 1 of the sweep before. So several sweeps go down
 * one behind the other while their part of the band is in cache.
 *
 * If reflectors are kept, groups of sweeps are dealt out to the ranks. The reflectors of step k of a group
 * make one block reflector with a V that is as high as the band and the group are wide together. Within a
 * group the first steps are applied first; of the groups the last one is applied first. (Reflectors of a step
 * commute with all others except those of the next step in earlier sweeps.)
 * Source: Murata, Horikoshi, J. Inf. Process. Japan 3, 1980; Lang, SIAM J. Sci. Comput. 14, 1993;
 * Auckenthaler et al., Parallel Comput. 37, 2011; LAPACK's hb2st_kernels. */
#ifndef PLAIT_DENSE_CHASE_H
#define PLAIT_DENSE_CHASE_H

#include "dense/band.h"

/* Sweeps of a group, and groups that are applied to vectors together. */
enum { PLAIT_CHASE_SWEEPS = 16, PLAIT_CHASE_GROUPS = 4 };

/* Bytes of a rank's reflectors, and of a group. */
int64_t plait_chase_bytes(const plait_hetrd_t *h);
int64_t plait_chase_group_bytes(const plait_hetrd_t *h);

/* Adds the steps. Afterwards d and e of T are in `panel` on all ranks. */
plait_status_t plait_chase_add(plait_plan_t *plan, const plait_band_t *b);

/* From vectors of T to vectors of the band; each rank works on its own columns. */
typedef struct {
    plait_band_t b;
    int z;             /* slot of this rank's columns, leading dimension n */
    int64_t n_columns; /* columns in z */
    int reflectors;    /* work slot for PLAIT_CHASE_GROUPS groups */
} plait_chase_back_t;

plait_status_t plait_chase_back_add(plait_plan_t *plan, const plait_chase_back_t *c);

/* A group of sweeps: its first sweep, the number of sweeps, and the first row of its first reflector. In memory
 * the reflectors of a sweep follow each other, at the rows where they act; sweeps are n elements apart. The
 * factors follow; there sweeps are as far apart as the longest sweep has steps. */
typedef struct {
    int64_t first, n_sweeps, row;
    int owner;
    int64_t at; /* byte offset in the owner's `sweeps` */
} plait_chase_group_t;

int64_t plait_chase_n_groups(const plait_hetrd_t *h);
plait_chase_group_t plait_chase_group(const plait_hetrd_t *h, int64_t g);

/* Steps of the first sweep; byte offset of the factors in a group. */
int64_t plait_chase_n_steps(const plait_hetrd_t *h);
int64_t plait_chase_tau(const plait_hetrd_t *h);

/* The group's data, rows of the reflectors and factors, as blocks. `place` says where the group is and where it
 * goes. */
enum { PLAIT_CHASE_BLOCKS = 2 };
void plait_chase_blocks(const plait_hetrd_t *h, const plait_chase_group_t *g,
                        const plait_block_t *place,
                        plait_block_t blocks[PLAIT_CHASE_BLOCKS]);

#endif
