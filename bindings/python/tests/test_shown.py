# SPDX-License-Identifier: BSD-3-Clause
"""How names and texts of a peer are shown: as src/core/shown.h says."""

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
    must_be_plain(repr(message))
    must_be_plain(repr(message._raw_tensor(HOSTILE, "why")))
    with pytest.raises(KeyError) as caught:
        message[HOSTILE + "b"]
    must_be_plain(str(caught.value))
    with pytest.raises(ValueError) as wrong:
        _data.unflatten(_data.json.dumps({HOSTILE: 0}), {})
    for words in (message._without_numpy(HOSTILE), str(wrong.value)):
        must_be_plain(words)
        assert ESCAPED in words


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
