# SPDX-License-Identifier: BSD-3-Clause
"""The library and a second decoder, written from docs/wire/wire-format.md
alone,
must agree: on the frozen bytes, and on headers made up here, whole and
damaged."""

import collections
import ctypes
import json
import os
import pathlib
import random
import re

import msgpack
import pytest

import wire_decoder
from wire_decoder import Refused

pytestmark = pytest.mark.once

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "v0"
VALID = sorted((GOLDEN / "valid").glob("*.hex"))
INVALID = sorted((GOLDEN / "invalid").glob("*.hex"))
SCHEMA = sorted((GOLDEN / "schema").glob("*.hex"))
SCHEMA_INVALID = sorted((GOLDEN / "schema_invalid").glob("*.hex"))
STATUS = {0: "OK", -2: "NO_MEMORY", -7: "LIMIT_EXCEEDED", -8: "MALFORMED",
          -9: "UNSUPPORTED", -15: "INCOMPATIBLE"}
ROUNDS = int(os.environ.get("TMSG_WIRE_ROUNDS", "1000"))


def read_listing(path):
    lines = path.read_text().splitlines()
    return lines[0][2:], bytes.fromhex(
        "".join(line.split("#")[0] for line in lines))


def same(ours, expected):
    """Equal in order, too; 1, 1.0 and True are three different things."""
    return json.dumps(ours) == json.dumps(expected)


@pytest.fixture(scope="module")
def library():
    path = os.environ.get("LIBTENSORMSG")
    if not path:
        pytest.skip("LIBTENSORMSG does not say where the library is")
    if os.environ.get("TMSG_SANITIZE"):
        pytest.skip("a sanitizer's library does not load into Python")
    return ctypes.CDLL(path)


def library_decode(library, header):
    """The library's view of a header, or its refusal."""
    text = ctypes.c_char_p()
    status = library.tmsg_header_to_json(header, ctypes.c_size_t(len(header)),
                                         ctypes.byref(text))
    if status != 0:
        library.tmsg_error_message.restype = ctypes.c_char_p
        raise Refused(STATUS[status],
                      library.tmsg_error_message().decode("utf-8"))
    value = text.value
    library.tmsg_string_free(text)
    return json.loads(value)


def attempt(decode, *args):
    try:
        return decode(*args), None
    except Refused as refused:
        return None, refused


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_second_decoder_reads_golden(path):
    view = wire_decoder.to_json(wire_decoder.decode(read_listing(path)[1]))
    assert same(view, json.loads(path.with_suffix(".json").read_text()))


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_second_decoder_refuses_golden(path):
    status, header = read_listing(path)
    with pytest.raises(Refused) as refused:
        wire_decoder.decode(header)
    assert refused.value.status == status


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_library_reads_golden(library, path):
    view = library_decode(library, read_listing(path)[1])
    assert same(view, json.loads(path.with_suffix(".json").read_text()))


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_library_refuses_golden(library, path):
    status, header = read_listing(path)
    with pytest.raises(Refused) as refused:
        library_decode(library, header)
    assert refused.value.status == status, refused.value


def receive_schemas():
    """What one channel brings, and the schemas that are kept behind it."""
    channel = {}
    views = [wire_decoder.decode(read_listing(path)[1], channel)
             for path in SCHEMA]
    return views, channel


def test_second_decoder_keeps_schemas():
    assert len(SCHEMA) > 10
    for path, view in zip(SCHEMA, receive_schemas()[0]):
        view = wire_decoder.to_json(
            {key: view[key] for key in ("tensors", "metadata")})
        assert same(view, json.loads(path.with_suffix(".json").read_text()))


@pytest.mark.parametrize("path", SCHEMA_INVALID, ids=lambda path: path.stem)
def test_second_decoder_refuses_references(path):
    status, header = read_listing(path)
    with pytest.raises(Refused) as refused:
        wire_decoder.decode(header, receive_schemas()[1])
    assert refused.value.status == status


