# SPDX-License-Identifier: BSD-3-Clause
"""What a program learns of its calls and connections while it runs."""

import asyncio
import contextlib
import contextvars
import ctypes
import gc
import logging
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, environment, without_loop
from tensormsg import _hub, _progress, sync
from tensormsg._lib import hot

X = {"x": np.arange(6, dtype="f4")}


class Face:
    """Listens and connects in one of the two faces."""

    def __init__(self, name):
        self.module = sync if name == "sync" else tensormsg
        self.blocks = name == "sync"

    def run(self, scenario):
        """`scenario` takes a server, an endpoint that calls it, and a function
        that awaits what needs it."""
        async def value(made):
            return made if self.blocks else await made

        async def main():
            if self.blocks:
                with sync.listen(":0", background=True) as listener, \
                        listener.serve() as server, \
                        sync.connect(listener.url) as ep:
                    return await scenario(server, ep, value)
            async with tensormsg.listen(":0") as listener, \
                    listener.serve() as server, \
                    tensormsg.connect(listener.url) as ep:
                return await scenario(server, ep, value)

        return without_loop(main()) if self.blocks else asyncio.run(main())


@pytest.fixture(params=["asyncio", "sync"])
def face(request):
    return Face(request.param)


def give_methods(server):
    @server.method("double")
    def double(request):
        return {"y": request["x"] * 2}

    @server.method("refuse")
    def refuse(request):
        raise tensormsg.CallError("not today")


def test_metrics_of_both_sides(face):
    async def scenario(server, ep, value):
        give_methods(server)
        assert server.metrics() == {} and ep.metrics() == {}
        for _ in range(3):
            await value(ep.call("double", X, timeout=WAIT))
        for method in "refuse", 'no "such"':
            with pytest.raises(tensormsg.Error):
                await value(ep.call(method, X, timeout=WAIT))
        return server.metrics(), ep.metrics()

    served, called = face.run(scenario)
    assert served.keys() == {"double", "refuse", ""}
    assert called.keys() == {"double", "refuse", 'no "such"'}
    there, here = served["double"], called["double"]
    assert there.by_status == here.by_status == {"ok": 3}
    assert (there.ended, there.in_flight, there.rejected) == (3, 0, 0)
    assert there.received_bytes == here.sent_bytes == 3 * 24
    assert 0 < there.latency.p50 <= there.latency.p999 <= there.latency.most
    assert 0 < here.latency.mean <= here.latency.most < WAIT
    assert served["refuse"].by_status == {"application error": 1}
    assert served[""].rejected_by_status == {"not found": 1}
    assert called['no "such"'].by_status == {"not found": 1}


def test_a_handler_that_holds_the_loop_is_in_the_metrics():
    """In their text, too."""
    async def main():
        async with tensormsg.listen(":0") as listener:
            server = listener.serve()
            give_methods(server)
            server.method('a "b"')(lambda request: None)
            async with tensormsg.connect(listener.url) as ep:
                for method in "double", 'a "b"', "refuse":
                    with contextlib.suppress(tensormsg.ApplicationFailed):
                        await ep.call(method, X, timeout=WAIT)
                for method, count in ("double", 2), ('a "b"', 11):
                    for _ in range(count):
                        listener._hub.note_long(method)
                told = (await ep.call("tensormsg.describe"))["metrics"]
            assert listener.describe()["long_handlers"] == 13
            return server.metrics(), server.metrics_text(), \
                told.tobytes().decode()

    metrics, text, told = asyncio.run(main())
    for method, shown, count in ("double", "double", 2), (
            'a "b"', r'a \"b\"', 11), ("refuse", "refuse", 0):
        assert metrics[method].long_handlers == count
        assert 'tensormsg_long_handlers_total{side="server",' \
            f'method="{shown}"}} {count}\n' in text
        assert f'method="{shown}"}} {count}\n' in told


def samples_of(collector):
    return {(sample.name, *sorted(sample.labels.items())): sample.value
            for family in collector.collect() for sample in family.samples}


