#include "plan/config.h"

#include "base/status.h"
#include "base/text.h"
#include "device/find.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Stands for no value. */
enum { UNKNOWN = 0xff };

static const char *const backends[] = {"auto", "MPI", "NODE", "NCCL", "NVSHMEM", NULL};
static const char *const exchanges[] = {"fused", "separate", NULL};
static const char *const dense[] = {"auto", "plait", "cuSolverMg", NULL};

typedef struct {
    plait_config_key_t key;
    unsigned families;
    bool is_backend;    /* of communication */
    uint32_t of_device; /* bit v: value v needs arrays on CUDA devices */
} row_t;

enum {
    LINKS_OF_DEVICE = 1 << PLAIT_BACKEND_NCCL | 1 << PLAIT_BACKEND_NVSHMEM,
    DENSE_OF_DEVICE = 1 << PLAIT_DENSE_CUSOLVER_MG
};

static const row_t rows[PLAIT_CONFIG_COUNT] = {
    [PLAIT_CONFIG_TRANSPOSE_BACKEND] =
        {{"transpose_comm_backend", "PLAIT_TRANSPOSE_COMM_BACKEND", backends,
          "how redistributions, and transforms between their axes, reach other ranks"},
         PLAIT_FAMILY_REDIST | PLAIT_FAMILY_FFT,
         true,
         LINKS_OF_DEVICE},
    [PLAIT_CONFIG_HALO_BACKEND] = {{"halo_comm_backend", "PLAIT_HALO_COMM_BACKEND",
                                    backends, "how halo exchanges reach other ranks"},
                                   PLAIT_FAMILY_HALO,
                                   true,
                                   LINKS_OF_DEVICE},
    [PLAIT_CONFIG_TRANSPOSE_EXCHANGE] =
        {{"transpose_exchange", "PLAIT_TRANSPOSE_EXCHANGE", exchanges,
          "whether a transform reads what it transforms next from the other ranks' "
          "memory, or "
          "after it was moved; messages are always separate"},
         PLAIT_FAMILY_FFT,
         false,
         0},
    [PLAIT_CONFIG_DENSE_BACKEND] =
        {{"dense_backend", "PLAIT_DENSE_BACKEND", dense,
          "who factors a matrix, and finds its eigenvalues, on several GPUs of one "
          "process"},
         PLAIT_FAMILY_DENSE,
         false,
         DENSE_OF_DEVICE},
};

/* One more than the value; 0: the environment has not been read. */
static _Atomic int chosen[PLAIT_CONFIG_COUNT];

/* The index of a text among the choices of a key, or UNKNOWN. */
static int find_value(const plait_config_key_t *key, const char *text)
{
    for (int v = 0; key->choices[v] != NULL; v++) {
        if (strcasecmp(key->choices[v], text) == 0) {
            return v;
        }
    }
    return UNKNOWN;
}

static int value_of(int i)
{
    int value = atomic_load_explicit(&chosen[i], memory_order_relaxed);

    if (value == 0) {
        const char *text = getenv(rows[i].key.variable);
        int found =
            (text == NULL || text[0] == '\0') ? 0 : find_value(&rows[i].key, text);
        if (atomic_compare_exchange_strong(&chosen[i], &value, found + 1)) {
            value = found + 1;
        }
    }
    return value - 1;
}

/* Appends a name to a list with commas, as far as there is room; value: belongs to the name, or NULL. */
static void append(char *text, size_t n_bytes, const char *name, const char *value)
{
    plait_text_append(text, n_bytes, "%s%s%s%s", (text[0] != '\0') ? ", " : "", name,
                      (value != NULL) ? " " : "", (value != NULL) ? value : "");
}

/* Leaves out the choices whose bits are in `but`. */
static void list_choices(const plait_config_key_t *key, uint32_t but, char *text,
                         size_t n_bytes)
{
    text[0] = '\0';
    for (int v = 0; key->choices[v] != NULL; v++) {
        if ((but >> v & 1) == 0) {
            append(text, n_bytes, key->choices[v], NULL);
        }
    }
}

static plait_status_t find_key(const char *name, int *i_p)
{
    plait_status_t status = PLAIT_OK;
    char names[256] = "";
    int found = -1;

    for (int i = 0; i < PLAIT_CONFIG_COUNT; i++) {
        found = (strcasecmp(rows[i].key.name, name) == 0) ? i : found;
        append(names, sizeof(names), rows[i].key.name, NULL);
    }
    PLAIT_CHECK(found >= 0, PLAIT_ERR_INVALID,
                "config has no key '%s'; expected one of %s", name, names);
    *i_p = found;
done:
    return status;
}

static plait_status_t fail_device(int i, int value)
{
    char others[128];

    list_choices(&rows[i].key, rows[i].of_device, others, sizeof(others));
    return plait_fail(
        PLAIT_ERR_UNSUPPORTED,
        "%s is %s, which needs arrays on CUDA devices%s; expected one of %s",
        rows[i].key.name, rows[i].key.choices[value],
        plait_device_is_there()
            ? ""
            : " and PLAIT_CUDA=1; this process works in host memory and sees "
              "no device",
        others);
}

