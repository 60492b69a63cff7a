# SPDX-License-Identifier: BSD-3-Clause
"""A call that blocks the event loop which is to answer it waits for itself."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from typing import Any, List, Optional, Protocol, Tuple, Union

from ._weakly import Weakly
from .errors import NotFound, Status, TimedOut, Unreachable, error_of

_Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]

_AFTER_S = 0.5  # before that a thread may be about to move it


class Door(Protocol):
    """A hub that has a listener."""

    background: bool
    loop: Optional[asyncio.AbstractEventLoop]
    place: str  # where it listens
    server: Any
    threads_move_it: bool

    @property
    def closed(self) -> bool: ...


_doors: Weakly[Door] = Weakly()


def _forked() -> None:
    """The listeners of the parent are not here."""
    global _doors
    _doors = Weakly()


os.register_at_fork(after_in_child=_forked)


def note_door(hub: Door) -> None:
    """Of a listener."""
    _doors.add(hub)


def _host_and_port(url: str) -> Tuple[str, str]:
    host, _, port = url.partition("://")[2].rpartition(":")
    return host.strip("[]"), port


def _addresses(host: str) -> List[_Address]:
    """What stands for itself in a URL, or is looked up."""
    try:
        found = [ipaddress.ip_address(entry[4][0]) for entry in
                 socket.getaddrinfo(host or None, 0,
                                    type=socket.SOCK_STREAM)]
    except (OSError, ValueError):
        return []
    return [getattr(address, "ipv4_mapped", None) or address
            for address in found]


def _is_own(address: _Address) -> bool:
    """Whether it is one of this machine's."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def _reaches(to: _Address, at: _Address) -> bool:
    """Whether who connects to one comes to who listens at the other."""
    if to.version != at.version:
        return False
    if to.is_unspecified:  # that is the loopback, to the system
        to = ipaddress.ip_address("127.0.0.1" if to.version == 4 else "::1")
    return to == at or (at.is_unspecified and _is_own(to))


def _is_same(dialled: str, place: str) -> bool:
    kind = dialled.partition("://")[0]
    if kind != place.partition("://")[0]:
        return False
    if kind == "unix":
        return os.path.realpath(dialled[len("unix://"):]) == \
            os.path.realpath(place[len("unix://"):])
    (to, port), (at, its) = _host_and_port(dialled), _host_and_port(place)
    return port == its and (to == at or any(
        _reaches(one, other) for one in _addresses(to)
        for other in _addresses(at)))


def nobody_moves(dialled: str) -> str:
    """Why nobody answers at that URL, in words, where it is a listener of this
    process that nobody looks after."""
    for hub in _doors:
        if not (hub.background or hub.closed or hub.threads_move_it) and (
                hub.loop is None or not hub.loop.is_running()) and \
                _is_same(dialled, hub.place):
            return (f"; {hub.place} is a listener of this process, whose "
                    "messages nothing moves: make it with background=True, or "
                    "receive from it, or serve it, in a thread or by asyncio")
    return ""


def explain(error: BaseException, dialled: str, waited: bool) -> None:
    """Of a connection that did not come about. `waited`: until somebody
    listened."""
    if isinstance(error, TimedOut):
        error.reason += nobody_moves(dialled)
    elif isinstance(error, (Unreachable, NotFound)) and not waited and \
            dialled.startswith(("tcp://", "unix://")):
        error.reason += "; wait=True waits until somebody listens"


def look_at_own_loop(dialled: str, waited: float, asks: bool) -> None:
    """Of a call that has waited so many seconds for who listens at that URL:
    raises WouldBlock where that is the loop that runs in this thread. `asks`: it
    waits for a handler."""
    loop = asyncio._get_running_loop()
    if loop is None or waited < _AFTER_S:
        return
    for hub in _doors:
        if hub.loop is not loop or hub.threads_move_it or hub.closed or \
                not _is_same(dialled, hub.place) or \
                (hub.background and not (asks and hub.server is not None)):
            continue
        other = "listen by tensormsg.sync.listen(), whose server has threads" \
            if hub.server is not None else "listen with background=True"
        raise error_of(
            Status.WOULD_BLOCK, f"{hub.place} is served by the event loop of "
            "this thread, which cannot run while this call waits: await the "
            "call (`async with tensormsg.connect(...)`), make the call in "
            f"another thread (asyncio.to_thread()), or {other}")
