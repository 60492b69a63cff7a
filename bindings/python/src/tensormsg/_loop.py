# SPDX-License-Identifier: BSD-3-Clause
"""A worker that an event loop of asyncio drives."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from ._hub import Hub, Posted
from ._lib import hot, lib
from ._presence import Watch
from ._session import LoopSessions, OnSession
from ._spin import Spin
from ._time import seconds
from .context import check_process
from .errors import Busy, Status, error_of

_TURN_S = 0.001  # a task that never waits lets others run so often
_HELD_S = 0.01  # a loop without a turn of ours may have been held up
_SOON_S = 0.0002  # a message that came so soon could have been spun for
_MISSES = 3  # in a row, and nobody spins any more
_MOVED, _CAME, _STARVES = 1, 2, 4  # of hot.progress()
_SLICE_S = 0.001  # one that takes longer is the last of a turn of the loop


class _Slice:
    """Of a loop's turn: to make or end a connection takes some milliseconds.
    Where there are many at once, others have turns of the loop in between."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._begun = 0.0
        self._open = False

    def over(self) -> bool:
        """Whether what is to be done now is left to a later turn."""
        now = time.monotonic()
        if self._open:
            return now - self._begun > _SLICE_S
        loop = self._loop()
        if loop is not None:
            loop.call_soon(self._close)  # in the next turn
            self._open = True
            self._begun = now
        return False

    def _close(self) -> None:
        self._open = False


_slices: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Slice]" = \
    weakref.WeakKeyDictionary()


def _slice_of(loop: asyncio.AbstractEventLoop) -> _Slice:
    found = _slices.get(loop)
    if found is None:
        found = _slices[loop] = _Slice(loop)
    return found


async def have_slice() -> None:
    """Before a connection is made or ended: waits while others were in this
    turn of the loop."""
    its = _slice_of(asyncio.get_running_loop())
    while its.over():
        await asyncio.sleep(0)


def _wake(reference: "weakref.ref[LoopHub]") -> None:
    hub = reference()
    if hub is not None and hub.drives() and not hub.let_look():
        hub.turn()


