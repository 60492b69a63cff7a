# SPDX-License-Identifier: BSD-3-Clause
"""The same without asyncio: calls that block, in as many threads as you like.

They let other threads run meanwhile, and Ctrl-C ends their wait within 0.1 s.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, \
    Tuple, Type

from ._count import count
from ._endpoint import BaseEndpoint, BaseListener, flags_of, \
    tell_unclosed
from ._hub import CLOSE_TIMEOUT, SLICE_MS, Deadline, Hub, Meta, merge_meta, \
    url_of
from ._lib import hot, lib
from ._link import BACKOFF, Dialling, Reconnect, admission, dialling
from ._message import BaseMessage, Like
from ._moving import moving
from ._own_loop import explain
from ._publish import LOOK_S, BasePublisher, bounds, make_publisher
from ._serve import BaseServer, Request, health_of, methods_of
from ._stream import QUEUE
from ._sync_stream import ServerStream, Stream
from ._time import seconds
from .allocators import Allocators
from .context import Context, park_at_exit
from .errors import Closed, Error, Status, TimedOut, error_of
from .keys import Key

_MOST_THREADS = 1024  # of a server

_log = logging.getLogger("tensormsg")

__all__ = ["Endpoint", "Listener", "Message", "Publisher", "Request", "Server",
           "ServerStream", "Stream", "connect", "listen", "publish"]


class Message(BaseMessage):
    __doc__ = BaseMessage.__doc__
    __slots__ = ()

    @property
    def peer(self) -> "Endpoint":
        """Who sent it, to be answered."""
        peer: Endpoint = self._peer
        return peer


class Endpoint(BaseEndpoint[Hub]):
    """A connection to one peer. Any thread may use it; several at once."""

    def send(self, data: Any, *, meta: Optional[Meta] = None,
             acked: bool = False, verify: bool = False,
             keep_strides: bool = False,
             timeout: Optional[float] = None, **more: Any) -> None:
        """Sends a dict of arrays, and returns when they may be changed again.

        `data`: names to arrays (numpy; anything with DLPack,
        __array_interface__ or the buffer protocol), or a tree of dicts, lists
        and tuples of arrays and of bool, int, float, str, bytes and None.
        `meta` and further keywords: metadata, frame=7 among them. `acked`:
        return when the peer's application has it. `verify`: the same, with a
        checksum of each array. `keep_strides`: what lies with gaps, or
        backwards, arrives with its strides, and what is in the gaps, which is
        sent; else it is packed. After `timeout` seconds it is given up with
        TimedOut: it arrives whole or not at all. The arrays are kept until
        nothing can read them any more, and must not be changed right away.
        """
        self._check()
        if timeout is not None:
            seconds(timeout)
        op = self._hub.post(self._number, data,
                            merge_meta(meta, more) if meta or more else None,
                            flags_of(acked, verify, keep_strides)
                            if acked or verify or keep_strides else 0, 0)
        if op is not None:
            self._hub.wait(op, self._number, timeout, "the send")

    def recv(self, timeout: Optional[float] = None) -> Message:
        """The next message, in the order sent; waits up to `timeout` seconds.
        Raises TimedOut, Closed when the peer has closed and all was taken,
        PeerLost."""
        self._check()
        parts = self._hub.pull(self._number, timeout)
        self._left = None
        return Message(parts, self, self._convert)

    def recv_into(self, buffers: Mapping[str, Any],
                  timeout: Optional[float] = None) -> Message:
        """The next message, with the arrays that are in `buffers`, too, received
        into these: without a copy where UCX can, else by one.

        `buffers`: names to arrays or buffers that can be written to, without
        gaps, none of which shares a byte with another; those of the message
        have the same dtype and shape, else this raises InvalidParam, which says
        what came, and the message stays the next one. What only one of
        the two has is left as it is, and received as by recv(). In the message
        returned those names are the arrays given (with `like`, the tensors).

        Raises TimedOut after `timeout` seconds. Where a message was on its way
        into the buffers just then they stay lent, and it is the next to be
        received: by recv(), in these buffers, or by recv_into()."""
        posted = self._post(buffers)
        try:
            parts = self._hub.pull_into(self._number, posted, timeout)
        except BaseException:
            self._leave(posted)
            raise
        return self._received_into(posted, parts, Message)

    def call(self, method: str, data: Any = None, *,
             meta: Optional[Meta] = None, timeout: Optional[float] = None,
             idempotent: bool = False, attempts: int = 1) -> Message:
        """Calls a method of the peer's server and returns its reply, a message.

        `data` and `meta`: as for send(); None is an empty map. `timeout`:
        seconds for all of it; the server is told what is left. `attempts`: how
        often it may be made where it fails for a while only (ResourceExhausted,
        Unavailable, NoMemory, Busy) and no handler saw it, or the call or the
        method is `idempotent`: to run it twice is as once. Ctrl-C cancels it.

        What fails raises its class of error, with `code`, `details` and
        `may_have_run`: TimedOut, NotFound (no such method), InvalidParam (not
        what the method takes), ApplicationFailed and what else the handler
        says, Internal (the handler broke), PeerLost, ..."""
        op = self._call(method, data, meta, timeout, idempotent, attempts, 0)
        self._hub.wait(op, self._number, None, "the call")
        return self._reply(op, Message)

    def stream(self, method: str, data: Any = None, *,
               meta: Optional[Meta] = None, timeout: Optional[float] = None,
               queue: int = QUEUE) -> Stream:
        """Opens a stream to a method of the peer's server, at once: enter it by
        `with`.

        `data` and `meta`: what the handler sees as `request`, as for call().
        `timeout`: seconds for the whole of it; the server is told what is left.
        `queue`: messages of this side that may wait for the other to read,
        before send() does. Where nobody holds it any more it is cancelled.
        Raises ResourceExhausted (512 are open), Unsupported (an older peer)."""
        return self._stream(Stream, Message, method, data, meta, timeout, queue)

    def methods(self, timeout: Optional[float] = 10.0
                ) -> Dict[str, Dict[str, Any]]:
        """The methods that the peer serves, by name: "signature",
        "description", "concurrency", "queue", "health"."""
        return methods_of(self.call("tensormsg.methods", timeout=timeout))

    def health(self, method: Optional[str] = None,
               timeout: Optional[float] = 10.0) -> str:
        """How the peer's server, or one method, is: "SERVING", "NOT_SERVING",
        "DRAINING", "NOT_FOUND" or "UNKNOWN"."""
        return health_of(self.call(
            "tensormsg.health", meta=None if method is None
            else {"method": method}, timeout=timeout))

    def ready(self, timeout: Optional[float] = None) -> None:
        """Waits until the connection stands, after it broke and where it comes
        back (`reconnect`). Raises PeerLost where it does not, TimedOut."""
        seconds(timeout)
        self._hub.wait(self._begin_ready(), self._number, timeout,
                       "to come back")

    def serve(self, *, threads: int = 1, concurrency: int = 1024,
              queue: int = 1024) -> "Server":
        """Serves what the peer calls, as Listener.serve()."""
        return self._serving(Server, threads=threads, concurrency=concurrency,
                             queue=queue)

    def __iter__(self) -> Iterator[Message]:
        """Messages until the peer closes."""
        while True:
            try:
                message = self.recv()
            except Closed:
                return
            yield message

    def close(self, timeout: Optional[float] = CLOSE_TIMEOUT) -> None:
        """Closes in order: returns when the peer has all that was sent. Again
        does nothing. Raises PeerLost where that cannot be known, TimedOut
        after `timeout` seconds."""
        seconds(timeout)
        if self._gone or self._closing:
            return
        self._closing = True
        try:
            if self._server is not None:
                self._server.close(timeout)
            self._hub.wait(self._begin_close(), self._number, timeout,
                           "closing")
        except Closed:
            pass
        finally:
            self.abort()

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class Listener(BaseListener[Hub]):
    """A door that peers come in by; gives their messages."""

    _kind = Endpoint

    def recv(self, timeout: Optional[float] = None) -> Message:
        """The next message of any peer; waits up to `timeout` seconds."""
        parts = self._hub.pull(0, timeout)
        return Message(parts, self._sender(parts[3]), self._convert)

    def __iter__(self) -> Iterator[Message]:
        """Messages of all peers until it is closed."""
        while True:
            try:
                message = self.recv()
            except Closed:
                return
            yield message

    def serve(self, *, threads: int = 1, concurrency: int = 1024,
              queue: int = 1024) -> "Server":
        """Serves what its peers call, from now on: a Server, whose `threads`
        run the handlers and move what goes on here. `concurrency`: how many
        calls may run or wait for a thread, `queue`: how many more may be here;
        others fail with ResourceExhausted. While all threads are in handlers
        nothing moves, unless the listener has background=True or another
        thread waits on it. Keep the server: where nobody holds it, it ends.
        Raises AlreadyExists (there is one)."""
        return self._serving(Server, threads=threads,
                             concurrency=concurrency, queue=queue)

    @property
    def peers(self) -> List[Endpoint]:
        """Those that are connected now."""
        self._hub.tidy()
        return list(self._hub.endpoints.values())

    def close(self, timeout: Optional[float] = CLOSE_TIMEOUT) -> None:
        """Lets nobody in any more and closes what came in, in order."""
        seconds(timeout)
        if self._hub.closed:
            return
        try:
            if self._server is not None:
                self._server.close(timeout)
            self._hub.stop_listening(self._listener)
            self._close_peers(timeout)
        finally:
            self.abort()

    def _close_peers(self, timeout: Optional[float]) -> None:
        """All at once, and as long as that for all of them."""
        deadline = Deadline(timeout)
        begun = []
        for peer in self.peers:
            if peer._gone or peer._closing:
                continue
            peer._closing = True
            try:
                begun.append((peer, peer._begin_close()))
            except Error:  # it is gone, which is what was asked for
                pass
        for peer, op in begun:
            try:
                self._hub.wait(op, peer._number, deadline.left(), "closing")
            except TimedOut:
                tell_unclosed(peer.peer, timeout)
            except Error:
                pass
        for peer, _ in begun:
            peer.abort()

    def abort(self) -> None:
        """Ends it and its connections at once."""
        self._hub.destroy()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def _serve(reference: "weakref.ref[Server]") -> None:
    while True:
        server = reference()
        if server is None or not server._step():
            return
        del server


class Server(BaseServer[Hub]):
    """Answers calls, in threads of its own. A handler may take its time and
    call others; `request.over` tells it that nobody waits any more. Leaving
    the block of `with` drains and closes it."""

    def __init__(self, hub: Hub, sender: Callable[[int, bool], Any],
                 like: Like, *, threads: int, concurrency: int,
                 queue: int) -> None:
        threads = count(threads, "threads", 1, _MOST_THREADS)
        super().__init__(hub, sender, like, concurrency, queue)
        hub.threads_move_it = True
        self._threads = [threading.Thread(
            target=_serve, args=(weakref.ref(self),), daemon=True,
            name=f"tensormsg-{i}") for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def _refuse_handler(self, handler: Any) -> None:
        super()._refuse_handler(handler)
        if inspect.iscoroutinefunction(handler) or \
                inspect.isasyncgenfunction(handler):
            raise TypeError("a coroutine needs asyncio: enter the listener by "
                            "`async with`")

    def _step(self) -> bool:
        self._hub.look_for_ended()
        work = self._take(SLICE_MS, self._hub.spin_us)
        if work is None:
            return not self._closed
        if not work:
            park_at_exit()
            return False
        handler, request = self._request(work, ServerStream, Message)
        if work[3]:
            self._run_stream(handler, request)
            return True
        try:
            result = handler(request)
        except BaseException as error:  # sys.exit(), too, ends just the call
            self._fail(request, error)
        else:
            self._answer(request, result)
        return True

    def _run_stream(self, handler: Callable[[Any], Any],
                    stream: ServerStream) -> None:
        made: Any = None
        try:
            made = handler(stream)
            if inspect.isgenerator(made):
                for data in made:
                    stream.send(data)
            elif made is not None:
                stream.send(made)
        except BaseException as error:
            self._fail(stream, error)
        else:
            self._refuse(stream, 0, 0, "", {})
        if inspect.isgenerator(made):
            try:
                made.close()
            except BaseException:
                _log.exception("method '%s' failed at its end", stream.method)

    def drain(self, timeout: Optional[float] = CLOSE_TIMEOUT) -> None:
        """Takes no further calls (they fail with Unavailable) and waits until
        those that are here have been answered. Raises TimedOut after `timeout`
        seconds: what was left failed with Unavailable."""
        seconds(timeout)
        failed: List[Error] = []

        def run() -> None:
            try:
                self._drain(timeout)
            except Error as error:
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(SLICE_MS / 1000)
        except BaseException:
            self._hurry()
            raise
        if failed:
            raise failed[0]

    def close(self, timeout: Optional[float] = CLOSE_TIMEOUT) -> None:
        """Drains it, and ends it. Again does nothing."""
        seconds(timeout)
        if self._closed:
            return
        try:
            self.drain(timeout)
        except TimedOut:
            pass
        finally:
            self._unserve()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(1)  # a handler that goes on is left to itself

    def run(self) -> None:
        """Waits until it is closed."""
        for thread in self._threads:
            while thread.is_alive():
                thread.join(SLICE_MS / 1000)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close(CLOSE_TIMEOUT if kind is None else 0)


class Publisher(BasePublisher[Listener]):
    """Sends each dict to all who have connected, and never waits for one of
    them. Any thread may use it. The library's own thread moves the messages,
    unless it was made with background=False.

    Leaving the block of `with` closes in order: it returns when those who keep
    up have all that waits for them, at the latest after 10 s."""

    def send(self, data: Any, *, meta: Optional[Meta] = None,
             verify: bool = False, keep_strides: bool = False,
             timeout: Optional[float] = None, copy: bool = True,
             **more: Any) -> None:
        """Sends a dict of arrays to all subscribers, and returns at once: they
        may be changed again.

        `data`, `meta` and further keywords, `verify`, `keep_strides`: as of
        Endpoint.send(). `timeout`: seconds after which it goes to nobody any
        more who has not begun to receive it, nor is kept for newcomers.
        `copy`: False where the arrays will not be changed any more: they are
        kept as they are until all have them, and no copy is made; so go arrays
        of a GPU alone."""
        self._send(data, meta, more, flags_of(False, verify, keep_strides),
                   timeout, copy)
        self._drive()

    def _drive(self) -> None:
        hub = self._listener._hub
        if not hub.background:
            hub.moved_by_thread()
            hot.progress(hub.number, 0)

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until every subscriber's application has taken what was sent,
        or it was dropped for it. Raises TimedOut after `timeout` seconds."""
        self._until(self._is_idle, timeout, "a subscriber did not take all")

    def wait_for(self, count: int = 1, timeout: Optional[float] = None
                 ) -> None:
        """Waits until there are so many subscribers. Raises TimedOut after
        `timeout` seconds."""
        self._until(lambda: self.subscribers >= count, timeout,
                    f"not {count} subscribers")

    def _until(self, holds: Callable[[], bool], timeout: Optional[float],
               what: str) -> None:
        deadline, nap_s = Deadline(timeout), 0.0005
        while not holds():
            if deadline.passed():
                raise error_of(Status.TIMED_OUT, f"{what} in {timeout} s")
            self._drive()
            nap_s = min(2 * nap_s, LOOK_S)
            time.sleep(min(nap_s, deadline.left()))

    def close(self, timeout: Optional[float] = CLOSE_TIMEOUT) -> None:
        """Closes in order: nothing more is sent and nobody let in, what waits
        is sent, and the subscribers see Closed. Those who do not keep up are
        left after `timeout` seconds. Again does nothing."""
        seconds(timeout)
        op = self._begin_close()
        if op is None:
            return
        try:
            self._listener._hub.wait(op, 0, timeout, "closing")
            self._listener.close(timeout)
        except TimedOut:
            pass
        finally:
            self.abort()

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def connect(place: str, *, timeout: Optional[float] = 10.0, like: Like = None,
            context: Optional[Context] = None,
            queue_depth: Optional[int] = None,
            spin_us: Optional[int] = None,
            background: bool = False,
            allocators: Optional[Allocators] = None,
            device: Any = None,
            key: Optional[Key] = None,
            reconnect: Reconnect = None,
            backoff: Tuple[float, float] = BACKOFF,
            newest: bool = False) -> Endpoint:
    """Connects and returns the endpoint: as `with tensormsg.connect(...)`,
    which says what the arguments are."""
    like, allocators = moving(like, device, allocators)
    return _connect(place, dialling(timeout, key, reconnect, backoff, newest),
                    like, context, queue_depth, spin_us, background,
                    allocators)


