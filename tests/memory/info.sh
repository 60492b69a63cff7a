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

expect new '  cuda_driver        a driver of CUDA 13.0 with 2 GPUs; it has all that'
expect new '  nvml               NVML of driver 13.1'
expect old 'CUDA 9.0 with 2 GPUs; without memory pools'
expect ancient 'is of CUDA 6.5 and has no cuDevicePrimaryCtxGetState'
expect ancient 'NVML is too old'
FAKE_CUDA_INIT=34 expect new 'is the stub of the CUDA toolkit, no driver'
FAKE_CUDA_INIT=3 expect new 'does not work, cuInit returned 3'
FAKE_CUDA_DEVICES=0 expect new 'shows no GPU'
FAKE_CUDA_VERSION=15000 expect new 'newer than this library knows'
# How tensors of each kind of memory travel, and which devices there are.
expect new '    host             as it is: UCX reads and writes it'
expect new '    cuda             through pinned host buffers: UCX was built without'
expect new '    cuda:1, Fake GPU 1, GPU-10111213-1415-1617-1819-1a1b1c1d1e1f, PCI 0000:34:00.0'
expect old '    cuda:0, Fake GPU 0, GPU-00010203-'
FAKE_CUDA_DEVICES=0 expect new '    cuda             not here: the CUDA driver works and shows no GPU'
FAKE_CUDA_DEVICES=1 FAKE_NVML_DEVICES=2 \
    expect new '    cuda, Fake GPU 1, GPU-10111213-'
TENSORMSG_DEVICE_TABLE='{"version":1,"devices":[{"index":4,"kind":"cuda",
    "uuid":"GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"}]}' \
    expect new 'NUMA node 1 (4 in the device table)'
exit $failed
