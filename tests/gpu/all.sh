#!/bin/bash
# all.sh [STEP...]: everything that is to be known of a GPU, in one command of at
# most 9 minutes. It runs in the folder that pack.sh made, on a machine that has
# an NVIDIA GPU, its driver and nothing else; with python3 and torch or cupy it
# runs the Python package, too. Needs no compiler and no network.
#
# Prints as it goes, and writes into $OUT (default: out/ beside it): a file for
# each step, and results.md, the tables of all of them. Each step has a time limit,
# all together have TMSG_GPU_LIMIT_S (540). TMSG_GPU_MOST: the largest tensor.
# After the second failure with a UCX nothing more is run with that one. With
# names of steps (the table below) it runs these alone. Their UCX is
#
#   cuda    a CUDA-aware one
#   plain   Debian's, without CUDA: the library uses CUDA IPC itself
#   staged  the same without CUDA IPC: through pinned memory of the host
#
# Exit: 0 all is well, 1 something failed, 2 usage, 3 no GPU can be used, 4 all is
# well, but the driver is a simulated one: no figure is of a GPU.
set -u
steps='facts         15  facts.txt
cases-cuda    50  cases.txt
cases-plain   50  cases.txt
cases-staged  40  cases.txt
rates-cuda    80  rates.txt
raw           60  rates.txt
rates-plain   50  rates.txt
rates-staged  40  rates.txt
bells-cuda    30  bells.txt
bells-plain   30  bells.txt
probe         45  probe.txt
python-cuda   45  python.txt
python-plain  35  python.txt
protocols     15  protocols.txt'

here=$(cd "$(dirname "$0")" && pwd)
export OUT=${OUT:-$here/out} here
limit=${TMSG_GPU_LIMIT_S:-540}
[ -f "$here/packed" ] || {
    echo "all.sh: run the copy that pack.sh put into its folder" >&2
    exit 2
}

# ---- what the steps do, each in a process of its own

# with UCX COMMAND...: on that UCX
with()
{
    local ucx=$here/plain set=A=
    case $1 in
    cuda) ucx=$here/cuda/libucx/lib ;;
    staged) set=TENSORMSG_THRESHOLDS=shm.device_ipc_bytes=never ;;
    esac
    shift
    env LD_LIBRARY_PATH="$here/lib:$ucx${driver:+:$driver}" $set "$@"
}

