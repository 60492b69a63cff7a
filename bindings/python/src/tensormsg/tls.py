# SPDX-License-Identifier: BSD-3-Clause
"""Certificates, by which peers of tls:// prove who they are."""

from __future__ import annotations

import os
from typing import Any, NoReturn, Optional, Sequence, Union

from ._count import UINT64, count
from ._lib import ffi, lib, utf8
from ._stays import Stays
from .errors import check
from .keys import Path


def _file(what: str, path: Path) -> bytes:
    try:
        name = os.fsencode(path)
    except TypeError:
        raise TypeError(f"{what}={path!r}: it is the name of a file, a str or a "
                        "Path") from None
    if name.startswith(b"-----BEGIN"):
        raise ValueError(f"{what} is the content of a file, not a file's "
                         "name: write it to a file, and give its name")
    if b"\0" in name:
        raise ValueError(f"{what}={path!r}: a file's name has no NUL")
    return name


def _secret(password: Any) -> bytes:
    """Its bytes, of which no error tells."""
    if not isinstance(password, (str, bytes)):
        raise TypeError("password= is a str or bytes, and not a "
                        f"{type(password).__name__}")
    secret = password.encode() if isinstance(password, str) else password
    if b"\0" in secret:
        raise ValueError("password= has a NUL")
    return secret


class TLS(Stays):
    """What a side of tls:// proves by its certificate, and what it asks of its
    peers', for `tls=` of connect(), listen(), publish() and Context, of any
    number of them. It does not change. Any thread may use it.

    Each file is PEM. `ca`: certificates of the authorities that have to have
    signed a peer's certificate. `cert`: this side's certificate, and behind it
    those that lead to its authority; its common name (CN) is what a listener
    knows it by, `principal`. `key`: the private key of `cert`, which its owner
    alone may read. `name`: what the certificate of a listener has to be for, a
    DNS name or an IP address; None: the host of the URL. `password`: of an
    encrypted `key`. `crl`: lists of revoked certificates, one of each
    authority. `pin`: SHA-256 of the public keys that a peer may have, 64
    hexadecimal digits each, instead of `ca` and a name, or besides. `depth`:
    the most certificates between a peer's and its authority's, default 4.
    `rekey_bytes`: how many bytes are encrypted with one key before a side takes
    a new one; 16 KiB to 64 GiB, which is the default.

    Raises InvalidParam (also where `key` is that of another certificate),
    NotFound, Malformed (a file holds something else, or the password is wrong
    or missing), Insecure (others may read `key`), and Unsupported, where the
    library was built without OpenSSL.
    """

    pointer: Any
    _words: str
    _instead = ("and its private key is secret: send the paths of the files, "
                "and make a TLS of them there")

    def __init__(self, *, cert: Path, key: Path, ca: Optional[Path] = None,
                 name: Optional[str] = None,
                 password: Union[None, str, bytes] = None,
                 crl: Optional[Path] = None,
                 pin: Union[None, str, Sequence[str]] = None,
                 depth: Optional[int] = None,
                 rekey_bytes: Optional[int] = None) -> None:
        texts = {what: _file(what, path) for what, path in (
            ("ca", ca), ("cert", cert), ("key", key), ("crl", crl))
            if path is not None}
        if name is not None:
            if not isinstance(name, str):
                raise TypeError(f"name={name!r}: it is a DNS name or an IP "
                                "address, a str")
            texts["name"] = utf8("name", name)
        if pin is not None:
            texts["pin"] = utf8("pin", pin if isinstance(pin, str)
                                else ",".join(pin))
        numbers = {}
        if depth is not None:
            numbers["depth"] = count(depth, "depth")
        if rekey_bytes is not None:
            numbers["rekey_bytes"] = count(rekey_bytes, "rekey_bytes", 0, UINT64)
        words = [f"{what}={os.fsdecode(text)!r}"
                 for what, text in texts.items()]
        words += [f"{what}={number}" for what, number in numbers.items()]
        params = ffi.new("tmsg_tls_params_t *")
        keep = {what: ffi.new("char[]", text) for what, text in texts.items()}
        if password is not None:
            keep["password"] = ffi.new("char[]", _secret(password))
            words.append("password=...")
        for what, value in {**keep, **numbers}.items():
            setattr(params, what, value)
            params.field_mask |= getattr(lib, f"TMSG_TLS_PARAM_{what.upper()}")
        tls_p = ffi.new("tmsg_tls_t **")
        try:
            check(lib.tmsg_tls_create(params, tls_p))
        finally:
            if password is not None:
                ffi.buffer(keep["password"])[:] = bytes(len(keep["password"]))
        object.__setattr__(self, "_words", ", ".join(words))
        object.__setattr__(self, "pointer",
                           ffi.gc(tls_p[0], lib.tmsg_tls_destroy))

    def reload(self) -> None:
        """Reads all files again, for connections that begin after that; those
        that stand stay. Where that fails, what was there before holds. Raises
        what TLS() does."""
        check(lib.tmsg_tls_reload(self.pointer))

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__qualname__}({self._words})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a TLS does not change: {name!r} is given where it "
                             "is made")

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)


def tls_of(tls: Any, key: Any) -> Optional[TLS]:
    """What `tls=` stands for, beside `key=`."""
    if tls is None or isinstance(tls, TLS):
        if tls is not None and key is not None:
            raise ValueError("tls= and key= exclude each other: give one of "
                             "them")
        return tls
    raise TypeError("tls= is a tensormsg.TLS(ca=, cert=, key=), and not a "
                    f"{type(tls).__name__}")


__all__ = ["TLS", "tls_of"]
