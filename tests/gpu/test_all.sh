#!/bin/sh
# test_all.sh BUILD FAKES: pack.sh and all.sh, as far as they go without a GPU.
set -eu
here=$(dirname "$0") build=$1 fakes=$2
work=$(mktemp -d "$build/tests/gpu/test.XXXXXX")
trap 'rm -rf "$work"' EXIT
code=0
export LD_LIBRARY_PATH="$fakes/new${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OUT="$work/out" TMSG_GPU_MOST=64 TMSG_GPU_RATE_MS=1

# expect WORDS: that was said
expect()
{
    case $said in
    *"$1"*) ;;
    *) printf 'no "%s" in:\n%s\n' "$1" "$said" >&2; exit 1 ;;
    esac
}

# ends_with CODE
ends_with()
{
    [ $code = "$1" ] || { printf 'exit %s in:\n%s\n' $code "$said" >&2; exit 1; }
    code=0
}

# A build in which a compiler fails: one that compiles nothing at all is only
# missing. There is no environment of Python's with a CUDA-aware UCX either.
mkdir -p "$work/build/tests/gpu" "$work/bin"
echo "TMSG_VENV:PATH=$work/venv" > "$work/build/CMakeCache.txt"
for file in tests/gpu/gpu_cases tests/gpu/gpu_rate tests/gpu/gpu_bell_rate tensormsg libtensormsg.so; do
    ln -s "$build/$file" "$work/build/$file"
done
for what in cases nothing; do
    cat > "$work/bin/nvcc" <<EOF
#!/bin/sh
case \$* in
--version) echo 'Cuda compilation tools, release 1.0, V1.0.1' ;;
*$what*) echo "error: it does not like $what" >&2; exit 1 ;;
esac
EOF
    chmod +x "$work/bin/nvcc"
    said=$(PATH="$work/bin:$PATH" "$here/pack.sh" --offline "$work/build" \
        "$work/carry" 2>&1) || code=$?
    expect "it does not like $what"
    [ $what = nothing ] || ends_with 1
done
ends_with 0
expect 'missing: gpu_kernels'
expect 'missing: a CUDA-aware UCX'
expect 'missing: the Python package'

# A driver that is a simulated one.
all=$work/carry/all.sh
said=$("$all" 2>&1) || code=$?
ends_with 4
expect 'plain UCX: '
expect 'case|plain|GPU to GPU, 1 B to 16 MiB|ok'
expect '| plain | streams of sender and receiver | ok |'
expect '| plain | as it is | latency x8 | 64 | 0.'
expect '| plain | unposted | 4 ahead | 64 | '
expect '| plain | shareable | not run: cuIpcGetMemHandle'
expect 'case|staged|memory of a pool|ok'
expect '| plain | not run: this driver launches nothing |'
expect '- 8 x 64 B, plain: '
expect '- cases-cuda: not run, no CUDA-aware UCX was packed'
expect '**no figure is of a GPU**'
case $said in *FAILED*) echo "$said" >&2; exit 1 ;; esac
[ -s "$OUT/results.md" ] && [ -s "$OUT/cases.txt" ] && [ -s "$OUT/rates.txt" ]

said=$(FAKE_CUDA_DEVICES=0 "$all" cases-plain rates-plain 2>&1) || code=$?
ends_with 3
expect 'no GPU can be used: the CUDA driver works and shows no GPU'
case $said in *'== rates-plain'*) echo "$said" >&2; exit 1 ;; esac

# A UCX that has no plug-in for CUDA, where one with should be.
mkdir -p "$work/carry/cuda/libucx"
ln -s "$work/carry/plain" "$work/carry/cuda/libucx/lib"
said=$("$all" rates-cuda 2>&1) || code=$?
ends_with 1
expect "- rates-cuda: FAILED, UCX does not know the GPU's memory"

# The second failure is a UCX's last; what hangs is stopped, and what it said
# stays.
cat > "$work/carry/bin/gpu_cases" <<'EOF'
#!/bin/sh
echo 'case|one|FAILED'
[ -z "$HANG" ] || exec sleep 60
echo 'case|two|FAILED'
exit 1
EOF
said=$(HANG='' "$all" cases-plain rates-plain 2>&1) || code=$?
ends_with 1
expect '| plain | two | FAILED |'
expect '- rates-plain: not run, two failures with this UCX'
said=$(HANG=1 TMSG_GPU_LIMIT_S=3 "$all" cases-plain rates-plain 2>&1) || code=$?
ends_with 1
expect "- cases-plain: FAILED, stopped after "
expect '| plain | one | FAILED |'
expect '- rates-plain: not run, no time is left of 3 s'

said=$("$all" what 2>&1) || code=$?
ends_with 2
expect "'what' is no step; they are facts cases-cuda"
said=$("$here/all.sh" 2>&1) || code=$?
ends_with 2
expect 'run the copy that pack.sh put into its folder'
said=$("$here/pack.sh" --what 2>&1) || code=$?
ends_with 2
expect "'--what' is no option"
