# SPDX-License-Identifier: BSD-3-Clause
"""Writes the listings of v0/: generate_v0.py [FOLDER]

A listing is a message header in hex with remarks behind '#'. What lies in v0/
is frozen: a file that exists is compared, never overwritten. Add a case here,
run this, and look at the new file by eye. Beside each valid NAME.hex lies
NAME.json, what tmsg_header_to_json() makes of it; it is written by hand, or
taken from the library and checked by hand. In schema/ lie headers that one
reader gets on one channel in order of their names, with tmsg_map_to_json() of
what it makes of each; in schema_invalid/ those that it then refuses.
"""

import pathlib
import struct
import sys

import msgpack


def pack(value):
    return msgpack.packb(value)


class Header:
    """Collects (bytes, remark) lines of a body; the preamble comes first."""

    def __init__(self, cut=None, **fields):
        self.cut = cut  # bytes that remain of the first line, of nothing else
        self.fields = fields
        self.lines = []

    def add(self, data, remark):
        self.lines.append((data, remark))
        return self

    def body(self, sections):
        return self.add(bytes([0x80 + sections]), f"body: {sections} sections")

    def tensors(self, *tensors):
        self.add(pack(1), "key 1: tensors")
        self.add(msgpack.Packer().pack_array_header(len(tensors)),
                 f"{len(tensors)} of them")
        for tensor in tensors:
            self.add(pack(tensor), repr(tensor)[:60])
        return self

    def define(self, *value):
        return self.add(pack(3) + pack(value), f"key 3: definition {value}")

    def refer(self, *value):
        return self.add(pack(-1) + pack(value), f"key -1: reference {value}")

    def metadata(self, metadata):
        self.add(pack(2), "key 2: metadata")
        self.add(msgpack.Packer().pack_map_header(len(metadata)),
                 f"{len(metadata)} entries")
        for key, value in metadata.items():
            self.add(pack(key) + pack(value), f"{key}: {value!r}"[:60])
        return self

    def checksums(self, *values, algorithm=1, raw=None):
        self.add(pack(-2), "key -2: checksums")
        data = raw or b"".join(struct.pack("<Q", value) for value in values)
        return self.add(pack([algorithm, data]), f"algorithm {algorithm}")

    def parts(self, *value):
        return self.add(pack(-3) + pack(value), f"key -3: parts {value}")

    def loan(self, *value):
        return self.add(pack(-4) + pack(value), f"key -4: loan {value}")

    def preamble(self):
        field = dict(magic=b"TM", version=0, length=33, kind=1, flags=0,
                     channel=0, message_id=7, endpoint_id=2, sequence=5,
                     body=sum(len(data) for data, _ in self.lines), payload=0,
                     policy=0, more=b"")
        field.update(self.fields)
        data = field["magic"] + struct.pack(
            "<BBBBHIIIIQ", *(field[name] for name in (
                "version", "length", "kind", "flags", "channel", "message_id",
                "endpoint_id", "sequence", "body", "payload")))
        if field["length"] > 32:
            data += bytes([field["policy"]])
        return [(data[:8], "magic, version, length, kind, flags, channel"),
                (data[8:16], "message id, endpoint id"),
                (data[16:24], "sequence, body length"),
                (data[24:32], "payload length"),
                (data[32:] + field["more"], "policy and later fields")]

    def all(self):
        if self.cut is not None:
            return [(self.preamble()[0][0][:self.cut], "and no more")]
        return [line for line in self.preamble() + self.lines if line[0]]


def one(tensor, payload=24, **fields):
    return Header(payload=payload, **fields).body(1).tensors(tensor)


def two(tensor):
    """One tensor, and room for another section."""
    return Header(payload=24).body(2).tensors(tensor)


def lent():
    """One tensor, and room for its place."""
    return Header(payload=0).body(2).tensors(x())


def x(*, name="x", code=2, bits=32, lanes=1, shape=(2, 3), more=()):
    return [name, code, bits, lanes, list(shape), *more]


def raw(*parts, **fields):
    """A body of hand-written bytes."""
    return Header(**fields).add(b"".join(parts), "")


BODY = b"\x81\x01\x91"  # {1: [one tensor]}

