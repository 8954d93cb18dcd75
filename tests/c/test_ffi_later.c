/* XLA handlers whose calls complete later, by a future, and operations that are started and waited for, driven
 * with call frames made by hand. */
#include "base/site.h"
#include "check.h"
#include "comm/registry.h"
#include "device/pool.h"
#include "frames.h"
#include "plan/lanes.h"
#include "plan/launch.h"
#include "plan/started.h"

#include <string.h>

plait_ffi_error_t *plait_ffi_allreduce(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_start_allreduce(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_start_recv(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_start_send(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_wait(plait_ffi_frame_t *frame);

enum { LARGE = 200000 }; /* doubles: beyond what is done on XLA's thread */

typedef struct {
    call_t call;
    int n; /* of what it sums */
    int64_t sum;
    int64_t words[3]; /* of the result: float64, one axis */
    double x[LARGE], y[LARGE];
    float pair[2];
} large_t;

static large_t *sized_create(const int64_t *id, double value, int n)
{
    large_t *l = calloc(1, sizeof(*l));

    l->n = n;
    for (int i = 0; i < LARGE; i++) {
        l->x[i] = value * i;
    }
    l->words[0] = PLAIT_F64;
    l->words[1] = 1;
    l->words[2] = LARGE;
    call_init(&l->call);
    add_buffer(&l->call, 0, PLAIT_F64, n, l->x);
    add_buffer(&l->call, 1, PLAIT_F64, n, l->y);
    add_scalar(&l->call, "comm", id);
    add_scalar(&l->call, "reduce", &l->sum);
    return l;
}

static large_t *large_create(const int64_t *id, double value)
{
    return sized_create(id, value, LARGE);
}

/* Makes the frame one that only starts the call. */
static void make_start(large_t *l)
{
    l->call.frame.rets.size = 0;
    add_buffer(&l->call, 1, PLAIT_F32, 2, l->pair);
    add_array(&l->call, "results", l->words, 3);
}

static const int64_t one = 1;

/* Then makes the frame one that waits for the call. */
static void make_wait(large_t *l)
{
    call_init(&l->call);
    add_buffer(&l->call, 0, PLAIT_F32, 2, l->pair);
    add_buffer(&l->call, 0, PLAIT_F64, LARGE, l->x); /* had to be there first */
    add_buffer(&l->call, 1, PLAIT_F64, LARGE, l->y);
    add_scalar(&l->call, "n_after", &one);
}

static void check_sum(const large_t *l, double value)
{
    int n_wrong = 0;

    for (int i = 0; i < l->n; i++) {
        n_wrong += l->y[i] != value * i;
    }
    CHECK(n_wrong == 0, "%d of %d are wrong", n_wrong, l->n);
}

static void check_later(int64_t id)
{
    large_t *l = large_create(&id, 1);
    plait_ffi_error_t *error = plait_ffi_allreduce(&l->call.frame);

    CHECK(l->call.frame.future != NULL, "a large call is complete later");
    memset(&l->call.dims, -1, sizeof(l->call.dims)); /* the frame is dead now */
    memset(&l->call.scalars, 0, sizeof(l->call.scalars));
    CHECK(is_fine(&l->call.frame, error), "%s", message);
    check_sum(l, 1);
    free(l);
    l = large_create(&id, 1);
    l->call.buffers[1][0].dtype = PLAIT_F32;
    error = plait_ffi_allreduce(&l->call.frame);
    CHECK(l->call.frame.future != NULL && !is_fine(&l->call.frame, error) &&
              strstr(message, "plait.ArgumentError: rank 0 of communicator #") ==
                  message &&
              strstr(message, "operand is float64, result is float32") != NULL,
          "%s", message);
    free(l);
    CHECK(plait_in_flight() == 0, "%lld in flight", (long long)plait_in_flight());
}

enum { DEVICES = 4, SMALL = 3 };

/* One thread calls the handlers of all devices: no call may wait for another, not even small calls. The last
 * small call finds the others there, and completes at once. */
static void check_devices_later(int64_t id, const int32_t ordinals[], int n)
{
    large_t *l[DEVICES];
    plait_ffi_error_t *errors[DEVICES];

    for (int d = 0; d < DEVICES; d++) {
        my_ordinal = ordinals[d];
        l[d] = sized_create(&id, d + 1, n);
        errors[d] = plait_ffi_allreduce(&l[d]->call.frame);
        CHECK((l[d]->call.frame.future != NULL) == (n == LARGE || d < DEVICES - 1),
              "device %d, %d elements", d, n);
    }
    for (int d = 0; d < DEVICES; d++) {
        CHECK(is_fine(&l[d]->call.frame, errors[d]), "%s", message);
        check_sum(l[d], DEVICES * (DEVICES + 1) / 2);
        free(l[d]);
    }
}

/* Starts two operations, calls a plain one, then waits for both, the second first. */
static void check_started(int64_t id, const int32_t ordinals[])
{
    large_t *l[DEVICES][3];
    plait_ffi_error_t *errors[DEVICES][3];

    for (int d = 0; d < DEVICES; d++) {
        my_ordinal = ordinals[d];
        for (int k = 0; k < 3; k++) {
            l[d][k] = large_create(&id, (d + 1) * (k + 1));
            if (k < 2) {
                make_start(l[d][k]);
                CHECK(plait_ffi_start_allreduce(&l[d][k]->call.frame) == NULL, "%s",
                      message);
                memset(l[d][k]->x, -1, sizeof(l[d][k]->x)); /* copied by then */
                make_wait(l[d][k]);
            }
        }
        errors[d][2] = plait_ffi_allreduce(&l[d][2]->call.frame);
        for (int k = 1; k >= 0; k--) {
            errors[d][k] = plait_ffi_wait(&l[d][k]->call.frame);
        }
    }
    for (int d = 0; d < DEVICES; d++) {
        for (int k = 0; k < 3; k++) {
            CHECK(is_fine(&l[d][k]->call.frame, errors[d][k]), "%s", message);
            check_sum(l[d][k], (k + 1.0) * (double)(DEVICES * (DEVICES + 1) / 2));
            free(l[d][k]);
        }
    }
    CHECK(plait_started_count() == 0, "%lld are left",
          (long long)plait_started_count());
}

/* Starts receives before sends, with messages that no buffer holds. */
static void check_started_transfers(int64_t id, const int32_t ordinals[])
{
    const int64_t zero = 0;
    large_t *in[2];
    large_t *out[2];

    for (int d = 0; d < 2; d++) {
        const int64_t peer = 1 - d;
        my_ordinal = ordinals[d];
        in[d] = large_create(&id, 0);
        in[d]->call.frame.attrs.size = 1;
        make_start(in[d]);
        add_scalar(&in[d]->call, "source", &peer);
        add_scalar(&in[d]->call, "status", &zero);
        add_scalar(&in[d]->call, "tag", &zero);
        CHECK(plait_ffi_start_recv(&in[d]->call.frame) == NULL, "%s", message);
        make_wait(in[d]);
        out[d] = large_create(&id, d + 1);
        out[d]->call.frame.attrs.size = 1;
        make_start(out[d]);
        out[d]->call.frame.attrs.size = 1;
        add_scalar(&out[d]->call, "dest", &peer);
        add_array(&out[d]->call, "results", out[d]->words, 0);
        add_scalar(&out[d]->call, "tag", &zero);
        CHECK(plait_ffi_start_send(&out[d]->call.frame) == NULL, "%s", message);
        make_wait(out[d]);
        out[d]->call.frame.rets.size = 0;
    }
    for (int d = 0; d < 2; d++) {
        CHECK(is_fine(&in[d]->call.frame, plait_ffi_wait(&in[d]->call.frame)), "%s",
              message);
        CHECK(is_fine(&out[d]->call.frame, plait_ffi_wait(&out[d]->call.frame)), "%s",
              message);
        check_sum(in[d], 2 - d);
        free(in[d]);
        free(out[d]);
    }
}

/* The wait reports the failure, with the line of the start. */
static void check_started_failures(int64_t id)
{
    int64_t site = plait_site_put(78, "program.py:42");
    large_t *l = large_create(&id, 1);
    const int64_t none = 0;

    make_start(l);
    l->call.frame.attrs.size--;
    add_array(&l->call, "results", l->words, 2);
    CHECK(plait_ffi_start_allreduce(&l->call.frame) != NULL &&
              strstr(message, "results is too short") != NULL,
          "%s", message);
    l->call.frame.attrs.size--;
    add_array(&l->call, "results", l->words, 3);
    add_scalar(&l->call, "site", &site);
    l->words[0] = PLAIT_F32;
    CHECK(plait_ffi_start_allreduce(&l->call.frame) == NULL, "%s", message);
    make_wait(l);
    CHECK(!is_fine(&l->call.frame, plait_ffi_wait(&l->call.frame)) &&
              strstr(message, "operand is float64, result is float32") != NULL &&
              strstr(message, " at program.py:42") != NULL,
          "%s", message);
    CHECK(!is_fine(&l->call.frame, plait_ffi_wait(&l->call.frame)) &&
              strstr(message, "no operation with number") != NULL,
          "a second wait: %s", message);
    free(l);
    l = large_create(&id, 1);
    make_start(l);
    CHECK(plait_ffi_start_allreduce(&l->call.frame) == NULL, "%s", message);
    CHECK(plait_started_count() == 1, "started");
    plait_started_forget((int64_t)l->pair[0] * (1 << 20) + (int64_t)l->pair[1]);
    plait_started_forget(none);
    CHECK(plait_started_count() == 0, "forgotten");
    while (plait_in_flight() > 0) {
    }
    free(l);
}

static void check_lanes(void)
{
    const plait_lanes_t collective = {true, PLAIT_ANY, PLAIT_ANY, PLAIT_ANY};
    const plait_lanes_t to_1 = {false, 1, PLAIT_NO_RANK, PLAIT_ANY};
    const plait_lanes_t to_2 = {false, 2, PLAIT_NO_RANK, PLAIT_ANY};
    const plait_lanes_t from_1 = {false, PLAIT_NO_RANK, 1, 7};
    const plait_lanes_t from_1_other = {false, PLAIT_NO_RANK, 1, 8};
    const plait_lanes_t from_any = {false, PLAIT_NO_RANK, PLAIT_ANY, 7};
    const plait_lanes_t both = {false, 2, 1, PLAIT_ANY};

    CHECK(plait_lanes_conflict(&collective, &collective), "collectives");
    CHECK(!plait_lanes_conflict(&collective, &both), "collective and transfer");
    CHECK(plait_lanes_conflict(&to_1, &to_1), "to one rank");
    CHECK(!plait_lanes_conflict(&to_1, &to_2), "to two ranks");
    CHECK(!plait_lanes_conflict(&to_1, &from_1), "send and receive");
    CHECK(!plait_lanes_conflict(&from_1, &from_1_other), "two tags");
    CHECK(plait_lanes_conflict(&from_1, &from_any), "any source");
    CHECK(!plait_lanes_conflict(&from_1_other, &from_any), "any source, another tag");
    CHECK(plait_lanes_conflict(&both, &from_1_other), "any tag");
    CHECK(plait_lanes_conflict(&both, &to_2), "one half");
}

static void check_devices(void)
{
    const int32_t ordinals[DEVICES] = {11, 12, 13, 14};
    int n_rounds = is_quick() ? 5 : 30;
    int64_t id = 0;

    CHECK(plait_registry_add_local(DEVICES, ordinals, "test_ffi_later.c", &id) ==
              PLAIT_OK,
          "local");
    for (int round = 0; round < n_rounds; round++) {
        check_devices_later(id, ordinals, LARGE);
        check_devices_later(id, ordinals, SMALL);
        check_started(id, ordinals);
    }
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
    CHECK(plait_registry_add_local(2, ordinals, "test_ffi_later.c", &id) == PLAIT_OK,
          "local");
    for (int round = 0; round < n_rounds; round++) {
        check_started_transfers(id, ordinals);
    }
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
}

int main(void)
{
    int64_t id = 0;
    int64_t before = plait_alloc_balance();

    check_lanes();
    CHECK(plait_registry_add_self("test_ffi_later.c", &id) == PLAIT_OK && id > 0,
          "self");
    check_later(id);
    check_started_failures(id);
    check_devices();
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
    (void)plait_pool_trim();
    /* A page of the registry and the three entries with their labels stay for ever. */
    CHECK(plait_alloc_balance() - before == 1 + 3, "balance %lld",
          (long long)plait_alloc_balance());
    printf("test_ffi_later: %d checks, %d failed\n", n_checked, n_failed);
    return n_failed != 0;
}
