# SPDX-License-Identifier: BSD-3-Clause
"""A second decoder of docs/wire/wire-format.md, written from that text
alone."""

import base64
import copy
import math
import struct

import msgpack
import xxhash

FIELDS = ("version", "preamble_bytes", "kind", "flags", "channel",
          "message_id", "endpoint_id", "sequence", "body_bytes",
          "payload_bytes")
FLAGS = ["spilled", "acked", "bit 2", "read", "unordered", "charged", "bit 6",
         "bit 7"]
DEVICES = {1: "cpu", 2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan",
           8: "metal", 9: "vpi", 10: "rocm", 11: "rocm_host", 12: "ext_dev",
           13: "cuda_managed", 14: "oneapi", 15: "webgpu", 16: "hexagon",
           17: "maia", 18: "trn"}
DTYPES = {(code, bits): f"{name}{bits}" for code, name, widths in (
    (0, "int", (1, 2, 4, 8, 16, 32, 64)), (1, "uint", (1, 2, 4, 8, 16, 32, 64)),
    (2, "float", (16, 32, 64)), (3, "opaque", range(8, 256, 8)),
    (4, "bfloat", (16,)), (5, "complex", (32, 64, 128))) for bits in widths}
DTYPES[6, 8] = "bool"
for _code, _kind in enumerate("e3m4 e4m3 e4m3b11fnuz e4m3fn e4m3fnuz e5m2 "
                              "e5m2fnuz e8m0fnu".split(), 7):
    DTYPES[_code, 8] = f"float8_{_kind}"
DTYPES.update({(15, 6): "float6_e2m3fn", (16, 6): "float6_e3m2fn",
               (17, 4): "float4_e2m1fn"})


RESERVED = {"tensormsg." + key: kind for kind, keys in (
    ("i64", "sequence frame time.acquired_ns time.published_ns"),
    ("string", "trace.parent trace.state file.name file.format"),
    ("bytes", "ucxx.header"))
    for key in keys.split()}


STATUSES = {"MALFORMED", "UNSUPPORTED", "LIMIT_EXCEEDED", "INCOMPATIBLE"}


class Refused(Exception):
    """status says which of the errors of the document it is; right are all
    that another reader may give, which met other broken rules first."""

    def __init__(self, status, why, right=()):
        super().__init__(f"{status}: {why}")
        self.status = status
        self.right = {status, *right}


class Faults:
    """Goes on behind a broken rule: `with faults:` notes what is refused in
    its block, check() raises the first of it."""

    def __init__(self):
        self.first, self.right = None, set()

    def __enter__(self):
        return self

    def __exit__(self, kind, refused, _):
        if kind and issubclass(kind, Refused):
            self.first = self.first or refused
            self.right |= refused.right
            return True
        return False

    def check(self):
        if self.first:
            self.first.right |= self.right
            raise self.first


class Pairs(list):
    """A msgpack map; arrays are tuples."""


def require(condition, why, status="MALFORMED"):
    if not condition:
        raise Refused(status, why)


def integer(value, low=-2**63, high=2**63 - 1):
    require(type(value) is int and low <= value <= high,
            f"{value!r} is no integer in {low}..{high}")
    return value


def array(value):
    require(type(value) is tuple, "not an array")
    return value


def text(value):
    require(type(value) is str, "not a string")
    try:
        value.encode("utf-8")  # finds what surrogateescape smuggled in
    except UnicodeEncodeError:
        raise Refused("MALFORMED", "not UTF-8") from None
    return value


def name(value, taken):
    text(value)
    require(value and "\0" not in value, "empty or with NUL")
    require(len(value.encode()) <= 4096, "a long name", "LIMIT_EXCEEDED")
    require(value not in taken, f"{value} comes twice")
    return value


def nesting(value):
    if type(value) is Pairs:
        value = [each for pair in value for each in pair]
    elif type(value) is not tuple:
        return 0
    return 1 + max(map(nesting, value), default=0)


def skip(value):
    require(nesting(value) <= 16, "nests too deeply")


def keyed(value, keys, faults):
    """A map with integer keys, without those it may pass over."""
    require(type(value) is Pairs, "not a map")
    known = {}
    for key, item in value:
        with faults:
            require(integer(key) >= 0 or key in keys, f"key {key}",
                    "UNSUPPORTED")
            if key not in keys:
                skip(item)
            else:
                require(key not in known, f"key {key} comes twice")
                known[key] = item
    return known


