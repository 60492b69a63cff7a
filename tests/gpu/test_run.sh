#!/bin/sh
# test_run.sh RUN BUILD FAKES: run.sh, as far as it goes without a GPU.
set -eu
run=$1 build=$2 fakes=$3
work=$(mktemp -d "$build/tests/gpu/test.XXXXXX")
trap 'rm -rf "$work"' EXIT
old=${LD_LIBRARY_PATH:-}
code=0

# expect WORDS: that was said
expect()
{
    case $said in
    *"$1"*) ;;
    *) printf 'no "%s" in:\n%s\n' "$1" "$said" >&2; exit 1 ;;
    esac
}

said=$(LD_LIBRARY_PATH="$fakes/new${old:+:$old}" "$run" --build "$build" 2>&1)
expect '| plain UCX | GPU to GPU, 1 B to 16 MiB | ok |'
expect '| plain UCX | streams of sender and receiver | ok |'
expect '| plain UCX | GPU to a host-only receiver | ok |'
expect '| plain UCX | 1048576 | staged | - | - |'
expect 'missing: a CUDA-aware UCX'
case $said in
*'kernels: compiled by '*) expect '| a kernel writes, another checks | not run |' ;;
*) expect 'missing: nvcc: no kernel' ;;
esac
expect 'fake driver: nothing measured'
case $said in *FAILED*) echo "$said" >&2; exit 1 ;; esac

said=$(FAKE_CUDA_DEVICES=0 LD_LIBRARY_PATH="$fakes/new${old:+:$old}" \
    "$run" --build "$build" 2>&1) || code=$?
expect 'no GPU can be used: the CUDA driver works and shows no GPU'
[ $code = 3 ] || { echo "exit $code without a GPU" >&2; exit 1; }
code=0

# A compiler that fails is a failure, and one that compiles nothing is none;
# what was compiled before, of other files, is not run.
mkdir -p "$work/bin" "$work/tests/gpu"
ln -s "$build/tests/gpu/gpu_cases" "$work/tests/gpu/gpu_cases"
ln -s "$build/tests/gpu/gpu_cases" "$work/tests/gpu/gpu_kernels"
echo another > "$work/tests/gpu/gpu_kernels.of"
ln -s "$build/tensormsg" "$work/tensormsg"
for what in nothing cases; do
    cat > "$work/bin/nvcc" <<EOF
#!/bin/sh
case \$* in
--version) echo 'Cuda compilation tools, release 1.0, V1.0.1' ;;
*$what*) echo "error: it does not like $what" >&2; exit 1 ;;
esac
EOF
    chmod +x "$work/bin/nvcc"
    said=$(PATH="$work/bin:$PATH" LD_LIBRARY_PATH="$fakes/new${old:+:$old}" \
        "$run" --build "$work" 2>&1) || code=$?
    expect "it does not like $what"
    expect 'missing: nvcc: no kernel'
    expect '| plain UCX | GPU to GPU, 1 B to 16 MiB | ok |'
    wanted=0
    [ $what = nothing ] || wanted=1
    [ $code = $wanted ] || { echo "exit $code: $said" >&2; exit 1; }
done
code=0
said=$("$run" --what 2>&1) || code=$?
expect "'--what' is no option"
[ $code = 2 ] || { echo "exit $code for a wrong option" >&2; exit 1; }
