# SPDX-License-Identifier: BSD-3-Clause
"""What offers of both kinds have in common, and what a fetch asks for."""

from __future__ import annotations

import json
import math
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, \
    Set, Tuple, Union

from . import _data
from ._count import count
from ._hub import Hub, Meta, merge_meta
from ._lib import hot, lib
from ._stays import Stays
from ._time import MOST_MS, milliseconds, seconds
from ._told import in_loop, teller
from .context import check_process
from .errors import Status, error_of

_MOST_VERSION = 0x7fffffffffffffff
KEY_BYTES = 48
# Fetchers may answer so long, after the time of a withdrawal, that they read no
# more (tmsg_offer_withdraw()).
ANSWER_S = 0.5

Version = Union[int, Tuple[int, int]]
Boxes = List[Tuple[str, str, Tuple[int, ...], Tuple[int, ...]]]


class OfferStats(NamedTuple):
    """Of the fetches of one offer."""

    fetches: int
    failed: int
    bytes: int
    under_way: int


def _box(name: str, part: Any) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Starts and counts of slices as of np.s_; -1 goes to the end."""
    starts, counts = [], []
    for each in part if isinstance(part, tuple) else (part,):
        if not isinstance(each, slice) or each.step not in (None, 1):
            raise TypeError(f"slice of {name!r}: {each!r} is not a slice "
                            "with a step of 1, like np.s_[2:5]")
        start = 0 if each.start is None else \
            count(each.start, f"start of a slice of {name!r}", 0, _MOST_VERSION)
        stop = None if each.stop is None else \
            count(each.stop, f"stop of a slice of {name!r}", 0, _MOST_VERSION)
        starts.append(start)
        counts.append(-1 if stop is None else max(0, stop - start))
    return tuple(starts), tuple(counts)


def text_of(value: Any, what: str) -> Optional[str]:
    """A str that the library can take, or None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{what}={value!r} is not a str")
    if "\0" in value:
        raise ValueError(f"{what}={value!r} has a NUL")
    try:
        value.encode()
    except UnicodeError:
        raise ValueError(f"{what}={value!r} has a lone surrogate, which UTF-8 "
                         "lacks") from None
    return value


def _part(called: Any, part: Any) -> Tuple[str, str, Any]:
    """The name of an array, what to call its part, and the part."""
    name = called
    if isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str):
        name, part = part
    if not isinstance(called, str):
        raise TypeError(f"slices: {called!r} is not a name: names are str")
    return name, called, part


def boxes_of(slices: Union[None, Mapping[str, Any], Iterable[str]]) -> \
        Optional[Boxes]:
    """What to fetch of a map; None is all of it."""
    if slices is None:
        return None
    if isinstance(slices, (str, bytes)) or not isinstance(slices, Iterable):
        raise TypeError(f"slices={slices!r} is neither a dict nor a list of "
                        "names")
    parts = [_part(*item) for item in slices.items()] \
        if isinstance(slices, Mapping) else \
        [_part(name, ()) for name in slices]
    if not parts:
        raise ValueError("slices= names no array; None fetches the whole map")
    names: Set[str] = set()
    for _, called, _ in parts:
        if called in names:
            raise ValueError(f"slices: {called!r} is asked for twice; give one "
                             "of them another name, as a dict: {'other': "
                             f"({called!r}, np.s_[:])}}")
        names.add(called)
    return [(name, called, *_box(name, part)) for name, called, part in parts]


def check_key(key: Any) -> None:
    """Raises where it cannot be the key of an offer."""
    if not isinstance(key, bytes):
        raise TypeError(f"key is {type(key).__name__}: it must be {KEY_BYTES} "
                        "bytes; to fetch by name, write name=...")
    if len(key) != KEY_BYTES:
        raise ValueError(f"key has {len(key)} bytes: it must be {KEY_BYTES} "
                         "bytes")


def check_which(key: Optional[bytes], name: Optional[str], at_least: Version,
                wait: Optional[float]) -> None:
    """Raises where these cannot say what to fetch."""
    if (key is None) == (name is None):
        raise TypeError("give either key or name=, " +
                        ("one of them" if key is None else "not both"))
    if key is None:
        text_of(name, "name")
        return
    check_key(key)
    for what, is_given in ("at_least", at_least != 0), ("wait", wait != 0):
        if is_given:
            raise TypeError(f"{what}= is for a fetch by name: the map of a key "
                            "is there, or will never be")


