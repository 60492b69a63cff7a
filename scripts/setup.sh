#!/bin/sh
# setup.sh [GROUP...]: installs what is missing on a Debian 12 machine and says
# why. Silent when nothing is. Groups: build (default), test, python, format,
# fuzz. Run it as often as you like.
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
libxxhash-dev      xxHash: checksums
EOF
    test) cat <<'EOF' ;;
libcriterion-dev   Criterion: the C tests
libdlpack-dev      dlpack.h 0.6, beside which our headers must compile
python3-venv       build/venv: numpy, safetensors and UCX 1.22 for the tests
python3-dev        Python.h: the Python package
ca-certificates    lets pip reach its index
locales            locales with a decimal comma, to test numbers in
iproute2           ip: two namespaces joined by a cable are the tests' hosts
iputils-ping       ping: whether they reach each other yet
nftables           nft: loses packets between them, or lets nobody in
ucx-utils          ucx_info: what UCX itself says of its keys
EOF
    python) cat <<'EOF' ;;
python3-venv       an environment of its own for the Python package
python3-dev        Python.h: compiles its extension
EOF
    format) echo 'clang-format-14    the pinned formatter' ;;
    fuzz) cat <<'EOF' ;;
clang              compiles the fuzz targets
libclang-rt-14-dev libFuzzer
EOF
    *)
        echo "setup.sh: no group '$1' (build, test, python, format, fuzz)" >&2
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

[ -z "${TMSG_NO_SETUP:-}" ] || exit 0
[ $# -gt 0 ] || set -- build
wanted=$(for group in "$@"; do packages "$group"; done)
install_packages <<EOF
$wanted
EOF
for group in "$@"; do
    [ "$group" != test ] || install_venv
done
