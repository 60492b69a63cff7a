#!/bin/bash
# run.sh [OPTION...]: builds and tests everything CUDA on a machine with an
# NVIDIA GPU, with a plain UCX and with a CUDA-aware one, and prints a table.
#
#   --build DIR   a build of this tree whose programs are used, for instance one
#                 that was carried here; without it one is made in build/gpu
#   --inputs DIR  holds libucx_cu13-*.whl or libucx_cu12-*.whl, a CUDA-aware UCX
#                 (default: shared/gpu or build/gpu-inputs, whichever is there)
#   --out FILE    also write the table there
#
# Nothing is fetched: what is missing is named. Exit: 0 all passed, 1 a case
# failed, 2 usage or the build, 3 there is no GPU that can be used.
set -u
cd "$(dirname "$0")/../.." || exit 2
root=$PWD build='' inputs='' out=''
while [ $# -gt 0 ]; do
    case $1 in
    --build | --inputs | --out)
        [ $# -ge 2 ] || { echo "run.sh: $1 needs a value" >&2; exit 2; }
        case $1 in
        --build) build=$(realpath -m "$2") ;;
        --inputs) inputs=$(realpath -m "$2") ;;
        --out) out=$(realpath -m "$2") ;;
        esac
        shift 2
        ;;
    *) echo "run.sh: '$1' is no option; see its first lines" >&2; exit 2 ;;
    esac
done
missing=()
failed=0
compiled=''
made=''
[ -n "$build" ] || { build=$root/build/gpu made=1; }
mkdir -p "$build" && work=$(mktemp -d "$build/run.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT

if [ -n "$made" ]; then
    if ! { cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release \
        -DTMSG_BUILD_TESTS=ON && cmake --build "$build" -j "$(nproc)" \
        --target gpu_cases tensormsg_cmd; } > "$work/build.log" 2>&1; then
        tail -20 "$work/build.log" >&2
        echo "run.sh: the build failed (above); --build takes one that was" \
            "carried here" >&2
        exit 2
    fi
fi
cases=$build/tests/gpu/gpu_cases
for program in "$cases" "$build/tensormsg"; do
    [ -x "$program" ] || { echo "run.sh: no $program" >&2; exit 2; }
done
for folder in "$root/shared/gpu" "$root/build/gpu-inputs"; do
    [ -n "$inputs" ] || { [ -d "$folder" ] && inputs=$folder; }
done

# The CUDA-aware UCX: the same programs with its libraries.
aware=''
for wheel in "$inputs"/libucx_cu1[0-9]*.whl; do
    [ -f "$wheel" ] || continue
    python3 -m zipfile -e "$wheel" "$work/ucx" && aware=$work/ucx/libucx/lib
done
[ -n "$aware" ] || missing+=("a CUDA-aware UCX: carry PyPI's libucx-cu13 wheel \
here and name its folder with --inputs")
# One that was compiled elsewhere, of the same files, does where no compiler is.
kernels=$build/tests/gpu/gpu_kernels
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2> /dev/null)
code=77
if [ -n "$nvcc" ]; then
    tests/gpu/kernels.sh "$nvcc" "$build" > "$work/nvcc" 2>&1
    code=$?
    case $code in
    0) ;;
    77) missing+=("a compiler: $(tail -1 "$work/nvcc")") ;;
    *)
        failed=1
        sed 's/^/    /' "$work/nvcc" >&2
        missing+=("kernels, for $nvcc FAILED: $(tail -1 "$work/nvcc")")
        ;;
    esac
fi
if [ $code = 0 ] || { [ $code = 77 ] && [ -x "$kernels" ] &&
    [ "$(head -1 "$kernels.of")" = "$(tests/gpu/kernels.sh --of)" ]; }; then
    cases=$kernels
    compiled="compiled by $(tail -1 "$kernels.of")"
else
    missing+=("nvcc: no kernel of the toolkit's is run")
fi

# run NAME LIBRARIES: the cases with that UCX
run()
{
    local name=$1 path=$2 code
    LD_LIBRARY_PATH=$build${path:+:$path}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        "$cases" > "$work/out" 2> "$work/err"
    code=$?
    case $code in
    0 | 4) ;;
    3) cat "$work/out"; exit 3 ;;
    *) failed=1; sed 's/^/    /' "$work/err" >&2 ;;
    esac
    while IFS='|' read -r kind what one two; do
        case $kind in
        case) printf '| %s | %s | %s |\n' "$name" "$what" "$one" ;;
        esac
    done < "$work/out" >> "$work/cases"
    while IFS='|' read -r kind what one two three; do
        [ "$kind" = rate ] && printf '| %s | %s | %s | %s | %s |\n' "$name" \
            "$what" "$one" "$two" "$three"
    done < "$work/out" >> "$work/rates"
    if [ $code = 4 ]; then
        fake=1
    fi
}

fake=0
: > "$work/cases"
: > "$work/rates"
run 'plain UCX' ''
if [ -n "$aware" ] && [ $fake = 0 ]; then
    run 'CUDA-aware UCX' "$aware"
    if ! grep -q '^| CUDA-aware UCX | [0-9]* | UCX |' "$work/rates"; then
        failed=1
        missing+=("the GPU's memory handed to UCX: that of the wheel does not \
know it, FAILED")
    fi
fi

table()
{
    echo "date: $(date -u +%Y-%m-%d)"
    echo "commit: $(git rev-parse --short HEAD 2> /dev/null || echo unknown)"
    LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        "$build/tensormsg" info 2> /dev/null |
        grep -E '^  (ucx_version|cuda_driver|nvml) |^    cuda'
    [ -z "$compiled" ] || echo "kernels: $compiled"
    command -v nvidia-smi > /dev/null && nvidia-smi -L
    printf '\n| UCX | case | outcome |\n|---|---|---|\n'
    cat "$work/cases"
    printf '\nOne GPU, two processes, GB/s; beside it the same bytes copied on '
    printf 'the GPU by the driver.\n\n'
    printf '| UCX | bytes | path | GB/s | copy alone |\n|---|---|---|---|---|\n'
    cat "$work/rates"
    for what in "${missing[@]}"; do
        printf '\nmissing: %s\n' "$what"
    done
    if [ $fake = 1 ]; then
        printf '\nfake driver: nothing measured\n'
    fi
}
table > "$work/table"
cat "$work/table"
if [ -n "$out" ]; then
    cp "$work/table" "$out"
fi
exit $failed
