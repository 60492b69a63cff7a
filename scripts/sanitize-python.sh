#!/bin/sh
# sanitize-python.sh [PYTEST_OPTION...]: builds the Python package's extension,
# with the library in it, for AddressSanitizer and UBSan, and runs its tests
# with that, in the environment $TMSG_VENV (build/venv). Python's own memory is
# then malloc's, so that what is used too late is seen; leaks are not looked for:
# the interpreter keeps much to its end.
set -eu
cd "$(dirname "$0")/.."
venv=$(realpath -s "${TMSG_VENV:-build/venv}")
dir=$PWD/build/asan-python
tests=$PWD/bindings/python/tests
flags='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer'

cmake -S bindings/python -B "$dir/build" -G Ninja -DCMAKE_C_COMPILER=gcc \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTMSG_LTO=OFF -DCMAKE_C_FLAGS="$flags" \
    -DPython_EXECUTABLE="$venv/bin/python" > /dev/null
cmake --build "$dir/build" --target _native
rm -rf "$dir/package"
mkdir -p "$dir/package/tensormsg" "$dir/reports"
rm -f "$dir"/reports/*
cp bindings/python/src/tensormsg/* "$dir/build"/faces/*.py \
    "$dir/package/tensormsg/"
cp "$dir"/build/_native*.so "$dir/package/tensormsg/"

cd "$dir"
if [ $# -eq 0 ]; then
    set -- "$tests"/test_streams.py "$tests"/test_recv_into.py \
        "$tests"/test_cancellations.py "$tests"/test_calls.py \
        "$tests"/test_asyncio.py "$tests"/test_lifetime.py \
        "$tests"/test_messages.py "$tests"/test_data.py "$tests"/test_errors.py \
        "$tests"/test_publish.py "$tests"/test_keys.py \
        "$tests"/test_reconnect.py "$tests"/test_malformed.py \
        "$tests"/test_apart.py "$tests"/test_replies.py "$tests"/test_files.py
fi
rc=0
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
    ASAN_OPTIONS="detect_leaks=0:detect_stack_use_after_return=1:log_path=$dir/reports/asan" \
    UBSAN_OPTIONS="print_stacktrace=1:log_path=$dir/reports/ubsan" \
    PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$dir/package" \
    HYPOTHESIS_STORAGE_DIRECTORY="$dir/hypothesis" \
    "$venv/bin/python" -m pytest -q -rs -p no:cacheprovider \
    --rootdir "$tests" "$@" || rc=$?
for report in "$dir"/reports/*; do
    if [ -s "$report" ]; then
        cat "$report"
        rc=1
    fi
done
exit $rc
