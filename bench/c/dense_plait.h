/* Dense operations of the C library on any communicator, on matrices of doubles. */
#ifndef BENCH_DENSE_PLAIT_H
#define BENCH_DENSE_PLAIT_H

#include "check_dense.h"
#include "plait/comm.h"
#include "plait/plan.h"

typedef struct dense_plait dense_plait_t;

typedef struct {
    const char *name;
    bool is_in_place; /* works on a copy of the operand */
    void (*plan)(dense_plait_t *d);
    void (*run)(dense_plait_t *d);
} dense_steps_t;

struct dense_plait {
    plait_comm_t *comm;
    const dense_op_t *op;
    const dense_steps_t *steps;
    int64_t n, block;
    matrix_t operand;
    matrix_t work;   /* its copy, or nothing */
    matrix_t result; /* may be the same memory */
    double *side;    /* eigenvalues, factors of reflectors */
    int32_t *pivots;
    plait_plan_t *plan;
};

/* The operand is there, and the plan is made. Of potri the operand is a factor. Collective. */
void dense_plait_create(dense_plait_t *d, plait_comm_t *comm, const char *op, int64_t n,
                        int64_t block);
void dense_plait_destroy(dense_plait_t *d);

/* For bench_case_t. */
void dense_plait_prepare(void *state);
void dense_plait_run(void *state);

/* After a run. Collective over the team. */
double dense_plait_residual(team_t *team, const dense_plait_t *d);

/* Makes the plan once more; seconds. */
double dense_plait_plan(dense_plait_t *d);

/* Bytes besides operand and result. */
int64_t dense_plait_extra(const dense_plait_t *d);

/* Names the library for PLAIT_BLAS; before the first plan. Text for facts: which functions plait and
 * this program call. It must be the same ones. */
void dense_blas_choose(void);
void dense_blas_facts(char *text, size_t n_text);

#endif
