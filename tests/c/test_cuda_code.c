/* The kernels' machine code: compiled once and kept on disk, never taken from an incomplete file or from a
 * folder of other users; then compiled by the compilers of this machine. */
#include "device/cuda_cache.h"
#include "device/cuda_code.h"
#include "fakes.h"

#include <dirent.h>

static int n_compiled(void)
{
    return ask_fake("libnvrtc.so.13", "fake_cuda_n_compiled");
}

/* Asks for the code of a capability, compares it with `expected`, and counts compilations. */
static void check_code(int capability, const char *expected, int n_more)
{
    void *image = NULL;
    int64_t n_bytes = 0;
    int before = n_compiled();

    CHECK(plait_cuda_code(capability, &image, &n_bytes) == PLAIT_OK, "sm_%d",
          capability);
    CHECK(image != NULL && n_bytes == (int64_t)strlen(expected) + 1 &&
              strcmp(image, expected) == 0,
          "sm_%d: %s", capability, (image != NULL) ? (char *)image : "nothing");
    CHECK(n_compiled() == before + n_more, "sm_%d: compiled %d times", capability,
          n_compiled() - before);
    plait_free(image);
}

/* Path of the only file of a folder. */
static const char *file_in(const char *folder)
{
    static char path[PATH_MAX + 300];
    DIR *open = opendir(folder);
    int n_files = 0;

    CHECK(open != NULL, "%s", folder);
    for (struct dirent *e = (open != NULL) ? readdir(open) : NULL; e != NULL;
         e = readdir(open)) {
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
            n_files++;
        }
    }
    CHECK(n_files == 1, "%d files in %s", n_files, folder);
    if (open != NULL) {
        closedir(open);
    }
    return path;
}

static void flip_byte(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");

    fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
}

static void test_cuda_code_is_kept(void)
{
    char folder[PATH_MAX];
    struct stat info;

    snprintf(folder, sizeof(folder), "%s/new", folder_of("cache/above"));
    setenv("PLAIT_CUDA_CACHE", folder, 1);
    look_in(FAKES_DIR);
    check_code(90, "fake cubin of sm_90", 1);
    check_code(90, "fake cubin of sm_90", 0);
    const char *file = file_in(folder);
    CHECK(stat(folder, &info) == 0 && (info.st_mode & 0777) == 0700, "folder's mode");
    CHECK(stat(file, &info) == 0 && (info.st_mode & 0777) == 0600, "file's mode");
    for (long at = 0; at < info.st_size; at += (at < 32) ? 3 : 5) {
        flip_byte(file, at); /* of the magic, key, size, hash, or code */
        check_code(90, "fake cubin of sm_90", 1);
        check_code(90, "fake cubin of sm_90", 0);
    }
    CHECK(truncate(file, info.st_size - 1) == 0, "truncate");
    check_code(90, "fake cubin of sm_90", 1);
    check_code(75, "fake cubin of sm_75", 1); /* another device */
    setenv("PLAIT_FAKE_TOOLKIT", "13010", 1); /* another compiler */
    check_code(90, "fake cubin of sm_90", 1);
    unsetenv("PLAIT_FAKE_TOOLKIT");
    check_code(90, "fake cubin of sm_90", 0);
    CHECK(chmod(folder, 0770) == 0, "chmod"); /* others could have written there */
    check_code(90, "fake cubin of sm_90", 1);
    check_code(90, "fake cubin of sm_90", 1);
    setenv("PLAIT_CUDA_CACHE", "0", 1);
    check_code(90, "fake cubin of sm_90", 1);
    check_code(90, "fake cubin of sm_90", 1);
}

static void test_cuda_code_of_other_devices(void)
{
    void *image = NULL;
    int64_t n_bytes = 0;

    setenv("PLAIT_CUDA_CACHE", "0", 1);
    look_in(FAKES_DIR);
    check_code(120, "fake cubin of compute_90", 1); /* the newest that is known */
    check_code(86, "fake cubin of compute_80", 1);
    CHECK(plait_cuda_code(70, &image, &n_bytes) == PLAIT_ERR_UNSUPPORTED, "too old");
    CHECK(strstr(plait_error_text(), "compute capability is 7.0, and 7.5") != NULL,
          "text");
    setenv("PLAIT_FAKE_NO_COMPILE", "1", 1);
    CHECK(plait_cuda_code(90, &image, &n_bytes) == PLAIT_ERR_INTERNAL, "error");
    CHECK(strstr(plait_error_text(), "error: as ordered") != NULL,
          "the compiler's text");
    CHECK(strstr(plait_error_text(), "NVRTC_ERROR_COMPILATION") != NULL, "its code");
    unsetenv("PLAIT_FAKE_NO_COMPILE");
    look_in(folder_of("empty"));
    CHECK(plait_cuda_code(90, &image, &n_bytes) == PLAIT_ERR_UNSUPPORTED, "absent");
    CHECK(image == NULL, "nothing is given");
}

/* The oldest and the usual devices that both majors of CUDA know; machine code must be an ELF file. */
static void test_cuda_code_by_nvrtc(void)
{
    static const int capabilities[] = {75, 90};
    const int n = sizeof(capabilities) / sizeof(*capabilities);
    const plait_cuda_t *cuda = NULL;

    setenv("PLAIT_CUDA_CACHE", "0", 1);
    look_in(NULL);
    if (plait_cuda_require(PLAIT_CUDA_NVRTC, &cuda) != PLAIT_OK) {
        printf("not compiled by NVRTC: %s\n", plait_error_text());
        return;
    }
    for (int i = 0; i < n; i++) {
        void *image = NULL;
        int64_t n_bytes = 0;
        CHECK(plait_cuda_code(capabilities[i], &image, &n_bytes) == PLAIT_OK, "sm_%d",
              capabilities[i]);
        CHECK(image != NULL && n_bytes > 4 && memcmp(image, "\177ELF", 4) == 0, "sm_%d",
              capabilities[i]);
        plait_free(image);
    }
}

/* The same text, compiled ahead of time. */
static void test_cuda_code_by_nvcc(void)
{
    char command[3 * PATH_MAX], source[PATH_MAX];
    const char *folder = folder_of("nvcc");

    if (system("PATH=$PATH:/usr/local/cuda/bin; command -v nvcc >/dev/null") != 0) {
        printf(
            "not compiled by nvcc: there is none on PATH or in /usr/local/cuda/bin\n");
        return;
    }
    snprintf(source, sizeof(source), "%s/plait.cu", folder);
    FILE *file = fopen(source, "w");
    fputs((const char *)plait_cuda_source, file);
    fclose(file);
    snprintf(command, sizeof(command),
             "PATH=$PATH:/usr/local/cuda/bin; cd '%s' && nvcc -std=c++17 --fmad=false "
             "-arch=sm_90 -Werror all-warnings -cubin plait.cu -o plait.cubin",
             folder);
    CHECK(system(command) == 0, "%s", command);
}

int main(void)
{
    unsetenv("PLAIT_CUDA_DIR");
    test_cuda_code_is_kept();
    test_cuda_code_of_other_devices();
    if (!is_sanitized()) { /* sanitizers do not see what is NVIDIA's */
        test_cuda_code_by_nvrtc();
        test_cuda_code_by_nvcc();
    }
    remove_fakes();
    return report("test_cuda_code");
}
