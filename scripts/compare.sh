#!/bin/sh
# compare.sh BUILD_DIR [OPTION...]: measures tensormsg beside what one would use
# instead, and writes bench/results/DATE.md and .json. Options: those of
# bench/compare/compare.py. Python's part is left out where pip finds nothing.
set -eu
cd "$(dirname "$0")/.."
case ${1:--} in
-*) echo 'usage: compare.sh BUILD_DIR [OPTION...]' >&2 && exit 2 ;;
esac
build=$1
shift
venv=$build/compare-venv
pip="$venv/bin/python -m pip --disable-pip-version-check -q install"

install_python()
{
    [ -x "$venv/bin/pip" ] || python3 -m venv --clear "$venv"
    $pip -r bench/compare/requirements.txt && $pip . || return 1
    $pip --no-deps -r tests/requirements-alone.txt || echo 'compare: no UCXX'
}

# UCXX in C++, of the same packages, as a program of its own.
build_ucxx()
{
    set -- "$venv"/lib/python3*/site-packages/libucxx/lib*/libucxx.so
    [ -e "$1" ] || return 1
    site=${1%/libucxx/*}
    cmake -S . -B "$build" -DTMSG_BUILD_COMPARE=ON \
        -DTMSG_UCXX="$(realpath "$site")" > /dev/null &&
        cmake --build "$build" --target tensormsg_compare_ucxx > /dev/null
}

if install_python; then
    set -- --python "$venv/bin/python" "$@"
else
    echo 'compare: no contestants in Python' >&2
fi
if build_ucxx; then
    set -- --also "$build/tensormsg-compare-ucxx" "$@"
else
    echo 'compare: no UCXX in C++' >&2
fi
if [ -x "$venv/bin/python" ]; then
    python=$venv/bin/python # which has matplotlib, mostly
else
    python=python3
fi
exec "$python" bench/compare/compare.py "$build/tensormsg-compare" "$@"
