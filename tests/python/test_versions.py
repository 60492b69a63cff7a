# SPDX-License-Identifier: BSD-3-Clause
"""Two runtimes of UCX that do not talk to each other: each side says so, with
both versions, and goes on serving its own kind."""

import json

import pytest

import cli
from cli import DONE, FAILED, one_line, receiver, run

pytestmark = pytest.mark.once


def version(other):
    told = run("info", "--json", env=cli.on_ucx(other))
    assert told.returncode == DONE, told.stderr
    return json.loads(told.stdout)["ucx_version"]


@pytest.fixture(scope="module")
def versions():
    if not cli.UCX_1_22:
        pytest.skip("no second UCX: scripts/setup.sh test installs it")
    both = version(False), version(True)
    if both[0].split(".")[:2] == both[1].split(".")[:2]:
        pytest.skip(f"the system's UCX is {both[0]}, like the other")
    return both


@pytest.fixture
def sample(tmp_path):
    return cli.make_sample(tmp_path)


def listen(scheme, tmp_path):
    return f"unix://{tmp_path}/socket" if scheme == "unix" else \
        "tcp://127.0.0.1:0"


@pytest.mark.parametrize("scheme", ["tcp", "unix"])
@pytest.mark.parametrize("receiver_is_other", [False, True])
def test_two_versions_refuse_each_other_by_name(tmp_path, sample, versions,
                                                scheme, receiver_is_other):
    with receiver("--listen", listen(scheme, tmp_path), "--out",
                  tmp_path / "out", "--timeout", 30,
                  env=cli.on_ucx(receiver_is_other)) as there:
        sent = run("send", there.url, sample,
                   env=cli.on_ucx(not receiver_is_other))
        assert sent.returncode == FAILED
        one_line(sent.stderr, *versions)
        alike = run("send", there.url, sample,
                    env=cli.on_ucx(receiver_is_other))
        assert (alike.returncode, alike.stderr) == (DONE, "")
        code, _, errors = there.stop()
    assert code == DONE
    one_line(errors, *versions)
    assert [path.name for path in (tmp_path / "out").iterdir()] == \
        [sample.name]


@pytest.mark.parametrize("other", [False, True])
def test_each_version_talks_to_itself(tmp_path, sample, versions, other):
    with receiver("--out", tmp_path / "out", "--count", 1,
                  env=cli.on_ucx(other)) as there:
        sent = run("send", there.url, sample, env=cli.on_ucx(other))
        assert (sent.returncode, sent.stderr) == (DONE, "")
        assert there.end()[0] == DONE
    cli.assert_same_safetensors(sample, tmp_path / "out" / sample.name)