def test_prometheus_collects_servers_and_endpoints(face):
    client = pytest.importorskip("prometheus_client")
    from tensormsg.prometheus import Collector

    collector = Collector()
    registry = client.CollectorRegistry()
    registry.register(collector)

    async def scenario(server, ep, value):
        give_methods(server)
        await value(ep.call("double", X, timeout=WAIT))
        for source in server, ep, ep:
            collector.add(source)
        assert 'tensormsg_calls_total{side="server",method="double"' \
            in server.metrics_text()
        with sync.listen(":0", background=True) as other, \
                other.serve() as second:
            give_methods(second)
            collector.add(second)

            def call():
                with sync.connect(other.url) as caller:
                    caller.call("double", X, timeout=WAIT)
                    return client.generate_latest(registry).decode()

            text = call() if face.blocks else \
                await asyncio.get_running_loop().run_in_executor(None, call)
        return text

    text = face.run(scenario)
    for side, count in ("server", 2), ("caller", 1):
        assert f'tensormsg_calls_total{{method="double",side="{side}",' \
            f'status="ok"}} {count}.0\n' in text
    assert 'tensormsg_call_duration_seconds_bucket{le="+Inf",method="double",' \
        'side="server"} 2.0\n' in text
    assert samples_of(collector) == {}  # all were closed
    with pytest.raises(TypeError, match="a server or an endpoint has metrics"):
        collector.add(7)


class Seen(tensormsg.Interceptor):
    """Notes its hooks."""

    def __init__(self, log, name=""):
        self.log, self.name = log, name

    def begin(self, call):
        call.state = len(self.log)
        self.log.append((f"{self.name}begin", call.method, dict(call.meta)))

    def message(self, call, sent, meta):
        self.log.append((f"{self.name}message", sent, dict(meta)))

    def end(self, call):
        self.log.append((f"{self.name}end", call.method, call.status))
        assert self.log[call.state][:2] == (f"{self.name}begin", call.method)

    def refused(self, call):
        self.log.append((f"{self.name}refused", call.method, call.status))


def becomes(condition):
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(.001)


async def comes(condition):
    """The same, while an event loop goes on."""
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end
        if asyncio._get_running_loop() is None:
            time.sleep(.001)
        else:
            await asyncio.sleep(.001)


def test_interceptors_see_calls_on_both_sides(face):
    log = []

    class Token:
        def begin(self, call):
            call.add_meta("token", "sesame")
            assert call.meta == {"frame": 7, "token": "sesame"}

    class Wants:
        def begin(self, call):
            if call.meta.get("token") != "sesame":
                raise tensormsg.Refused("no good token")

    class Figures:
        def end(self, call):
            log.append(call)

    async def scenario(server, ep, value):
        give_methods(server)
        server.intercept(Seen(log, "s."))
        server.intercept(Wants())
        with pytest.raises(tensormsg.Refused, match="no good token") as no:
            await value(ep.call("double", X))
        assert no.value.may_have_run is False
        await comes(lambda: len(log) == 2)
        ep.intercept(Seen(log, "c."))
        ep.intercept(Token())
        ep.intercept(Figures())
        await value(ep.call("double", X, frame=7))
        await comes(lambda: len(log) == 7)
        with pytest.raises(tensormsg.NotFound):
            await value(ep.call("nothing", frame=7))
        await comes(lambda: len(log) == 11)

    face.run(scenario)
    figures = [one for one in log if not isinstance(one, tuple)]
    log = [one for one in log if isinstance(one, tuple)]
    token = {"frame": 7, "token": "sesame"}
    assert log[:2] == [("s.begin", "double", {}),
                       ("s.end", "double", tensormsg.Status.REFUSED)]
    assert log[2:4] == [("c.begin", "double", {"frame": 7}),
                        ("s.begin", "double", token)]
    assert sorted(log[4:6]) == [("c.end", "double", 0), ("s.end", "double", 0)]
    assert log[6] == ("c.begin", "nothing", {"frame": 7})
    assert sorted(log[7:]) == [
        ("c.end", "nothing", tensormsg.Status.NOT_FOUND),
        ("s.refused", "nothing", tensormsg.Status.NOT_FOUND)]
    assert [(one.side, one.attempts, one.sent_bytes, one.received_bytes,
             one.is_stream) for one in figures] == [
        ("caller", 1, 24, 24, False), ("caller", 1, 0, 0, False)]
    assert "no such method" in figures[1].error and figures[0].error == ""
    assert 0 < figures[0].elapsed < WAIT and "127.0.0.1" in figures[0].peer
    assert repr(figures[0]) == "<tensormsg.InterceptedCall caller 'double'>"
    with pytest.raises(RuntimeError, match="begin"):
        figures[0].add_meta("late", 1)