def _connect(place: str, how: Dialling, like: Like,
             context: Optional[Context], queue_depth: Optional[int],
             spin_us: Optional[int], background: bool,
             allocators: Optional[Allocators]) -> Endpoint:
    hub = Hub(context, queue_depth, spin_us, background, allocators)
    try:
        number = hub.connect(url_of(place), how)
        hub.wait(hub.operation(lib.tmsg_endpoint_ready, number), number, None,
                 "connecting")
    except BaseException as error:
        hub.destroy()
        explain(error, url_of(place))
        raise
    return Endpoint(hub, number, like, dialled=True)


def listen(place: str, *, allow_unauthenticated: bool = False,
           like: Like = None, context: Optional[Context] = None,
           queue_depth: Optional[int] = None,
           spin_us: Optional[int] = None,
           background: bool = False,
           allocators: Optional[Allocators] = None,
           device: Any = None,
           key: Optional[Key] = None,
           reconnect: Reconnect = None) -> Listener:
    """Listens and returns the listener: as `with tensormsg.listen(...)`, which
    says what the arguments are."""
    like, allocators = moving(like, device, allocators)
    how = admission(allow_unauthenticated, key, reconnect)
    return Listener(
        Hub(context, queue_depth, spin_us, background, allocators),
        url_of(place), like, how)


def publish(place: str, *, keep: int = 0, queue: int = 16,
            queue_bytes: Optional[int] = None, window: int = 32,
            slow: str = "drop oldest", newest: bool = False,
            allow_unauthenticated: bool = False,
            context: Optional[Context] = None, spin_us: Optional[int] = None,
            background: bool = True, key: Optional[Key] = None,
            reconnect: Reconnect = None) -> Publisher:
    """Listens and returns the publisher: as `with tensormsg.publish(...)`,
    which says what the arguments are."""
    how = admission(allow_unauthenticated, key, reconnect)
    each = bounds(keep, queue, queue_bytes, window, slow, newest)
    hub = Hub(context, None, spin_us, background)
    publisher = make_publisher(hub, each)
    return Publisher(Listener(hub, url_of(place), None, how), publisher)
