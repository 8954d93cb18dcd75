/* The loader of CUDA's libraries: absent ones, files that are none, too old, without a function, of
 * two versions, loaded already, in wheels; then what the machine really has. */
#include "fakes.h"

#include <dlfcn.h>

static plait_status_t require(plait_cuda_library_t library)
{
    const plait_cuda_t *cuda = NULL;

    return plait_cuda_require(library, &cuda);
}

static void test_cuda_absent(void)
{
    look_in(folder_of("empty"));
    for (int l = PLAIT_CUDA_CUBLAS; l < PLAIT_CUDA_N_LIBRARIES; l++) {
        CHECK(require((plait_cuda_library_t)l) == PLAIT_ERR_UNSUPPORTED, "%s",
              plait_cuda_name(l));
        CHECK(says(plait_cuda_name(l)) && says("was not found") && says("/empty/lib"),
              "%s", plait_cuda_name(l));
        CHECK(strcmp(plait_cuda_say(l), plait_error_text()) == 0, "%s",
              plait_cuda_say(l));
    }
    CHECK(plait_cuda_name(PLAIT_CUDA_N_LIBRARIES) == NULL, "outside");
    CHECK(plait_cuda_say(-1) == NULL, "outside");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        CHECK(require(PLAIT_CUDA_DRIVER) == PLAIT_ERR_UNSUPPORTED, "driver");
        CHECK(says("libcuda.so.1") && says("the system: "), "driver");
        CHECK(strstr(plait_cuda_device_say(0), "driver was not found") != NULL,
              "device");
    } else {
        dlclose(driver);
    }
}

static void test_cuda_unusable(void)
{
    char text[PATH_MAX + 32];

    look_in(folder_of("unusable"));
    put_fake("libpartial.so", folder_of("unusable"), "libnvrtc.so.13");
    snprintf(text, sizeof(text), "%s/libcufft.so.12", folder_of("unusable"));
    FILE *file = fopen(text, "w");
    fputs("this is a text and no library at all, whatever its name says\n", file);
    fclose(file);
    CHECK(require(PLAIT_CUDA_CUFFT) == PLAIT_ERR_UNSUPPORTED, "text");
    CHECK(says("libcufft.so.12: ") && !says("no /"), "the loader's reason");
    CHECK(require(PLAIT_CUDA_NVRTC) == PLAIT_ERR_UNSUPPORTED, "partial");
    CHECK(says("/unusable/libnvrtc.so.13") && says("has no nvrtcGetErrorString"),
          "partial");
    put_fake("libpartial.so", folder_of("unusable"), "libnvshmem_host.so.3");
    CHECK(require(PLAIT_CUDA_NVSHMEM) == PLAIT_ERR_UNSUPPORTED, "partial");
    CHECK(says("NVSHMEM, ") && says("has no nvshmemx_vendor_get_version_info"),
          "partial");
}

static void test_cuda_driver(void)
{
    const plait_cuda_t *cuda = NULL;

    setenv("PLAIT_FAKE_DRIVER", "11080", 1);
    look_in(FAKES_DIR);
    CHECK(plait_cuda_start(&cuda) == PLAIT_ERR_UNSUPPORTED, "old");
    CHECK(says("is of CUDA 11: it is too old"), "old");
    setenv("PLAIT_FAKE_DRIVER", "13000", 1);
    setenv("PLAIT_FAKE_INIT", "34", 1);
    look_in(FAKES_DIR);
    CHECK(plait_cuda_start(&cuda) == PLAIT_ERR_UNSUPPORTED, "stub");
    CHECK(says("stand-in for a driver"), "stub");
    setenv("PLAIT_FAKE_INIT", "100", 1);
    look_in(FAKES_DIR);
    CHECK(plait_cuda_start(&cuda) == PLAIT_ERR_UNSUPPORTED, "no device");
    CHECK(says("cuInit") && says("100 (CUDA_ERROR_NO_DEVICE)"), "no device");
    CHECK(strcmp(plait_cuda_device_say(0), plait_error_text()) == 0, "say");
    CHECK(plait_cuda_device_say(1) == NULL, "say");
    unsetenv("PLAIT_FAKE_INIT");
    look_in(FAKES_DIR);
    CHECK(plait_cuda_start(&cuda) == PLAIT_OK, "start");
    CHECK(strcmp(plait_cuda_device_say(0), "stand-in, 1.0 GiB, sm_90") == 0, "%s",
          plait_cuda_device_say(0));
    CHECK(plait_cuda_device_say(1) == NULL, "one device");
}

/* The driver's version decides which of two toolkits is used, and all libraries come from that toolkit. */
static void test_cuda_versions(void)
{
    const char *folder = folder_of("both");
    static const char *const of_12[] = {NULL, "libcublas.so.12", "libcufft.so.11",
                                        "libnvrtc.so.12", "libcusolver.so.11"};
    char expected[PATH_MAX + 64];

    for (int l = PLAIT_CUDA_CUBLAS; l < PLAIT_CUDA_NCCL; l++) {
        put_fake("libcublas.so.13", folder, of_12[l]);
    }
    put_fake("libcublas.so.13", folder, "libcublas.so.13");
    put_fake("libcublas.so.13", folder, "libcufft.so.12");
    put_fake("libcuda.so.1", folder, "libcuda.so.1");
    for (int driver = 12; driver <= 14; driver++) {
        snprintf(expected, sizeof(expected), "%d000", driver);
        setenv("PLAIT_FAKE_DRIVER", expected, 1);
        look_in(folder_of("both"));
        CHECK(require(PLAIT_CUDA_CUFFT) == PLAIT_OK, "driver %d", driver);
        snprintf(expected, sizeof(expected), "13.0, %s/libcufft.so.%d (PLAIT_CUDA_DIR)",
                 folder_of("both"), (driver == 12) ? 11 : 12);
        CHECK(strcmp(plait_cuda_say(PLAIT_CUDA_CUFFT), expected) == 0, "%s, not %s",
              plait_cuda_say(PLAIT_CUDA_CUFFT), expected);
        CHECK(require(PLAIT_CUDA_NVRTC) ==
                  ((driver == 12) ? PLAIT_OK : PLAIT_ERR_UNSUPPORTED),
              "driver %d: no mixture", driver);
    }
    unsetenv("PLAIT_FAKE_DRIVER");
}