def test_interceptors_see_the_metadata_that_was_given(face):
    """None of the package's own, of which a tree has some; and they add what
    send() takes."""
    tree, log = {"d": {"e": 5, "f": [X["x"], None]}}, []

    class Adds:
        def begin(self, call):
            with pytest.raises(ValueError, match="'/' begins no key"):
                call.add_meta("/", "x")
            with pytest.raises(TypeError, match="names are str"):
                call.add_meta(7, "x")
            call.add_meta("n", np.int64(3))
            log.append(call.meta)

    async def scenario(server, ep, value):
        @server.method("keys")
        def keys(request):
            assert request.tree()["d"]["e"] == 5
            return {"n": request.meta["n"]}

        @server.method("one", stream=True)
        def one(stream):
            return tree

        server.intercept(Seen(log))
        ep.intercept(Adds())
        assert (await value(ep.call("keys", tree, frame=7)))["n"] == 3
        stream = ep.stream("one")
        assert (await value(stream.recv(WAIT)))["d/e"] == 5
        await value(stream.wait(WAIT))
        await comes(lambda: len(log) == 7)

    face.run(scenario)
    assert log[:2] == [{"frame": 7, "n": 3},
                       ("begin", "keys", {"frame": 7, "n": 3})]
    assert ("message", True, {}) in log


def test_interceptors_see_the_messages_of_streams(face):
    log, here = [], []

    async def scenario(server, ep, value):
        if face.blocks:
            @server.method("count")
            def count(stream):
                for message in stream:
                    yield tensormsg.Reply({"y": message["x"]}, n=2)
        else:
            @server.method("count")
            async def count(stream):
                async for message in stream:
                    yield tensormsg.Reply({"y": message["x"]}, n=2)
        server.intercept(Seen(log))
        ep.intercept(Seen(here))
        stream = ep.stream("count", opened=True)
        await value(stream.send(X, n=1))
        assert (await value(stream.recv(WAIT))).meta == {"n": 2}
        await value(stream.done_writing())
        assert await value(stream.recv(WAIT)) is None
        await value(stream.wait(WAIT))
        await comes(lambda: len(log) == len(here) == 4)

    face.run(scenario)
    begin, end = ("begin", "count", {"opened": True}), ("end", "count", 0)
    assert log == [begin, ("message", False, {"n": 1}),
                   ("message", True, {"n": 2}), end]
    assert here == [begin, ("message", True, {"n": 1}),
                    ("message", False, {"n": 2}), end]


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self):
        raise ValueError


def test_a_handler_whose_exception_has_no_words(face):
    async def scenario(server, ep, value):
        give_methods(server)

        @server.method("fail")
        def fail(request):
            raise Mute

        with pytest.raises(tensormsg.Internal, match="Mute: it has no words"):
            await value(ep.call("fail", timeout=WAIT))
        await value(ep.call("double", X, timeout=WAIT))

    face.run(scenario)


def test_a_hook_that_fails(face, caplog):
    class Breaks:
        def __init__(self, error, *names):
            for name in names:
                setattr(self, name, self.broken)
            self.error = error

        def broken(self, *args):
            raise self.error

    async def scenario(server, ep, value):
        give_methods(server)
        server.intercept(Breaks(OSError("full\ndisk"), "end"))
        await value(ep.call("double", X))
        await comes(lambda: "end() of an interceptor failed" in caplog.text)
        wrong = Breaks(ZeroDivisionError("by 0"), "begin")
        server.intercept(wrong)
        for error, words in (ZeroDivisionError("by 0"), "by 0"), (
                SystemExit("by 0"), "by 0"), (Mute(), "it has no words"):
            wrong.error = error
            with pytest.raises(tensormsg.Internal, match="an interceptor "
                               f"failed: {type(error).__name__}: {words}"):
                await value(ep.call("double", X))
        wrong.error = tensormsg.CallError("later",
                                          status=tensormsg.Status.UNAVAILABLE)
        with pytest.raises(tensormsg.Unavailable, match="later"):
            await value(ep.call("double", X))
        ep.intercept(Breaks(tensormsg.Busy("not now"), "begin"))
        with pytest.raises(tensormsg.Busy, match="not now") as busy:
            await value(ep.call("double", X))
        assert busy.value.may_have_run is False
        with pytest.raises(tensormsg.Busy, match="not now"):
            ep.stream("double")

    face.run(scenario)
    assert "begin() of an interceptor failed" in caplog.text


