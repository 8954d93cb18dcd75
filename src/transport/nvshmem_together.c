#include "transport/nvshmem_together.h"

#include "base/alloc.h"
#include "base/status.h"
#include "base/wait.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>

struct plait_together {
    plait_nvshmem_job_call_t what;
    sem_t is_inside, may_go;
    bool goes;
    atomic_bool is_over;
    atomic_int n_holders; /* the thread, and its caller: the last one frees this */
    plait_status_t status;
    char why[200];
};

/* The library is in a call that nobody waits for any more: no other call is made. */
static atomic_bool was_given_up;

static void release(plait_together_t *t)
{
    if (atomic_fetch_sub(&t->n_holders, 1) == 1) {
        (void)sem_destroy(&t->is_inside);
        (void)sem_destroy(&t->may_go);
        plait_free(t);
    }
}

static void keep(plait_together_t *t, plait_status_t status)
{
    t->status = status;
    (void)snprintf(t->why, sizeof(t->why), "%s",
                   (status != PLAIT_OK) ? plait_error_text() : "");
}

static void make_call(plait_together_t *t)
{
    const plait_nvshmem_job_call_t *w = &t->what;

    keep(t, (w->pool_bytes > 0) ? w->call->allocate(w->device, w->pool_bytes)
                                : w->call->start(w->device, &w->id, w->n_pes, w->pe));
}

static void *thread_main(void *argument)
{
    plait_together_t *t = argument;
    const plait_device_table_t *table = t->what.device->table;

    keep(t, table->enter(t->what.device));
    const bool is_inside = t->status == PLAIT_OK;
    (void)sem_post(&t->is_inside);
    (void)sem_wait(&t->may_go);
    if (is_inside && t->goes) {
        make_call(t);
    }
    if (is_inside) {
        table->leave(t->what.device);
    }
    atomic_store(&t->is_over, true);
    release(t);
    return NULL;
}

plait_status_t plait_together_can(void)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(!atomic_load(&was_given_up), PLAIT_ERR_UNSUPPORTED,
                "NVSHMEM: this process has given up waiting for its start");
done:
    return status;
}

plait_status_t plait_together_begin(const plait_nvshmem_job_call_t *what,
                                    plait_together_t **together_p)
{
    plait_status_t status = PLAIT_OK;
    plait_together_t *t = NULL;
    pthread_t thread;

    t = plait_alloc(1, sizeof(*t));
    PLAIT_CHECK(t != NULL, PLAIT_ERR_NO_MEMORY, "no memory for NVSHMEM's start");
    t->what = *what;
    atomic_store(&t->n_holders, 2);
    (void)sem_init(&t->is_inside, 0, 0);
    (void)sem_init(&t->may_go, 0, 0);
    if (pthread_create(&thread, NULL, thread_main, t) != 0) {
        atomic_store(&t->n_holders, 1);
        release(t);
        status = plait_fail(PLAIT_ERR_NO_MEMORY, "no thread for NVSHMEM's start");
        goto done;
    }
    (void)pthread_detach(thread);
    (void)sem_wait(&t->is_inside);
    *together_p = t;
    PLAIT_CHECK(t->status == PLAIT_OK, t->status, "%s", t->why);
done:
    return status;
}

void plait_together_go(plait_together_t *t)
{
    t->goes = true;
    (void)sem_post(&t->may_go);
}

plait_status_t plait_together_end(plait_together_t *t)
{
    plait_status_t status = PLAIT_OK;
    plait_wait_t wait = plait_wait_begin("NVSHMEM", -1);

    if (t == NULL) {
        return PLAIT_OK;
    }
    wait.is_begun = t->goes;
    if (!t->goes) {
        (void)sem_post(&t->may_go);
    }
    while (!atomic_load(&t->is_over) && status == PLAIT_OK) {
        status = plait_wait_turn(&wait);
    }
    if (!atomic_load(&t->is_over)) {
        atomic_store(&was_given_up, true);
    } else if (t->goes && status == PLAIT_OK && t->status != PLAIT_OK) {
        status = plait_fail(t->status, "%s", t->why);
    }
    release(t);
    return status;
}
