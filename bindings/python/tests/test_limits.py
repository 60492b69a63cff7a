# SPDX-License-Identifier: BSD-3-Clause
"""What a handler yields, sends or answers with and is beyond a limit of the
other side is LimitExceeded there, with the limit and both numbers."""

import asyncio
import logging
import re

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, place_of, without_loop

BYTE = np.zeros(1, "u1")
HELD, BIG = (1 << 19) + 1, (1 << 20) + 1
LIMITS = {"tensors": 4, "ndim": 3, "name_bytes": 250, "metadata_bytes": 1000,
          "metadata_keys": 4, "header_bytes": 1200, "message_bytes": BIG - 1,
          "held_bytes": HELD - 1}
# For each limit what is beyond it, and the number that is said of that.
CASES = {
    "tensors": ({f"t{i}": BYTE for i in range(5)}, 5),
    "ndim": ({"x": np.zeros((1, 1, 1, 2))}, 4),
    "name_bytes": ({"n" * 251: BYTE}, 251),
    "metadata_bytes": ({"s": "y" * 1000}, 1002),
    "metadata_keys": ({f"k{i}": i for i in range(5)}, 5),
    "header_bytes": ({"a" * 200: BYTE, "b" * 200: BYTE, "s": "y" * 900}, r"\d+"),
    "message_bytes": ({"x": np.zeros(BIG, "u1")}, BIG),
    "held_bytes": ({"x": np.zeros(HELD, "u1")}, HELD),
}


def too_much(request):
    return CASES[request.meta["case"]][0]


def offer_async(server):
    @server.method("yields")
    async def yields(stream):
        yield {"n": np.array(1)}
        yield too_much(stream.request)

    @server.method("sends", stream=True)
    async def sends(stream):
        await stream.send({"n": np.array(1)})
        await stream.send(too_much(stream.request))

    @server.method("returns", stream=True)
    async def returns(stream):
        return too_much(stream.request)

    @server.method("goes on", stream=True)
    async def goes_on(stream):
        with pytest.raises(tensormsg.LimitExceeded):
            await stream.send(too_much(stream.request))
        await stream.send({"n": np.array(1)})

    @server.method("fails later")
    async def fails_later(stream):
        with pytest.raises(tensormsg.LimitExceeded) as caught:
            await stream.send(too_much(stream.request))
        yield {"n": np.array(1)}
        raise RuntimeError(f"another: {caught.value.status}")

    offer_both(server)


def offer_sync(server):
    @server.method("yields")
    def yields(stream):
        yield {"n": np.array(1)}
        yield too_much(stream.request)

    @server.method("sends", stream=True)
    def sends(stream):
        stream.send({"n": np.array(1)})
        stream.send(too_much(stream.request))

    @server.method("returns", stream=True)
    def returns(stream):
        return too_much(stream.request)

    @server.method("goes on", stream=True)
    def goes_on(stream):
        with pytest.raises(tensormsg.LimitExceeded):
            stream.send(too_much(stream.request))
        stream.send({"n": np.array(1)})

    @server.method("fails later")
    def fails_later(stream):
        with pytest.raises(tensormsg.LimitExceeded) as caught:
            stream.send(too_much(stream.request))
        yield {"n": np.array(1)}
        raise RuntimeError(f"another: {caught.value.status}")

    offer_both(server)


def offer_both(server):
    @server.method("answers")
    def answers(request):
        return too_much(request)

    @server.method("details")
    def details(request):
        raise tensormsg.CallError("too much to say",
                                  details=too_much(request))


async def face_async(place, context, scenario):
    async with tensormsg.listen(place) as listener:
        offer_async(listener.serve())
        async with tensormsg.connect(listener.url, context=context) as ep:
            async def read(method, case):
                got = []
                try:
                    async with ep.stream(method, {}, meta={"case": case},
                                         timeout=WAIT) as stream:
                        async for message in stream:
                            got.append(int(message["n"]))
                except tensormsg.Error as error:
                    return got, error
                return got, None

            async def call(method, case):
                with pytest.raises(tensormsg.Error) as caught:
                    await ep.call(method, {}, meta={"case": case}, timeout=WAIT)
                return caught.value

            await scenario(read, call)
            assert await ep.health() == "SERVING"


