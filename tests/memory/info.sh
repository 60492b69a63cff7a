#!/bin/sh
# info.sh FAKES: `tensormsg info` says which driver it met (tests/fakes).
set -eu
fakes=$1
failed=0

# expect AGE WORDS: with that driver, WORDS are said
expect()
{
    said=$(LD_LIBRARY_PATH="$fakes/$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        "$TENSORMSG" info)
    case $said in
    *"$2"*) ;;
    *)
        echo "$1: no '$2' in" >&2
        echo "$said" | grep -E '^  (cuda|nvml)' >&2
        failed=1
        ;;
    esac
}

expect new '  cuda_driver        a driver of CUDA 13.0 with 2 GPUs; all that'
expect new '  nvml               NVML of driver 13.1'
expect old 'CUDA 9.0 with 2 GPUs; without memory pools'
expect ancient 'is of CUDA 6.5 and has no cuDevicePrimaryCtxGetState'
expect ancient 'NVML is too old'
FAKE_CUDA_INIT=34 expect new 'is the stub of the CUDA toolkit, no driver'
FAKE_CUDA_INIT=3 expect new 'does not work, cuInit said 3'
FAKE_CUDA_DEVICES=0 expect new 'shows no GPU'
FAKE_CUDA_VERSION=15000 expect new 'newer than this library knows'
exit $failed
