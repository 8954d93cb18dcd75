/* Functions that older drivers lack: virtual memory of the stand-in of CUDA's driver. The memory is files
 * without names, mapped at reserved addresses. */
#include "fake_cuda_driver.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GRAIN = 1 << 16 };

/* A handle, known by its address. */
typedef struct {
    int fd;
    size_t n;
    int n_held; /* by who has the handle, and by mappings */
} physical_t;

/* Number of handles alive; for the tests. */
int fake_cuda_n_physical(void);
static int n_physical;

int fake_cuda_n_physical(void)
{
    return n_physical;
}

static physical_t *physical_of(plait_cu_memory_t handle)
{
    return (physical_t *)(uintptr_t)handle;
}

static void hold(plait_cu_memory_t handle, int n)
{
    physical_t *p = physical_of(handle);

    p->n_held += n;
    if (p->n_held == 0) {
        (void)close(p->fd);
        free(p);
        n_physical--;
    }
}

/* Takes over the file. */
static plait_cu_memory_t physical(int fd, size_t n)
{
    physical_t *p = malloc(sizeof(*p));

    *p = (physical_t){.fd = fd, .n = n, .n_held = 1};
    n_physical++;
    return (plait_cu_memory_t)(uintptr_t)p;
}

int cuMemGetAllocationGranularity(size_t *grain, const plait_cu_memory_prop_t *prop,
                                  int option)
{
    LOCKED;
    NEEDS_CONTEXT;
    (void)prop;
    *grain = GRAIN;
    return (option == 0) ? 0 : INVALID_VALUE;
}

int cuMemCreate(plait_cu_memory_t *memory, size_t n, const plait_cu_memory_prop_t *prop,
                unsigned long long flags)
{
    LOCKED;
    /* Pinned, by descriptors, on device 0. */
    static const int of_device[] = {1, 1, 1, 0};
    int fd = -1;

    NEEDS_CONTEXT;
    if (n % GRAIN != 0 || flags != 0 ||
        memcmp((const void *)prop, of_device, sizeof(of_device)) != 0) {
        return INVALID_VALUE;
    }
    fd = memfd_create("stand-in", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)n) != 0) {
        return OUT_OF_MEMORY;
    }
    *memory = physical(fd, n);
    return 0;
}

int cuMemRelease(plait_cu_memory_t memory)
{
    LOCKED;
    hold(memory, -1);
    return 0;
}

int cuMemRetainAllocationHandle(plait_cu_memory_t *memory, void *address)
{
    LOCKED;
    fake_cuda_block_t *b = fake_cuda_block_of((plait_cu_address_t)(uintptr_t)address);

    NEEDS_CONTEXT;
    if (b == NULL || b->virtual == 0) {
        return INVALID_VALUE;
    }
    *memory = b->virtual;
    hold(*memory, 1);
    return 0;
}

int cuMemExportToShareableHandle(void *handle, plait_cu_memory_t memory, int type,
                                 unsigned long long flags)
{
    LOCKED;
    int fd = -1;

    NEEDS_CONTEXT;
    if (type != 1 || flags != 0) {
        return INVALID_VALUE;
    }
    fd = dup(physical_of(memory)->fd);
    memcpy(handle, &fd, sizeof(fd));
    return (fd >= 0) ? 0 : OUT_OF_MEMORY;
}

int cuMemImportFromShareableHandle(plait_cu_memory_t *memory, void *handle, int type)
{
    LOCKED;
    struct stat file;

    NEEDS_CONTEXT;
    if (type != 1 || fstat((int)(uintptr_t)handle, &file) != 0) {
        return INVALID_VALUE;
    }
    *memory = physical(dup((int)(uintptr_t)handle), (size_t)file.st_size);
    return 0;
}

int cuMemAddressReserve(plait_cu_address_t *base, size_t n, size_t alignment,
                        plait_cu_address_t wish, unsigned long long flags)
{
    LOCKED;
    void *here = NULL;

    NEEDS_CONTEXT;
    (void)alignment;
    (void)wish;
    here = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *base = (plait_cu_address_t)(uintptr_t)here ^ fake_cuda_hiding();
    return (here != MAP_FAILED && flags == 0) ? 0 : OUT_OF_MEMORY;
}

int cuMemAddressFree(plait_cu_address_t base, size_t n)
{
    LOCKED;
    return (munmap(fake_cuda_memory_of(base), n) == 0) ? 0 : INVALID_VALUE;
}

/* Memory that is mapped is not accessible yet. */
int cuMemMap(plait_cu_address_t base, size_t n, size_t offset, plait_cu_memory_t memory,
             unsigned long long flags)
{
    LOCKED;
    const physical_t *p = physical_of(memory);
    void *here = fake_cuda_memory_of(base);

    NEEDS_CONTEXT;
    if (offset != 0 || flags != 0 || n > p->n || n % GRAIN != 0 ||
        mmap(here, n, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd, 0) != here) {
        return INVALID_VALUE;
    }
    hold(memory, 1);
    fake_cuda_add_block(base, n, memory);
    return 0;
}

int cuMemUnmap(plait_cu_address_t base, size_t n)
{
    LOCKED;
    fake_cuda_block_t *b = fake_cuda_block_of(base);

    if (b == NULL || b->virtual == 0 || b->base != base || b->n != n) {
        return INVALID_VALUE;
    }
    hold(b->virtual, -1);
    b->n = 0;
    (void)mmap(fake_cuda_memory_of(base), n, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return 0;
}

int cuMemSetAccess(plait_cu_address_t base, size_t n,
                   const plait_cu_memory_access_t *access, size_t n_access)
{
    LOCKED;
    static const int of_device[] = {1, 0, 3}; /* device 0, to read and write */

    NEEDS_CONTEXT;
    if (n_access != 1 ||
        memcmp((const void *)access, of_device, sizeof(of_device)) != 0) {
        return INVALID_VALUE;
    }
    return (mprotect(fake_cuda_memory_of(base), n, PROT_READ | PROT_WRITE) == 0)
               ? 0
               : INVALID_VALUE;
}

/* ---- Kernels --------------------------------------------------------------------------------- */

/* Number of kernels loaded; for the tests. */
int fake_cuda_n_loaded(void);
static int n_loaded;

int fake_cuda_n_loaded(void)
{
    return n_loaded;
}

int cuFuncLoad(plait_cu_function_t function)
{
    LOCKED;
    NEEDS_CONTEXT;
    n_loaded++;
    return (function != NULL) ? 0 : INVALID_VALUE;
}