DTYPES = ([(0, b) for b in (1, 2, 4, 8, 16, 32, 64)] +
          [(1, b) for b in (1, 2, 4, 8, 16, 32, 64)] +
          [(2, b) for b in (16, 32, 64)] +
          [(3, b) for b in (8, 16, 32, 64, 128)] + [(4, 16)] +
          [(5, b) for b in (32, 64, 128)] + [(6, 8)] +
          [(code, 8) for code in range(7, 15)] + [(15, 6), (16, 6), (17, 4)])

VALID = {
    "minimal_dialect": one(x(), length=32),
    "empty_map": Header().body(1).tensors(),
    "no_sections": Header().body(0),
    "typical": Header(channel=3, sequence=2**32 - 1, payload=64 * 48 + 1200,
                      policy=1, flags=2).body(2).tensors(
        ["image", 1, 8, 1, [32, 32, 3]],
        ["mask", 6, 8, 1, [10, 120], {2: [2, 1]}]).metadata(
        {"tensormsg.frame": 41, "exposure": 0.25, "camera": "left"}),
    "every_dtype": Header(payload=0).body(1).tensors(
        *([f"t{code}_{bits}", code, bits, 1, [0]] for code, bits in DTYPES)),
    "opaque_widths": Header(payload=0).body(1).tensors(
        *([f"o{bits}", 3, bits, 1, [0]] for bits in range(8, 256, 8))),
    "shapes": Header(payload=84).body(1).tensors(
        ["scalar", 2, 64, 1, []], ["none", 2, 64, 1, [3, 0, 2**40]],
        ["ones", 1, 8, 1, [1] * 64], ["row", 0, 16, 1, [5]],
        ["packed", 17, 4, 1, [3]], ["lanes", 2, 32, 4, [1]],
        ["bits", 1, 1, 3, [9, 1]]),
    "strides": Header(payload=256).body(1).tensors(
        ["fortran", 0, 8, 1, [2, 3], {1: [1, 2]}],
        ["middle", 0, 8, 1, [2, 3, 4], {1: [12, 1, 3]}],
        ["ones", 0, 8, 1, [3, 1, 2], {1: [1, -9, 3]}],
        ["c_order", 0, 8, 1, [2, 3], {1: [3, 1]}],
        ["empty", 0, 8, 1, [0, 3], {1: [-2**63, 2**63 - 1]}],
        ["scalar", 0, 64, 16, [], {1: []}]),
    "strides_zero": Header(payload=129).body(1).tensors(
        ["rows", 2, 32, 1, [1000, 2, 3], {1: [0, 3, 1]}],
        ["columns", 2, 32, 1, [2, 3, 1000], {1: [3, 1, 0], 3: 24}],
        ["Fortran", 0, 16, 1, [2, 7, 3], {1: [1, 0, 2]}],
        ["one", 0, 8, 1, [40, 50], {1: [0, 0]}],
        ["limit", 1, 8, 1, [2**39], {1: [0]}],
        ["empty", 0, 8, 1, [0, 9], {1: [0, 0]}],
        ["ones", 0, 8, 1, [1, 5, 1], {1: [0, 1, 0]}],
        ["lanes", 17, 4, 2, [9], {1: [0]}]),
    "spans": Header(payload=3561).body(1).tensors(
        ["x", 2, 32, 1, [3, 2], {1: [-4, 2], 4: 1}],
        ["columns", 1, 8, 1, [100, 3], {1: [10, 1], 3: 993, 4: 1}],
        ["back", 5, 64, 1, [7], {1: [-1], 4: 1}],
        ["windows", 0, 16, 1, [1000, 64], {1: [1, 1], 2: [2, 3], 4: 1}],
        ["repeats", 1, 8, 1, [2**38, 2], {1: [0, -5], 4: 1}],
        ["empty", 1, 8, 1, [9, 0], {1: [-7, 2**40], 4: 1}],
        ["one", 3, 128, 1, [1, 1], {1: [2**62, -2**63], 4: 1}],
        ["dense", 1, 8, 1, [2, 2, 2], {1: [2, 4, 1], 4: 1}],
        ["lanes", 17, 4, 6, [2, 2], {1: [-20, 60], 4: 1}],
        ["raw", 1, 8, 1, [9], {4: 0}]),
    "devices": Header(payload=36).body(1).tensors(
        ["a", 0, 32, 1, [1], {2: [1, 0]}],
        ["b", 0, 32, 1, [1], {2: [13, 2**31 - 1]}],
        ["c", 0, 32, 1, [], {2: [99, 7], 3: 4, 4: 0}]),
    "metadata": Header().body(2).tensors().metadata({
        "yes": True, "no": False, "zero": 0, "low": -2**63,
        "high": 2**63 - 1, "exact": 2**53, "beyond": -2**53 - 1,
        "half": 0.5, "nan": float("nan"), "inf": float("inf"),
        "-inf": float("-inf"), "tenth": 0.1, "-0": -0.0, "text": "h\u00e9 \"\n",
        "nul": "a\0b", "no text": "", "blob": bytes(range(250, 256)),
        "no blob": b"", "\u6f22\u5b57": "\U0001f40d",
        "tensormsg.of.the.future": 1}),
    "float32_metadata": Header().body(1).add(
        bytes.fromhex("02 81 a1 66 ca 3f c0 00 00"), "key 2: {'f': 1.5f}"),
    "checksums": Header(payload=16 + 4).body(3).tensors(
        ["empty", 2, 32, 1, [0]], ["zeros", 1, 8, 1, [3]],
        ["scalar", 0, 32, 1, []]).metadata({"k": 1}).checksums(
        0x2d06800538d394c2, 0x5bd1b4b8cc5b6c9f, 2**63),
    "checksums_first": Header(payload=24).body(2).checksums(1).tensors(x()),
    "checksums_of_nothing": Header().body(1).checksums(),
    "checksums_spilled": Header(flags=3, payload=64 + 24).body(2).tensors(
        x()).checksums(2**64 - 1),
    "parts": Header(payload=16 + 16).body(2).tensors(
        ["small", 1, 8, 1, [3]], ["large", 1, 8, 1, [4096]],
        ["empty", 1, 8, 1, [0]], ["middling", 3, 128, 1, [1]]).parts(
            4096, 2**20),
    "parts_slices": Header(payload=0).body(2).tensors(
        ["small", 1, 8, 1, [3]], ["large", 1, 8, 1, [70000]],
        ["empty", 1, 8, 1, [0]], ["middling", 3, 128, 1, [4000]]).parts(
            70000, 2**20, b"", 4096),
    "loan": Header(payload=0, flags=0x80).body(2).tensors(
        ["a", 2, 32, 1, [2, 3]], ["empty", 1, 8, 1, [0]],
        ["b", 1, 8, 1, [7]]).loan(3, 64, 0, 0, 2**32 - 1, 2**40),
    "loan_beside_reference": Header(payload=0, flags=0x80).body(2).refer(
        3, 1).loan(1, 0),
    "parts_others": Header(payload=16 + 4).body(2).parts(
        2**63 - 1, 4096, b"\x02").tensors(
        ["a", 1, 8, 1, [3]], ["b", 13, 8, 1, [9000]], ["c", 0, 32, 1, []]),
    "parts_beside_reference": Header(payload=8).body(2).refer(3, 1).parts(
        1, 2**22, b"\xff\xff"),
    "parts_all_and_checksums": Header().body(3).tensors(
        ["a", 1, 8, 1, [3]]).checksums(1).parts(1, 4096, b"\0\0\0"),
    "names": Header().body(1).tensors(
        *([n, 1, 8, 1, [0]] for n in (" ", "a/b", "\u00e9", "e\u0301",
                                      "\U0001f40d", "\x7f", "n" * 300))),
    "metadata_first": Header(payload=24).body(2).metadata(
        {"k": 1}).tensors(x()),
    "long_forms": raw(bytes.fromhex(
        "df 00 00 00 01 d3 00 00 00 00 00 00 00 01 dd 00 00 00 01"
        "dc 00 06 db 00 00 00 01 78 cd 00 02 cf 00 00 00 00 00 00 00 20"
        "d1 00 01 dd 00 00 00 02 ce 00 00 00 02 cc 03 de 00 00"), payload=24),
    "unknown_passed_over": Header(
        length=40, more=b"\x09\xff\xff\xff\xff\xff\xff", flags=0xf0,
        payload=24).body(3).add(
            pack(7) + pack({"a": [1, None, {b"b": msgpack.ExtType(5, b"xy")}]}),
            "key 7, of the future").tensors(
        x(more=({5: [1, b"\x01\x02\x03\x04"], 2**40: {}}, 1.5, "more"))
        ).add(pack(8) + b"\xa2\xff\xfe", "key 8: a str that is not UTF-8"),
    "unknown_keys_twice": raw(
        b"\x85\x00\x01\x00\x02\x09\x03\x09\x04" + BODY[1:] + b"\x96" +
        pack(x())[1:] + b"\x82\x00\xc0\x00\xc0", payload=24),
    "nested_16": raw(b"\x82\x01\x90\x07" + b"\x91" * 16 + b"\x00"),
    "bytes_after_body": Header(body=12, payload=24).body(1).tensors(
        x()).add(b"\xde\xad", "bytes after the body"),
    "spilled": Header(flags=1, body=4000, payload=4032 + 24),
    "spilled_captured": Header(flags=1, payload=64 + 24).body(1).tensors(x()),
    "other_kind": raw(b"\xc1\xff", kind=200),
}