facts()
{
    cat "$here/packed"
    date -u '+run: %Y-%m-%d %H:%M'
    uname -srm
    ldd --version | head -1
    nvidia-smi --query-gpu=name,uuid,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current,clocks.sm,mig.mode.current --format=csv
    nvidia-smi topo -m | head -4
    nvidia-smi nvlink -s | head -3
    ldconfig -p | grep -E 'libcuda\.so|libnvidia-ml'
    df -h /dev/shm | tail -1
    echo "locked memory: $(ulimit -l) KiB, processors: $(nproc)"
    for program in "$here"/bin/*; do
        for ucx in plain cuda; do
            with $ucx ldd "$program" | sed -n "s|^\t\(.*not found\)|$program, $ucx: \1|p"
        done
    done
    for ucx in plain cuda; do
        with $ucx "$here/bin/tensormsg" info |
            grep -E '^ *(ucx_version|cuda_driver|nvml|cuda) '
    done
    command -v nvcc gcc cmake python3
    python3 - <<'PY'
import sys
print("Python", sys.version.split()[0])
for name in ("numpy", "torch", "cupy"):
    try:
        print(name, __import__(name).__version__)
    except Exception as error:
        print(f"no {name}: {error}")
PY
} 2>&1

cases()
{
    local program=$here/bin/gpu_kernels
    [ -x "$program" ] || program=$here/bin/gpu_cases
    with "$1" "$program" | sed -u "s/^case|/case|$1|/"
}

# rate UCX SETTING [VARIABLE=VALUE...] [WORD...]
rate()
{
    local ucx=$1 setting=$2 set=()
    shift 2
    while [ $# -gt 0 ] && [[ $1 == [A-Z]*=* ]]; do set+=("$1"); shift; done
    with "$ucx" env "${set[@]}" timeout -k 1 25 "$here/bin/gpu_rate" "$@" \
        ${TMSG_GPU_MOST:+most=$TMSG_GPU_MOST} |
        sed -u "s/^rate|/rate|$ucx|$setting|/" ||
        { echo "rate|$ucx|$setting|FAILED"; return 1; }
}

rates()
{
    local code=0
    rate "$1" 'as it is' || code=1
    rate "$1" unposted unposted || code=1
    [ "$1" = staged ] || rate "$1" 'from a pool' pool || code=1
    [ "$1" = staged ] || rate "$1" shareable shareable || code=1
    if [ "$1" = cuda ]; then
        rate cuda 'GET on' UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on || code=1
        rate cuda 'GET off' UCX_CUDA_IPC_ENABLE_GET_ZCOPY=off || code=1
    fi
    return $code
}

# one LAT-OR-BW BYTES ROUNDS [VARIABLE=VALUE]: of UCX itself; latency is half of
# a round trip, as that of gpu_rate. The runtime library of CUDA's that it needs
# does not run on a simulated driver: there it is the host's memory.
one()
{
    local perf=$here/cuda/libucx/bin/ucx_perftest port=$((20000 + RANDOM % 10000))
    local memory=${simulated:+host} server last
    memory=${memory:-cuda}
    export UCX_TLS=posix,cma,self,tcp,cuda
    with cuda env ${4:-A=} timeout 12 "$perf" -p $port -m $memory > /dev/null 2>&1 &
    server=$!
    sleep 1
    last=$(with cuda env ${4:-A=} timeout 10 "$perf" 127.0.0.1 -p $port \
        -t "ucp_am_$1" -s "$2" -n "$3" -w 5 -m $memory -f -v 2>&1 | tail -1)
    kill $server 2> /dev/null
    wait $server 2> /dev/null
    awk -F, -v row="raw|$memory|$1|$2|${4:-as it is}" 'NF == 8 {
        printf "%s|%.3f|%.2f\n", row, $6 * 1.048576 / 1000, $4; done = 1 }
        END { if (!done) print row "|FAILED: " $0; exit !done }' <<< "$last"
}

raw()
{
    local failures=0 what bytes rounds set
    while read -r what bytes rounds set; do
        [ "$bytes" -le "${TMSG_GPU_MOST:-268435456}" ] || continue
        one "$what" "$bytes" "$rounds" $set || failures=$((failures + 1))
        [ $failures -lt 2 ] || return 1
    done <<'EOF'
lat 64 1000
lat 4096 1000
lat 65536 500
lat 1048576 200
bw 65536 2000
bw 1048576 1000
bw 16777216 100
bw 67108864 40
bw 268435456 12
bw 16777216 100 UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on
bw 67108864 40 UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on
bw 268435456 12 UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on
EOF
    [ $failures = 0 ]
}

bells()
{
    [ -x "$here/bin/gpu_bell_rate" ] || { echo "bell|$1|not packed"; return; }
    with "$1" "$here/bin/gpu_bell_rate" ${TMSG_GPU_MOST:+most=$TMSG_GPU_MOST} |
        sed -u "s/^bell|/bell|$1|/"
}

probe()
{
    local code=0 said
    [ -x "$here/bin/gpu_probe" ] || { echo 'not packed'; return; }
    said=$(mktemp)
    with plain "$here/bin/gpu_probe" | tee "$said" || code=$?
    grep -v '^fact' "$said" | diff "$here/probe.txt" - | sed -n 's/^[<>]/differs: &/p'
    rm "$said"
    return $code
}

python()
{
    local ucx=$here/plain
    local why
    if [ ! -d "$here/python/tensormsg" ]; then
        echo "python|$1|-|-|not packed"
        return
    elif ! why=$(python3 -c 'import numpy' 2>&1); then
        echo "python|$1|-|-|not run: $(tail -1 <<< "$why")"
        return
    fi
    [ "$1" = plain ] || ucx=$here/cuda/libucx/lib
    with "$1" env PYTHONPATH="$here/python" TENSORMSG_UCX="$ucx" \
        PYTHONDONTWRITEBYTECODE=1 python3 -u "$here/python/arrays.py" |
        sed -u "s/^python|/python|$1|/"
}

# What UCX says of how it moves such memory.
protocols()
{
    with cuda env UCX_PROTO_INFO=y TMSG_GPU_RATE_MS=1 "$here/bin/gpu_rate" most=64
}

if [ "${1:-}" = --inside ]; then
    set -o pipefail
    "$2" "${@:3}"
    exit
fi

# ---- one after the other

for name in "$@"; do
    grep -q "^$name " <<< "$steps" || {
        echo "all.sh: '$name' is no step; they are" $(cut -d' ' -f1 <<< "$steps") >&2
        exit 2
    }
done
# Where containers have the driver beside the loader's folders.
driver=${LD_LIBRARY_PATH:-}
ldconfig -p 2> /dev/null | grep -q 'libcuda\.so\.1' ||
    driver=$driver${driver:+:}/usr/local/nvidia/lib64
export driver
export TMSG_GPU_WAIT_S=${TMSG_GPU_WAIT_S:-10} TMSG_GPU_CASE_S=${TMSG_GPU_CASE_S:-25}
mkdir -p "$OUT" || exit 2
rm -f "$OUT"/{facts,cases,rates,bells,probe,python,protocols}.txt "$OUT/results.md"
declare -A failed=([cuda]=0 [plain]=0 [staged]=0)
notes=() worst=0
export simulated=

# A UCX fails by its cases, one by one, or by the end of a step.
count()
{
    local name=$1 code=$2 since=$3 file=$4 ucx=${1##*-} more
    more=$(tail -n "+$since" "$file" | grep -c '|FAILED')
    [ "$more" -gt 0 ] || [ "$code" = 0 ] || more=1
    [ "$more" = 0 ] || worst=1
    if [ "$name" != "$ucx" ]; then
        failed[$ucx]=$((failed[$ucx] + more))
    fi
}

# A UCX that was packed for its plug-ins, and whose plug-ins do not load.
known()
{
    grep -q '^rate|cuda|.*sent_direct' "$1" && return
    notes+=("rates-cuda: FAILED, UCX does not know the GPU's memory")
    worst=1
}

# step NAME SECONDS FILE
step()
{
    local name=$1 ucx=${1##*-} left=$((limit - SECONDS)) most=$2 file=$OUT/$3
    local began=$SECONDS since code
    [ "$name" != "$ucx" ] || ucx=
    if [ -n "$ucx" ] && [ "${failed[$ucx]}" -ge 2 ]; then
        notes+=("$name: not run, two failures with this UCX")
    elif [ "$ucx" = cuda -o "$name" = raw -o "$name" = protocols ] &&
        [ ! -d "$here/cuda" ]; then
        notes+=("$name: not run, no CUDA-aware UCX was packed")
    elif [ "$left" -lt 1 ]; then
        notes+=("$name: not run, no time is left of $limit s")
    else
        [ "$most" -le "$left" ] || most=$left
        printf '== %s, at %s s\n' "$name" "$SECONDS"
        touch "$file"
        since=$(($(wc -l < "$file") + 1))
        timeout -k 2 "$most" bash "$here/all.sh" --inside "${name%%-*}" $ucx 2>&1 |
            tee -a "$file"
        code=${PIPESTATUS[0]}
        case $name/$code in
        */124 | */137) notes+=("$name: FAILED, stopped after $most s") ;;
        cases-*/3) notes+=("$(tail -1 "$file")"); worst=3 ;;
        cases-*/4) simulated=1 code=0 ;;
        rates-cuda/0) known "$file" ;;
        */0) ;;
        *) notes+=("$name: FAILED, exit $code") ;;
        esac
        [ "$worst" = 3 ] || count "$name" "$code" "$since" "$file"
        printf '== %s: exit %s after %s s\n' "$name" "$code" $((SECONDS - began))
        return
    fi
    printf '== %s\n' "${notes[-1]}"
}

