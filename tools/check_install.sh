#!/bin/sh
# check_install.sh [BUILD]: installs the C library, built in BUILD (default build/c), into an empty
# prefix, builds examples/c against it by CMake and by pkg-config, and runs what was built.
# Prints "ok NAME", "FAIL NAME" or "skip NAME: REASON" for each step.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=${1:-$root/build/c}
failed=0
CC=${CC:-cc}

report() { # NAME, then a command: what it prints is shown if it fails
    name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok $name"
    else
        echo "FAIL $name"
        cat "$work/log"
        failed=1
    fi
}

quick() { # PROGRAM: ends well within a minute
    LD_LIBRARY_PATH=$libdir timeout 60 "$@"
}

install() {
    [ -f "$build/CMakeCache.txt" ] || cmake -S "$root" -B "$build" -G Ninja || return 1
    cmake --build "$build" && cmake --install "$build" --prefix "$work/prefix"
}

if ! install >"$work/log" 2>&1; then
    tail -40 "$work/log"
    echo "FAIL install"
    exit 1
fi
echo "ok install"
mv "$work/prefix" "$work/moved" # an installed tree works wherever it is
prefix=$work/moved
libdir=$(dirname "$(find "$prefix" -name libplait.so)")
pc=$(find "$prefix" -name plait.pc)
report headers sh -c "for h in '$prefix'/include/plait/*.h; do \
    echo \"#include \\\"plait/\$(basename \$h)\\\"\" | $CC -std=c11 -Wall -Wextra -Wpedantic -Werror \
    -I'$prefix/include' -xc -fsyntax-only - || exit 1; done"
cxx=$(command -v "${CXX:-c++}" || true)
if [ -n "$cxx" ]; then # also in old programs
    report headers-c++ sh -c "for h in '$prefix'/include/plait/*.h; do \
        echo \"#include \\\"plait/\$(basename \$h)\\\"\" | $cxx -std=c++98 -Wall -Wextra -Wpedantic -Werror \
        -I'$prefix/include' -xc++ -fsyntax-only - || exit 1; done"
else
    echo "skip headers-c++: there is no C++ compiler on this machine"
fi

mpicc=$(command -v mpicc || true)
report cmake-package sh -c "cmake -S '$root/examples/c' -B '$work/examples' \
    -DCMAKE_PREFIX_PATH='$prefix' ${mpicc:+-DMPI_C_COMPILER='$mpicc'} && cmake --build '$work/examples'"
for program in "$work"/examples/fft_threads; do
    report "cmake-$(basename "$program")" quick "$program"
done

# pkg-config itself may be absent: its file is read with the prefix put in by hand then.
if command -v pkg-config >/dev/null; then
    flags=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --cflags --libs plait)
else
    flags="-I$prefix/include -L$libdir -lplait"
    echo "skip pkg-config: there is no pkg-config on this machine"
fi
report pkg-config-build $CC -std=c11 "$root/examples/c/fft_threads.c" -o "$work/threads" \
    $flags -lpthread -lm
report pkg-config-run quick "$work/threads"
cat >"$work/plugin.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int n, char **words)
{
    void *library = dlopen(words[n - 1], RTLD_NOW);
    if (library == NULL || dlsym(library, "plait_version") == NULL || dlclose(library) != 0) {
        printf("%s\n", dlerror());
        return 1;
    }
    /* its threads would run in memory that is gone */
    return dlopen(words[n - 1], RTLD_NOW | RTLD_NOLOAD) == NULL;
}
END
report plugin sh -c "$CC '$work/plugin.c' -o '$work/plugin' -ldl && '$work/plugin' '$libdir/libplait.so'"
sed -n '/^```c$/,/^```$/p' "$root/docs/c.md" | sed '/^```/d' >"$work/text.c"
report text-build $CC -std=c11 -Wall -Wextra -Wpedantic -Werror "$work/text.c" -o "$work/text" $flags -lm
report text-run sh -c "LD_LIBRARY_PATH='$libdir' timeout 60 '$work/text' | grep -x '66 = 66, -6 +22.3923i'"
report pkg-config-absolute sh -c "cmake -S '$root' -B '$work/absolute' -DPLAIT_BUILD_TESTS=OFF \
    -DCMAKE_INSTALL_PREFIX=/opt/x -DCMAKE_INSTALL_LIBDIR=/opt/x/lib64 && cat '$work/absolute/plait.pc' && \
    grep -qx prefix=/opt/x '$work/absolute/plait.pc' && \
    grep -qx libdir=/opt/x/lib64 '$work/absolute/plait.pc' && \
    grep -qx 'includedir=\${prefix}/include' '$work/absolute/plait.pc'"

report pkg-config-system sh -c "cmake -S '$root' -B '$work/system' -DPLAIT_BUILD_TESTS=OFF \
    -DCMAKE_INSTALL_PREFIX=/usr && grep -qx prefix=/usr '$work/system/plait.pc'"

# As a part of another project, whose assertions stay; and never in the sources.
mkdir "$work/parent"
cat >"$work/parent/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.21)
project(parent LANGUAGES C)
add_subdirectory("$root" plait)
END
report subproject sh -c "cmake -S '$work/parent' -B '$work/parent/build' && \
    grep -qx CMAKE_BUILD_TYPE:STRING= '$work/parent/build/CMakeCache.txt' && \
    grep -qx PLAIT_BUILD_TESTS:BOOL=OFF '$work/parent/build/CMakeCache.txt'"
cp -r "$root/cmake" "$root/src" "$root/include" "$root/CMakeLists.txt" "$root/VERSION" "$work/parent"
report in-source sh -c "! cmake -S '$work/parent' -B '$work/parent' && [ ! -e '$work/parent/Makefile' ] && \
    [ ! -e '$work/parent/build.ninja' ]"

if [ -n "$mpicc" ]; then
    mpiexec=$(dirname "$mpicc")/mpiexec
    for wrapper in mpicc mpicc_abi; do # MPICH's own ABI and the standard one
        if [ -x "$(dirname "$mpicc")/$wrapper" ]; then
            for program in fft cholesky heat; do
                report "$wrapper-$program-build" "$(dirname "$mpicc")/$wrapper" -std=c11 \
                    "$root/examples/c/${program}_mpi.c" -o "$work/mpi" $flags -lm
                report "$wrapper-$program-run" quick "$mpiexec" -n 2 "$work/mpi"
            done
        fi
    done
else
    echo "skip mpi: there is no mpicc on this machine"
fi
exit $failed
