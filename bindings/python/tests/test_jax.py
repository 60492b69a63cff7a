# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of jax, sent and received by DLPack, on the CPU."""

import time

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

import tensormsg  # noqa: E402

WAIT = 30


@pytest.fixture(scope="module")
def back(tmp_path_factory):
    place = f"unix://{tmp_path_factory.mktemp('jax')}/socket"
    with tensormsg.listen(place, like="jax", background=True) as server, \
            tensormsg.connect(place) as ep:
        def send(data):
            ep.send(data, timeout=WAIT)
            return server.recv(WAIT)
        yield send


@pytest.mark.parametrize("dtype", [
    "bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16",
    "bfloat16", "float32", "complex64"])
def test_every_dtype(back, dtype):
    x = jnp.arange(12).reshape(3, 4).astype(dtype)
    got = back({"x": x, "t": x.T, "one": x[0, 1]})
    for name, want in ("x", x), ("t", x.T), ("one", x[0, 1]):
        assert isinstance(got[name], jax.Array)
        assert got[name].dtype == want.dtype and got[name].shape == want.shape
        assert (got[name] == want).all()


def test_what_a_compiled_function_gives(back):
    got = back({"y": jax.jit(lambda x: x * 2 + 1)(jnp.arange(5.))})["y"]
    assert np.array_equal(np.asarray(jax.jit(jnp.sum)(got)), 25)


def test_it_outlives_its_message(back):
    x = back({"x": np.arange(100000, dtype="f4")})["x"]
    back({"x": np.zeros(100000, "f4")})
    assert x[99999] == 99999


def test_what_is_not_concrete_is_refused_by_name(back):
    @jax.jit
    def traced(x):
        back({"x": x})
        return x

    with pytest.raises(TypeError, match="'x'"):
        traced(jnp.arange(3.))


@pytest.mark.parametrize("dtype", ["int2", "int4", "uint2", "uint4"])
def test_small_integers_are_refused_by_name(back, dtype):
    with pytest.raises(TypeError, match="'x' cannot be sent"):
        back({"x": jnp.arange(2).astype(dtype)})


def test_what_jax_sends_and_does_not_take(back):
    """Or, of a later version, does."""
    x = jnp.array([0.5, 1., -2., 3.], "float4_e2m1fn")
    msg = back({"x": x, "y": np.ones(2, "f4")})
    got = dict(msg)
    assert (got["y"] == 1).all() and msg.dtype("x") == "float4_e2m1fn"
    assert msg.raw("x").tobytes() == b"\x21\x5c"
    if isinstance(got["x"], jax.Array):
        assert (got["x"] == x).all()
    else:
        assert got["x"].tobytes() == b"\x21\x5c"
        with pytest.raises(TypeError, match=r"tensor 'x' is float4_e2m1fn .*"
                           r"jax.numpy.from_dlpack\(\) does not take"):
            got["x"] + 1


def test_a_loan(tmp_path):
    x = tensormsg.empty((300, 1000))
    x[:] = 3
    with tensormsg.listen(f"unix://{tmp_path}/socket", like="jax", loan=True,
                          background=True) as server, \
            tensormsg.connect(server.url, background=True) as ep:
        ep.send({"x": x}, lend=True)
        msg = server.recv(WAIT)
        assert msg.lent and isinstance(msg["x"], jax.Array)
        assert float(jnp.sum(msg["x"])) == 3 * x.size
        kept = msg["x"]
        del msg
        assert tensormsg.is_lent(x) and not x.flags.writeable
        del kept
        deadline = time.monotonic() + WAIT
        while tensormsg.is_lent(x):
            assert time.monotonic() < deadline
            time.sleep(.001)