def face_sync(place, context, scenario):
    with tensormsg.listen(place, background=True) as listener, \
            listener.serve(threads=2) as server:
        offer_sync(server)
        with tensormsg.connect(listener.url, context=context) as ep:
            async def read(method, case):
                got = []
                try:
                    with ep.stream(method, {}, meta={"case": case},
                                   timeout=WAIT) as stream:
                        for message in stream:
                            got.append(int(message["n"]))
                except tensormsg.Error as error:
                    return got, error
                return got, None

            async def call(method, case):
                with pytest.raises(tensormsg.Error) as caught:
                    ep.call(method, {}, meta={"case": case}, timeout=WAIT)
                return caught.value

            without_loop(scenario(read, call))
            assert ep.health() == "SERVING"


def check(case, error):
    came, limit = CASES[case][1], LIMITS[case]
    words = str(error)
    assert type(error) is tensormsg.LimitExceeded, repr(error)
    assert case in words, words
    assert re.search(rf"(^|\D){came}\D.*\D{limit}(\D|$)", words), words
    assert error.may_have_run and error.code == 0
    assert "://" not in words.partition(": method")[2], words


@pytest.mark.parametrize("transport", ["tcp", "unix"])
@pytest.mark.parametrize("face", ["asyncio", "sync"])
def test_what_is_beyond_a_limit_of_the_opener(face, transport, tmp_path,
                                              caplog):
    async def scenario(read, call):
        for case in CASES:
            held = case == "held_bytes"  # of which no sender is told before
            for method in "yields", "sends":
                got, error = await read(method, case)
                check(case, error)
                assert got == [1] or held and got == []
            check(case, (await read("returns", case))[1])
            for method in "answers", "details":
                check(case, await call(method, case))
            if held:
                continue
            assert await read("goes on", case) == ([1], None)
            got, error = await read("fails later", case)
            assert got == [1] and type(error) is tensormsg.Internal
            assert "RuntimeError: another: -7" in str(error)

    place = place_of(transport, tmp_path)
    context = tensormsg.Context(limits=LIMITS)
    with caplog.at_level(logging.CRITICAL, "tensormsg"):
        if face == "sync":
            face_sync(place, context, scenario)
        else:
            asyncio.run(face_async(place, context, scenario))


def test_the_server_is_told_in_a_line(caplog):
    """No traceback: the handler did nothing wrong."""
    with tensormsg.listen(":0", background=True) as listener, \
            listener.serve(threads=1) as server:
        @server.method("yields")
        def yields(stream):
            yield {"x": np.zeros((1, 1))}

        context = tensormsg.Context(limits={"ndim": 1})
        with tensormsg.connect(listener.url, context=context) as ep, \
                pytest.raises(tensormsg.LimitExceeded):
            with ep.stream("yields", timeout=WAIT) as stream:
                stream.recv(WAIT)
    record, = [record for record in caplog.records
               if "yields" in record.getMessage()]
    assert record.exc_info is None and "(its limit ndim)" in \
        record.getMessage()


def test_of_another_stream_it_is_the_handlers_own_failure(caplog):
    """A handler that is a client elsewhere has failed by itself."""
    context = tensormsg.Context(limits={"ndim": 1})
    with tensormsg.listen(":0", background=True) as listener, \
            listener.serve(threads=1) as server, \
            tensormsg.listen(":0", background=True, context=context) as far, \
            far.serve(threads=1) as far_server, \
            tensormsg.connect(far.url, background=True) as elsewhere:
        @far_server.method("takes", stream=True)
        def takes(stream):
            for _ in stream:
                pass

        @server.method("passes on", stream=True)
        def passes_on(stream):
            with elsewhere.stream("takes", timeout=WAIT) as onward:
                onward.send({"x": np.zeros((1, 1))})

        with tensormsg.connect(listener.url) as ep, \
                pytest.raises(tensormsg.Internal, match="LimitExceeded: "):
            with ep.stream("passes on", timeout=WAIT) as stream:
                stream.recv(WAIT)