def random_tensor(rng, index):
    code, bits = rng.choice(list(wire_decoder.DTYPES))
    lanes = rng.choice([1, 1, 1, 2, 16, 65535])
    shape = [rng.choice([0, 1, 1, 2, 3, 200, 70000])
             for _ in range(rng.choice([0, 1, 2, 3, 3, 8]))]
    fields = [f"t{index}" + rng.choice(["", "é", "x" * 40]), code, bits, lanes,
              shape]
    options = {}
    if rng.random() < .3:
        strides, step = [0] * len(shape), 1
        for axis in rng.sample(range(len(shape)), len(shape)):
            strides[axis], step = step, step * shape[axis]
        if max(strides, default=0) < 2**40:
            options[1] = strides
    if shape and rng.random() < .3:
        options[4] = 1
        options[1] = [rng.choice([0, 1, 1, 2, -1, -3, 70000, 2**40, -2**62])
                      for _ in shape]
    if rng.random() < .3:
        options[2] = [rng.choice([1, 2, 3, 10, 13, 77]), rng.randrange(9)]
    if rng.random() < .1:
        options[rng.randrange(5, 99)] = {"a": [None, 1.5]}
    return fields + [options] * bool(options)


def random_metadata(rng):
    values = [lambda: rng.getrandbits(64) - 2**63, lambda: rng.random(),
              lambda: rng.random() < .5, lambda: rng.randbytes(rng.randrange(9)),
              lambda: rng.gauss(0, 1e300), lambda: "ü" * rng.randrange(40)]
    metadata = {f"key{i}": rng.choice(values)() for i in range(rng.randrange(6))}
    if rng.random() < .2:
        metadata[rng.choice([*wire_decoder.RESERVED, "tensormsg.new"])] = (
            rng.choice(values)())
    return metadata


def random_schema(rng, tensors):
    """Key and value of a definition or a reference; few are damaged."""
    slot = [rng.choice([0, 1, 127, 128, 255]), rng.randrange(256)]
    if rng.random() < .1:
        slot[rng.randrange(2)] = rng.choice([-1, 256, None, 2**63])
    places, first = [], 0
    for fields in tensors:
        if len(fields) < 6 or not fields[5].get(1):
            places += range(first, first + len(fields[4]))
        first += len(fields[4])
    if rng.random() < .5:
        numbers = [rng.getrandbits(rng.randrange(63)) for _ in range(
            rng.choice([0, 1, 2, 15, 16, 256, 257]))]
    else:
        numbers = sorted(rng.sample(places, rng.randrange(len(places) + 1)))
    return slot + rng.choice([[], [numbers], [numbers, {"more": 1}]])