def at_least_of(version: Version) -> Tuple[int, Optional[int]]:
    """The version, and the epoch that it is of."""
    epoch = None
    if isinstance(version, tuple):
        if len(version) != 2:
            raise TypeError(f"at_least={version!r} is neither a version nor "
                            "(epoch, version)")
        epoch, version = version
        epoch = count(epoch, "epoch", 0, _MOST_VERSION)
    return count(version, "at_least", 0, _MOST_VERSION), epoch


def wait_ms_of(wait: Optional[float]) -> int:
    return 0 if wait == 0 else milliseconds(wait, "wait")


def ttl_ms_of(ttl: Optional[float]) -> int:
    """What is too long for the library is refused: it would last for ever."""
    ttl_ms = milliseconds(ttl, "ttl")
    if ttl_ms < 0 and ttl is not None and seconds(ttl, "ttl") != math.inf:
        raise ValueError(f"ttl={ttl!r}: at most {MOST_MS // 1000} s, or "
                         "None for no limit")
    return ttl_ms


class BaseOffer(Stays):
    """A map that peers fetch when they like."""

    _instead = "send its key and the URL of its listener, and fetch() it there"

    def __init__(self, hub: Hub, data: Any, meta: Optional[Meta],
                 name: Optional[str], version: int, ttl: Optional[float],
                 fetches: Optional[int], principals: Optional[str],
                 on_release: Optional[Callable[[], object]],
                 lend: bool) -> None:
        self._hub = hub
        if on_release is not None:
            if not callable(on_release):
                raise TypeError("on_release is a function, not "
                                f"{on_release!r}")
            if hub.loop is not None:
                on_release = in_loop(hub.loop, on_release)
            teller.start()
        self._offer, self._key = hub.offer(
            data, merge_meta(meta, {}) if meta else None,
            text_of(name, "name"),
            count(version, "version", 0, _MOST_VERSION),
            ttl_ms_of(ttl),
            0 if fetches is None else count(fetches, "fetches", 1),
            text_of(principals, "principals"), on_release,
            lib.TMSG_OFFER_LEND if lend else 0)

    @property
    def key(self) -> bytes:
        """48 bytes, by which a peer fetches it: ep.fetch(key)."""
        return self._key

    @property
    def stats(self) -> OfferStats:
        """Of its fetches: "fetches" that ended well, "failed", "bytes" and
        "under_way"."""
        return OfferStats(*self._state()[1:])

    @property
    def released(self) -> bool:
        """Whether nothing can read its arrays any more: they may be changed."""
        return bool(self._state()[0])

    def _state(self) -> Tuple[bool, int, int, int, int]:
        check_process(self._hub.generation)
        return hot.offer_state(self._offer)

    def _end(self, timeout: Optional[float]) -> None:
        check_process(self._hub.generation)
        hot.offer_end(self._hub.number, self._offer,
                      0 if timeout == 0 else milliseconds(timeout))

    def _late(self, timeout: Optional[float]) -> Exception:
        return error_of(Status.TIMED_OUT,
                        f"withdraw took more than {timeout} s: a peer may "
                        "still read the arrays")


class Offered(Dict[str, Dict[str, Any]]):
    """What a peer offers, by name. `more`: it offers more names than it has
    told, which are 4096 at most."""

    more = False


def _number(value: Any) -> Any:
    """A number as the peer has written it: above 2^53 it comes as text."""
    return int(value) if isinstance(value, str) else value


def described(reply: Any) -> Offered:
    """What a peer offers."""
    prefix = "offer/"
    offered = Offered()
    offered.more = reply.meta.get("more") is True
    for key, value in reply.meta.items():
        if not key.startswith(prefix):
            continue
        try:
            about = {each: _number(number)
                     for each, number in json.loads(value).items()}
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise error_of(Status.MALFORMED, "the peer's list of offers is "
                           f"malformed at '{_data.shortened(key)}'") from None
        offered[key[len(prefix):]] = about
    return offered
