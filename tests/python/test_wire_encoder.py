# SPDX-License-Identifier: BSD-3-Clause
"""What the library's encoder writes (the program encode_maps prints it), read
by the decoder that was written from docs/wire/wire-format.md alone: exactly the
maps that were made up here."""

import gc
import math
import os
import random
import struct
import subprocess

import pytest

import wire_decoder
from wire_decoder import DEVICES, DTYPES, RESERVED, repeats

pytestmark = pytest.mark.once

ROUNDS = int(os.environ.get("TMSG_WIRE_ROUNDS", "1000"))
NAMES = ["weight", "層.0/重み", "ünïcode", "Ω", "with space", 'quote"\\', "🙂",
         "عربي", "line\nbreak", "\x01\x7f", "e\u0301", "\U0010ffff", "-"]
LENGTHS = [0, 1, 31, 32, 255, 256, 65535, 65536, 70000]  # msgpack's steps
NUMBERS = sorted({
    sign * (1 << bits) + more for bits in (0, 5, 7, 8, 15, 16, 31, 32, 53, 62)
    for sign in (1, -1) for more in (-1, 0, 1)} | {2**63 - 1, -2**63})
FLOATS = [0x0000000000000000, 0x8000000000000000, 0x0000000000000001,
          0x3ff8000000000000, 0x7ff0000000000000, 0xfff0000000000000,
          0x7ff8000000000000, 0x7fefffffffffffff, 0x3fb999999999999a]


def spell(text):
    data = text if isinstance(text, bytes) else text.encode()
    return data.hex() or "-"