def random_parts(rng, tensors):
    parts = [rng.choice([0, 1, 16, 64, 2**20, 2**63 - 1]),
             rng.choice([4095, 4096, 4096, 4096, 2**63 - 1])]
    if rng.random() < .5:
        parts.append(rng.randbytes(tensors // 8 + rng.randrange(2)))
    return parts


def random_body(rng):
    body = {1: [random_tensor(rng, i) for i in range(rng.randrange(6))]}
    if rng.random() < .2:
        body[3] = random_schema(rng, body[1])
    elif rng.random() < .2:
        body[-1] = random_schema(rng, body[1])
        if rng.random() < .9:
            del body[1]
    if rng.random() < .5:
        body[2] = random_metadata(rng)
    if rng.random() < .3:
        body[-2] = [rng.choice([1] * 9 + [2]), rng.randbytes(
            8 * len(body.get(1, ())))]
    if rng.random() < .2:
        body[-3] = random_parts(rng, len(body.get(1, ())))
    return msgpack.packb(body)


def with_preamble(body):
    """A header around a body, with the payload length that fits it."""
    try:
        payload = wire_decoder.decode_body(body)[2]
    except Refused:
        payload = 0
    return (b"TM\0\x21\1" + bytes(15) + len(body).to_bytes(4, "little") +
            payload.to_bytes(8, "little") + b"\0" + body)


def damage(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(data))
        how = rng.randrange(4)
        if how == 0:
            data[at] = rng.randrange(256)
        elif how == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 2 and len(data) > 1:
            del data[at]
        else:
            data.insert(at, rng.choice(b"\x00\x80\x90\xa0\xc0\xca\xd9\xdd\xff"))
    return bytes(data)


def agree(library, header, statuses):
    """Whether both accept it; the kind of error is compared, too. statuses
    counts the cases in which only one kind is right."""
    expected, refusal = attempt(wire_decoder.decode, header)
    view, library_refusal = attempt(library_decode, library, header)
    assert (refusal is None) == (library_refusal is None), (
        header.hex(), refusal, library_refusal)
    assert same(view, wire_decoder.to_json(expected)), header.hex()
    if refusal:
        assert library_refusal.status in refusal.right, (
            header.hex(), refusal, library_refusal)
        if len(refusal.right) == 1:
            statuses[refusal.status] += 1
    return refusal is None


def test_decoders_agree_on_made_up_headers(library):
    rng, statuses = random.Random(1), collections.Counter()
    accepted = sum(agree(library, with_preamble(random_body(rng)), statuses)
                   for _ in range(ROUNDS))
    assert accepted > ROUNDS / 2
    assert statuses["LIMIT_EXCEEDED"] and statuses["MALFORMED"]


def test_decoders_agree_on_damaged_headers(library):
    rng, statuses = random.Random(2), collections.Counter()
    accepted = 0
    for _ in range(3 * ROUNDS):
        body = damage(rng, random_body(rng))
        _, refusal = attempt(wire_decoder.decode_body, body)
        if refusal and re.search("imestamp|code must be", str(refusal)):
            continue  # the msgpack package looks into extensions, we do not
        accepted += agree(library, with_preamble(body), statuses)
    assert accepted > ROUNDS / 10
    assert min(statuses[status] for status in (
        "MALFORMED", "UNSUPPORTED", "LIMIT_EXCEEDED")) > ROUNDS / 100, statuses


def test_decoders_agree_on_damaged_preambles(library):
    rng, statuses = random.Random(3), collections.Counter()
    for _ in range(ROUNDS):
        header = with_preamble(random_body(rng))
        agree(library, damage(rng, header[:33]) + header[33:], statuses)
    assert len(statuses) == 4, statuses


@pytest.mark.parametrize("keys", [65536, 65537])
def test_decoders_agree_on_the_number_of_keys(library, keys):
    header = with_preamble(msgpack.packb({1: [], 2: dict.fromkeys(
        map(str, range(keys)), True)}))
    assert agree(library, header, collections.Counter()) == (keys == 65536)


# Beside tests/serialize/test_call.c: the bytes from 33 on, and what they are.
CALLS = [
    (16, "01 00 03 00000000 0300000007000000 0201000000000000 73756d",
     {"type": "request", "left_us": 0x102, "text": "sum"}),
    (16, "02 01 02 feffffff 0300000007000000 fdffffff00000000 6e6f",
     {"type": "reply", "not_run": True, "status": -2, "code": -3,
      "text": "no"}),
    (18, "03 00 03 00000000 0300000007000000 0201000000000000 73756d",
     {"type": "open", "left_us": 0x102, "text": "sum"}),
    (18, "04 00 00 00000000 0300000007000000 0000000000000000",
     {"type": "item"}),
    (18, "05 00 00 00000000 0300000007000000 0000000000000000",
     {"type": "finish"}),
    (18, "06 00 02 feffffff 0300000007000000 0700000000000000 6e6f",
     {"type": "end", "status": -2, "code": 7, "text": "no"}),
    (19, "07 00 00 00000000 0300000007000000 0000000001040000",
     {"type": "cancel", "stream": 1025}),
    (19, "08 01 02 feffffff 0300000007000000 ffffffff02040000 6e6f",
     {"type": "over", "not_run": True, "status": -2, "code": -1,
      "stream": 1026, "text": "no"}),
]


@pytest.mark.parametrize("kind, tail, wanted", CALLS)
def test_preambles_of_calls_and_streams(kind, tail, wanted):
    tail = bytes.fromhex(tail)
    header = (b"TM\0" + bytes([33 + len(tail), kind]) + bytes(28) + tail)
    call = wire_decoder.decode_call(header)
    rest = ({"left_us": 0} if "left_us" in wanted
            else {"code": 0, "stream": 0})
    assert call == {"not_run": False, "status": 0, "id": 0x700000003,
                    "text": "", **rest, **wanted}
    with pytest.raises(Refused):
        wire_decoder.decode_call(header[:3] + bytes([55]) + header[4:])
