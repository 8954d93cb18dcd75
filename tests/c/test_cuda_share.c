/* Memory of a CUDA device in other devices and other processes: copies from one to another, handles, files
 * of virtual memory. On the first GPU, or with the argument `host` on stand-ins of CUDA's libraries. */
#include "cuda_arrays.h"
#include "device/cuda_state.h"
#include "fakes.h"

static int n_physical(void)
{
    return ask_fake("libcuda.so.1", "fake_cuda_n_physical");
}

static int n_handles(const machine_t *m)
{
    return m->is_host ? ask_fake("libcuda.so.1", "fake_cuda_n_handles") : 0;
}

static void switch_to(const machine_t *from, const machine_t *to)
{
    if (from->device != to->device) {
        from->call->leave(from->device);
        good(to->call->enter(to->device), "enter");
    }
}

/* Copies from this device, from devices that it reaches, and from a device that it does not; twice each. */
static void test_cuda_across(const machine_t *m)
{
    enum { N = 100003 };
    random_t r = {7};

    for (int i = 0; i < 6; i++) {
        machine_t other = *m;
        if (plait_cuda_device(i / 2, &other.device) != PLAIT_OK) {
            continue; /* there are no more */
        }
        switch_to(m, &other);
        good(other.call->stream_create(other.device, &other.stream), "stream");
        array_t src = array_create(&other, N);
        array_fill(&src, &r);
        array_put(&other, &src);
        switch_to(&other, m);
        array_t dst = array_create(m, N);
        memcpy(dst.expected, src.expected, N);
        good(m->call->copy(m->device, m->stream, dst.dev, NULL, dst.dev, 0), "nothing");
        good(m->call->copy(m->device, m->stream, dst.dev,
                           (i == 1) ? NULL : other.device, src.dev, N),
             "copy");
        CHECK(array_is_expected(m, &dst), "from device %d", i / 2);
        array_destroy(m, &dst);
        switch_to(m, &other);
        array_destroy(&other, &src);
        other.call->stream_destroy(other.device, other.stream);
        switch_to(&other, m);
    }
}

/* A device that already reaches as many devices as it may copies through the host. */
static void test_cuda_peers(void)
{
    machine_t m = {.is_host = true};

    setenv("PLAIT_FAKE_PEERS", "0", 1);
    look_in(FAKES_DIR);
    CHECK(machine_open(&m), "device");
    test_cuda_across(&m);
    unsetenv("PLAIT_FAKE_PEERS");
    machine_close(&m);
}

/* As in another process. On a GPU a process cannot open its own handle. */
static void test_cuda_ipc(const machine_t *m)
{
    enum { N = 5000, AT = 300 };
    plait_device_shown_t first = {.number = 0}, again = {.number = 0};
    plait_device_handle_t shown;
    plait_event_t *event = NULL, *theirs = NULL;
    array_t a = array_create(m, N), b = array_create(m, N);
    random_t r = {3};
    void *base = NULL;

    array_fill(&a, &r);
    array_put(m, &a);
    good(m->call->memory_export(m->device, a.dev + AT, N - AT, false, &first),
         "memory_export");
    const int n_before = n_handles(m);
    good(m->call->memory_export(m->device, a.dev, N, true, &again), "memory_export");
    CHECK(n_handles(m) == n_before, "a handle is asked for once");
    CHECK(memcmp(&first.handle, &again.handle, sizeof(again.handle)) == 0, "handle");
    CHECK(first.base == again.base && first.number == again.number &&
              first.offset == again.offset + AT && first.number != 0,
          "one block");
    good(m->call->memory_export(m->device, b.dev, N, false, &again), "memory_export");
    CHECK(first.number != again.number || first.base == again.base, "another block");
    good(m->call->event_export(m->device, &event, &shown), "event_export");
    good(m->call->event_record(m->device, event, m->stream), "event_record");
    if (m->is_host) {
        good(m->call->memory_import(m->device, &first, &base), "memory_import");
        good(m->call->event_import(m->device, &shown, &theirs), "event_import");
        good(m->call->event_order(m->device, theirs, m->stream), "event_order");
        good(m->call->copy(m->device, m->stream, b.dev, NULL,
                           (char *)base + first.offset - AT, N),
             "copy");
        memcpy(b.expected, a.expected, N);
        CHECK(array_is_expected(m, &b), "bytes of another process");
        m->call->memory_drop(m->device, base);
        m->call->event_destroy(m->device,
                               event); /* the other one is not done with it */
        event = NULL;
        good(m->call->event_order(m->device, theirs, m->stream), "its owner is gone");
        m->call->event_destroy(m->device, theirs);
        setenv("PLAIT_FAKE_IPC", "0", 1);
        CHECK(m->call->memory_export(m->device, a.dev, N, true, &again) ==
                  PLAIT_ERR_UNSUPPORTED,
              "memory that cannot be shown");
        CHECK(says("cannot be shown to other processes"), "reason");
        unsetenv("PLAIT_FAKE_IPC");
    } else {
        CHECK(m->call->memory_import(m->device, &first, &base) != PLAIT_OK,
              "a handle of its own");
    }
    m->call->event_destroy(m->device, event);
    array_destroy(m, &a);
    array_destroy(m, &b);
}