TWO = (["x", 2, 32, 1, [2, 3]], ["m", 6, 8, 1, [2, 5], {1: [1, 2], 2: [2, 1]}],
       ["s", 0, 64, 1, []], ["y", 1, 8, 1, [4]])  # extents 0, 1, strided 2, 3, 4
VALID |= {
    "schema_definition": Header(payload=68).body(2).define(0, 0).tensors(*TWO),
    "schema_varying": Header(payload=68).body(3).tensors(*TWO).metadata(
        {"k": 1}).define(255, 255, [0, 4]),
    "schema_more": Header(payload=68).body(2).define(
        1, 128, [], {"of": "the future"}).tensors(*TWO),
    "schema_reference": Header(payload=68).body(1).refer(0, 0),
    "schema_extents": Header(payload=2**40).body(2).metadata(
        {"k": 1}).refer(255, 255, [0, 2**63 - 1], None),
    "schema_negative": Header().body(1).refer(0, 0, [-1]),  # until resolved
    "schema_256": Header().body(1).refer(0, 0, list(range(256))),
}

# What is sent on one channel, in order, and what a reader refuses behind it.
SCHEMA = {
    "01_definition": Header(payload=68).body(2).define(0, 0).tensors(*TWO),
    "02_reference": Header(payload=68).body(1).refer(0, 0),
    "03_reference_metadata": Header(payload=68).body(2).refer(0, 0).metadata(
        {"tensormsg.frame": 3, "text": "x"}),
    "04_in_full": Header(payload=24).body(1).tensors(x()),
    "05_redefinition": Header(payload=68).body(2).tensors(*TWO).define(
        0, 1, [0, 4]),
    "06_extents": Header(payload=108).body(1).refer(0, 1, [5, 12]),
    "07_extents_metadata": Header(payload=40).body(2).metadata(
        {"k": True}).refer(0, 1, [0, 8]),
    "08_extents_empty": Header(payload=56).body(1).refer(0, 1, [2, 0]),
    "09_other_slot": Header(payload=24).body(2).define(255, 255).tensors(x()),
    "10_both_slots": Header(payload=24).body(1).refer(255, 255),
    "11_generation_0": Header(payload=6).body(2).define(
        255, 0, [0, 1]).tensors(["z", 1, 8, 1, [2, 3]]),
    "12_generation_0": Header(payload=700).body(1).refer(255, 0, [7, 100]),
    "13_first_slot": Header(payload=68).body(1).refer(0, 1, [2, 4]),
    "14_empty_map": Header().body(2).define(3, 9).tensors(),
    "15_empty_map": Header().body(1).refer(3, 9),
    "16_spilled": Header(flags=1, payload=64 + 68).body(1).refer(0, 1, [2, 4]),
}

