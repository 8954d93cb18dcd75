#include "dense_scratch.h"

#include "rounds.h"

#include <stdlib.h>

void dense_scratch_create(dense_scratch_t *s, int64_t n_side)
{
    *s = (dense_scratch_t){.side = calloc((size_t)n_side, sizeof(double)),
                           .pivots = calloc((size_t)n_side, sizeof(int))};
    bench_must(s->side != NULL && s->pivots != NULL, "out of memory");
}

void dense_scratch_destroy(dense_scratch_t *s)
{
    free(s->side);
    free(s->pivots);
    free(s->work);
    free(s->ints);
}

void dense_scratch_ask(dense_scratch_t *s, void (*run)(void *state), void *state,
                       int64_t n_more)
{
    double size = 0;
    int int_size = 1;

    s->work = &size;
    s->ints = &int_size;
    s->n_work = s->n_ints = -1;
    run(state);
    s->n_work = (int)(size + (double)n_more);
    s->work = bench_alloc((size_t)s->n_work * sizeof(double));
    s->n_ints = int_size;
    s->ints = calloc((size_t)s->n_ints, sizeof(int));
    bench_must(s->ints != NULL, "out of memory");
}
