#!/bin/sh
# The test matrix on one GPU, in about ten minutes: the C tests of the device, also by ranks that share it;
# with JAX's CUDA extra every test that passes on one CPU device, on the GPU, and those of two processes
# that share it; where there are two GPUs by a process on each, through NCCL and NVSHMEM.
#
#   tools/test_gpu.sh [PYTHON]     PYTHON has plait, its tests' packages and jax[cuda13] or [cuda12]
#
# C tests run where build/tests/c has them; with pytest-xdist the others run on all cores. Logs are in
# build/gpu; ends with 1 if anything failed.
cd "$(dirname "$0")/.." || exit 1
python=${1:-python}
logs=build/gpu
failed=0
mkdir -p "$logs"

# name, verdict, why
tell()
{
    printf '%-24s %-14s %s\n' "$1" "$2" "$3"
}

# name, limit in seconds, command: one line, and the end of the log of what failed
run()
{
    name=$1
    limit=$2
    shift 2
    timeout "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null
    code=$?
    case $code in
    0) word=passed ;;
    77) word=skipped ;;
    124) word="not finished" failed=1 ;;
    *)
        word="FAILED ($code)"
        failed=1
        ;;
    esac
    tell "$name" "$word" "$(grep -v '^$' "$logs/$name.log" | tail -n 1)"
    [ "$code" = 0 ] || [ "$code" = 77 ] || tail -n 20 "$logs/$name.log"
}

# label, program of build/tests/c, what comes before it or after it
run_c()
{
    label=$1
    program=$2
    shift 2
    [ -x "build/tests/c/$program" ] && run "$label" 200 env "$@"
}

export PLAIT_CUDA=1 PYTHONPATH="python:$PYTHONPATH"
[ -e build/libplait.so ] && export PLAIT_LIBRARY="$PWD/build/libplait.so"

run info 60 "$python" -m plait info
grep '^CUDA' "$logs/info.log"
run doctor 400 "$python" -m plait doctor
grep 'MPI and GPUs' "$logs/doctor.log"
for name in load device share fft reduce tile solver mg coll exec; do
    run_c "c_$name" "test_cuda_$name" "build/tests/c/test_cuda_$name"
done
for name in dense factor heevd potrf potrs; do
    run_c "c_$name" "test_$name" OPENBLAS_NUM_THREADS=1 PLAIT_TEST_QUICK=1 "build/tests/c/test_$name" cuda
done
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        for name in device reduce tile; do
            run_c "${tool}_$name" "test_cuda_$name" PLAIT_TEST_QUICK=1 compute-sanitizer --tool "$tool" \
                --error-exitcode 1 "build/tests/c/test_cuda_$name"
        done
    done
fi

# What is about a CPU, or about several processes, is not of these.
modules=$(ls tests/python/test_collectives.py tests/python/test_eager.py tests/python/test_fft*.py \
    tests/python/test_generated.py tests/python/test_halo.py tests/python/test_jax*.py \
    tests/python/test_linalg*.py tests/python/test_manual.py tests/python/test_redistribute.py \
    tests/python/test_region.py tests/python/test_shapes.py tests/python/test_spectral.py \
    tests/python/test_start.py tests/python/test_dealt.py tests/python/test_nbody.py \
    tests/python/test_kriging.py tests/python/test_deblur.py tests/python/test_contexts.py)
spread=$("$python" -c 'import xdist' 2>/dev/null && echo "-n auto --dist worksteal")
# each process takes what it needs, rather than most of the memory
export PLAIT_TEST_FIT=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
rm -f "$logs/passed"
# shellcheck disable=SC2086
PLAIT_TEST_DEVICES=1 PLAIT_TEST_PASSED="$PWD/$logs/passed" JAX_PLATFORMS=cpu \
    timeout 1200 "$python" -m pytest -q $spread $modules >"$logs/cpu.log" 2>&1 </dev/null
tell "one CPU device" "" "$(wc -l <"$logs/passed") tests pass"
export PLAIT_TEST_PLATFORM=cuda
# shellcheck disable=SC2086
run one_gpu 1200 env PLAIT_TEST_ONLY="$PWD/$logs/passed" "$python" -m pytest -q -rs $spread $modules
unset PLAIT_TEST_FIT

for name in collectives p2p gradients rank linalg start mesh; do
    run "two_$name" 300 "$python" -m plait run -n 2 "$python" -m mpi4py -m pytest -q -rs \
        "tests/python/mpi/test_${name}_mpi.py"
done
run two_staged 300 env PLAIT_TRANSPOSE_COMM_BACKEND=MPI PLAIT_HALO_COMM_BACKEND=MPI \
    "$python" -m plait run -n 2 "$python" -m mpi4py -m pytest -q -rs tests/python/mpi/test_mesh_mpi.py
run two_messages 300 env PLAIT_DIRECT=off "$python" -m plait run -n 2 "$python" -m mpi4py -m pytest -q -rs \
    tests/python/mpi/test_p2p_mpi.py tests/python/mpi/test_gradients_mpi.py
unset XLA_PYTHON_CLIENT_PREALLOCATE
# each rank on a device of its own, which these two need: what follows the choice of a backend
n_devices=$(grep -c '^CUDA device .*, sm_' "$logs/info.log")
for backend in NCCL NVSHMEM; do
    name=own_$(echo "$backend" | tr '[:upper:]' '[:lower:]')
    if [ "$n_devices" -lt 2 ]; then
        tell "$name" skipped "needs two GPUs, there are $n_devices"
    elif ! grep -q "^CUDA $backend .*/.*)\$" "$logs/info.log"; then
        tell "$name" skipped "plait info has no $backend"
    else
        run "$name" 200 env PLAIT_TEST_DEVICE=own PLAIT_LOG=info \
            "PLAIT_TRANSPOSE_COMM_BACKEND=$backend" "PLAIT_HALO_COMM_BACKEND=$backend" \
            "$python" -m plait run -n 2 "$python" -m mpi4py -m pytest -q -rs \
            tests/python/mpi/test_mesh_mpi.py
    fi
done
exit $failed