table() # TITLE HEAD KIND FILE: the lines of that kind, as rows
{
    [ -s "$OUT/$4" ] || return
    printf '\n%s\n\n| %s |\n|%s\n' "$1" "$2" "$(sed 's/[^|]//g; s/|/---|/g; s/$/---|/' <<< "$2")"
    sed -n "s/^$3|\(.*\)/| \1 |/p" "$OUT/$4" | sed 's/|/ | /g; s/  */ /g; s/^ //; s/ $//'
}

# Ours beside UCX's own: at 64 MiB, and 8 small tensors beside one.
goals()
{
    awk -F'|' '
    $1 == "raw" && $3 == "bw" && $4 == 67108864 && $6 > raw { raw = $6 }
    $1 == "rate" && $4 ~ /ahead/ && $5 == 67108864 && $6 > best[$2] { best[$2] = $6 }
    $1 == "rate" && $3 == "as it is" && $4 == "latency" && $5 == 64 { one[$2] = $7 }
    $1 == "rate" && $3 == "as it is" && $4 == "latency x8" { eight[$2] = $7 }
    END {
        for (ucx in best)
            if (raw > 0) printf "- 64 MiB, %s: %.2f of raw UCX (goal: 0.95)\n", ucx, best[ucx] / raw
        for (ucx in eight)
            if (one[ucx] > 0) printf "- 8 x 64 B, %s: %.1f x the latency of 64 B (goal: 3)\n", ucx, eight[ucx] / one[ucx]
    }' "$OUT/rates.txt" 2> /dev/null
}

results()
{
    table 'Cases' 'UCX | case | outcome' case cases.txt
    table 'Two processes on one GPU' \
        'UCX | setting | what | bytes | GB/s | us a map | GB/s of a copy | counters' \
        rate rates.txt
    table 'UCX alone (`ucx_perftest`)' 'memory | what | bytes | setting | GB/s | us' \
        raw rates.txt
    table 'Bells' 'UCX | what | bytes | maps | p50 us | p99 us' bell bells.txt
    table 'Python' 'UCX | library | case | outcome' python python.txt
    echo
    sed -n 's/^\(packed\|run\): .*/- &/p; s/^\(.*, GPU-.*\)/- \1/p' "$OUT/facts.txt" 2> /dev/null
    goals
    [ ! -x "$here/bin/gpu_probe" ] || [ ! -s "$OUT/probe.txt" ] ||
        echo "- probe: $(grep -c '^differs: >' "$OUT/probe.txt") answers differ from the simulated driver's"
    for note in "${notes[@]}"; do echo "- $note"; done
    [ -z "$simulated" ] || echo '- The driver is a simulated one: **no figure is of a GPU**.'
}

while read -r name most file; do
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    step "$name" "$most" "$file" < /dev/null
    [ "$worst" != 3 ] || break
done <<< "$steps"
results > "$OUT/results.md"
printf '== results, after %s s\n' "$SECONDS"
cat "$OUT/results.md"
[ "$worst" = 0 ] && [ -n "$simulated" ] && exit 4
exit "$worst"