def test_around_the_handler(face):
    """In the context that the handler runs in, and no other's."""
    user = contextvars.ContextVar("user", default="nobody")
    left = []

    class Who:
        @contextlib.contextmanager
        def around(self, call):
            token = user.set(call.meta["user"])
            try:
                yield
            finally:
                left.append(user.get())
                user.reset(token)

    async def scenario(server, ep, value):
        server.intercept(Who())
        if face.blocks:
            @server.method("who")
            def who(request):
                return {"who": user.get()}

            @server.method("whose")
            def whose(stream):
                yield {"who": user.get()}
        else:
            @server.method("who")
            async def who(request):
                await asyncio.sleep(0)
                return {"who": user.get()}

            @server.method("whose")
            async def whose(stream):
                yield {"who": user.get()}
        for name in "Ann", "Bob":
            reply = await value(ep.call("who", user=name))
            assert reply["who"] == name
        stream = ep.stream("whose", user="Cid")
        assert (await value(stream.recv(WAIT)))["who"] == "Cid"
        await value(stream.wait(WAIT))
        with pytest.raises(tensormsg.Internal, match="KeyError: 'user'"):
            await value(ep.call("who"))
        await comes(lambda: len(left) == 3)
        assert user.get() == "nobody"

    face.run(scenario)
    assert left == ["Ann", "Bob", "Cid"]


def test_around_swallows_no_exception(face):
    """Neither of the handler nor of one further inside; and the server goes
    on."""
    class Swallows:
        def around(self, call):
            return contextlib.suppress(ValueError)

    class Breaks:
        def around(self, call):
            if call.method == "refuse":
                raise ValueError("inside")

    async def scenario(server, ep, value):
        server.intercept(Swallows())
        server.intercept(Breaks())
        give_methods(server)
        if face.blocks:
            @server.method("fail")
            def fail(request):
                raise ValueError("of the handler")
        else:
            @server.method("fail")
            async def fail(request):
                raise ValueError("of the handler")

        @server.method("fails", stream=True)
        def fails(stream):
            raise ValueError("of the stream")

        for method, words in ("fail", "of the handler"), ("refuse", "inside"):
            with pytest.raises(tensormsg.Internal, match=words):
                await value(ep.call(method, timeout=WAIT))
        with pytest.raises(tensormsg.Internal, match="of the stream"):
            await value(ep.stream("fails").recv(WAIT))
        await value(ep.call("double", X, timeout=WAIT))

    face.run(scenario)


def test_hooks_in_a_thread_of_the_librarys():
    """They may close what they see, and cannot wait."""
    threads, errors = set(), []
    with sync.listen(":0", background=True) as listener, \
            listener.serve() as server, \
            sync.connect(listener.url, background=True) as ep:
        give_methods(server)

        class Waits:
            def begin(self, call):
                threads.add(threading.current_thread() is
                            threading.main_thread())

            def end(self, call):
                if (call.side, call.method) == ("caller", "double"):
                    try:
                        ep.call("refuse", timeout=WAIT)
                    except tensormsg.Error as error:
                        errors.append(error)

        class Closes:
            def end(self, call):
                if call.method == "refuse":
                    ep.abort()

        server.intercept(Waits())
        ep.intercept(Waits())
        ep.call("double", X, timeout=WAIT)
        becomes(lambda: errors)
        assert threads == {True, False}
        assert {type(error) for error in errors} == {tensormsg.WouldBlock}
        ep.intercept(Closes())
        with contextlib.suppress(tensormsg.Error):
            ep.call("refuse", timeout=WAIT)
        becomes(lambda: ep.closed)


