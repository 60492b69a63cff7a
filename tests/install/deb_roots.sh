#!/bin/bash
# deb_roots.sh WORK [SUITE...]: builds the Debian packages in a root of each
# suite (bookworm, trixie), installs them in another root that has no compiler,
# uses them there, and removes them. Exit 77, with why: that cannot be done
# here. `make soak` runs it; a root takes a minute, the packages five.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
work=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- bookworm trixie

skip() { echo "SKIPPED: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip 'only root makes a root and enters it'
unshare -m true 2> /dev/null || skip 'no mount namespace can be made here'
command -v debootstrap > /dev/null ||
    skip 'no debootstrap: scripts/setup.sh soak installs it'

# make_root FOLDER SUITE
make_root()
{
    rm -rf "$1" "$1.part"
    debootstrap --variant=minbase "$2" "$1.part" > "$work/log" 2>&1 ||
        skip "no root of $2: $(tail -1 "$work/log")"
    # How this machine reaches its mirror.
    grep -l Acquire /etc/apt/apt.conf.d/* 2> /dev/null |
        xargs -r cp -t "$1.part/etc/apt/apt.conf.d"
    cp /etc/resolv.conf "$1.part/etc/" 2> /dev/null || true
    mv "$1.part" "$1"
}

# within ROOT COMMAND: with the /proc, /sys, /dev and network of this machine
within()
{
    root=$1 command=$2 unshare -m bash -euc '
        mount --make-rprivate /
        mount -t proc proc "$root/proc"
        mount --bind -o ro /sys "$root/sys"
        [ -c "$root/dev/null" ] || mount --rbind /dev "$root/dev"
        mkdir -p "$root/dev/shm"
        mount -t tmpfs tmpfs "$root/dev/shm"
        mkdir -p "$root/dev/pts"
        mount -t devpts devpts "$root/dev/pts"
        exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
            bash -euc "$command"'
}

install='apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends'
files='find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp \
    -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg \
    -o -path /var/log -o -path /deb \) -prune -o -print | sort'

commit=$(git -C "$here" rev-parse HEAD)
for suite; do
    echo "== $suite: the packages are built"
    builder=$work/$suite-builder
    [ -d "$builder" ] || make_root "$builder" "$suite"
    if [ "$(cat "$builder/commit" 2> /dev/null)" != "$commit" ]; then
        rm -rf "$builder/src" "$builder"/*.deb
        mkdir "$builder/src"
        git -C "$here/../.." archive "$commit" | tar -x -C "$builder/src"
        within "$builder" "
            apt-get -qq update
            $install build-essential > /dev/null
            cd /src
            apt-get -qq -y -o Dpkg::Use-Pty=0 build-dep ./ > /dev/null
            dpkg-buildpackage --build=binary --no-sign -j\$(nproc) > /build.log \
                2>&1 || { tail -30 /build.log; exit 1; }"
        echo "$commit" > "$builder/commit"
    fi

    echo "== $suite: they are installed, used and removed"
    root=$work/$suite
    make_root "$root" "$suite"
    mkdir "$root/deb"
    cp "$builder"/*.deb "$here/../../examples/hello.c" "$root/deb"
    rm -f "$root"/deb/*-dbgsym_*
    since=$SECONDS
    within "$root" "
        apt-get -qq update
        $install python3-minimal > /dev/null
        $files > /tmp/before
        $install /deb/tensormsg-tools_*.deb /deb/libtensormsg0*.deb > /dev/null
        tensormsg --version
        tensormsg info > /dev/null
        $install /deb/python3-tensormsg_*.deb > /dev/null
        python3 - << 'END'
import threading, numpy, tensormsg
server = tensormsg.listen(':0')
def receive():
    for msg in server:
        msg.peer.send({'twice': 2 * msg['x']})
threading.Thread(target=receive, daemon=True).start()
with tensormsg.connect(server.url) as ep:
    ep.send({'x': numpy.arange(6.)})
    assert list(ep.recv()['twice']) == [0, 2, 4, 6, 8, 10]
END"
    echo "$suite: command and Python in $((SECONDS - since)) s"
    since=$SECONDS
    within "$root" "
        $install gcc libc6-dev pkgconf /deb/libtensormsg-dev_*.deb > /dev/null
        cd /tmp
        gcc -O2 -Wall /deb/hello.c -o hello \$(pkg-config --cflags --libs tensormsg)
        ./hello > said &
        until ./hello tcp://127.0.0.1:13337 2> /dev/null; do sleep 0.1; done
        wait
        cat said"
    echo "$suite: hello.c in $((SECONDS - since)) s"
    within "$root" "
        apt-get -qq -y purge 'libtensormsg*' tensormsg-tools python3-tensormsg > /dev/null
        apt-get -qq -y --purge autoremove > /dev/null 2>&1
        $files | comm -13 /tmp/before - > /tmp/left
        if grep -i tensormsg /tmp/left; then
            echo 'that is left' >&2
            exit 1
        fi"
    rm -rf "$root"
done