/* A peer opens a shown part of a block, which is freed meanwhile. */
static void check_freed(const machine_t *m, plait_cu_address_t block, int64_t at,
                        int64_t n_bytes, bool is_shown)
{
    plait_device_shown_t shown = {.number = 0};
    const plait_cuda_t *cuda = plait_cuda_state(m->device)->cuda;
    plait_status_t status = m->call->memory_export(
        m->device, (void *)(uintptr_t)(block + (uint64_t)at), n_bytes, false, &shown);
    void *base = NULL;

    CHECK(status == (is_shown ? PLAIT_OK : PLAIT_ERR_UNSUPPORTED) &&
              (is_shown || says("a block of memory of its own")),
          "%d at %d: %s", (int)n_bytes, (int)at, plait_error_text());
    if (m->is_host && status == PLAIT_OK) {
        good(m->call->memory_import(m->device, &shown, &base), "memory_import");
    }
    CHECK(is_shown || cuda->cuMemFree_v2(block) == 0, "freed while a peer has it open");
    if (base != NULL) {
        m->call->memory_drop(m->device, base);
    }
    if (is_shown) {
        CHECK(cuda->cuMemFree_v2(block) == 0, "freed");
    }
}

/* Memory that others got from the driver: a pool, single arrays, and memory that XLA says is such. */
static void test_cuda_ipc_of_others(const machine_t *m)
{
    enum { N = 100000, AT = 512 };
    static const struct {
        const char *allocator;
        int at, n_bytes;
        bool is_shown;
    } cases[] = {
        {NULL, 0, N, false},          {NULL, 0, N - 100, false},
        {NULL, AT, N - AT, true},     {NULL, 0, N / 2, true},
        {"default", 0, 100, true},    {"platform", 0, N / 2, false},
        {"Platform", AT, 100, false}, {"address", AT, 100, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        plait_cu_address_t block = 0;
        CHECK(plait_cuda_state(m->device)->cuda->cuMemAlloc_v2(&block, N) == 0,
              "block");
        if (cases[i].allocator != NULL) {
            setenv("XLA_PYTHON_CLIENT_ALLOCATOR", cases[i].allocator, 1);
        }
        check_freed(m, block, cases[i].at, cases[i].n_bytes, cases[i].is_shown);
        unsetenv("XLA_PYTHON_CLIENT_ALLOCATOR");
    }
}

/* Memory that an allocator has mapped itself. Its file goes to another process, here this one, where the
 * mapping has the same contents. Also on a GPU. */
static void test_cuda_virtual(const machine_t *m)
{
    enum { N = 3000, AT = 500 };
    plait_device_shown_t shown = {.number = 0}, again = {.number = 0};
    const int n_before = m->is_host ? n_physical() : 0;
    array_t a = array_create(m, N), b = array_create(m, N);
    random_t r = {6};
    void *memory = NULL, *base = NULL, *other = NULL;

    array_fill(&a, &r);
    array_fill(&b, &r);
    array_put(m, &a);
    array_put(m, &b);
    good(m->call->virtual_take(m->device, N + AT, &memory), "virtual_take");
    good(m->call->copy(m->device, m->stream, (char *)memory + AT, NULL, a.dev, N),
         "copy");
    CHECK(m->call->memory_export(m->device, memory, N, false, &shown) ==
                  PLAIT_ERR_UNSUPPORTED &&
              says("cannot be shown to other processes"),
          "%s", plait_error_text());
    good(m->call->memory_export(m->device, (char *)memory + AT, N, true, &shown),
         "memory_export");
    good(m->call->memory_export(m->device, memory, N, true, &again), "again");
    CHECK(again.number == shown.number && again.base == shown.base &&
              again.offset == 0 && shown.offset == AT &&
              memcmp(&again.handle, &shown.handle, sizeof(shown.handle)) == 0,
          "one block");
    const plait_status_t opened = m->call->memory_import(m->device, &shown, &base);
    if (opened == PLAIT_ERR_UNSUPPORTED &&
        !m->is_host) { /* a container may forbid it */
        printf("%s\n", plait_error_text());
    } else {
        good(opened, "memory_import");
        CHECK(base != memory, "at its own address");
        good(m->call->copy(m->device, m->stream, b.dev, NULL,
                           (char *)base + shown.offset, N),
             "copy");
        memcpy(b.expected, a.expected, N);
        CHECK(array_is_expected(m, &b), "bytes of another process");
    }
    CHECK(m->call->memory_export(m->device, (char *)memory + AT, INT64_C(1) << 40, true,
                                 &again) == PLAIT_ERR_UNSUPPORTED &&
              says("an array in several blocks of virtual memory"),
          "%s", plait_error_text());
    if (base != NULL) {
        m->call->memory_drop(m->device, base);
    }
    m->call->virtual_give(m->device, memory);
    /* another one, perhaps at the same place; what is no more is let go */
    good(m->call->virtual_take(m->device, N, &other), "virtual_take");
    good(m->call->memory_export(m->device, other, N, true, &again), "memory_export");
    CHECK(again.number != shown.number, "a number of its own");
    CHECK(!m->is_host || n_physical() == n_before + 1, "too many are kept");
    m->call->virtual_give(m->device, other);
    array_destroy(m, &a);
    array_destroy(m, &b);
}

/* If this function fails, memory is not taken, or is taken but not shown, or is shown but not found; nothing is
 * left behind. */
static void check_refusal(const char *failing, bool is_taken, bool is_shown)
{
    plait_device_shown_t shown = {.number = 0};
    plait_device_t *d = NULL;
    void *memory = NULL, *base = NULL;

    setenv("PLAIT_FAKE_FAIL", failing, 1);
    look_in(FAKES_DIR);
    good(plait_cuda_device(0, &d), "device");
    good(d->table->enter(d), "enter");
    CHECK(d->table->virtual_take(d, 100, &memory) ==
              (is_taken ? PLAIT_OK : PLAIT_ERR_UNSUPPORTED),
          "%s: %s", failing, plait_error_text());
    if (is_taken) {
        CHECK(d->table->memory_export(d, memory, 100, true, &shown) ==
                  (is_shown ? PLAIT_OK : PLAIT_ERR_UNSUPPORTED),
              "%s: %s", failing, plait_error_text());
    }
    if (is_shown) {
        CHECK(d->table->memory_import(d, &shown, &base) == PLAIT_ERR_UNSUPPORTED,
              "%s: %s", failing, plait_error_text());
    }
    if (is_taken) {
        d->table->virtual_give(d, memory);
    }
    d->table->leave(d);
    plait_cuda_release();
    CHECK(n_physical() == 0, "%s: something is left", failing);
    unsetenv("PLAIT_FAKE_FAIL");
}

static void test_cuda_virtual_refused(void)
{
    static const char *const taking[] = {"cuMemGetAllocationGranularity:801:0",
                                         "cuMemCreate:801:0", "cuMemAddressReserve:2:0",
                                         "cuMemMap:1:0", "cuMemSetAccess:801:0"};
    static const char *const opening[] = {"cuMemImportFromShareableHandle:801:0",
                                          "cuMemAddressReserve:2:1", "cuMemMap:1:1",
                                          "cuMemSetAccess:801:1"};
    static const char *const showing[] = {"cuMemRetainAllocationHandle:801:0",
                                          "cuMemExportToShareableHandle:801:0"};

    for (int i = 0; i < 5; i++) {
        check_refusal(taking[i], false, false);
    }
    for (int i = 0; i < 4; i++) {
        check_refusal(opening[i], true, true);
    }
    for (int i = 0; i < 2; i++) {
        check_refusal(showing[i], true, false);
    }
}

/* Several allocations at one address are not shown; a file that no process has is not found. */
static void test_cuda_virtual_wrong(void)
{
    plait_device_shown_t gone = {.number = PLAIT_CUDA_VIRTUAL | 1}, wide = gone;
    plait_device_t *d = NULL;
    void *base = NULL, *memory = NULL;

    look_in(FAKES_DIR);
    good(plait_cuda_device(0, &d), "device");
    good(d->table->enter(d), "enter");
    setenv("PLAIT_FAKE_WIDE", "4096", 1);
    good(d->table->virtual_take(d, 100, &memory), "virtual_take");
    CHECK(d->table->memory_export(d, memory, 100, true, &wide) ==
                  PLAIT_ERR_UNSUPPORTED &&
              says("a block of several allocations of virtual memory"),
          "%s", plait_error_text());
    d->table->virtual_give(d, memory);
    unsetenv("PLAIT_FAKE_WIDE");
    CHECK(n_physical() == 0, "something is left");
    CHECK(d->table->memory_import(d, &gone, &base) == PLAIT_ERR_UNSUPPORTED &&
              says("process 0 does not give a descriptor of its memory"),
          "%s", plait_error_text());
    d->table->leave(d);
}

/* A driver without these functions suffices for everything else. */
static void test_cuda_virtual_absent(void)
{
    plait_device_shown_t shown = {.number = 0};
    plait_device_t *d = NULL;
    void *memory = NULL, *base = NULL;

    put_fake("libcuda_old.so", folder_of("old"), "libcuda.so.1");
    put_fake("libnvrtc.so.13", folder_of("old"), "libnvrtc.so.13");
    look_in(folder_of("old"));
    good(plait_cuda_device(0, &d), "device");
    good(d->table->enter(d), "enter");
    CHECK(d->table->virtual_take(d, 100, &memory) == PLAIT_ERR_UNSUPPORTED &&
              says("the driver shows no virtual memory"),
          "%s", plait_error_text());
    good(d->table->take(d, NULL, 100, &memory), "take");
    good(d->table->memory_export(d, memory, 100, true, &shown), "memory_export");
    shown.number |= PLAIT_CUDA_VIRTUAL;
    CHECK(d->table->memory_import(d, &shown, &base) == PLAIT_ERR_UNSUPPORTED, "import");
    d->table->give(d, NULL, memory);
    d->table->leave(d);
    look_in(FAKES_DIR);
    remove_fakes();
}

int main(int n_arguments, char **arguments)
{
    machine_t m = machine_of(n_arguments, arguments);

    if (m.is_host) {
        test_cuda_peers();
        test_cuda_virtual_refused();
        test_cuda_virtual_wrong();
        test_cuda_virtual_absent();
        look_in(FAKES_DIR);
    }
    if (!machine_open(&m)) {
        return SKIPPED;
    }
    test_cuda_across(&m);
    test_cuda_ipc(&m);
    test_cuda_ipc_of_others(&m);
    test_cuda_virtual(&m);
    machine_close(&m);
    return report("test_cuda_share");
}