SPANS = (["x", 2, 32, 1, [3, 2], {1: [4, 2], 4: 1}], ["y", 1, 8, 1, [4]],
         ["z", 1, 8, 1, [5], {1: [-3], 4: 1}])
SCHEMA |= {
    "17_spans": Header(payload=77).body(2).define(1, 0, [2]).tensors(*SPANS),
    "18_spans": Header(payload=109).body(1).refer(1, 0, [33]),
}

M, U, L, I = "MALFORMED", "UNSUPPORTED", "LIMIT_EXCEEDED", "INCOMPATIBLE"
INVALID = {
    "cut_at_0": (M, Header(cut=0)),
    "cut_at_3": (M, Header(cut=3)),
    "magic": (M, one(x(), magic=b"MT")),
    "version_1": (I, one(x(), version=1)),
    "preamble_short": (M, one(x(), length=31)),
    "preamble_beyond": (M, raw(length=255)),
    "body_beyond": (M, one(x(), body=13)),
    "spilled_beyond": (M, one(x(), flags=1, payload=63)),
    "payload_differs": (M, one(x(), payload=25)),
    "spilled_payload_differs": (M, one(x(), flags=1, payload=24 + 12)),
    "flag_critical": (U, one(x(), flags=4)),
    "policy_2": (U, one(x(), policy=2)),
    "no_body": (M, Header()),
    "body_not_map": (M, raw(b"\x90")),
    "body_trailing": (M, raw(b"\x81\x01\x90\x00")),
    "key_not_integer": (M, raw(b"\x81\xa1\x78\x90")),
    "key_twice": (M, raw(b"\x82\x01\x90\x01\x90")),
    "key_negative": (U, raw(b"\x81\xf7\x00")),
    "checksums_twice": (M, Header().body(2).checksums().checksums()),
    "checksums_missing": (M, two(x()).checksums()),
    "checksums_one_more": (M, two(x()).checksums(1, 2)),
    "checksums_7_bytes": (M, two(x()).checksums(raw=b"1234567")),
    "checksums_str": (M, raw(b"\x81\xfe\x92\x01\xa0")),
    "checksums_not_array": (M, raw(b"\x81\xfe\xc4\x00")),
    "checksums_3_elements": (M, raw(b"\x81\xfe\x93\x01\xc4\x00\x00")),
    "checksums_claim_all": (M, raw(b"\x81\xfe\x92\x01\xc6\xff\xff\xff\xff")),
    "checksum_algorithm_0": (U, Header().body(1).checksums(algorithm=0)),
    "checksum_algorithm_2": (U, Header().body(1).checksums(algorithm=2)),
    "checksum_algorithm_negative": (
        U, Header().body(1).checksums(algorithm=-1)),
    "byte_c1": (M, raw(b"\x81\x07\xc1")),
    "nested_17": (M, raw(b"\x82\x01\x90\x07" + b"\x91" * 17 + b"\x00")),
    "array_claims_all": (M, raw(b"\x81\x07\xdd\xff\xff\xff\xff")),
    "map_claims_half": (M, raw(b"\x81\x07\xdf\x00\x00\x00\x02\x00\x00\x00")),
    "tensors_claim_all": (M, raw(b"\x81\x01\xdd\xff\xff\xff\xff")),
    "tensors_claim_more": (M, raw(BODY[:2] + b"\x92" + pack(x()))),
    "tensors_not_array": (M, raw(b"\x81\x01\x80")),
    "tensor_not_array": (M, raw(BODY + b"\x80" + bytes(8))),
    "tensor_4_fields": (M, raw(BODY + pack(["xxxxx", 2, 32, 1]))),
    "name_empty": (M, one(x(name="", shape=(1, 1)))),
    "name_nul": (M, one(x(name="a\0b"))),
    "name_bin": (M, one(x(name=b"x"))),
    "name_not_utf8": (M, raw(BODY + b"\x95\xa2\xc3\x28\x02\x20\x01\x90")),
    "name_overlong": (M, raw(BODY + b"\x95\xa2\xc0\xaf\x02\x20\x01\x90")),
    "name_surrogate": (M, raw(BODY + b"\x95\xa3\xed\xa0\x80\x02\x20\x01\x90")),
    "name_twice": (M, Header().body(1).tensors(x(shape=[0]), x(shape=[0]))),
    "name_4097": (L, one(x(name="n" * 4097))),
    "dtype_code_18": (U, one(x(code=18))),
    "dtype_code_258": (U, one(x(code=258))),
    "dtype_negative": (U, one(x(code=-1))),
    "dtype_bits_24": (U, one(x(bits=24))),
    "dtype_bits_288": (U, one(x(bits=288))),
    "dtype_opaque_12": (U, one(x(code=3, bits=12))),
    "dtype_lanes_0": (U, one(x(lanes=0))),
    "dtype_lanes_65537": (U, one(x(lanes=65537))),
    "dtype_float": (M, one(x(code=2.0))),
    "dtype_beyond_63_bits": (M, one(x(code=2**63))),
    "ndim_65": (L, one(x(shape=[1] * 65))),
    "extent_negative": (M, one(x(shape=[2, -1]))),
    "extent_negative_beside_0": (M, one(x(shape=[0, -1]))),
    "extent_not_integer": (M, one(x(shape=["2"]))),
    "product_overflows": (L, one(x(shape=[2**31, 2**31]))),
    "product_overflows_64": (L, one(x(shape=[2**62, 4, 2**62]))),
    "strides_missing": (M, one(x(more=({1: [1]},)))),
    "strides_gap": (U, one(x(more=({1: [4, 1]},)))),
    "strides_zero_gap": (U, one(x(more=({1: [0, 2]},)))),
    "strides_zero_packed": (U, Header(payload=1).body(1).tensors(
        x(code=17, bits=4, shape=[4], more=({1: [0]},)))),
    "strides_zero_length": (M, one(x(more=({1: [0, 1]},)))),
    "strides_zero_bytes": (M, Header(payload=12).body(1).tensors(
        x(more=({1: [0, 1], 3: 24},)))),
    "strides_zero_overflow": (L, Header(payload=4).body(1).tensors(
        x(shape=[2**31, 2**31], more=({1: [0, 0]},)))),
    "strides_zero_limit": (L, Header(payload=1).body(1).tensors(
        x(code=1, bits=8, shape=[2**40 + 1], more=({1: [0]},)))),
    "strides_negative": (U, one(x(more=({1: [3, -1]},)))),
    "strides_overlap": (U, one(x(more=({1: [1, 1]},)))),
    "strides_span": (L, one(x(more=({1: [2**62, 1]},)))),
    "strides_span_least": (L, one(x(more=({1: [2**61 - 3, 1]},)))),
    "strides_span_within": (U, one(x(more=({1: [2**61 - 4, 1]},)))),
    "device_type_0": (M, one(x(more=({2: [0, 0]},)))),
    "device_type_large": (M, one(x(more=({2: [2**31, 0]},)))),
    "device_id_negative": (M, one(x(more=({2: [2, -1]},)))),
    "device_id_large": (M, one(x(more=({2: [2, 2**31]},)))),
    "device_one": (M, one(x(more=({2: [2]},)))),
    "bytes_differ": (M, one(x(more=({3: 23},)))),
    "bytes_negative": (M, one(x(more=({3: -24},)))),
    "encoding_1": (U, one(x(more=({4: 1},)))),
    "encoding_2": (U, one(x(more=({1: [3, 1], 4: 2},)))),
    "span_scalar": (U, Header(payload=4).body(1).tensors(
        x(shape=(), more=({1: [], 4: 1},)))),
    "span_packed": (U, Header(payload=2).body(1).tensors(
        x(code=17, bits=4, shape=[4], more=({1: [1], 4: 1},)))),
    "span_strides_missing": (M, one(x(more=({1: [3], 4: 1},)))),
    "span_payload_packed": (M, one(x(more=({1: [4, 1], 4: 1},)))),
    "span_bytes_packed": (M, Header(payload=28).body(1).tensors(
        x(more=({1: [4, 1], 3: 24, 4: 1},)))),
    "span_overflow": (L, one(x(more=({1: [2**62, 1], 4: 1},)))),
    "span_least": (L, one(x(more=({1: [2**61 - 3, 1], 4: 1},)))),
    "span_negative_overflow": (L, one(x(more=({1: [-2**63, 1], 4: 1},)))),
    "span_both_ways_overflow": (
        L, one(x(more=({1: [2**60, -2**60], 4: 1},)))),
    "span_within": (L, one(x(more=({1: [2**61 - 4, 1], 4: 1},)))),  # of 1 TiB
    "span_limit": (L, Header(payload=2).body(1).tensors(
        x(code=1, bits=8, shape=[2**39 + 1, 2], more=({1: [0, 1], 4: 1},)))),
    "encoding_negative": (U, one(x(more=({4: -1},)))),
    "option_negative": (U, one(x(more=({-5: 0},)))),
    "option_twice": (M, raw(BODY + pack(x()).replace(b"\x95", b"\x96") +
                            b"\x82\x04\x00\x04\x00")),
    "options_not_map": (M, one(x(more=([],)))),
    "option_key_str": (M, one(x(more=({"1": 0},)))),
    "metadata_not_map": (M, raw(b"\x81\x02\x90")),
    "metadata_claims_more": (M, raw(b"\x81\x02\x82\xa1\x6b\x01")),
    "meta_key_empty": (M, Header().body(1).metadata({"": 1})),
    "meta_key_integer": (M, Header().body(1).metadata({1: 1})),
    "meta_key_nul": (M, Header().body(1).metadata({"\0": 1})),
    "meta_key_not_utf8": (M, raw(b"\x81\x02\x81\xa1\xff\x01")),
    "meta_key_twice": (M, raw(b"\x81\x02\x82\xa1\x6b\x01\xa1\x6b\x01")),
    "meta_key_4097": (L, Header().body(1).metadata({"k" * 4097: 1})),
    "meta_string_not_utf8": (M, raw(b"\x81\x02\x81\xa1\x6b\xa1\x80")),
    "meta_nil": (U, Header().body(1).metadata({"k": None})),
    "meta_array": (U, Header().body(1).metadata({"k": []})),
    "meta_map": (U, Header().body(1).metadata({"k": {}})),
    "meta_ext": (U, Header().body(1).metadata(
        {"k": msgpack.ExtType(1, b"x")})),
    "meta_reserved_string": (M, Header().body(1).metadata(
        {"tensormsg.frame": "41"})),
    "meta_reserved_i64": (M, Header().body(1).metadata(
        {"tensormsg.file.name": 1})),
    "meta_reserved_bytes": (M, Header().body(1).metadata(
        {"tensormsg.trace.parent": b"00-"})),
    "meta_beyond_63_bits": (U, Header().body(1).metadata({"k": 2**63})),
    "loan_not_array": (M, raw(b"\x81\xfc\x00")),
    "loan_empty": (M, lent().loan()),
    "loan_1_element": (M, lent().loan(1)),
    "loan_of_two_for_one": (M, lent().loan(1, 0, 1, 0)),
    "loan_not_integer": (M, lent().loan(1, 0.0)),
    "loan_segment_negative": (M, lent().loan(-1, 0)),
    "loan_segment_2_to_the_32": (M, lent().loan(2**32, 0)),
    "loan_offset_negative": (M, lent().loan(1, -1)),
    "loan_offset_beyond_63_bits": (M, lent().loan(1, 2**63)),
    "loan_twice": (M, Header().body(2).loan(1, 0).loan(1, 0)),
    "loan_of_no_bytes": (M, Header(payload=0).body(2).tensors(
        ["x", 1, 8, 1, [0]]).loan(1, 0)),
    "loan_and_parts": (M, Header(payload=0).body(3).tensors(x()).loan(
        1, 0).parts(1, 4096)),
    "loan_and_payload": (M, Header(payload=24).body(2).tensors(x()).loan(1, 0)),
    "parts_not_array": (M, raw(b"\x81\xfd\x00")),
    "parts_1_element": (M, two(x()).parts(1)),
    "parts_4_elements": (M, two(x()).parts(1, 4096, b"", 0)),
    "parts_5_elements": (M, two(x()).parts(1, 4096, b"", 4096, 0)),
    "parts_slice_4095": (M, Header().body(2).tensors(x()).parts(
        2**20, 4096, b"", 4095)),
    "parts_slice_not_integer": (M, Header().body(2).tensors(x()).parts(
        2**20, 4096, b"", b"")),
    "parts_slice_and_payload": (M, two(x()).parts(2**20, 4096, b"", 4096)),
    "parts_twice": (M, Header().body(2).parts(1, 4096).parts(1, 4096)),
    "parts_large_0": (M, two(x()).parts(0, 4096)),
    "parts_large_negative": (M, two(x()).parts(-1, 4096)),
    "parts_large_beyond_63_bits": (M, two(x()).parts(2**63, 4096)),
    "parts_chunk_4095": (M, two(x()).parts(1, 4095)),
    "parts_chunk_not_integer": (M, two(x()).parts(1, 4096.0)),
    "parts_others_not_bin": (M, two(x()).parts(1, 4096, "1")),
    "parts_others_beyond": (
        M, Header(payload=24).body(2).tensors(x()).parts(100, 4096, b"\x02")),
    "parts_payload_whole": (
        M, Header(payload=24).body(2).tensors(x()).parts(1, 4096)),
    "parts_2_to_the_32": (L, Header().body(2).tensors(
        ["a", 1, 8, 1, [2**44]]).parts(1, 4096)),
    "schema_not_array": (M, raw(b"\x81\xff\x00")),
    "schema_1_field": (M, Header().body(1).refer(0)),
    "schema_slot_256": (M, Header().body(1).refer(256, 0)),
    "schema_slot_negative": (M, Header().body(1).refer(-1, 0)),
    "schema_slot_not_integer": (M, Header().body(1).refer("0", 0)),
    "schema_generation_256": (M, Header().body(1).refer(0, 256)),
    "schema_generation_negative": (M, Header().body(1).refer(0, -1)),
    "schema_extents_not_array": (M, Header().body(1).refer(0, 0, 1)),
    "schema_extent_not_integer": (M, Header().body(1).refer(0, 0, [1.0])),
    "schema_extent_beyond_63_bits": (M, Header().body(1).refer(0, 0, [2**63])),
    "schema_extents_257": (M, Header().body(1).refer(0, 0, [1] * 257)),
    "schema_reference_twice": (M, Header().body(2).refer(0, 0).refer(0, 0)),
    "schema_beside_tensors": (M, Header(payload=24).body(2).tensors(
        x()).refer(0, 0)),
    "schema_beside_definition": (
        M, Header().body(2).define(0, 0).refer(0, 0)),
    "schema_without_tensors": (M, Header().body(1).define(0, 0)),
    "schema_definition_twice": (
        M, Header(payload=24).body(3).tensors(x()).define(0, 0).define(0, 0)),
    "schema_definition_slot_256": (
        M, Header(payload=24).body(2).tensors(x()).define(256, 0)),
    "schema_varying_beyond": (
        M, Header(payload=24).body(2).define(0, 0, [2]).tensors(x())),
    "schema_varying_negative": (
        M, Header(payload=24).body(2).define(0, 0, [-1]).tensors(x())),
    "schema_varying_twice": (
        M, Header(payload=24).body(2).define(0, 0, [1, 1]).tensors(x())),
    "schema_varying_descends": (
        M, Header(payload=24).body(2).define(0, 0, [1, 0]).tensors(x())),
    "schema_varying_span": (
        M, Header(payload=77).body(2).define(1, 0, [3]).tensors(*SPANS)),
    "schema_varying_strided": (
        M, Header(payload=68).body(2).define(0, 0, [2]).tensors(*TWO)),
    "schema_varying_of_scalar": (
        M, Header(payload=8).body(2).define(0, 0, [0]).tensors(TWO[2])),
    "schema_varying_257": (
        M, Header().body(2).define(0, 0, list(range(257))).tensors(
            *([f"t{i}", 0, 8, 1, [0] * 64] for i in range(5)))),
}