static void test_cuda_all(void)
{
    char folders[2 * PATH_MAX], path[PATH_MAX + 64];

    snprintf(folders, sizeof(folders), "%s:%s", folder_of("empty"), FAKES_DIR);
    look_in(folders);
    for (int l = 0; l < PLAIT_CUDA_N_LIBRARIES; l++) {
        CHECK(require((plait_cuda_library_t)l) == PLAIT_OK, "%s", plait_cuda_name(l));
        CHECK(require((plait_cuda_library_t)l) == PLAIT_OK, "%s again",
              plait_cuda_name(l));
        const bool is_without =
            l == PLAIT_CUDA_CUSOLVER_MG || l == PLAIT_CUDA_CUSOLVER_MP;
        snprintf(path, sizeof(path), "%s%s", is_without ? "" : ", ",
                 plait_cuda_path((plait_cuda_library_t)l));
        CHECK(strstr(plait_cuda_say(l), path) != NULL, "%s", plait_cuda_say(l));
    }
    CHECK(strncmp(plait_cuda_say(PLAIT_CUDA_NCCL), "2.29, ", 6) == 0, "%s",
          plait_cuda_say(PLAIT_CUDA_NCCL));
    CHECK(strncmp(plait_cuda_say(PLAIT_CUDA_NVSHMEM), "3.4, ", 5) == 0, "%s",
          plait_cuda_say(PLAIT_CUDA_NVSHMEM));
}

/* A library that another part of the process, such as JAX, has opened is used. */
static void test_cuda_loaded(void)
{
    char path[PATH_MAX + 64];

    look_in(NULL);
    snprintf(path, sizeof(path), "%s/libnvrtc.so.13", FAKES_DIR);
    void *first = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(first != NULL, "%s", dlerror());
    CHECK(require(PLAIT_CUDA_NVRTC) == PLAIT_OK, "loaded");
    CHECK(strstr(plait_cuda_say(PLAIT_CUDA_NVRTC), "(already loaded)") != NULL, "%s",
          plait_cuda_say(PLAIT_CUDA_NVRTC));
    CHECK(strcmp(plait_cuda_path(PLAIT_CUDA_NVRTC), path) == 0, "%s",
          plait_cuda_path(PLAIT_CUDA_NVRTC));
    look_in(NULL);
    dlclose(first);
}

static void test_cuda_wheels(void)
{
    char folder[PATH_MAX], path[PATH_MAX + 64];

    put_fake("libnvrtc.so.13", folder_of("a-packages/nvidia/cu13/lib"),
             "libnvrtc.so.13");
    put_fake("libpartial.so", folder_of("a-packages/nvidia/other"), "libother.so");
    snprintf(folder, sizeof(folder), "%s", folder_of("a-packages/nvidia"));
    look_in(NULL);
    plait_cuda_wheels(folder);
    CHECK(require(PLAIT_CUDA_NVRTC) == PLAIT_OK, "told");
    CHECK(strstr(plait_cuda_say(PLAIT_CUDA_NVRTC), "(wheel)") != NULL, "%s",
          plait_cuda_say(PLAIT_CUDA_NVRTC));
    look_in(NULL);
    snprintf(path, sizeof(path), "%s/other/libother.so", folder);
    void *other = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(require(PLAIT_CUDA_NVRTC) == PLAIT_OK, "seen");
    snprintf(path, sizeof(path), "%s/cu13/lib/libnvrtc.so.13", folder);
    CHECK(strcmp(plait_cuda_path(PLAIT_CUDA_NVRTC), path) == 0, "%s",
          plait_cuda_path(PLAIT_CUDA_NVRTC));
    look_in(NULL);
    dlclose(other);
}

/* Requires nothing of the machine, except that its libraries are what they claim. Runs last: the libraries stay
 * open, because some of them leak memory when they are closed. */
static void test_cuda_here(void)
{
    look_in(NULL);
    for (int l = 0; l < PLAIT_CUDA_N_LIBRARIES; l++) {
        printf("%s: %s\n", plait_cuda_name(l), plait_cuda_say(l));
        CHECK(l == PLAIT_CUDA_CUSOLVER_MP || /* NCCL may be, for that */
                  strstr(plait_cuda_say(l), "too old") == NULL,
              "%s", plait_cuda_say(l));
    }
    printf("device 0: %s\n", plait_cuda_device_say(0));
}

int main(void)
{
    unsetenv("PLAIT_CUDA_DIR");
    test_cuda_absent();
    test_cuda_unusable();
    test_cuda_driver();
    test_cuda_versions();
    test_cuda_all();
    test_cuda_loaded();
    test_cuda_wheels();
    test_cuda_here();
    remove_fakes();
    return report("test_cuda_load");
}
