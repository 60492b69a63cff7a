# SPDX-License-Identifier: BSD-3-Clause
"""Keys, by which peers prove who they are."""

from __future__ import annotations

import os
import re
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

from ._lib import ffi, lib
from ._stays import Stays
from .errors import check

KEY_BYTES = 32

Path = Union[str, "os.PathLike[str]"]
Named = Mapping[str, Union[bytes, Sequence[bytes]]]


def _checked(key: Any) -> bytes:
    if not isinstance(key, (bytes, bytearray, memoryview)):
        raise TypeError(f"a key is {KEY_BYTES} bytes, not a "
                        f"{type(key).__name__}")
    made = bytes(key)
    if len(made) != KEY_BYTES:
        raise ValueError(f"a key is {KEY_BYTES} bytes, not {len(made)}")
    return made


def _named(keys: Any) -> List[Tuple[bytes, bytes]]:
    """Each with its principal, of whatever was given."""
    if isinstance(keys, (bytes, bytearray, memoryview)):
        return [(b"default", _checked(keys))]
    if not isinstance(keys, Mapping):
        raise TypeError("keys are a file's name, the bytes of one, or a dict of "
                        f"principals to bytes, not a {type(keys).__name__}")
    made = []
    for principal, value in keys.items():
        if not isinstance(principal, str):
            raise TypeError(f"a principal's name is a str, not {principal!r}")
        several = [value] if isinstance(
            value, (bytes, bytearray, memoryview)) else value
        made += [(_principal(principal), _checked(key)) for key in several]
    return made


def _principal(name: str) -> bytes:
    if "\0" in name or not name.isascii():
        raise ValueError(f"principal {name!r}: a name is printable ASCII, "
                         "without a NUL")
    return name.encode()


def _path(path: Path) -> bytes:
    text = os.fspath(path)
    if isinstance(text, str) and re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ValueError("that is a key in hexadecimal digits, not a file's "
                         "name: give bytes.fromhex() of it")
    return os.fsencode(text)


class Keyring(Stays):
    """Keys, each of a named principal, for `key=` of connect(), listen(),
    publish() and Context, of any number of them. What changes in it holds for
    all connections that begin after that; those that stand stay. One without
    keys admits nobody.

    `keys`: the name of a file as `tensormsg key` and save_key() write it; the
    32 bytes of one key, whose principal is "default"; or a dict of principals to
    the bytes of a key, or to a list of several. Any thread may use it.
    """

    _instead = ("and keys are secret: send the path of the key file, and make "
                "a Keyring of it there")

    def __init__(self, keys: Union[None, Path, bytes, Named] = None) -> None:
        keyring_p = ffi.new("tmsg_keyring_t **")
        check(lib.tmsg_keyring_create(keyring_p))
        self.pointer = ffi.gc(keyring_p[0], lib.tmsg_keyring_destroy)
        if isinstance(keys, (str, os.PathLike)):
            self.load(keys)
        elif keys is not None:
            self.replace(keys)

    def add(self, principal: str, key: bytes) -> None:
        """One more, 64 at most: the new one beside the old while peers change.
        Raises AlreadyExists, InvalidParam, LimitExceeded."""
        check(lib.tmsg_keyring_add(self.pointer, _principal(principal),
                                   _checked(key)))

    def remove(self, principal: str) -> None:
        """Takes all keys of a principal away. Raises NotFound."""
        check(lib.tmsg_keyring_remove(self.pointer, _principal(principal)))

    def load(self, path: Path) -> None:
        """Puts those of a file in the place of all that were there, at once.
        Where that fails they stay. Raises NotFound, Malformed, and Insecure
        where others may read the file."""
        check(lib.tmsg_keyring_load(self.pointer, _path(path)))

    def replace(self, keys: Union[bytes, Named]) -> None:
        """The same with keys that the program has."""
        named = _named(keys)
        names = [ffi.new("char[]", name) for name, _ in named]
        given = ffi.new("tmsgpy_keys_t *")
        given.count = len(named)
        given.principals = table = ffi.new("char *[]", names or 1)
        given.keys = joined = ffi.new("uint8_t[]", b"".join(
            key for _, key in named) or b"\0")
        try:
            check(lib.tmsg_keyring_fill(
                self.pointer, ffi.addressof(lib, "tmsgpy_give_keys"), given))
        finally:
            for at in range(len(named)):
                lib.tmsg_key_wipe(joined + at * KEY_BYTES)
            del table, names


Key = Union[Path, bytes, Named, Keyring]


def keyring_of(key: Optional[Key]) -> Optional[Keyring]:
    """What `key=` stands for."""
    return key if key is None or isinstance(key, Keyring) else Keyring(key)


def generate_key() -> bytes:
    """A new random key, 32 bytes."""
    made = ffi.new(f"uint8_t[{KEY_BYTES}]")
    try:
        check(lib.tmsg_key_generate(made))
        return bytes(ffi.buffer(made))
    finally:
        lib.tmsg_key_wipe(made)


def save_key(path: Path, principal: str = "default",
             key: Optional[bytes] = None) -> None:
    """Writes a new file of one key, a random one unless said, which its owner
    alone may read. Raises AlreadyExists, where there is a file."""
    check(lib.tmsg_key_save(_path(path), _principal(principal),
                            generate_key() if key is None else _checked(key)))


__all__ = ["KEY_BYTES", "Key", "Keyring", "generate_key",
           "keyring_of", "save_key"]