def _end_wait(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _end_waits(futures: Iterable["asyncio.Future[None]"]) -> bool:
    """Whether one was still waited for."""
    woke = False
    for future in futures:
        if not future.done():
            future.set_result(None)
            woke = True
    return woke


def _forget_wait(waits: Dict[int, List["asyncio.Future[None]"]], number: int,
                 future: "asyncio.Future[None]") -> None:
    futures = waits.get(number, [])
    if future in futures:
        futures.remove(future)
        if not futures:
            del waits[number]


def _end_at(loop: asyncio.AbstractEventLoop,
            timeout: Optional[float]) -> Optional[float]:
    """When so many seconds are over, as loop.time(); None: never."""
    limit = seconds(timeout)
    return None if limit == math.inf else loop.time() + limit


async def _await(loop: asyncio.AbstractEventLoop,
                 future: "asyncio.Future[None]", end: Optional[float]) -> None:
    """Until it is done, or that time has come, which ends it. No wait_for(): of
    old Pythons that may lose a cancellation."""
    timer = None if end is None else loop.call_at(end, _end_wait, future)
    try:
        await future
    finally:
        if timer is not None:
            timer.cancel()


def _forget(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    if not loop.is_closed():
        loop.remove_reader(fd)
    os.close(fd)


def _unbind(bound: List[Any]) -> None:
    """Takes the descriptor out of its loop, in that loop's thread."""
    while bound:
        loop, fd = bound.pop()
        if loop.is_closed() or not loop.is_running() or \
                asyncio._get_running_loop() is loop:
            _forget(loop, fd)
        else:
            try:
                loop.call_soon_threadsafe(_forget, loop, fd)
            except RuntimeError:  # it was closed just now
                os.close(fd)


class LoopHub(Hub):
    """A hub that the running event loop drives: by the worker's descriptor,
    which is readable when there is something to do."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._bound: List[Any] = []  # (loop, a copy of a descriptor)
        self._ops: Dict[Any, "asyncio.Future[None]"] = {}
        # Of those that wait for messages, by endpoint; by 0 for any's.
        self._receivers: Dict[int, List["asyncio.Future[None]"]] = {}
        # With buffers, of which endpoint: who came last looks for all.
        self._lookers: List[Tuple[int, "asyncio.Future[None]"]] = []
        self._stirred = False  # something may have come since a turn
        self.opening = False  # it connects
        self.watches = False  # there have been streams
        # Of those that wait for a stream, by its number; by 0 for room.
        self._waiters: Dict[int, List["asyncio.Future[None]"]] = {}
        self._turning = threading.RLock()  # with other loops' threads
        self._kicked = False
        self._stuck = 0  # turns in a row
        self._turned = 0.0
        self.spin = Spin(self.spin_us)
        self._idle = 0  # looks in a row at what moves, and that was in vain
        self._armed = 0.0
        self._unbinder = weakref.finalize(self, _unbind, self._bound)
        self._unbinder.atexit = False

    def bind(self) -> asyncio.AbstractEventLoop:
        """To the running loop; from one that has ended, or waits for nothing
        of ours."""
        loop = asyncio.get_running_loop()
        if loop is not self.loop:
            check_process(self.generation)
            with self._turning:  # of the loop before
                self._bind(loop)
        return loop

    def drives(self) -> bool:
        """Whether the running loop is the one that it is bound to. What another
        has scheduled may come later."""
        return asyncio._get_running_loop() is self.loop

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.loop is not None and self.loop.is_running() and \
                (self._ops or self._receivers or self._waiters or
                 self._lookers):
            raise RuntimeError("another event loop waits on this connection")
        bound: List[Any] = []
        self.enter()
        try:
            for fd in (lib.tmsg_worker_fd(self.worker),
                       lib.tmsgpy_hub_wake_fd(self.hub)):
                bound.append((loop, os.dup(fd)))
                loop.add_reader(bound[-1][1], _wake, weakref.ref(self))
        except BaseException:
            _unbind(bound)
            raise
        finally:
            self.leave()
        _unbind(self._bound)
        self._forget_waits()
        self._bound += bound
        self.loop = loop
        self._kicked = False
        self._stirred = True  # the loop before may have been told of it
        self.kick()

    def kick(self) -> None:
        """Before the loop sleeps next the worker is armed."""
        if not self._kicked and self.loop is not None and \
                not self.loop.is_closed():
            self._kicked = True
            self.loop.call_soon(self.turn)

    def _begin_wait(self, alone: bool) -> None:
        """Looks at once for one that waits alone; many would have a turn each
        before the loop had its own."""
        if alone:
            self.turn()
        else:
            self.kick()

    def turn(self) -> None:
        """Does what there is to do, and arms the descriptor."""
        with self._turning:
            if self.loop is None or self.drives():
                if self.opening and self.loop is not None and \
                        _slice_of(self.loop).over():
                    self._kicked = False
                    self.kick()
                else:
                    self._turn()

    def _turn(self) -> None:
        self._kicked = False
        if self.loop is None or self.closed:
            _unbind(self._bound)
            self._deliver(True)
            self._serve()
            return
        begun = self._turned = time.monotonic()
        soon = begun - self._armed < _SOON_S
        spin_us = 0
        while time.monotonic() - begun < _TURN_S:
            what = hot.progress(self.number, spin_us)
            if what & _STARVES:
                what &= ~_STARVES
                self.tell_that_it_starves()
            if self.sessions is not None:
                self.sessions.look()
            if what == _MOVED and (soon or spin_us):
                self._idle = 0
            elif spin_us:
                self._idle += 1
            woke = bool(what or self._stirred) and self.let_look()
            woke = self._deliver(what >= _CAME) or woke
            woke = self._serve() or woke
            self.look_for_ended()
            soon = False
            # Of what is large there is more at once.
            spin_us = self.spin_us if what == _MOVED and not woke and \
                self._idle < _MISSES else 0
            if spin_us == 0:
                if self._arm():
                    self._armed = time.monotonic()
                    self._stuck = 0
                    return
                if not (what or woke):
                    self._look_later()
                    return
            self._stuck = 0
        self.kick()

    def _look_later(self) -> None:
        """UCX has something to send that the peer has no room for, and cannot
        tell when it has (1.13, shared memory)."""
        self._stuck += 1
        if self._stuck <= _MISSES:
            self.kick()
        elif not self._kicked and self.loop is not None:
            self._kicked = True
            self.loop.call_later(_TURN_S, self.turn)

    def _arm(self) -> bool:
        """False: there is more to do. The descriptor tells of what happens from
        now on, not of what another thread has ended just before."""
        if not hot.arm(self.number):
            return False
        self._reap()
        return True

    def _reap(self) -> bool:
        """Whether somebody waited for an operation that has ended."""
        woke = False
        ended = hot.reap(self.pending) if self.pending else ()
        for op in ended:
            future = self._ops.pop(op, None)
            if future is not None and not future.done():
                future.set_result(None)
                woke = True
        return bool(ended and self._waiters and self._wake_waiters(0)) or woke

    def _serve(self) -> bool:
        server = None if self.server is None else self.server()
        return server is not None and bool(server._turn())

    def _deliver(self, came: bool) -> bool:
        """Whether somebody was woken."""
        woke = self._reap()
        if self.watches:
            for number in hot.told(self.number):
                woke = self._wake_waiters(number) or woke
                if number == 0:
                    for each in list(self._waiters):
                        woke = self._wake_waiters(each) or woke
        if came or self._stirred:
            self._stirred = False
            woke = self._wake_receivers() or woke
        return woke

    def _wake_receivers(self) -> bool:
        """Those of endpoints that something has come of. Each looks for itself:
        a message is only taken by a task that runs, so that none is lost with
        one that is cancelled."""
        if not self._receivers:
            return False
        found = hot.readable(self.number, list(self._receivers))
        woke = False
        for number in [*found, *self.doomed.intersection(self._receivers)]:
            woke = _end_waits(self._receivers.pop(number, ())) or woke
        return woke

    def _wake_waiters(self, number: int) -> bool:
        return _end_waits(self._waiters.pop(number, ()))

    def destroy(self) -> None:
        _unbind(self._bound)
        super().destroy()
        if self.presence is not None:
            with self._holding:
                self.presence.wake_all()
        self._in_loop(self._end_all)

    def _in_loop(self, work: Callable[[], object]) -> None:
        """At once, unless this is another thread, an allocator's."""
        loop = self.loop
        if loop is None or self.drives():
            work()
            return
        try:
            loop.call_soon_threadsafe(work)
        except RuntimeError:  # it is closed
            self._forget_waits()

    def _end_all(self) -> None:
        for waiters in *self._waiters.values(), *self._receivers.values(), \
                self._ops.values(), [future for _, future in self._lookers]:
            _end_waits(waiters)
        if self.server is not None and self.loop is not None:
            self.loop.call_soon(self._serve)
        self._forget_waits()

    def _forget_waits(self) -> None:
        self._ops.clear()
        self._receivers.clear()
        self._waiters.clear()
        self._lookers.clear()

    async def breathe(self, loop: asyncio.AbstractEventLoop) -> None:
        """Before a call that may end without waiting: lets other tasks run,
        now and then, and sees to it that the worker is armed again."""
        if not self._kicked:
            self.kick()
        elif time.monotonic() - self._turned > _TURN_S:
            await asyncio.sleep(0)
            self._turned = time.monotonic()

    async def finish(self, op: Any, endpoint: int,
                     timeout: Optional[float] = None, what: str = "",
                     end: Optional[float] = None) -> None:
        """Waits until an operation has ended. It is given up where the task is
        cancelled, and after so many seconds: `what` was late then. `end`: of a
        timeout that runs already, as loop.time()."""
        loop = self.bind()
        if end is None:
            end = _end_at(loop, timeout)
        self._stirred = True
        while not hot.ended(op):
            if end is not None and loop.time() >= end:
                error = self.late(op, endpoint, timeout, what)
                self.kick()
                raise error
            if self.closed:  # it ends with the call that the worker is in
                await asyncio.sleep(_TURN_S)
                continue
            future: "asyncio.Future[None]" = loop.create_future()
            self._ops[op] = future
            self._begin_wait(len(self._ops) == 1)
            try:
                await _await(loop, future, end)
            except asyncio.CancelledError:
                hot.cancel(self.number, op)
                self.kick()
                raise
            finally:
                self._ops.pop(op, None)
        self._settle()
        hot.outcome(op, self.peer(endpoint))

    def _look_late(self, loop: asyncio.AbstractEventLoop, end: Optional[float],
                   timeout: Optional[float]) -> None:
        """Of a receive that has found nothing: raises TimedOut if it is time."""
        if end is not None and loop.time() >= end:
            raise error_of(Status.TIMED_OUT,
                           f"no message in {timeout} s{self.starvation()}")

    async def peers_go_on(self, watch: Watch) -> None:
        """Waits until something may have happened to a peer."""
        loop = self.bind()
        future: "asyncio.Future[None]" = loop.create_future()
        watch.wake = functools.partial(self._in_loop, functools.partial(
            _end_wait, future))
        self.kick()
        if not (watch.events or self.closed):
            await future

    async def take(self, endpoint: int, timeout: Optional[float] = None) -> Any:
        """Waits for a message: its parts."""
        self.pulls = True
        loop = self.bind()
        end = None if timeout is None else _end_at(loop, timeout)
        held = self.hold(endpoint)
        try:
            await self.breathe(loop)
            self.look_alive(endpoint)
            since = time.monotonic()
            parts = self._look(endpoint, self.spin.next_us())
            if parts is not None:
                self.spin.polled()
            else:
                self.spin.missed()
            while parts is None:
                self._look_late(loop, end, timeout)
                await self._sleep(loop, endpoint, end)
                self.look_alive(endpoint)
                parts = self._look(endpoint, 0)
                if parts is not None:
                    self.spin.slept(since)
            return parts
        finally:
            if held:
                self.let_go(endpoint)

    def destroy_endpoint(self, endpoint: int, peer: str = "") -> None:
        super().destroy_endpoint(endpoint, peer)
        if endpoint in self.doomed:  # who waits for it is to see that
            self._stirred = True
            self._in_loop(self._stir)

    def _stir(self) -> None:
        self.let_look()
        self.kick()

    def let_look(self) -> bool:
        """Those that wait with buffers and have something to find look. Where
        none has, the last that came moves what there is, so that it goes
        straight there if it is for its endpoint. False: nobody waits so."""
        if self._wake_lookers():
            return True
        while self._lookers:
            if _end_waits([self._lookers.pop()[1]]):
                return True
        return False

    def _wake_lookers(self) -> bool:
        """Those whose endpoints something has come of."""
        if not self._lookers:
            return False
        found = {*hot.readable(self.number,
                               list({number for number, _ in self._lookers})),
                 *self.doomed}
        woken = [future for number, future in self._lookers if number in found]
        self._lookers = [one for one in self._lookers if one[0] not in found]
        return _end_waits(woken)

    async def take_into(self, endpoint: int, posted: Posted,
                        timeout: Optional[float] = None) -> Any:
        """Waits for a message, with buffers for it: its parts."""
        self.pulls = True
        loop = self.bind()
        held = self.hold(endpoint)
        try:
            await self.breathe(loop)
            return await self._take_into(loop, endpoint, posted, timeout)
        except BaseException:
            self.kick()  # it was to move what comes, or to arm
            raise
        finally:
            if held:
                self.let_go(endpoint)

    async def _take_into(self, loop: asyncio.AbstractEventLoop, endpoint: int,
                         posted: Posted, timeout: Optional[float]) -> Any:
        end = _end_at(loop, timeout)
        spin_us = self.spin_us
        while True:
            self.look_alive(endpoint)
            try:
                parts = self.receive_into(endpoint, posted, 0, spin_us)
            except Busy as busy:
                self._pass_on()
                self._look_late(loop, end, timeout)
                self.move_for(busy)
                self.kick()
                await asyncio.sleep(_TURN_S)
                continue
            except BaseException:
                self._pass_on()
                raise
            if isinstance(parts, tuple):
                self._pass_on()
                self._settle()
                self.kick()
                return posted.placed(parts)
            spin_us = 0
            if parts:
                posted.renew()
            posted.lent = parts is False
            lib.tmsgpy_hub_calm(self.hub)  # first, or what is told is lost
            came = hot.came(self.number)
            if came:  # for others that wait with buffers, or for us
                self._wake_lookers()
            self._deliver(True)
            self._serve()
            self.look_for_ended()
            self._look_late(loop, end, timeout)
            if came or self.closed or not self._arm():
                await asyncio.sleep(0)
                continue
            future: "asyncio.Future[None]" = loop.create_future()
            waits = endpoint, future
            self._lookers.append(waits)
            try:
                await _await(loop, future, end)
            finally:
                if waits in self._lookers:
                    self._lookers.remove(waits)

    def _look(self, endpoint: int, spin_us: int) -> Any:
        try:
            parts = hot.recv(self.number, endpoint, 0, spin_us)
        except BaseException:
            self._pass_on()
            self.look_for_refused(endpoint)
            raise
        if parts is not None:
            self._pass_on()
            self._settle()
        else:
            self.look_for_refused(endpoint)
        if parts is None and endpoint == 0:
            self.bury()
        return parts

    def look_first(self) -> None:
        """The loop moves what there is, unless something held it up."""
        if time.monotonic() - self._turned > _HELD_S:
            super().look_first()
            self._turned = time.monotonic()

    def tell_sessions(self, endpoint: Any, on_session: OnSession) -> None:
        self.sessions = LoopSessions(self.hub, endpoint, on_session)
        self.sessions.look()

    def _settle(self) -> None:
        """What became of the session is told before a task gets what came by
        it."""
        if self.sessions is not None:
            self.sessions.settle()

    def _pass_on(self) -> None:
        """There may be more, for others that wait."""
        if self._receivers or self._lookers or self.pending:
            self._stirred = True
            self.kick()

    async def _sleep(self, loop: asyncio.AbstractEventLoop, endpoint: int,
                     end: Optional[float] = None) -> None:
        future: "asyncio.Future[None]" = loop.create_future()
        self._receivers.setdefault(endpoint, []).append(future)
        self._begin_wait(len(self._receivers) == 1)
        try:
            await _await(loop, future, end)
        finally:
            _forget_wait(self._receivers, endpoint, future)

    def watch(self, owner: Any) -> None:
        """Whoever waits for that stream is woken from now on."""
        self.watches = True
        hot.stream_watch(owner)

    def ending(self, timeout: Optional[float]) -> Optional[float]:
        """When so many seconds are over, for stirred() and finish(); None:
        never."""
        return None if timeout is None else _end_at(self.bind(), timeout)

    def is_time(self, end: Optional[float]) -> bool:
        """Whether that time has come."""
        return end is not None and self.bind().time() >= end

    async def stirred(self, number: int, end: Optional[float] = None) -> None:
        """Until something was told of a stream; 0: a send has ended, so that
        there may be room. For nothing, perhaps, or as it was time: look
        again."""
        loop = self.bind()
        if self.closed:  # what is over ends with the call that the worker is in
            await asyncio.sleep(_TURN_S)
            return
        future: "asyncio.Future[None]" = loop.create_future()
        self._waiters.setdefault(number, []).append(future)
        self.turn()
        try:
            await _await(loop, future, end)
        finally:
            _forget_wait(self._waiters, number, future)
