# Warnings, sanitizers, and one flag set per instruction set of a kernel.

function(plait_target_flags target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
    -Wvla -fno-math-errno)
  # A wheel's is the same wherever it was built.
  if(SKBUILD)
    target_compile_options(${target} PRIVATE -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.
                                             -ffile-prefix-map=${PROJECT_BINARY_DIR}=build)
  endif()
  if(PLAIT_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  # -O1 also in Debug: checks of code that is not optimised take several times as long. -g1 has
  # the lines that a report names; what a debugger wants besides costs a third of the build.
  if(PLAIT_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${PLAIT_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all -O1 -g1)
    target_link_options(${target} PRIVATE -fsanitize=${PLAIT_SANITIZE})
  endif()
endfunction()

# NAME_generic.c, NAME_avx2.c and NAME_avx512.c hold the same kernel for one instruction set each;
# the choice is made at run time, so every one of them is always built (elsewhere than on x86-64
# avx2 and avx512 are empty, and generic is for vectors of 16 bytes such as NEON's). Kernels are optimised
# in every build type: without it they are too slow to test. Only transforms and bulges may
# contract a * b + c; elsewhere the tail of a loop must give the bits of its vector body.
function(plait_instruction_set_flags)
  set(plait_asan_briefly)
  if(PLAIT_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set(plait_asan_briefly --param=asan-stack=0 --param=asan-instrumentation-with-call-threshold=0)
  endif()
  set(avx2)
  set(avx512)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(avx2 -mavx2 -mfma)
    set(avx512 -mavx512f -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512)
  endif()
  foreach(source IN LISTS ARGN)
    set(flags -O3)
    if(PLAIT_SANITIZE)
      set(flags -O1)
    endif()
    if(source MATCHES "/src/kernel/(bulge|fft)")
      list(APPEND flags -ffp-contract=fast)
    elseif(source MATCHES "/src/kernel/" OR source MATCHES "/src/device/")
      list(APPEND flags -ffp-contract=off)
    else()
      continue()
    endif()
    if(source MATCHES "_avx2\\.c$")
      list(APPEND flags ${avx2})
    elseif(source MATCHES "_avx512\\.c$")
      list(APPEND flags ${avx512})
    elseif(source MATCHES "_generic\\.c$" AND PLAIT_SANITIZE)
      # Accesses to memory only, and by calls: it takes two minutes to compile else.
      list(APPEND flags -fno-sanitize=undefined ${plait_asan_briefly})
    endif()
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags}")
  endforeach()
endfunction()
