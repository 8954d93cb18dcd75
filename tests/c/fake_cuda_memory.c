/* Memory of the stand-in of CUDA's driver: the host's, in blocks that have numbers. */
#include "fake_cuda_driver.h"

enum { ALIGNMENT = 256 };

static void *allocate(size_t n)
{
    return aligned_alloc(ALIGNMENT, (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

plait_cu_address_t fake_cuda_hiding(void)
{
    return (plait_cu_address_t)number_of_environment("PLAIT_FAKE_HIDDEN", 0) << 46;
}

void *fake_cuda_memory_of(plait_cu_address_t address)
{
    return (void *)(uintptr_t)(address ^ fake_cuda_hiding());
}

enum { MAX_BLOCKS = 4096 };

static fake_cuda_block_t blocks[MAX_BLOCKS];

fake_cuda_block_t *fake_cuda_block_of(plait_cu_address_t memory)
{
    fake_cuda_block_t *found = NULL;

    for (int i = 0; i < MAX_BLOCKS && found == NULL; i++) {
        bool is_in = blocks[i].n > 0 && memory >= blocks[i].base &&
                     memory < blocks[i].base + blocks[i].n;
        found = is_in ? &blocks[i] : NULL;
    }
    return found;
}

void fake_cuda_add_block(plait_cu_address_t base, size_t n, plait_cu_memory_t virtual)
{
    static unsigned long long n_ever;
    int i = 0;

    while (i < MAX_BLOCKS && blocks[i].n > 0) {
        i++;
    }
    if (i < MAX_BLOCKS) {
        blocks[i] = (fake_cuda_block_t){
            .base = base, .n = n, .number = ++n_ever, .virtual = virtual};
    }
}

int cuMemAlloc_v2(plait_cu_address_t *memory, size_t n)
{
    LOCKED;
    void *allocated = NULL;

    NEEDS_CONTEXT;
    allocated = allocate(n);
    *memory = (plait_cu_address_t)(uintptr_t)allocated ^ fake_cuda_hiding();
    if (allocated != NULL) {
        fake_cuda_add_block(*memory, n, 0);
    }
    return (allocated != NULL) ? 0 : OUT_OF_MEMORY;
}

/* Number of times that memory was freed which other processes may have; for the tests. */
int fake_cuda_n_lost(void);
static int n_lost;

int fake_cuda_n_lost(void)
{
    return n_lost;
}

/* Freeing memory that other processes have open is undefined; here the memory stays, and the call fails. */
int cuMemFree_v2(plait_cu_address_t memory)
{
    LOCKED;
    fake_cuda_block_t *b = fake_cuda_block_of(memory);

    if (b != NULL && b->n_open > 0) {
        return INVALID_VALUE;
    }
    if (b != NULL) {
        n_lost += b->is_shown;
        b->n = 0;
    }
    free(fake_cuda_memory_of(memory));
    return 0;
}

/* PLAIT_FAKE_FORGIVES=1: memory of a failed device, which no call gives back, is freed with the driver. */
__attribute__((destructor)) static void free_blocks(void)
{
    for (int i = 0; i < MAX_BLOCKS && number_of_environment("PLAIT_FAKE_FORGIVES", 0);
         i++) {
        if (blocks[i].n > 0) {
            free(fake_cuda_memory_of(blocks[i].base));
        }
    }
}

/* ---- Other processes: this one, for which a handle is the address in it ---- */

enum { BUFFER_ID = 7, LEGACY_CAPABLE = 10 };

int cuPointerGetAttribute(void *value, int attribute, plait_cu_address_t memory)
{
    LOCKED;
    fake_cuda_block_t *b = fake_cuda_block_of(memory);

    NEEDS_CONTEXT;
    if (b == NULL) {
        return INVALID_VALUE;
    }
    if (attribute == LEGACY_CAPABLE) {
        *(int *)value = b->virtual == 0 &&
                        number_of_environment("PLAIT_FAKE_IPC", 1) != 0;
    } else if (attribute == BUFFER_ID) {
        *(unsigned long long *)value = b->number;
    }
    return 0;
}

/* PLAIT_FAKE_WIDE=n: a block seems n bytes longer, as if other blocks were mapped behind it. */
int cuMemGetAddressRange_v2(plait_cu_address_t *base, size_t *n,
                            plait_cu_address_t memory)
{
    LOCKED;
    fake_cuda_block_t *b = fake_cuda_block_of(memory);

    NEEDS_CONTEXT;
    if (b == NULL) {
        return INVALID_VALUE;
    }
    *base = b->base;
    *n = b->n + (size_t)number_of_environment("PLAIT_FAKE_WIDE", 0);
    return 0;
}

/* Number of times that a handle was asked for; for the tests. */
int fake_cuda_n_handles(void);
static int n_handles;

int fake_cuda_n_handles(void)
{
    return n_handles;
}

int cuIpcGetMemHandle(plait_cu_ipc_t *handle, plait_cu_address_t base)
{
    LOCKED;
    fake_cuda_block_t *b = fake_cuda_block_of(base);

    NEEDS_CONTEXT;
    n_handles++;
    if (b == NULL || b->base != base) {
        return INVALID_VALUE;
    }
    b->is_shown = true;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &base, sizeof(base));
    return 0;
}

int cuIpcOpenMemHandle_v2(plait_cu_address_t *base, plait_cu_ipc_t handle,
                          unsigned flags)
{
    LOCKED;
    fake_cuda_block_t *b = NULL;

    NEEDS_CONTEXT;
    memcpy(base, &handle, sizeof(*base));
    b = fake_cuda_block_of(*base);
    if (flags != 1 || b == NULL) {
        return INVALID_VALUE;
    }
    b->n_open++;
    return 0;
}

int cuIpcCloseMemHandle(plait_cu_address_t base)
{
    LOCKED;
    fake_cuda_block_t *b = fake_cuda_block_of(base);

    if (b == NULL || b->n_open == 0) {
        return INVALID_VALUE;
    }
    b->n_open--;
    return 0;
}

/* ---- Copies ---- */

int cuMemHostAlloc(void **host, size_t n, unsigned flags)
{
    LOCKED;
    NEEDS_CONTEXT;
    (void)flags;
    *host = allocate(n);
    return (*host != NULL) ? 0 : OUT_OF_MEMORY;
}

int cuMemFreeHost(void *host)
{
    LOCKED;
    free(host);
    return 0;
}

int cuMemcpyDtoHAsync_v2(void *dst, plait_cu_address_t src, size_t n,
                         plait_cu_stream_t stream)
{
    LOCKED;
    NEEDS_CONTEXT;
    (void)stream;
    memcpy(dst, fake_cuda_memory_of(src), n);
    ((char *)dst)[n - 1] ^= (char)number_of_environment("PLAIT_FAKE_WRONG", 0);
    return 0;
}

int cuMemcpyHtoDAsync_v2(plait_cu_address_t dst, const void *src, size_t n,
                         plait_cu_stream_t stream)
{
    LOCKED;
    NEEDS_CONTEXT;
    (void)stream;
    memcpy(fake_cuda_memory_of(dst), src, n);
    return 0;
}

int cuMemcpyDtoDAsync_v2(plait_cu_address_t dst, plait_cu_address_t src, size_t n,
                         plait_cu_stream_t stream)
{
    LOCKED;
    NEEDS_CONTEXT;
    (void)stream;
    memmove(fake_cuda_memory_of(dst), fake_cuda_memory_of(src), n);
    return 0;
}
