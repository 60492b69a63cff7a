#!/bin/sh
# rooms.sh SOURCE_DIR: dependencies point down. A room includes headers of
# itself and of the rooms below it; only am/ucx speaks to UCX, only memory to
# CUDA; the examples and some tests see public headers alone, the command also
# how text is shown. And what must not be said to UCX, or to Criterion.
set -eu
cd "$1"
failed=0

# forbid WHERE PATTERN: no #include in folder WHERE may match
forbid()
{
    [ -d "$1" ] || return 0
    if grep -rnE --include='*.[ch]' "^ *# *include *[<\"]($2)" "$1"; then
        echo "not allowed in $1: $2" >&2
        failed=1
    fi
}

forbid src/core '(serialize|memory|am|rpc)/'
forbid src/serialize '(memory|am|rpc)/'
forbid src/memory '(serialize|am|rpc)/'
forbid src/am 'rpc/'
forbid src/rpc 'am/([abd-z]|c[^a]|calls/[^c])'
for room in core serialize am rpc; do
    forbid src/$room '(cuda|nvml)'
done
# The command shows text as the library does, by core/shown.c, which it is built
# with, and uses nothing else of the inside.
forbid examples '((core|serialize|memory|am|rpc|ucp|ucs)/|cuda)'
forbid tools '(core/(s[^h]|[^s])|(serialize|memory|am|rpc|ucp|ucs)/|cuda)'
forbid include '(ucp|ucs|uct|dlpack)/|cuda|cJSON|msgpack'

# src/am/ucx contains UCX: no other source includes its headers or has a name of
# its API, not in a comment either; nor does a header there bring it.
include_ucx='^ *# *include *[<"]uc[mpst]/'
if grep -rnE "$include_ucx|\<uc[pst]_[a-z]|\<UC[PST]_[A-Z]" src |
    grep -v '^src/am/ucx/'; then
    echo 'not allowed there: the API of UCX, which is for src/am/ucx alone' >&2
    failed=1
fi
if grep -rnE --include='*.h' "$include_ucx" src; then
    echo 'not allowed in a header: a header of UCX' >&2
    failed=1
fi

# src/am/tls contains OpenSSL in the same way.
if grep -rnE '^ *# *include *[<"]openssl/' src | grep -v '^src/am/tls/'; then
    echo 'not allowed there: a header of OpenSSL, which is for src/am/tls' >&2
    failed=1
fi

# What anybody may expect is tested as anybody would use it.
outside="tests/am/engine/test_conformance.c tests/am/engine/test_self.c
    tests/am/connect/test_counterparts.c tests/am/engine/test_callbacks.c
    tests/am/recv/test_place.c tests/am/send/test_queue.c
    tests/am/session/test_reconnect.c tests/support/peers.[ch]
    tests/support/seeded_maps.[ch] tests/support/session_pair.[ch]
    tests/support/mixed_load.[ch] tests/netns/peer.c"
grep -nE '^ *# *include *"(core|serialize|memory|am|rpc)/' $outside ||
    found=$?
if [ "${found:-0}" -ne 1 ]; then # 2: a file is not there
    echo 'not allowed there: the inside of the library' >&2
    failed=1
fi

# Old UCX wants its handlers registered in the order of their ids, which one
# alone cannot break; and the value of an unknown memory type has moved.
handlers=$(grep -rnF 'ucp_worker_set_am_recv_handler(' src | wc -l)
if [ "$handlers" -ne 1 ]; then
    echo "$handlers AM handlers are registered, not 1: mind their order" >&2
    failed=1
fi
if grep -rnF 'UCS_MEMORY_TYPE_UNKNOWN' src; then
    echo 'a memory type must be said' >&2
    failed=1
fi

# Criterion 2.4.1's gt(T, a, b) holds where a == b.
if grep -rnE --include='*.[ch]' '\<gt\(' tests; then
    echo 'gt() of Criterion is ge(): say ge() of one more' >&2
    failed=1
fi
exit $failed