def test_an_interceptor_goes_with_its_connection(face):
    async def scenario(server, ep, value):
        class Short:
            def end(self, call):
                pass

        made = Short()
        ep.intercept(made)
        await value(ep.call("tensormsg.health"))
        return weakref.ref(made)

    made = face.run(scenario)
    gc.collect()
    assert made() is None


def test_what_is_no_interceptor(face):
    class Waits:
        async def begin(self, call):
            pass

    class Ends:
        def end(self, call):
            pass

    async def scenario(server, ep, value):
        for one in server, ep:
            with pytest.raises(TypeError, match="7 is not an interceptor: it "
                                                "has no method of begin, "
                                                "message, end"):
                one.intercept(7)
            with pytest.raises(TypeError, match="no method of"):
                one.intercept(tensormsg.Interceptor())
            with pytest.raises(TypeError, match=r"an object of it, Ends\(\)"):
                one.intercept(Ends)
            with pytest.raises(TypeError, match="begin.*cannot await it"):
                one.intercept(Waits())
            for _ in range(8):
                one.intercept(Ends())
            with pytest.raises(tensormsg.LimitExceeded):
                one.intercept(Ends())

    face.run(scenario)


class Spans:
    """The spans that have ended, by their names and kinds."""

    def __init__(self):
        pytest.importorskip("opentelemetry.sdk")
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import \
            InMemorySpanExporter
        self._ended = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._ended))
        self.tracer = self.provider.get_tracer("test")

    def all(self):
        return {(span.name, span.kind.name): span
                for span in self._ended.get_finished_spans()}

    async def come(self, count):
        await comes(lambda: len(self._ended.get_finished_spans()) >= count)
        return self.all()


@pytest.fixture
def spans():
    spans = Spans()
    import tensormsg.otel
    tensormsg.otel.instrument(spans.provider)
    tensormsg.otel.instrument()  # it is already
    yield spans
    tensormsg.otel.uninstrument()


def child_of(span):
    return span.parent and (span.parent.trace_id, span.parent.span_id)


def ids(span):
    return span.context.trace_id, span.context.span_id


def test_spans_on_both_sides_of_calls(face, spans):
    async def scenario(server, ep, value):
        @server.method("inner", signature="() -> ()")
        def inner(request):
            raise tensormsg.CallError("not today")

        started = []
        if face.blocks:  # the one thread of the server runs this handler
            @server.method("outer")
            def outer(request):
                with spans.tracer.start_as_current_span("work"):
                    started.append(ep.start_call("inner"))
        else:
            @server.method("outer")
            async def outer(request):
                with spans.tracer.start_as_current_span("work"):
                    with contextlib.suppress(tensormsg.ApplicationFailed):
                        await ep.call("inner")
        with spans.tracer.start_as_current_span("application"):
            await value(ep.call("outer", X, timeout=WAIT))
        for call in started:
            with pytest.raises(tensormsg.ApplicationFailed):
                call.wait(WAIT)
        return await spans.come(6)

    found = face.run(scenario)
    outer = "application", "INTERNAL"
    for name in ("outer", "CLIENT"), ("outer", "SERVER"), (
            "work", "INTERNAL"), ("inner", "CLIENT"), ("inner", "SERVER"):
        assert child_of(found[name]) == ids(found[outer]), name
        outer = name
    assert len({span.context.trace_id for span in found.values()}) == 1
    client, server = found["outer", "CLIENT"], found["outer", "SERVER"]
    assert client.attributes["tensormsg.sent_bytes"] == 24 == \
        server.attributes["tensormsg.received_bytes"]
    assert client.status.is_ok and server.status.is_ok
    failed = found["inner", "SERVER"]
    assert failed.attributes["error.type"] == "APPLICATION"
    assert not failed.status.is_ok and "not today" in failed.status.description
    assert [event.name for event in failed.events] == ["exception"]
    assert not found["inner", "CLIENT"].status.is_ok