static bool is_of_device(int i, int value)
{
    return (rows[i].of_device >> value & 1) != 0;
}

static plait_status_t fail_environment(int i)
{
    char choices[128];
    const char *text = getenv(rows[i].key.variable);

    list_choices(&rows[i].key, 0, choices, sizeof(choices));
    return plait_fail(PLAIT_ERR_INVALID, "%s is '%s'; expected one of %s",
                      rows[i].key.variable, (text != NULL) ? text : "", choices);
}

int plait_config_count(void)
{
    return PLAIT_CONFIG_COUNT;
}

const plait_config_key_t *plait_config_at(int i)
{
    return (i >= 0 && i < PLAIT_CONFIG_COUNT) ? &rows[i].key : NULL;
}

plait_status_t plait_config_set(const char *key, const char *value)
{
    plait_status_t status = PLAIT_OK;
    char choices[128];
    int i = 0;

    PLAIT_CHECK(key != NULL && value != NULL, PLAIT_ERR_INVALID,
                "config: key or value is NULL");
    PLAIT_TRY(find_key(key, &i));
    int found = find_value(&rows[i].key, value);
    list_choices(&rows[i].key, 0, choices, sizeof(choices));
    PLAIT_CHECK(found != UNKNOWN, PLAIT_ERR_INVALID, "%s: '%s'; expected one of %s",
                rows[i].key.name, value, choices);
    if (is_of_device(i, found) && !plait_device_is_there()) {
        status = fail_device(i, found);
        goto done;
    }
    atomic_store(&chosen[i], found + 1);
done:
    return status;
}

plait_status_t plait_config_get(const char *key, const char **value_p)
{
    plait_status_t status = PLAIT_OK;
    int i = 0;

    PLAIT_CHECK(key != NULL && value_p != NULL, PLAIT_ERR_INVALID,
                "config: key or value_p is NULL");
    PLAIT_TRY(find_key(key, &i));
    int value = value_of(i);
    if (value == UNKNOWN) {
        status = fail_environment(i);
        goto done;
    }
    *value_p = rows[i].key.choices[value];
done:
    return status;
}

plait_choices_t plait_choices_now(plait_family_t family)
{
    plait_choices_t choices = 0;

    for (int i = 0; i < PLAIT_CONFIG_COUNT; i++) {
        if ((rows[i].families & (unsigned)family) != 0) {
            choices |= (plait_choices_t)value_of(i) << (8 * i);
        }
    }
    return choices;
}

void plait_choices_print(plait_choices_t choices, char *text, size_t n_bytes)
{
    text[0] = '\0';
    for (int i = 0; i < PLAIT_CONFIG_COUNT; i++) {
        int value = plait_choices_value(choices, i);
        if (value > 0) {
            append(text, n_bytes, rows[i].key.name,
                   (value == UNKNOWN) ? "unknown" : rows[i].key.choices[value]);
        }
    }
}

/* Which links exist, ranks find out together when they first need one. */
static void apply_to_device(int value, plait_caps_t *caps)
{
    static const plait_reach_t reach[] = {
        [PLAIT_BACKEND_AUTO] = PLAIT_REACH_ANY,
        [PLAIT_BACKEND_MPI] = PLAIT_REACH_MPI,
        [PLAIT_BACKEND_NODE] = PLAIT_REACH_NODE,
        [PLAIT_BACKEND_NCCL] = PLAIT_REACH_NCCL,
        [PLAIT_BACKEND_NVSHMEM] = PLAIT_REACH_NVSHMEM,
    };

    if (value != PLAIT_BACKEND_AUTO) {
        caps->reach = reach[value];
    }
}

static plait_status_t apply_backend(int i, int value, const plait_endpoint_t *end,
                                    plait_caps_t *caps)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(value != PLAIT_BACKEND_NODE || caps->direct != PLAIT_DIRECT_NONE,
                PLAIT_ERR_UNSUPPORTED,
                "%s is NODE, which needs access to the memory of all ranks; here it is "
                "%s; choose auto "
                "or MPI",
                rows[i].key.name, (end->why != NULL) ? end->why : "off");
    if (value == PLAIT_BACKEND_MPI) {
        caps->direct = PLAIT_DIRECT_NONE;
    }
done:
    return status;
}

plait_status_t plait_choices_apply(plait_choices_t choices, const plait_endpoint_t *end,
                                   plait_caps_t *caps)
{
    plait_status_t status = PLAIT_OK;

    for (int i = 0; i < PLAIT_CONFIG_COUNT; i++) {
        int value = plait_choices_value(choices, i);
        if (value == UNKNOWN) {
            status = fail_environment(i);
            goto done;
        }
        if (caps->device == NULL && is_of_device(i, value)) {
            status = fail_device(i, value);
            goto done;
        }
        if (rows[i].is_backend && caps->device != NULL) {
            apply_to_device(value, caps);
        } else if (rows[i].is_backend) {
            PLAIT_TRY(apply_backend(i, value, end, caps));
        }
    }
done:
    return status;
}