def require_dense(shape, strides, bits):
    if 0 in shape:
        return
    faults = Faults()
    reach = sum((n - 1) * abs(s) for n, s in zip(shape, strides))
    with faults:
        require(reach < (2**63 - 1) // -(-bits // 8), "span", "LIMIT_EXCEEDED")
    expected = 1
    for stride, extent in sorted((s, n) for s, n in zip(strides, shape)
                                 if n != 1 and s != 0):
        with faults:
            require(stride == expected, "not dense", "UNSUPPORTED")
        expected *= extent
    with faults:
        require(bits % 8 == 0 or repeats(shape, strides) == 1,
                "broadcast elements of no whole bytes", "UNSUPPORTED")
    faults.check()


def span_of(shape, strides, bits):
    """Bytes from the lowest element to the highest, both included."""
    if 0 in shape:
        return 0
    steps = [(n - 1) * s for n, s in zip(shape, strides)]
    elements = sum(abs(step) for step in steps) + 1
    require(elements - 1 < (2**63 - 1) // (bits // 8), "span",
            "LIMIT_EXCEEDED")
    return elements * (bits // 8)


def repeats(shape, strides):
    """How often each element lies in the tensor."""
    return 1 if 0 in shape else math.prod(
        n for n, s in zip(shape, strides) if s == 0)


def layout(tensors):
    """Offsets of (dtype bits * lanes, size) and the end of the last."""
    offsets, end = [], 0
    for bits, size in tensors:
        if size:
            alignment = 16
            while alignment < 64 and alignment * 8 < bits:
                alignment *= 2
            end = -(-end // alignment) * alignment
        offsets.append(end)
        end += size
    return offsets, end


def decode_options(value, shape, bits, size):
    """size is None where it is not known, for another rule was broken."""
    result, faults = {"device": (1, 0)}, Faults()
    options = keyed(value, (1, 2, 3, 4), faults)
    span = None  # of encoding 1
    with faults:
        encoding = integer(options.get(4, 0))
        require(encoding in (0, 1), "encoding", "UNSUPPORTED")
        require(encoding == 0 or array(options.get(1, ())),
                "a span without strides", "UNSUPPORTED")
        require(encoding == 0 or bits % 8 == 0, "a span of no whole bytes",
                "UNSUPPORTED")
    with faults:
        if 1 in options:
            strides = [integer(s) for s in array(options[1])]
            require(len(strides) == len(shape), "strides for other dimensions")
            if not faults.first and encoding == 1:
                span = span_of(shape, strides, bits)
            else:
                require_dense(shape, strides, bits)
            if strides:
                result["strides"] = strides
            if span is not None:
                result["encoding"] = "span"
    with faults:
        if 2 in options:
            require(len(array(options[2])) == 2, "device")
            result["device"] = (integer(options[2][0], 1, 2**31 - 1),
                                integer(options[2][1], 0, 2**31 - 1))
    if size is not None and not faults.first:
        size = span if span is not None else size // repeats(
            shape, result.get("strides", ()))
    with faults:
        told = integer(options.get(3, size or 0))
        require(size is None or faults.first or told == size, "byte length")
    faults.check()
    return {**result, "bytes": size}


def decode_tensor(fields, taken):
    require(len(array(fields)) >= 5, "too few fields")
    faults = Faults()
    label, shape, element, size = f"tensor {len(taken)}", [], 8, None
    with faults:
        label = name(fields[0], taken)
    with faults:
        code, bits, lanes = (integer(field) for field in fields[1:4])
        require((code, bits) in DTYPES and 1 <= lanes < 2**16,
                f"dtype {code}, {bits}, {lanes}", "UNSUPPORTED")
        element = bits * lanes
    with faults:
        shape = [integer(extent, 0) for extent in array(fields[4])]
        require(len(shape) <= 64, "ndim", "LIMIT_EXCEEDED")
    if not faults.first:
        with faults:
            total = math.prod(shape) * element
            require(total < 2**63, "size", "LIMIT_EXCEEDED")
            size = (total + 7) // 8
    with faults:
        options = decode_options(fields[5] if len(fields) > 5 else Pairs(),
                                 shape, element, size)
    for field in fields[6:]:
        with faults:
            skip(field)
    taken[label] = None  # a name is taken, whatever else is wrong
    faults.check()
    kind, ordinal = options.pop("device")
    size = options.pop("bytes")
    kind = DEVICES.get(kind, f"device({kind})")
    taken[label] = {"name": label,
                    "dtype": DTYPES[code, bits] + f"x{lanes}" * (lanes > 1),
                    "shape": shape, **options, "device": f"{kind}:{ordinal}",
                    "bytes": size}
    return bits * lanes, size


def written_out(tensors, sizes):
    """The sizes without anything broadcast, or all elements of a span where
    these are more."""
    return [(bits, max(size, math.prod(tensor["shape"]) * bits // 8)
             if "encoding" in tensor else
             size * repeats(tensor["shape"], tensor.get("strides", ())))
            for tensor, (bits, size) in zip(tensors, sizes)]


def decode_value(value):
    if type(value) is bool:
        return {"bool": value}
    if type(value) is int:
        require(value < 2**63, "an integer of 64 bits", "UNSUPPORTED")
        return {"i64": value}
    if type(value) is float:
        return {"f64": value}
    if type(value) is str:
        return {"string": text(value)}
    require(type(value) is bytes, "a type of metadata", "UNSUPPORTED")
    return {"bytes": value}


def decode_checksums(value, tensors):
    require(len(array(value)) == 2, "checksums")
    require(integer(value[0]) == 1, "checksum algorithm", "UNSUPPORTED")
    require(type(value[1]) is bytes and len(value[1]) % 8 == 0, "values")
    require(tensors is None or len(value[1]) // 8 == tensors,
            "number of checksums")
    return {"algorithm": "xxh3_64",
            "values": [f"{each:016x}" for each, in
                       struct.iter_unpack("<Q", value[1])]}


def decode_parts(value, sizes):
    """sizes is None where the tensors are not known."""
    fields, faults = array(value), Faults()
    require(len(fields) in (2, 3, 4), "parts")
    large, chunk, others = integer(fields[0], 1), integer(fields[1], 4096), b""
    if len(fields) > 2:
        others = fields[2]
        require(type(others) is bytes, "others")
    parts = {"large": large, "chunk": chunk, "others": others}
    if len(fields) > 3:
        parts["slice"] = integer(fields[3], 4096)
    if sizes is not None:
        with faults:
            require(not int.from_bytes(others, "little") >> len(sizes),
                    "a tensor that is not there")
        with faults:
            count = sum(-(-size // chunk) for size in part_sizes(parts, sizes))
            if "slice" in parts:
                count += -(-left_of(parts, sizes)[1] // parts["slice"])
            require(count < 2**32, "parts", "LIMIT_EXCEEDED")
    faults.check()
    return parts


def decode_loan(value, sizes):
    """sizes is None where the tensors are not known."""
    places = [integer(each, 0) for each in array(value)]
    require(places and len(places) % 2 == 0 and
            all(each < 2**32 for each in places[::2]), "places")
    if sizes is not None:
        require(len(places) == 2 * len(sizes), "number of places")
        require(not any(segment or offset for (_, size), segment, offset in
                        zip(sizes, places[::2], places[1::2]) if not size),
                "a place of no bytes")
    return places


def part_sizes(parts, sizes):
    """Of each tensor, what travels as parts: its size, or 0."""
    others = int.from_bytes(parts["others"], "little")
    return [size if size >= parts["large"] or others >> i & 1 else 0
            for i, (_, size) in enumerate(sizes)]


def left_of(parts, sizes):
    """Offsets and end of what does not travel as parts of tensors."""
    return layout([(bits, 0 if part else size) for (bits, size), part
                   in zip(sizes, part_sizes(parts, sizes))])


def decode_schema(value, form, numbers):
    fields, faults = array(value), Faults()
    require(len(fields) >= 2, "a slot and a generation")
    schema = {"form": form, "slot": 0, "generation": 0, numbers: []}
    for key, field in zip(("slot", "generation"), fields):
        with faults:
            schema[key] = integer(field, 0, 255)
    with faults:
        schema[numbers] = [integer(n) for n in array((*fields, ())[2])]
        require(len(schema[numbers]) <= 256, f"{numbers}: too many")
    for field in fields[3:]:
        with faults:
            skip(field)
    faults.check()
    return schema


def places(tensors, varying):
    """The (tensor, axis) of each extent that varies."""
    extents = [(tensor, axis) for tensor in tensors
               for axis in range(len(tensor["shape"]))]
    for last, at in zip([-1] + varying, varying):
        require(last < at < len(extents), "no such extent, or not in order")
        require("strides" not in extents[at][0], "varies beside strides")
    return [extents[at] for at in varying]


def decode_schemas(sections, tensors, faults):
    """The definition or reference in a body, or None."""
    schema = None
    with faults:
        if -1 in sections:
            require(not {1, 3} & sections.keys(), "a reference beside others")
            schema = decode_schema(sections[-1], "reference", "extents")
    with faults:
        if 3 in sections:
            require(1 in sections, "a definition without tensors")
            schema = decode_schema(sections[3], "definition", "varying")
            if None not in tensors:
                places(tensors, schema["varying"])
    return schema


def resolve(channel, schema):
    """The tensors and sizes that a reference stands for."""
    generation, tensors, sizes, varying = channel.get(
        schema["slot"], (None, None, None, None))
    require(generation == schema["generation"], "nothing of that generation")
    require(len(varying) == len(schema["extents"]), "number of extents")
    tensors = copy.deepcopy(tensors)
    for (tensor, axis), extent in zip(places(tensors, varying),
                                      schema["extents"]):
        tensor["shape"][axis] = integer(extent, 0)
    for tensor, (bits, _) in zip(tensors, sizes):
        if "encoding" in tensor:
            continue  # whose extents do not vary
        total = math.prod(tensor["shape"]) * bits
        require(total < 2**63, "size", "LIMIT_EXCEEDED")
        tensor["bytes"] = ((total + 7) // 8 //
                           repeats(tensor["shape"], tensor.get("strides", ())))
    return tensors, [(bits, tensor["bytes"])
                     for tensor, (bits, _) in zip(tensors, sizes)]


def decode_body(body, channel=None):
    """channel: the schemas that a reader keeps, by slot, and adds to. Without
    it the tensors of a reference are None."""
    faults = Faults()
    try:
        value = msgpack.unpackb(body, use_list=False, strict_map_key=False,
                                object_pairs_hook=Pairs,
                                unicode_errors="surrogateescape")
    except msgpack.ExtraData as error:
        value = error.unpacked
        with faults:
            raise Refused("MALFORMED", "bytes behind the body")
    except (ValueError, msgpack.UnpackException) as error:
        # what comes before the end may break other rules
        raise Refused("MALFORMED", repr(error), STATUSES) from None
    with faults:
        sections = keyed(value, (-4, -3, -2, -1, 1, 2, 3), faults)
        tensors, metadata, checksums, sizes = {}, {}, None, []
        with faults:
            for fields in array(sections.get(1, ())):
                with faults:
                    sizes.append(decode_tensor(fields, tensors))
        with faults:
            require(type(sections.get(2, Pairs())) is Pairs,
                    "metadata is not a map")
            require(len(sections.get(2, ())) <= 65536, "metadata keys",
                    "LIMIT_EXCEEDED")
            for key, item in sections.get(2, Pairs()):
                kept = {None: None}
                with faults:
                    kept = decode_value(item)
                with faults:
                    metadata[name(key, metadata)] = kept
                    require(RESERVED.get(key, *kept) in kept, f"{key}: {kept}")
        tensors = list(tensors.values())
        schema = decode_schemas(sections, tensors, faults)
        if schema and schema["form"] == "reference":
            tensors = None
            if channel is not None:
                faults.check()
                tensors, sizes = resolve(channel, schema)
        elif schema and channel is not None:
            faults.check()
            channel[schema["slot"]] = (schema["generation"], tensors, sizes,
                                    schema["varying"])
        with faults:
            if -2 in sections:
                checksums = decode_checksums(
                    sections[-2], None if tensors is None else
                    len(tensors if -1 in sections else
                        array(sections.get(1, ()))))
        with faults:
            offsets, end = layout(sizes)
            if tensors is not None and None not in tensors:
                require(layout(written_out(tensors, sizes))[1] <= 2**40,
                        "payload", "LIMIT_EXCEEDED")
        parts = None
        with faults:
            if -3 in sections:
                known = tensors is not None and len(sizes) == len(tensors)
                parts = decode_parts(sections[-3], sizes if known else None)
                if known:
                    offsets, end = left_of(parts, sizes)
                    end = 0 if "slice" in parts else end
        loan = None
        with faults:
            if -4 in sections:
                require(-3 not in sections, "a loan in parts")
                known = tensors is not None and len(sizes) == len(tensors)
                loan = decode_loan(sections[-4], sizes if known else None)
                end = 0
    faults.check()
    return tensors, metadata, end, checksums, schema, offsets, parts, loan


def decode_preamble(header):
    require(len(header) >= 4, "too short")
    require(header[:2] == b"TM", "magic")
    require(header[2] == 0, f"version {header[2]}, not 0", "INCOMPATIBLE")
    require(32 <= header[3] <= len(header), "length")
    preamble = dict(zip(FIELDS, struct.unpack("<BBBBHIIIIQ", header[2:32])))
    flags = preamble.pop("flags")
    require(not flags & 0x04, "critical flags", "UNSUPPORTED")
    policy = header[32] if header[3] > 32 else 0
    require(policy <= 1, f"policy {policy}", "UNSUPPORTED")
    preamble["policy"] = ["host_fallback", "strict"][policy]
    preamble["flags"] = [FLAGS[i] for i in range(8) if flags >> i & 1]
    room = (preamble["payload_bytes"] & ~63 if flags & 1
            else len(header) - header[3])
    require(preamble["body_bytes"] <= room, "the body does not fit")
    return preamble


CALLS = {16: {1: "request", 2: "reply"},
         18: {3: "open", 4: "item", 5: "finish", 6: "end"},
         19: {7: "cancel", 8: "over"}}


def decode_call(header):
    """What the preamble of a CALL, a STREAM or a STREAM_OVER has beyond."""
    preamble = decode_preamble(header)
    require(header[3] >= 56 and header[35] <= header[3] - 56, "too short")
    kinds, kind = CALLS[preamble["kind"]], header[33]
    require(kind in kinds, f"type {kind}", "UNSUPPORTED")
    call = {"type": kinds[kind], "not_run": bool(header[34] & 1)}
    call["status"], call["id"] = struct.unpack("<iQ", header[36:48])
    if kinds[kind] in ("request", "open"):
        call["left_us"], = struct.unpack("<Q", header[48:56])
    else:
        call["code"], call["stream"] = struct.unpack("<iH", header[48:54])
    words = header[56:56 + header[35]]
    require(0 not in words, "text")
    call["text"] = words.decode()
    return call


def decode(header, channel=None):
    """The view that tmsg_header_to_json() gives, numbers as they are; with
    the schemas kept of a channel, the tensors of a reference, too."""
    preamble = decode_preamble(header)
    view = {"preamble": preamble}
    body = header[preamble["preamble_bytes"]:][:preamble["body_bytes"]]
    if len(body) < preamble["body_bytes"]:
        return view  # spilled, and not captured
    if preamble["kind"] != 1:
        return {**view, "body": base64.b64encode(body).decode()}
    tensors, metadata, end, checksums, schema, _, parts, loan = decode_body(
        body, channel)
    if schema:
        view["schema"] = schema
    if tensors is not None:
        view["tensors"] = tensors
    view["metadata"] = metadata
    if checksums is not None:
        view["checksums"] = checksums
    if parts is not None:
        view["parts"] = parts
    if loan is not None:
        view["loan"] = loan
    if "spilled" in preamble["flags"]:
        end += -(-len(body) // 64) * 64
    require(tensors is None or end == preamble["payload_bytes"],
            "payload length")
    return view


def corrupt(header, payload):
    """The names of the tensors that are not what their checksums say."""
    preamble = decode_preamble(header)
    begin, body = 0, header[preamble["preamble_bytes"]:]
    if "spilled" in preamble["flags"]:
        begin, body = -(-preamble["body_bytes"] // 64) * 64, payload
    tensors, _, _, checksums, _, offsets, _, _ = decode_body(
        body[:preamble["body_bytes"]])
    return [tensor["name"] for tensor, at, told in zip(
        tensors, offsets, checksums["values"]) if told !=
        xxhash.xxh3_64_hexdigest(payload[begin + at:][:tensor["bytes"]])]


def to_json(view):
    """What JSON holds of it: integers beyond 2^53 as strings, bytes as base64,
    what is not a number as its name."""
    if isinstance(view, dict):
        return {key: to_json(item) for key, item in view.items()}
    if isinstance(view, (list, tuple)):
        return [to_json(item) for item in view]
    if isinstance(view, bytes):
        return base64.b64encode(view).decode()
    if isinstance(view, float) and not math.isfinite(view):
        return "NaN" if view != view else "Infinity" if view > 0 else "-Infinity"
    if type(view) is int and abs(view) > 2**53:
        return str(view)
    return view