def test_spans_of_streams(face, spans):
    async def scenario(server, ep, value):
        from opentelemetry import trace
        if face.blocks:
            @server.method("count")
            def count(stream):
                for message in stream:
                    with spans.tracer.start_as_current_span("work"):
                        yield message
        else:
            @server.method("count")
            async def count(stream):
                async for message in stream:
                    with spans.tracer.start_as_current_span("work"):
                        pass
                    yield message
        stream = ep.stream("count")
        await value(stream.send(X))
        await value(stream.send(X))
        await value(stream.done_writing())
        while await value(stream.recv(WAIT)) is not None:
            pass
        await value(stream.wait(WAIT))
        assert not trace.get_current_span().get_span_context().is_valid
        return await spans.come(4)

    found = face.run(scenario)
    client, server = found["count", "CLIENT"], found["count", "SERVER"]
    assert client.parent is None
    assert child_of(server) == ids(client)
    assert child_of(found["work", "INTERNAL"]) == ids(server)
    for span in client, server:
        assert (span.attributes["tensormsg.sent"],
                span.attributes["tensormsg.received"]) == (2, 2)


def test_a_trace_that_the_application_passes_on(face, spans):
    """Also past a connection that is not traced; and the library's own methods
    have no span."""
    parent = f"00-{7:032x}-{9:016x}-01"

    async def scenario(server, ep, value):
        give_methods(server)
        await value(ep.health())
        await value(ep.call("double", X, trace_parent=parent,
                            trace_state="vendor=1"))
        return await spans.come(2)

    found = face.run(scenario)
    assert found.keys() == {("double", "CLIENT"), ("double", "SERVER")}
    client = found["double", "CLIENT"]
    assert child_of(client) == (7, 9)
    assert child_of(found["double", "SERVER"]) == ids(client)
    assert client.context.trace_state.to_header() == "vendor=1"
    import tensormsg.otel
    tensormsg.otel.uninstrument()

    async def untraced(server, ep, value):
        give_methods(server)
        server.intercept(tensormsg.otel.Tracing(spans.provider))
        await value(ep.call("double", X, trace_parent=parent))
        return await spans.come(3)

    face.run(untraced)
    third = spans._ended.get_finished_spans()[-1]
    assert (third.kind.name, child_of(third)) == ("SERVER", (7, 9))


def test_the_librarys_log_is_in_logging(face, caplog):
    """With the level that its logger has when a connection is made."""
    def said(*words):
        return [record for record in caplog.records
                if all(word in record.getMessage() for word in words)]

    async def scenario(server, ep, value):
        await value(ep.health())  # it stands at both sides
        ep.abort()
        await comes(lambda: said("the connection broke"))

    with caplog.at_level(logging.INFO, "tensormsg"):
        face.run(scenario)
    record, = said("the connection broke")
    assert (record.name, record.levelname) == ("tensormsg", "WARNING")
    connected = said("): connected by ")
    assert [(each.name, each.levelname) for each in connected] == \
        2 * [("tensormsg", "INFO")]
    becomes(lambda: said("closed by this side"))
    assert {record.threadName for record in caplog.records
            if record.name == "tensormsg"} == {"tensormsg-log"}
    caplog.clear()
    with caplog.at_level(logging.INFO):  # of the root
        face.run(scenario)
        assert said("): connected by ")
    caplog.clear()
    with caplog.at_level(logging.ERROR, "tensormsg"), \
            sync.listen(":0", background=True) as listener:
        sync.connect(listener.url).abort()
    face.run(scenario)
    assert len(said("the connection broke")) == 1  # the second one
    assert not said("): connected by ")


BREAKS = """if True:
    import logging, sys, tensormsg
    from tensormsg import sync
    class Breaks(logging.Handler):
        def emit(self, record):
            print(record.threadName, flush=True)
            raise OSError("no disk")
    log = logging.getLogger("tensormsg")
    log.addHandler(Breaks())
    log.setLevel(logging.INFO)
    with sync.listen(":0", background=True) as listener, \\
            listener.serve() as server:
        server.method("fail")(lambda request: 1 / 0)
        for _ in range(2):
            with sync.connect(listener.url) as ep:
                for _ in range(2):
                    try:
                        ep.call("fail", timeout=30)
                    except tensormsg.Internal:
                        pass
"""


