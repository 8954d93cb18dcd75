/* plait/config.h, and the effect of choices on plans. */
#include "check.h"
#include "plait/config.h"
#include "plait/fft.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *chosen(const char *key)
{
    const char *value = "";

    return (plait_config_get(key, &value) == PLAIT_OK) ? value : plait_error_text();
}

static void check_keys(void)
{
    const char *value = NULL;

    CHECK(plait_config_at(-1) == NULL, "before the first");
    CHECK(plait_config_at(plait_config_count()) == NULL, "after the last");
    for (int i = 0; i < plait_config_count(); i++) {
        const plait_config_key_t *key = plait_config_at(i);
        CHECK(strncmp(key->variable, "PLAIT_", 6) == 0 &&
                  strcasecmp(key->variable + 6, key->name) == 0,
              "%s: %s", key->name, key->variable);
        CHECK(strcmp(chosen(key->name), key->choices[0]) == 0, "%s: default is %s",
              key->name, chosen(key->name));
    }
    CHECK(plait_config_get("backend", &value) == PLAIT_ERR_INVALID && value == NULL,
          "no such key");
    CHECK(plait_config_set("transpose_exchange", "both") == PLAIT_ERR_INVALID &&
              strstr(plait_error_text(), "fused, separate") != NULL,
          "%s", plait_error_text());
    CHECK(plait_config_set("halo_comm_backend", "nccl") == PLAIT_ERR_UNSUPPORTED &&
              strcmp(chosen("halo_comm_backend"), "auto") == 0,
          "%s", chosen("halo_comm_backend"));
}

/* The text of plait_plan_print for a transform on two threads. */
static void print_plan(const plait_comm_t *comm, char **text)
{
    const int64_t shape[] = {4, 4, 4};
    const int grid[] = {2};
    const int axes[] = {0, 1, 2};
    plait_layout_t from, to;
    plait_plan_t *plan = NULL;
    size_t n = 0;

    CHECK(plait_layout_pencil(3, shape, 1, grid, (const int[]){0, -1, -1},
                              PLAIT_SPLIT_EVEN, &from) == PLAIT_OK &&
              plait_layout_pencil(3, shape, 1, grid, (const int[]){-1, 0, -1},
                                  PLAIT_SPLIT_EVEN, &to) == PLAIT_OK,
          "layouts");
    const plait_fft_problem_t problem = {.dtype = PLAIT_C64,
                                         .from = &from,
                                         .to = &to,
                                         .n_axes = 3,
                                         .axes = axes,
                                         .sign = -1,
                                         .scale = 1};
    FILE *file = open_memstream(text, &n);
    if (plait_fft_plan(comm, &problem, &plan) == PLAIT_OK) {
        plait_plan_print(plan, file);
    } else {
        (void)fprintf(file, "%s", plait_error_text());
    }
    (void)fclose(file);
    plait_plan_destroy(&plan);
}

static void check_plan(const plait_comm_t *comm, const char *key, const char *value,
                       const char *has, const char *lacks)
{
    char *text = NULL;

    CHECK(plait_config_set(key, value) == PLAIT_OK, "%s", plait_error_text());
    print_plan(comm, &text);
    CHECK(text != NULL && strstr(text, has) != NULL && strstr(text, lacks) == NULL,
          "%s %s: %s", key, value, text);
    free(text);
}

int main(void)
{
    plait_comm_t *comms[2] = {NULL};

    check_keys();
    CHECK(plait_comm_threads(2, comms) == PLAIT_OK, "%s", plait_error_text());
    check_plan(comms[0], "transpose_comm_backend", "AUTO", "shared addresses", "move");
    check_plan(comms[0], "halo_comm_backend", "mpi", "shared addresses", "backend");
    check_plan(comms[0], "transpose_comm_backend", "mpi",
               "fft (transpose_comm_backend MPI) complex64", "shared addresses");
    check_plan(comms[0], "transpose_comm_backend", "node", "shared addresses", "move");
    check_plan(comms[0], "transpose_exchange", "separate", "move", "messages, /");
    plait_comm_destroy(&comms[0]);
    plait_comm_destroy(&comms[1]);
    return report("test_config");
}