class Map:
    """A map as the encoder is told it, and as a decoder must show it."""

    def __init__(self):
        self.lines, self.tensors, self.metadata, self.sizes = [], [], {}, []

    def add(self, name, dtype, shape, lanes=1, strides=None, device=(1, 0)):
        code, bits = dtype
        self.lines.append(" ".join(map(str, [
            "t", spell(name), code, bits, lanes, *device, len(shape), *shape,
            *(strides or [])])))
        size = (math.prod(shape) * bits * lanes + 7) // 8
        size //= repeats(shape, strides or ())
        self.sizes.append((bits * lanes, size))
        kind = DEVICES.get(device[0], f"device({device[0]})")
        sent = goes_along(shape, strides)
        sent = {"strides": sent} if sent else {}
        self.tensors.append({
            "name": name, "dtype": DTYPES[dtype] + f"x{lanes}" * (lanes > 1),
            "shape": list(shape), **sent, "device": f"{kind}:{device[1]}",
            "bytes": size})

    def set(self, key, value):
        letter, kind, said = {
            bool: ("b", "bool", int), int: ("i", "i64", int),
            float: ("f", "f64", lambda v: struct.pack(">d", v).hex()),
            str: ("s", "string", spell), bytes: ("x", "bytes", spell),
        }[type(value)]
        self.lines.append(f"m {spell(key)} {letter} {said(value)}")
        self.metadata[key] = {kind: value}

    def payload_bytes(self):
        end = 0
        for bits, size in self.sizes:
            if size:
                step = min(64, max(16, 1 << ((bits + 7) // 8 - 1).bit_length()))
                end = -(-end // step) * step + size
        return end


def goes_along(shape, strides):
    """The strides that are sent: where they say more than C order, and are
    dense; of what is packed those that are 0, and of C order."""
    if not strides or 0 in shape:
        return None
    steps = [(s, n) for s, n in zip(strides, shape) if n > 1]
    c_order = [(math.prod(n for _, n in steps[i + 1:]), n)
               for i, (_, n) in enumerate(steps)]
    dense, expected = True, 1
    for stride, extent in sorted(step for step in steps if step[0]):
        dense, expected = dense and stride == expected, expected * extent
    if steps == c_order or not dense and all(s for s, _ in steps):
        return None
    once = [n if s else 1 for s, n in zip(strides, shape)]
    return strides if dense else [
        s and math.prod(once[axis + 1:]) for axis, s in enumerate(strides)]


def exact(view):
    """Comparable by ==, with the types, the bits of floats and the order."""
    if isinstance(view, dict):
        return [(key, exact(item)) for key, item in view.items()]
    if isinstance(view, (list, tuple)):
        return [exact(item) for item in view]
    if isinstance(view, float):
        return float, struct.pack(">d", view)
    return type(view), view


def encode(maps, *options):
    """The words that encode_maps prints."""
    told = "\n".join("\n".join([*each.lines, "."]) for each in maps) + "\n"
    return subprocess.run([os.environ["TMSG_ENCODE_MAPS"], *options],
                          input=told, stdout=subprocess.PIPE, text=True,
                          check=True).stdout


@pytest.fixture(autouse=True)
def no_collector():
    """It goes through millions of tuples that none of them refers to."""
    gc.disable()
    yield
    gc.enable()


def must_arrive(maps):
    headers = encode(maps).split()
    assert len(headers) == len(maps)
    for each, header in zip(maps, headers):
        data = bytes.fromhex(header)
        view = wire_decoder.decode(data)
        told = "\n".join(each.lines)
        assert exact(view["tensors"]) == exact(each.tensors), told
        assert exact(view["metadata"]) == exact(each.metadata), told
        preamble = view["preamble"]
        assert preamble["payload_bytes"] == each.payload_bytes(), told
        assert preamble["preamble_bytes"] + preamble["body_bytes"] == len(data)


@pytest.mark.parametrize("lanes", [1, 2, 255, 256, 65535])
def test_every_dtype(lanes):
    one = Map()
    for dtype in DTYPES:
        for shape in ((), (1,), (7,), (2, 3, 5), (0,), (4, 0, 2)):
            one.add(f"{dtype} {shape}", dtype, shape, lanes)
    must_arrive([one])


def test_numbers_names_and_values_of_every_length():
    maps = []
    for length in LENGTHS:
        one = Map()
        for key, value in {"s": "é" * (length // 2) + "a" * (length % 2),
                           "x": b"\0\xff"[:length] * max(1, length // 2)}.items():
            one.set(key, value)
        if 0 < length <= 4096:
            one.set("k" * length, True)
            one.add("n" * length, (2, 32), (1,))
        maps.append(one)
    one = Map()
    for number in NUMBERS:
        one.set(f"i {number}", number)
        if 0 <= number < 2**32:
            one.add(f"extent {number}", (1, 8), (number,))
            one.add(f"device {number}", (1, 8), (),
                    device=(min(number, 2**31 - 1) or 1,
                            min(number, 2**31 - 1)))
        if number >= 0:
            one.add(f"empty {number}", (2, 64), (number, 0))
    for bits in FLOATS:
        one.set(f"f {bits:x}", struct.unpack(">d", bits.to_bytes(8, "big"))[0])
    must_arrive([*maps, one])


def test_names_in_several_scripts():
    one = Map()
    for name in [*NAMES, "層" * 1365 + "a"]:  # 4096 bytes
        one.add(name, (2, 32), (2,))
        one.set(name, f"NUL \0 and {name}")
    for key, kind in RESERVED.items():
        one.set(key, {"i64": 7, "string": "text", "bytes": b"bytes"}[kind])
    must_arrive([one])


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65536] + (
    [] if os.environ.get("TMSG_SANITIZE") else [65535]))  # Python's time
def test_counts(count):
    """Of tensors and keys, in each of msgpack's forms of an array and map."""
    tensors, keys = Map(), Map()
    for i in range(count):
        tensors.add(f"{i}", (2, 32), (i % 3,))
        keys.set(f"{i}", i)
    must_arrive([tensors, keys])


@pytest.mark.parametrize("ndim", [0, 1, 15, 16, 64])
def test_dimensions(ndim):
    one, two = Map(), Map()
    shape = [2 if axis < 30 else 1 for axis in range(ndim)]
    fortran = [2 ** min(axis, 30) for axis in range(ndim)]
    one.add("C", (1, 8), shape)
    two.add("Fortran", (1, 8), shape, strides=fortran)
    must_arrive([one, two])


def random_strides(rng, shape):
    strides, step = [0] * len(shape), 1
    for axis in rng.sample(range(len(shape)), len(shape)):
        strides[axis] = step
        step *= max(1, shape[axis])
    what = rng.randrange(6)
    if what == 0 and shape:  # no more a permutation of C order
        axis = rng.randrange(len(shape))
        strides[axis] = rng.choice([0, -1, 2, 3]) * strides[axis]
    elif what == 1:  # what a dimension of extent 1 says is nothing
        strides = [rng.randrange(99) if n == 1 else s
                   for s, n in zip(strides, shape)]
    return strides


def random_value(rng):
    return rng.choice([
        lambda: rng.random() < .5, lambda: rng.choice(NUMBERS),
        lambda: rng.getrandbits(64) - 2**63, lambda: rng.gauss(0, 1e300),
        lambda: struct.unpack(
            ">d", rng.choice(FLOATS).to_bytes(8, "big"))[0],
        lambda: rng.choice(NAMES) * rng.randrange(40),
        lambda: rng.randbytes(rng.randrange(300))])()


def random_map(rng):
    one = Map()
    for i in range(rng.choice([0, 1, 2, 3, 5, 20])):
        shape = [rng.choice([0, 1, 1, 2, 3, 9, 17])
                 for _ in range(rng.choice([0, 1, 2, 3, 4]))]
        if shape and len(shape) < 3 and rng.random() < .3:
            shape[-1] = rng.choice([127, 128, 255, 256, 65535, 65536])
        device = (1, 0) if rng.random() < .7 else (
            rng.choice([1, 2, 3, 10, 13, 77, 2**31 - 1]), rng.randrange(300))
        dtype, lanes = rng.choice(list(DTYPES)), rng.choice([1, 1, 2, 4, 300])
        strided = dtype[1] * lanes % 8 == 0 and rng.random() < .5
        strides = random_strides(rng, shape) if strided else None
        one.add(f"{rng.choice(NAMES)} {i}", dtype, shape, lanes, strides,
                device)
    for i in range(rng.choice([0, 0, 1, 3, 17])):
        one.set(f"{rng.choice(NAMES)} {i}", random_value(rng))
    return one


def test_made_up_maps():
    rng = random.Random(4)
    maps = [random_map(rng) for _ in range(ROUNDS)]
    must_arrive(maps)
    sent = sum("strides" in tensor for one in maps for tensor in one.tensors)
    assert sent > ROUNDS / 10


def small_map(rng):
    """Tensors of which all is within the memory that encode_maps has."""
    one = Map()
    for i in range(rng.randrange(1, 6)):
        shape = [rng.choice([0, 1, 2, 3, 7, 20]) for _ in range(rng.randrange(4))]
        dtype = rng.choice([each for each in DTYPES if each[1] % 8 == 0])
        strides = rng.choice([None, random_strides(rng, shape)])
        one.add(f"{rng.choice(NAMES)} {i}", dtype, shape, strides=strides)
    return one


def test_checksums_are_of_the_payload():
    rng = random.Random(6)
    maps = [small_map(rng) for _ in range(300)]
    found = 0
    for line in encode(maps, "with payloads").splitlines():
        header, payload = map(bytes.fromhex, line.split(" "))
        assert wire_decoder.corrupt(header, payload) == []
        tensors = wire_decoder.decode(header)["tensors"]
        for at in rng.sample(range(len(payload)), min(9, len(payload))):
            damaged = bytearray(payload)
            damaged[at] ^= 1 << rng.randrange(8)
            names = wire_decoder.corrupt(header, bytes(damaged))
            assert len(names) <= 1  # none: it was a gap
            found += len(names)
        assert len(payload) >= sum(each["bytes"] for each in tensors)
    assert found > 1000
