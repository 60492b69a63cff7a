# SPDX-License-Identifier: BSD-3-Clause
"""How names and texts of a peer are shown: as src/core/shown.h says."""

import asyncio
import pickle
import unicodedata

import numpy as np
import pytest

import tensormsg
from conftest import WAIT
from tensormsg import _data
from tensormsg._lib import hot

# Unicode's Default_Ignorable_Code_Point that are not of the categories C*.
IGNORABLE = {0x34f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x180b, 0x180c, 0x180d,
             0x180f, 0x3164, 0xffa0, *range(0xfe00, 0xfe10),
             *range(0xe0100, 0xe01f0)}
UNICODE = (18, 0)  # of src/core/shown_ranges.h

HOSTILE = "a\x1b[31m\n\x9b\u202e\u2028\u2066\u200b\U000e0001"
ESCAPED = r"a\x1b[31m\x0a\x9b\u202e\u2028\u2066\u200b\U000e0001"


def escape(code):
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" \
        if code < 0x10000 else f"\\U{code:08x}"


def test_every_character_is_shown_as_unicode_says():
    codes = [code for code in range(0x110000) if not 0xd800 <= code < 0xe000]
    shown = hot.shown("a\\".join(map(chr, codes))).split("a\\")
    assert len(shown) == len(codes)
    newer = tuple(map(int, unicodedata.unidata_version.split(".")[:2])) > UNICODE
    unassigned = 0
    for code, text in zip(codes, shown):
        category = unicodedata.category(chr(code))
        hidden = text != chr(code)
        assert not hidden or text == escape(code)
        if category == "Cn" and not hidden:
            unassigned += 1  # a later Unicode has it
            assert not newer and code < 0x40000 and code & 0xfffe != 0xfffe
        elif not (newer and hidden):
            assert hidden == (category[0] == "C" or category in ("Zl", "Zp") or
                              code in IGNORABLE), hex(code)
    assert unassigned < 30000


def test_what_is_no_unicode_is_bytes():
    assert hot.shown("\udc80") == r"\xed\xb2\x80"
    assert hot.shown("") == "" and hot.shown("a\0b") == r"a\x00b"
    with pytest.raises(TypeError):
        hot.shown(b"a")


def must_be_plain(text):
    assert not [c for c in text if not c.isprintable()], ascii(text)


@pytest.fixture
def pair():
    with tensormsg.listen(":0", background=True) as server, \
            tensormsg.connect(server.url) as endpoint:
        yield server, endpoint


def test_reprs_and_errors_of_messages(pair):
    server, endpoint = pair
    endpoint.send({HOSTILE: np.ones(1), "x": 1}, meta={HOSTILE: HOSTILE})
    message = server.recv(timeout=WAIT)
    assert message[HOSTILE] == 1 and message.meta[HOSTILE] == HOSTILE
    must_be_plain(repr(message).replace("\n", ""))
    must_be_plain(repr(message._raw_tensor(HOSTILE, "why")))
    with pytest.raises(KeyError) as caught:
        message[HOSTILE + "b"]
    must_be_plain(str(caught.value))
    with pytest.raises(ValueError) as wrong:
        _data.unflatten(_data.json.dumps({HOSTILE: 0}), {})
    for words in (message._without_numpy(HOSTILE), str(wrong.value)):
        must_be_plain(words)
        assert ESCAPED in words


def test_a_message_is_shown_on_one_screen(pair):
    server, endpoint = pair
    endpoint.send({f"p{i}": np.zeros(3) for i in range(10000)})
    lines = repr(server.recv(timeout=WAIT)).splitlines()
    assert len(lines) == 12
    assert lines[1] == "  'p0': float64[3]" and "9990 more" in lines[-1]
    long = f"{'n' * 4000}{{}}".format
    endpoint.send({long(i): np.zeros((1,) * 30) for i in range(9)} |
                  {"text": "x" * 10**6, "bytes": b"x" * 10**6})
    assert len(repr(server.recv(timeout=WAIT))) < 24 * 80


def test_a_message_is_shown_with_dtypes_and_shapes(pair):
    server, endpoint = pair
    endpoint.send({"x": np.zeros((3, 4), "f4"), "y": np.zeros((), "?"),
                   "n": 4, "to": None, "names": ["a"]})
    message = server.recv(timeout=WAIT)
    for words in ("<message ", "'x': float32[3,4]", "'y': bool[]", "'n': 4",
                  "'names/0': 'a'", server.url.split(":")[0]):
        assert words in repr(message)
    endpoint.send({})
    assert "message of nothing from" in repr(server.recv(timeout=WAIT))
    assert repr(tensormsg.Reply({"x": np.zeros(3), "y": [1], "z": None},
                                lend=True)) == \
        "<reply of 'x': float64[3], 'y': list of 1, 'z': None, lent>"
    assert repr(tensormsg.Reply(None)) == "<reply of None>"
    with server.serve(threads=1) as serving:
        serving.method("m")(lambda request: {"repr": repr(request)})
        shown = endpoint.call("m", {"x": np.zeros(2)}, timeout=WAIT)["repr"]
    assert shown.startswith("<request 'm' ") and "'x': float64[2]" in shown


def test_a_message_is_shown_with_asyncio():
    async def main():
        async with tensormsg.listen(":0", like=lambda array: 1 / 0) as server, \
                tensormsg.connect(server.url) as ep:
            await ep.send({"x": np.zeros((3, 4), "f4")})
            return repr(await server.recv(WAIT))

    assert "'x': float32[3,4]" in asyncio.run(main())


def test_a_name_that_is_missed_is_told_of_with_those_there_are(pair):
    server, endpoint = pair
    endpoint.send({f"image{i}": np.zeros(1) for i in range(30)} | {"n": 4})
    message = server.recv(timeout=WAIT)
    for missed, words in (
            (lambda: message["imag7"], "no 'imag7': is it 'image7', .* 31 names"),
            (lambda: message["zz"], "no 'zz': there is 'image0', .* and 26 more"),
            (lambda: message.raw("image"), "no array 'image': is it 'image"),
            (lambda: message.dtype("n"), "no array 'n': there is 'image0'"),
            (lambda: message[0], "no 0: there is 'image0'")):
        with pytest.raises(KeyError, match=words) as caught:
            missed()
        there = pickle.loads(pickle.dumps(caught.value))
        assert type(there) is KeyError and there.args == (str(caught.value),)
    assert message.get("imag7") is None


def test_words_of_a_peer_in_an_error(pair):
    server, endpoint = pair
    with server.serve(threads=1) as serving:
        @serving.method("m")
        def m(request):
            raise tensormsg.CallError(HOSTILE, code=3)
        with pytest.raises(tensormsg.Error) as caught:
            endpoint.call("m", {}, timeout=WAIT)
    must_be_plain(str(caught.value))
    must_be_plain(repr(caught.value))
    assert r"\x9b\u202e" in str(caught.value)


def test_what_is_to_be_entered_says_so():
    assert repr(tensormsg.connect("host:1")).endswith(
        "Connecting host:1: not connected before it is awaited or entered>")
    for made in tensormsg.listen(":0"), tensormsg.publish(":0"):
        assert f"ing {made.url}: " in repr(made)
