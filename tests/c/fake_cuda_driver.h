/* Shared by the files of the stand-in of CUDA's driver: failures, the current context, blocks. */
#ifndef PLAIT_TESTS_FAKE_CUDA_DRIVER_H
#define PLAIT_TESTS_FAKE_CUDA_DRIVER_H

#include "fake_cuda.h"

#include <stdbool.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2 };

/* The result of the function of this name now: PLAIT_CU_OK, or the one of PLAIT_FAKE_FAIL. */
int fake_cuda_result(const char *name);

/* How many contexts are current, stacked on each other. */
int fake_cuda_n_current(void);

#define MAY_FAIL                                 \
    do {                                         \
        int result = fake_cuda_result(__func__); \
        if (result != PLAIT_CU_OK) {             \
            return result;                       \
        }                                        \
    } while (0)

/* Without a current context nothing works. */
enum { INVALID_CONTEXT = 201 };
#define NEEDS_CONTEXT                     \
    do {                                  \
        MAY_FAIL;                         \
        if (fake_cuda_n_current() <= 0) { \
            return INVALID_CONTEXT;       \
        }                                 \
    } while (0)

/* Memory that exists; no other block ever has its number. */
typedef struct {
    plait_cu_address_t base;
    size_t n; /* 0: none */
    unsigned long long number;
    bool is_shown;
    int n_open;                /* how often other processes have it open */
    plait_cu_memory_t virtual; /* what was mapped there; 0: nothing */
} fake_cuda_block_t;

/* The block with this address, or NULL. */
fake_cuda_block_t *fake_cuda_block_of(plait_cu_address_t memory);
void fake_cuda_add_block(plait_cu_address_t base, size_t n, plait_cu_memory_t virtual);

/* PLAIT_FAKE_HIDDEN=1: a device address is no host address; it differs in these bits. */
plait_cu_address_t fake_cuda_hiding(void);
void *fake_cuda_memory_of(plait_cu_address_t address);

#endif
