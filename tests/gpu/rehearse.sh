#!/bin/bash
# rehearse.sh BUILD DRIVER [ROOT]: pack.sh's folder of BUILD, run by all.sh in the
# root of another distribution, with another C library and little else, on the
# simulated driver in the folder DRIVER. ROOT is made by debootstrap where it is
# not there (default: BUILD/gpu-root, 350 MB; takes a network and some minutes).
# Exit 77, with why: that cannot be done here. `make soak` runs it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1") driver=$(realpath "$2") root=${3:-$1/gpu-root}

skip() { echo "SKIPPED: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip 'only root makes a root and enters it'
unshare -m true 2> /dev/null || skip 'no mount namespace can be made here'
if [ ! -d "$root" ]; then
    command -v debootstrap > /dev/null ||
        skip 'no debootstrap: scripts/setup.sh soak installs it'
    rm -rf "$root.part"
    debootstrap --variant=minbase --include=python3-numpy trixie \
        "$root.part" > "$build/gpu-root.log" 2>&1 ||
        skip "no such root: $(tail -1 "$build/gpu-root.log")"
    mv "$root.part" "$root"
fi
"$here/pack.sh" --offline "$build" "$build/gpu-carry"
out=$build/gpu-rehearsal
rm -rf "$out"
mkdir -p "$out" "$root/carry" "$root/driver" "$root/out"

# Everything but the results is read-only, and the mounts end with the script.
code=0
root=$root carry=$build/gpu-carry driver=$driver out=$out unshare -m bash -euc '
    mount --make-rprivate /
    mount --bind -o ro "$carry" "$root/carry"
    mount --bind -o ro "$driver" "$root/driver"
    mount --bind "$out" "$root/out"
    mount -t proc proc "$root/proc"
    mount --bind -o ro /sys "$root/sys"
    mount -t tmpfs tmpfs "$root/tmp"
    [ -c "$root/dev/null" ] || mount --rbind /dev "$root/dev"
    mkdir -p "$root/dev/shm"
    mount -t tmpfs tmpfs "$root/dev/shm"
    exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp OUT=/out \
        LD_LIBRARY_PATH=/driver TMSG_GPU_MOST=16777216 TMSG_GPU_RATE_MS=50 TMSG_GPU_BELL_MAPS=50 \
        TMSG_GPU_CASE_S=60 TMSG_GPU_WAIT_S=30 bash /carry/all.sh
' || code=$?

# A simulated driver is told apart, and every step was run.
[ $code = 4 ] || { echo "rehearse.sh: all.sh ended with $code, not with 4" >&2; exit 1; }
for file in facts cases rates bells probe python protocols; do
    [ -s "$out/$file.txt" ] || { echo "rehearse.sh: nothing of $file" >&2; exit 1; }
done
for words in 'case|cuda|memory of a pool|ok' 'case|plain|memory of a pool|ok' \
    'case|staged|memory of a pool|ok' 'rate|plain|unposted|latency x8|64|' \
    'bell|cuda|stream bell|8388608|' 'bell|plain|stream bell, and back|64|' \
    'rate|plain|shareable|4 ahead|16777216|' 'raw|host|bw|16777216|' \
    'python|cuda|driver|1 B to 5 MB|ok' 'python|plain|driver|1 B to 5 MB|ok'; do
    cat "$out"/*.txt | grep -qF "$words" ||
        { echo "rehearse.sh: no line with $words" >&2; exit 1; }
done
for way in cuda:sent_direct plain:sent_ipc staged:sent_staged; do
    grep -q "^rate|${way%:*}|as it is|4 ahead|16777216|.*|${way#*:}\$" "$out/rates.txt" ||
        { echo "rehearse.sh: no ${way#*:} with ${way%:*}" >&2; exit 1; }
done
