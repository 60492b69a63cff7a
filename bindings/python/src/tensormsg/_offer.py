# SPDX-License-Identifier: BSD-3-Clause
"""What offers of both kinds have in common, and what a fetch asks for."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, \
    Tuple, Union

from . import _data
from ._count import count
from ._hub import Hub, Meta, merge_meta
from ._lib import hot
from ._time import milliseconds
from .context import check_process
from .errors import Status, error_of

_MOST_VERSION = 0x7fffffffffffffff
KEY_BYTES = 48
TURNS_AT_LAST = 20  # of a withdrawal whose time is up

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
            raise TypeError(f"slice of {name!r}: {each!r} is no slice with a "
                            "step of 1, as np.s_[2:5]")
        start = 0 if each.start is None else \
            count(each.start, f"start of a slice of {name!r}", 0, _MOST_VERSION)
        stop = None if each.stop is None else \
            count(each.stop, f"stop of a slice of {name!r}", 0, _MOST_VERSION)
        starts.append(start)
        counts.append(-1 if stop is None else max(0, stop - start))
    return tuple(starts), tuple(counts)


def boxes_of(slices: Union[None, Mapping[str, Any], Iterable[str]]) -> \
        Optional[Boxes]:
    """What to fetch of a map; None is all of it."""
    if slices is None:
        return None
    if isinstance(slices, str):
        raise TypeError("slices= is a dict, or a list of names")
    if not isinstance(slices, Mapping):
        return [(name, name, (), ()) for name in slices]
    return [(name, name, *_box(name, part)) for name, part in slices.items()]


def at_least_of(version: Version) -> Tuple[int, Optional[int]]:
    """The version, and the epoch that it is of."""
    epoch = None
    if isinstance(version, tuple):
        epoch, version = version
        epoch = count(epoch, "epoch", 0, _MOST_VERSION)
    return count(version, "at_least", 0, _MOST_VERSION), epoch


def wait_ms_of(wait: Optional[float]) -> int:
    return 0 if wait == 0 else milliseconds(wait, "wait")


class BaseOffer:
    """A map that peers fetch when they like."""

    def __init__(self, hub: Hub, data: Any, meta: Optional[Meta],
                 name: Optional[str], version: int, ttl: Optional[float],
                 fetches: Optional[int], principals: Optional[str]) -> None:
        self._hub = hub
        self._offer, self._key = hub.offer(
            data, merge_meta(meta, {}) if meta else None, name,
            count(version, "version", 0, _MOST_VERSION),
            milliseconds(ttl, "ttl"),
            0 if fetches is None else count(fetches, "fetches", 1), principals)

    @property
    def key(self) -> bytes:
        """48 bytes, by which a peer fetches it: ep.fetch(key)."""
        return self._key

    @property
    def stats(self) -> OfferStats:
        """Of its fetches: "fetches" that ended well, "failed", "bytes" and
        "under_way"."""
        return OfferStats(*hot.offer_state(self._offer)[1:])

    @property
    def released(self) -> bool:
        """Whether nothing can read its arrays any more: they may be changed."""
        return bool(hot.offer_state(self._offer)[0])

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
