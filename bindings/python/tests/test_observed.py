# SPDX-License-Identifier: BSD-3-Clause
"""What a program learns of its calls and connections while it runs."""

import asyncio

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, without_loop
from tensormsg import sync

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
    async def main():
        async with tensormsg.listen(":0") as listener:
            server = listener.serve()
            give_methods(server)
            async with tensormsg.connect(listener.url) as ep:
                await ep.call("double", X, timeout=WAIT)
            server._named["double"] = 2
            return server.metrics()["double"]

    assert asyncio.run(main()).long_handlers == 2


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