SCHEMA_INVALID = {
    "slot_unknown": (M, Header(payload=68).body(1).refer(1, 0)),
    "generation_former": (M, Header(payload=68).body(1).refer(0, 0)),
    "generation_next": (M, Header(payload=68).body(1).refer(0, 2, [2, 4])),
    "extents_missing": (M, Header(payload=68).body(1).refer(0, 1)),
    "extents_few": (M, Header(payload=68).body(1).refer(0, 1, [2])),
    "extents_many": (M, Header(payload=68).body(1).refer(0, 1, [2, 4, 4])),
    "extents_unasked": (M, Header().body(1).refer(3, 9, [1])),
    "extent_negative": (M, Header(payload=68).body(1).refer(0, 1, [-1, 4])),
    "extent_least": (M, Header(payload=68).body(1).refer(0, 1, [-2**63, 4])),
    "extent_overflows": (L, Header(payload=68).body(1).refer(0, 1, [2**62, 4])),
    "message_too_large": (L, Header(payload=68).body(1).refer(0, 1, [2, 2**41])),
    "payload_differs": (M, Header(payload=69).body(1).refer(0, 1, [2, 4])),
}


def listing(lines, first):
    text = [f"# {first}"]
    for data, remark in lines:
        rows = [data[i:i + 16] for i in range(0, max(1, len(data)), 16)]
        for row in rows[:-1]:
            text.append(row.hex(" "))
        remark = remark.encode("unicode_escape").decode()
        text.append(f"{rows[-1].hex(' '):<47}  # {remark}".rstrip(" #"))
    return "\n".join(text) + "\n"


def freeze(path, text):
    if not path.exists():
        path.write_text(text)
        print("new:", path)
    elif path.read_text() != text:
        sys.exit(f"{path} is frozen, and this would change it")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parent / "v0")
    for name, header in VALID.items():
        freeze(folder / "valid" / f"{name}.hex",
               listing(header.all(), name.replace("_", " ")))
    for name, header in SCHEMA.items():
        freeze(folder / "schema" / f"{name}.hex",
               listing(header.all(), name[3:].replace("_", " ")))
    for where, cases in (("invalid", INVALID),
                         ("schema_invalid", SCHEMA_INVALID)):
        for name, (status, header) in cases.items():
            freeze(folder / where / f"{name}.hex",
                   listing(header.all(), status))


if __name__ == "__main__":
    main()