def test_a_handler_of_logging_that_fails():
    """The thread that tells goes on, also at exit, as does that of a server."""
    ran = subprocess.run([sys.executable, "-c", BREAKS], check=True,
                         capture_output=True, text=True, timeout=2 * WAIT,
                         env=environment())
    told = ran.stdout.split()
    assert told.count("tensormsg-log") >= 2
    assert told.count("tensormsg-0") == 4
    assert ran.stderr.count("OSError: no disk") == len(told)
    assert "Exception in" not in ran.stderr


def test_ucxs_own_output_is_in_logging(caplog):
    """A warning to tensormsg.ucx, with where UCX says it."""
    tensormsg.Context()
    dispatch = ctypes.CDLL("libucs.so.0").ucs_log_dispatch
    for level, line in (2, b"odd"), (1, b"broken"):
        dispatch(b"/ucx/src/file.c", 7, b"f", level, None, b"%s", line)
    becomes(lambda: "broken" in caplog.text)
    assert [(record.name, record.levelname, record.getMessage())
            for record in caplog.records] == [
        ("tensormsg.ucx", "WARNING", "file.c:7 odd"),
        ("tensormsg.ucx", "ERROR", "file.c:7 broken")]


PRINTS = """if True:
    import sys, tensormsg
    if sys.argv[1] == "logging":
        import logging
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    with tensormsg.sync.listen(":0", background=True) as listener, \\
            tensormsg.sync.connect(listener.url) as ep:
        ep.send({"x": 1})
    print("of the program")
"""


@pytest.mark.parametrize("how, own", [
    ("logging", "tensormsg: tcp://"), ("", ""),
    ("TENSORMSG_LOG", "tensormsg info: tcp://")])
def test_nothing_of_it_is_on_standard_output(how, own):
    """All of it was told when the process has ended."""
    ran = subprocess.run(
        [sys.executable, "-c", PRINTS, how], check=True, capture_output=True,
        text=True, timeout=WAIT, env={
            **os.environ, "UCX_BOGUS_SETTING": "1", "UCX_LOG_LEVEL": "warn",
            "UCX_WARN_UNUSED_ENV_VARS": "y",
            **({how: "info"} if how == "TENSORMSG_LOG" else {})})
    assert ran.stdout == "of the program\n"
    lines = ran.stderr.splitlines()
    assert sum("unused env variable: UCX_BOGUS_SETTING" in line
               for line in lines) == 1
    rest = [line for line in lines if "UCX_BOGUS" not in line]
    assert len(rest) == (4 if own else 0), ran.stderr
    assert all(line.startswith(own) for line in rest)


@contextlib.contextmanager
def moved_slowly(hub):
    """By a thread, some 128 KiB at a time."""
    over = threading.Event()

    def move():
        while not over.wait(.003):
            hot.progress(hub.number, 0)

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Told(list):
    """What a function for progress was told."""

    def __call__(self, done, total):
        self.append((done, total))

    def check(self, total, all_of_it):
        assert {each for _, each in self} == {all_of_it}
        done = [each for each, _ in self]
        assert done == sorted(set(done)) and 0 < done[0] < total
        if all_of_it is not None:
            assert done[-1] == all_of_it


BIG = np.ones(32 << 20, "u1")


@pytest.fixture
def often_told(monkeypatch):
    monkeypatch.setattr(_progress, "EVERY_S", .005)
    monkeypatch.setattr(_hub, "SLICE_MS", 5)


def test_progress_of_a_send(face, often_told):
    told = Told()

    async def main(listener):
        if face.blocks:
            with sync.connect(listener.url) as ep:
                ep.send({"x": BIG, "n": 7}, progress=told)
        else:
            async with tensormsg.connect(listener.url) as ep:
                await ep.send({"x": BIG, "n": 7}, progress=told)

    with sync.listen(":0", background=False) as listener, \
            moved_slowly(listener._hub):
        without_loop(main(listener)) if face.blocks else \
            asyncio.run(main(listener))
    told.check(BIG.nbytes, BIG.nbytes)


class ByDLPack:
    """What has no more than that."""

    def __init__(self, array):
        self.__dlpack__ = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


