#!/bin/sh
# The test matrix on one GPU, in about ten minutes: the C tests of the device, then with JAX's CUDA
# extra communication, transforms, halos and factorizations on one device, and by two processes that
# share it; where there are two GPUs by a process on each, through NCCL and NVSHMEM.
#
#   tools/test_gpu.sh [PYTHON]     PYTHON has plait, its tests' packages and jax[cuda13] or [cuda12]
#
# C tests run where build/tests/c has them. Logs are in build/gpu; ends with 1 if anything failed.
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
    tell "$name" "$word" "$(tail -n 1 "$logs/$name.log")"
    [ "$code" = 0 ] || [ "$code" = 77 ] || tail -n 20 "$logs/$name.log"
}

export PLAIT_CUDA=1 PLAIT_TEST_PLATFORM=cuda PYTHONPATH="python:$PYTHONPATH"
[ -e build/libplait.so ] && export PLAIT_LIBRARY="$PWD/build/libplait.so"

run info 60 "$python" -m plait info
grep '^CUDA' "$logs/info.log"
run doctor 400 "$python" -m plait doctor
grep 'MPI and GPUs' "$logs/doctor.log"
for name in load device share fft reduce tile solver mg; do
    [ -x "build/tests/c/test_cuda_$name" ] && run "c_$name" 120 "build/tests/c/test_cuda_$name"
done
if command -v compute-sanitizer >/dev/null && [ -x build/tests/c/test_cuda_device ]; then
    run memcheck 200 env PLAIT_TEST_QUICK=1 compute-sanitizer --error-exitcode 1 build/tests/c/test_cuda_device
    run racecheck 200 env PLAIT_TEST_QUICK=1 compute-sanitizer --tool racecheck --error-exitcode 1 build/tests/c/test_cuda_device
fi
for name in collectives eager start redistribute fft fft_any halo linalg_cholesky linalg_factors; do
    run "$name" 200 "$python" -m pytest -q -rs "tests/python/test_$name.py"
done
# both ranks on the first device: JAX would take most of its memory twice
export XLA_CLIENT_MEM_FRACTION=.4
for name in collectives p2p gradients start mesh; do
    run "two_$name" 200 "$python" -m plait run -n 2 "$python" -m mpi4py -m pytest -q -rs \
        "tests/python/mpi/test_${name}_mpi.py"
done
# each rank on a device of its own, which these two need: what follows the choice of a backend
unset XLA_CLIENT_MEM_FRACTION
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
