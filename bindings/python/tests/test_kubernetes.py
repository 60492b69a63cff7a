# SPDX-License-Identifier: BSD-3-Clause
"""examples/kubernetes, as far as a shell can: what deployment.yaml runs is run
here, with another port and key, against a real process, which then gets the
signal of a pod that ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import tensormsg
from conftest import HERE, WAIT, environment
from tensormsg import sync

EXAMPLE = (HERE / "../../../examples/kubernetes").resolve()
TOOL = os.environ["TENSORMSG"]


def value_of(text):
    if text.startswith(("[", '"')):
        return json.loads(text)
    known = {"true": True, "false": False, "None": None}
    if text.isdigit():
        return int(text, 8 if text[0] == "0" and text != "0" else 10)
    assert re.fullmatch(r"[\w./:=-]+", text), text
    return known.get(text, text)


def block(lines, indent):
    """What YAML makes of lines from that indent on: of mappings, lists and
    scalars, as this file has them, and nothing else."""
    made = [] if lines[0][1].startswith("- ") else {}
    while lines and lines[0][0] == indent:
        _, text = lines.pop(0)
        if isinstance(made, list):
            assert text.startswith("- "), text
            lines.insert(0, (indent + 2, text[2:]))
            made.append(block(lines, indent + 2))
            continue
        key, text = re.fullmatch(r"(\w+):(?: (.+))?", text).groups()
        assert key not in made, f"{key} comes twice"
        if text is not None:
            made[key] = value_of(text)
        else:
            assert lines[0][0] > indent, f"{key} has nothing"
            made[key] = block(lines, lines[0][0])
    assert not lines or lines[0][0] < indent, lines[0]
    return made


def documents():
    for text in re.split("^---\n", (EXAMPLE / "deployment.yaml").read_text(),
                         flags=re.M):
        lines = [re.sub(r"(^| )#.*", "", line).rstrip()
                 for line in text.splitlines()]
        assert not any("\t" in line for line in lines)
        yield block([(len(line) - len(line.lstrip()), line.strip())
                     for line in lines if line.strip()], 0)


SERVICE, DEPLOYMENT = documents()
POD = DEPLOYMENT["spec"]["template"]["spec"]
CONTAINER, = POD["containers"]
PROBES = "startupProbe", "readinessProbe", "livenessProbe"


def option(words, name):
    return words[words.index(name) + 1]


def test_its_numbers_fit():
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert SERVICE["spec"]["selector"] == labels == \
        DEPLOYMENT["spec"]["selector"]["matchLabels"]
    port, = {one["port"] for one in SERVICE["spec"]["ports"]} | {
        one["containerPort"] for one in CONTAINER["ports"]}
    command = CONTAINER["command"]
    assert option(command, "--listen") == f"0.0.0.0:{port}"
    for probe in map(CONTAINER.get, PROBES):
        words = probe["exec"]["command"]
        assert words[-1] == f"tcp://127.0.0.1:{port}"
        assert probe["timeoutSeconds"] > float(option(words, "--timeout"))
        assert option(words, "--key") == option(command, "--key")
    slept = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert slept[0] == "sleep"
    assert POD["terminationGracePeriodSeconds"] >= float(slept[1]) + float(
        option(command, "--grace")) + 1 + 3  # and a second, of slack
    mounts = {one["name"]: one["mountPath"]
              for one in CONTAINER["volumeMounts"]}
    assert {one["name"] for one in POD["volumes"]} == mounts.keys()
    secret = POD["volumes"][0]["secret"]
    assert secret["defaultMode"] & 0o027 == 0  # else the key is refused
    assert f"secret generic {secret['secretName']} --from-file=key" in (
        EXAMPLE / "README.md").read_text()
    assert option(command, "--key") == f"{mounts['key']}/key"
    assert SERVICE["spec"]["clusterIP"] is None


class Pod:
    """Runs what the file says."""

    def __init__(self, folder):
        with sync.listen(":0") as free:
            port = free.url.rpartition(":")[2]
        key = folder / "key"
        words = re.search(r"^(tensormsg key .*)$", (
            EXAMPLE / "README.md").read_text(), re.M)[1].split()
        subprocess.run([TOOL, *words[1:]], cwd=folder, check=True)
        key.chmod(POD["volumes"][0]["secret"]["defaultMode"])
        self.key = str(key)
        self.url = f"tcp://127.0.0.1:{port}"
        self._names = {"tensormsg": TOOL, "python3": sys.executable,
                       "server.py": str(EXAMPLE / "server.py"),
                       "/etc/tensormsg/key": self.key}
        self._port = port
        self.process = None

    def words(self, command):
        return [self._names.get(word, word.replace("13337", self._port))
                for word in command]

    def start(self):
        self.process = subprocess.Popen(self.words(CONTAINER["command"]),
                                        env=environment())

    def probe(self, name, by_package=False):
        """Its exit code, and what it says. `by_package`: as of an image that
        has no more."""
        words = self.words(CONTAINER[name]["exec"]["command"])
        if by_package:
            assert words[:2] == [TOOL, "health"]
            words[:2] = [sys.executable, "-m", "tensormsg.health"]
        done = subprocess.run(
            words, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment(), timeout=WAIT)
        return done.returncode, done.stdout.strip()


@pytest.fixture
def pod(tmp_path):
    made = Pod(tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.wait()


def until(pod, probe, answer):
    """The other answers that come before."""
    before, end = set(), time.monotonic() + WAIT
    while (said := pod.probe(probe)) != answer:
        assert time.monotonic() < end, (answer, before)
        before.add(said)
    return before


def test_a_pod_begins_serves_and_ends(pod):
    for by_package in False, True:
        assert pod.probe("startupProbe", by_package)[0] == 1  # nobody listens
    pod.start()
    until(pod, "startupProbe", (0, "LIVE"))
    before = until(pod, "readinessProbe", (0, "SERVING"))
    assert before <= {(7, "NOT_SERVING"), (4, "")}
    with sync.connect(pod.url, key=pod.key, background=True) as ep:
        features = {"features": np.ones((2, 64), "f4")}
        assert pod.probe("readinessProbe", True) == (0, "SERVING")
        assert pod.probe("livenessProbe", True) == (0, "LIVE")
        call = ep.start_call("infer", features, meta={"seconds": 3.})
        quick = ep.call("infer", features, timeout=WAIT)
        assert quick["scores"].shape == (2, 10)
        pod.process.send_signal(signal.SIGTERM)
        assert until(pod, "readinessProbe", (7, "DRAINING")) <= {
            (0, "SERVING")}
        assert pod.probe("livenessProbe") == (0, "LIVE")
        assert pod.probe("readinessProbe", True) == (7, "DRAINING")
        with pytest.raises(tensormsg.Unavailable):
            ep.call("infer", features, timeout=WAIT)
        assert (call.wait(WAIT)["scores"] == 64).all()
    assert pod.process.wait(WAIT) == 0
    assert pod.probe("livenessProbe")[0] == 1
