/* One shared transform for all plans that need the same: plans for both directions of a step, for each axis,
 * and for every device of a process. For a prime length near a million the tables of a transform have 96 MB
 * and take 0.7 s to make. */
#include "base/alloc.h"
#include "base/status.h"
#include "kernel/fft_plan.h"

#include <pthread.h>

enum { N_BUCKETS = 256 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t made = PTHREAD_COND_INITIALIZER;
static plait_fft1_t *buckets[N_BUCKETS];

/* In a forked child nobody completes what other threads had begun. Transforms that exist stay with their
 * holders. */
static void forget_all(void)
{
    (void)pthread_mutex_init(&mutex, NULL);
    (void)pthread_cond_init(&made, NULL);
    for (int b = 0; b < N_BUCKETS; b++) {
        buckets[b] = NULL;
    }
}

static void prepare_for_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget_all);
}

static plait_fft1_t **bucket_of(int64_t n)
{
    return &buckets[n % N_BUCKETS];
}

static bool is_same(const plait_wave_t *a, const plait_wave_t *b)
{
    return a->type == b->type && a->is_sine == b->is_sine && a->edge_in == b->edge_in &&
           a->edge_out == b->edge_out;
}

/* To be called under the mutex. */
static plait_fft1_t *find(const plait_fft1_t *like)
{
    plait_fft1_t *fft = *bucket_of(like->n);

    while (fft != NULL && !(fft->n == like->n && fft->dtype == like->dtype &&
                            fft->sign == like->sign && fft->scale == like->scale &&
                            is_same(&fft->wave, &like->wave))) {
        fft = fft->next;
    }
    return fft;
}

/* To be called under the mutex. */
static void take_out(const plait_fft1_t *fft)
{
    plait_fft1_t **place = bucket_of(fft->n);

    while (*place != NULL && *place != fft) {
        place = &(*place)->next;
    }
    if (*place != NULL) {
        *place = fft->next;
    }
}

/* To be called under the mutex, which is released meanwhile: making a transform asks for others, of other
 * lengths. */
static plait_status_t make(plait_fft1_t *fft)
{
    const int64_t before = plait_alloc_tally();

    fft->next = *bucket_of(fft->n);
    *bucket_of(fft->n) = fft;
    (void)pthread_mutex_unlock(&mutex);
    plait_status_t status = plait_fft_make(fft);
    (void)pthread_mutex_lock(&mutex);
    fft->is_made = status == PLAIT_OK;
    fft->n_users = 1;
    fft->n_bytes = plait_alloc_tally() - before;
    if (!fft->is_made) {
        take_out(fft);
    }
    (void)pthread_cond_broadcast(&made);
    return status;
}

static plait_status_t create(const plait_fft1_t *like, plait_fft1_t **fft_p)
{
    plait_status_t status = PLAIT_OK;
    plait_fft1_t *fresh = plait_alloc(1, sizeof(*fresh));
    bool is_held = false;

    PLAIT_CHECK(fresh != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a transform");
    *fresh = *like;
    PLAIT_TRY(plait_fft_check(fresh));
    (void)pthread_once(&once, prepare_for_forks);
    (void)pthread_mutex_lock(&mutex);
    is_held = true;
    plait_fft1_t *found = find(fresh);
    while (found != NULL && !found->is_made) {
        (void)pthread_cond_wait(&made, &mutex);
        found = find(fresh);
    }
    if (found != NULL) {
        found->n_users++;
        plait_alloc_share(found->n_bytes);
        *fft_p = found;
    } else {
        PLAIT_TRY(make(fresh));
        *fft_p = fresh;
        fresh = NULL;
    }
done:
    if (is_held) {
        (void)pthread_mutex_unlock(&mutex);
    }
    if (fresh != NULL) {
        plait_fft_unmake(fresh);
    }
    return status;
}

plait_status_t plait_fft1_create(int64_t n, plait_dtype_t dtype, int sign, double scale,
                                 plait_fft1_t **fft_p)
{
    const plait_fft1_t like = {.n = n, .dtype = dtype, .sign = sign, .scale = scale};

    return create(&like, fft_p);
}

plait_status_t plait_fft1_create_wave(int64_t n, plait_dtype_t dtype,
                                      const plait_wave_t *wave, double scale,
                                      plait_fft1_t **fft_p)
{
    const plait_fft1_t like = {
        .n = n, .dtype = dtype, .sign = 1, .scale = scale, .wave = *wave};

    return create(&like, fft_p);
}

void plait_fft1_destroy(plait_fft1_t **fft_p)
{
    plait_fft1_t *fft = *fft_p;
    bool is_last = false;

    if (fft != NULL) {
        (void)pthread_mutex_lock(&mutex);
        fft->n_users--;
        is_last = fft->n_users == 0;
        if (is_last) {
            take_out(fft);
        } else {
            plait_alloc_share(-fft->n_bytes);
        }
        (void)pthread_mutex_unlock(&mutex);
    }
    if (is_last) {
        plait_fft_unmake(fft);
    }
    *fft_p = NULL;
}