def test_progress_of_what_becomes_arrays(face):
    ring = []
    ring.append(ring)

    async def scenario(server, ep, value):
        for data, total in (
                ({"x": [.5] * 100}, 800), ({"x": [[True, False], (1, 2)]}, 18),
                ({"x": ByDLPack(X["x"])}, 24), ({"x": bytearray(5)}, 5),
                ({"x": memoryview(X["x"])}, 24), ({"x": np.float32(1)}, 4),
                ({"n": 7, "s": "text", "b": b"bytes", "o": None}, 0)):
            told = Told()
            await value(ep.send(data, progress=told))
            assert told == [(total, total)], data
        with pytest.raises(ValueError, match="'x/0' holds itself"):
            await value(ep.send({"x": ring}, progress=told))

    face.run(scenario)


def test_progress_of_a_call_both_ways(face):
    told = Told()

    async def scenario(server, ep, value):
        @server.method("twice")
        def twice(request):
            return {"y": np.concatenate(2 * [request["x"]])}

        await value(ep.call("twice", {"x": BIG}, into={
            "y": np.zeros(2 * BIG.nbytes, "u1")}, progress=told, timeout=WAIT))

    face.run(scenario)
    assert told[-1] == (3 * BIG.nbytes, 3 * BIG.nbytes)
    assert told == sorted(set(told))


async def value_of(made):
    return made


async def awaited(made):
    return await made


def test_progress_of_receives_and_fetches(face, often_told):
    came, fetched, placed = Told(), Told(), Told()
    buffer = np.zeros_like(BIG)

    async def scenario(owner, ep, value):
        ep_of_owner, listener = owner
        ep_of_owner.set_queue(queue=4, slow="reject")
        ep_of_owner.send({"x": BIG})
        offer = listener.offer({"x": BIG}, name="w")
        await value(ep.recv_into({"x": buffer}, progress=came))
        assert buffer.all()
        buffer[:] = 0
        await value(ep.fetch(name="w", into={"x": buffer}, progress=placed))
        assert buffer.all()
        await value(ep.fetch(offer.key, progress=fetched))

    async def main(listener):
        if face.blocks:
            with sync.connect(listener.url, background=True) as ep:
                ep.send(X)
                await scenario((listener.recv(WAIT).peer, listener), ep,
                               value_of)
        else:
            async with tensormsg.connect(listener.url, background=True) as ep:
                await ep.send(X)
                await scenario((listener.recv(WAIT).peer, listener), ep,
                               awaited)

    with sync.listen(":0", background=False) as listener, \
            moved_slowly(listener._hub):
        without_loop(main(listener)) if face.blocks else \
            asyncio.run(main(listener))
    came.check(BIG.nbytes, BIG.nbytes)
    placed.check(BIG.nbytes, BIG.nbytes)
    fetched.check(BIG.nbytes, None)


def test_a_progress_that_fails_and_one_that_is_none(face, caplog):
    def fails(done, total):
        raise ZeroDivisionError

    async def scenario(server, ep, value):
        with pytest.raises(TypeError, match="progress is a function.*as "
                           "metadata it is meta="):
            await value(ep.send(X, progress=7))
        await value(ep.send(X, progress=fails))
        told = Told()
        await value(ep.send(X, progress=told))
        assert told == [(24, 24)]
        with pytest.raises(TypeError, match="progress="):
            ep.stream("x", progress=told)
        assert ep._hub.followed == []

    face.run(scenario)
    assert "a progress function failed" in caplog.text


def test_what_ucx_says_when_it_is_loaded_is_not_on_standard_output():
    """And what UCX_LOG_LEVEL asks for is seen without any handler."""
    ran = subprocess.run(
        [sys.executable, "-c", """if True:
            import os, tensormsg
            tensormsg.sync.listen(":0").close()
            assert "UCX_LOG_FILE" not in os.environ"""],
        check=True, capture_output=True, text=True, timeout=WAIT,
        env={**os.environ, "UCX_LOG_LEVEL": "debug"})
    assert ran.stdout == ""
    assert "libucs.so" in ran.stderr
    assert len(ran.stderr.splitlines()) > 20
