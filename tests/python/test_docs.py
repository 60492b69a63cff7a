# SPDX-License-Identifier: BSD-3-Clause
"""The documents: each block of code is run, and what is no whole program within
one; links lead somewhere; what is named exists.

Beside this, test_cli.py runs README's C program and examples/, test_ucxx.py the
Python of docs/how-to/ucxx.md, and these in bindings/python/tests: test_how_to.py
and test_recording.py that of other pages there, rays.py that of
docs/understand/engines.md, test_docs.py that of the READMEs, docs/start and
docs/python.
"""

import ast
import contextlib
import json
import os
import pathlib
import re
import shlex
import socket
import subprocess
import sys
import time

import msgpack
import numpy as np
import pytest
import safetensors.numpy

import cli
from cli import BOUND, DONE, SOURCE, TOOL

pytestmark = pytest.mark.once

HERE = pathlib.Path(__file__).parent
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md",
         "bindings/python/README.md", "tests/README.md",
         "bench/compare/README.md", "examples/kubernetes/README.md",
         *sorted(page.relative_to(SOURCE).as_posix()
                 for page in (SOURCE / "docs").rglob("*.md"))]
TEXT = {page: (SOURCE / page).read_text() for page in PAGES}
FENCE = re.compile(r"^( *)```([a-z]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(*languages):
    """The blocks in these languages, as parameters of a test."""
    found = []
    for page, text in TEXT.items():
        for match in FENCE.finditer(text):
            if match[2] in languages:
                line = text.count("\n", 0, match.start()) + 1
                code = re.sub(f"^{match[1]}", "", match[3], flags=re.MULTILINE)
                found.append(pytest.param(page, code, id=f"{page}:{line}"))
    return found


def test_every_block_says_its_language():
    """One without is a drawing, bytes, or what a program printed."""
    known = {"", "c", "cmake", "console", "cuda", "ebnf", "go", "json",
             "python", "sh"}  # cuda: gpu/ptx; go: go/package
    for page, text in TEXT.items():
        assert {match[2] for match in FENCE.finditer(text)} <= known, page
        assert text.count("```") == 2 * len(FENCE.findall(text)), page
        outside = FENCE.sub("", text)
        indented = re.findall(r"\n\n(    .*)", outside)
        assert not indented, f"{page}: {indented}"


def test_the_site_has_a_place_for_every_page():
    """`make docs` does the rest: Sphinx is no part of the tests."""
    done = subprocess.run(
        [sys.executable, SOURCE / "docs/site/assemble.py", SOURCE],
        capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stderr


# --- C ---

# Statements stand in the midst of a program of the reader's, and lean on what
# that has: what they do not make themselves is declared here, and the compiler
# does the rest. A function is copied as it stands: it has all that it uses from
# its parameters and its own block, but may call functions of the reader's.
FUNCTIONS = {
    "check": "void check(tmsg_status_t status);",
    "handle": "void handle(tmsg_message_t *message);",
    "infer": "void infer(void *arg, tmsg_task_t *task);",
    "next_frame": "tmsg_map_t *next_frame(void);",
    "predict": "tmsg_map_t *predict(const tmsg_map_t *map);",
    "reuse": "void reuse(float *data);",
    "use": "void use(const tmsg_map_t *map);",
}
VARIABLES = {
    "call": "extern tmsg_call_t *call;",
    "context": "extern tmsg_context_t *context;",
    "count": "extern nfds_t count;",
    "listening": "extern tmsg_listener_params_t listening;",
    "endpoint": "extern tmsg_endpoint_t *endpoint;",
    "fds": "extern struct pollfd *fds;",
    "frame": "extern float frame[16];",
    "listener": "extern tmsg_listener_t *listener;",
    "map": "extern tmsg_map_t *map;",
    "message": "extern tmsg_message_t *message;",
    "params": "extern tmsg_call_params_t params;",
    "publisher": "extern tmsg_publisher_t *publisher;",
    "sent": "extern tmsg_request_t *sent;",
    "server": "extern tmsg_server_t *server;",
    "status": "extern tmsg_status_t status;",
    "stream": "extern tmsg_call_stream_t *stream;",
    "target": "extern tmsg_map_t *target;",
    "timeout_ms": "extern int timeout_ms;",
    "url": "extern const char *url;",
    "worker": "extern tmsg_worker_t *worker;",
}
FUNCTION = re.compile(r"^static .*?^}\n", re.MULTILINE | re.DOTALL)


# Functions that a fragment leaves to the reader to use: how, by what they take.
USED = {"tmsg_endpoint_t *": "use_endpoint", "void *arg, tmsg_message_t *":
        "use_handler", "void *arg, tmsg_incoming_t *": "use_on_header"}
# What a fragment hands to functions of the reader's.
HANDED = "use", "handle", "reuse", "next_frame"


def makes(code):
    """Lines that make what a fragment takes from another of its page."""
    for thing in "server", "publisher":
        create = f"tmsg_{thing}_create"
        if re.search(rf"\b{thing}\b", code) and create not in code:
            yield f"check({create}(worker, NULL, &{thing}));"


def uses(code, body):
    """Lines that use what a fragment only makes."""
    for name, takes in re.findall(r"^static void (\w+)\((.*?)\w+\)$", code,
                                  re.MULTILINE):
        if len(re.findall(rf"\b{name}\b", code)) == 1:
            yield f"void {USED[takes]}(void (*)({takes}));"
            yield f"{USED[takes]}({name});"
    if "tmsg_send_params_t params" in body and "&params" not in body:
        yield "check(tmsg_endpoint_send(endpoint, map, &params, NULL));"


def checked(body):
    """Statements that drop a status have it looked at."""
    answers = re.findall(r"TMSG_API tmsg_status_t\s+(\w+)\(", "".join(
        path.read_text() for path in
        sorted((SOURCE / "include/tensormsg").glob("*.h"))))
    return re.sub(rf"^( *)((?:{'|'.join(answers)})\([^;]*\));",
                  r"\1check(\2);", body, flags=re.MULTILINE)


def declared(known, words):
    return [line for name, line in known.items() if name in words]


def program(code):
    """A fragment as a file: functions stay as they are, what else it has is
    the body of one, which fragment.c calls."""
    if "int main(" in code:
        return code
    functions = FUNCTION.findall(code)
    made = re.findall(r"^static .*?\*?(\w+)\(", code, re.MULTILINE)
    body = FUNCTION.sub("", code)
    body = "\n".join([*makes(code), checked(body), *uses(code, body)])
    code = re.sub(r"/\*.*?\*/", "", body + "".join(functions),
                  flags=re.DOTALL)
    words = set(re.findall(r"\w+", code)) - set(made)
    return "\n".join([
        "#include <poll.h>", "#include <stdio.h>", "#include <string.h>",
        "#include <tensormsg/tensormsg.h>", *declared(FUNCTIONS, words),
        *functions, *declared(VARIABLES, words),
        "void end(int used);", "void fragment(void);",
        "void fragment(void)\n{", body,
        f"end({int(bool(words.intersection(HANDED)))});", "}\n"])


def is_sanitized():
    """A library with a sanitizer asks for programs that have it, too."""
    needs = subprocess.run(["ldd", TOOL], capture_output=True, text=True,
                           check=True).stdout
    return bool(re.search("lib[at]san", needs))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as door:
        return door.getsockname()[1]


@pytest.mark.parametrize("page, code", [
    block for block in blocks("c") if block.values[0] != "README.md"])
def test_c_runs(page, code, tmp_path):
    """A fragment in fragment.c; README's is a part of hello.c (test_cli.py)."""
    code = code.replace('"tcp://:4000"', '"tcp://:0"')
    code = re.sub(r"ucx://[\d.]+:13337", f"ucx://127.0.0.1:{free_port()}", code)
    (tmp_path / "page.c").write_text(program(code))
    elsewhere = "int main(" in code or is_sanitized()
    library = pathlib.Path(os.environ["LIBTENSORMSG"])
    compiled = subprocess.run(
        ["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
         "-Wno-unused", "-Wno-unused-parameter", "-I", SOURCE / "include",
         tmp_path / "page.c", *(
             ["-fsyntax-only"] if elsewhere else
             [HERE / "fragment.c", "-o", tmp_path / "page", library,
              f"-Wl,-rpath,{library.parent}"])],
        capture_output=True, text=True, timeout=BOUND)
    assert compiled.returncode == 0, compiled.stderr
    if not elsewhere:
        ran = subprocess.run(
            [tmp_path / "page", f"unix://{tmp_path}/socket"], text=True,
            capture_output=True, timeout=BOUND)
        assert ran.returncode == 0, ran.stderr


def ucx_headers():
    """As the compiler is told of them: those of the system's UCX, and of 1.22."""
    flags = subprocess.run(["pkg-config", "--cflags", "ucx"], check=True,
                           capture_output=True, text=True).stdout.split()
    newer = os.environ.get("TMSG_UCX_1_22")
    return [flags, ["-isystem", f"{newer}/../include"]][:2 if newer else 1]


def test_programs_that_show_faults_of_ucx_compile():
    """Nothing of ours in them; what they show is in
    docs/project/upstream.md."""
    folder = SOURCE / "docs/project/upstream"
    programs = sorted(folder.glob("*.c"))
    assert len(programs) >= 6
    for headers in ucx_headers():
        compiled = subprocess.run(
            ["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
             "-fsyntax-only", *headers, *programs],
            capture_output=True, text=True, timeout=BOUND)
        assert compiled.returncode == 0, compiled.stderr
    for program in programs:
        assert f"`{program.stem}`" in TEXT["docs/project/upstream.md"]
        patch = program.with_suffix(".patch").read_text()
        lines = [line for line in patch.splitlines()
                 if not line.startswith(("diff ", "---", "+++"))]
        assert all(line[0] in "@+" for line in lines), program


# --- data, and languages that others run ---

# What the library writes, or reads of others: the tests of that have its form.
SHOWN = {"docs/reference/json.md": "tmsg_map_to_json",
         "docs/reference/calls.md": "tensormsg.methods",
         "docs/reference/offers.md": "tensormsg.offers",
         "docs/reference/signatures.md": "tmsg_signature_to_json",
         "docs/how-to/ucxx.md": "dtype"}


@pytest.mark.parametrize("page, code", blocks("json"))
def test_json_is_whole(page, code):
    json.loads(code)
    assert page in ("docs/reference/configuration.md",
                    "docs/reference/devices.md",
                    "docs/reference/perf.md") or SHOWN[page] in TEXT[page]


def test_a_workload_is_measured(tmp_path):
    (_, code), = [block.values for block in blocks("json")
                  if block.values[0] == "docs/reference/perf.md"]
    (tmp_path / "file.json").write_text(code)
    shown = cli.run("perf", "--quick", "--over", "tcp", "-w",
                    tmp_path / "file.json")
    assert (shown.returncode, shown.stderr) == (DONE, "")
    assert json.loads(code)["name"] in shown.stdout


@pytest.mark.parametrize("page, code", [
    block for block in blocks("json")
    if block.values[0] == "docs/reference/devices.md"])
def test_a_device_table_is_read(page, code):
    """To its first device, which is not here."""
    shown = cli.run("info", env={**os.environ, "TENSORMSG_DEVICE_TABLE": code})
    assert shown.returncode != DONE
    assert "entry 0" in shown.stderr and "0000:33:00.0" in shown.stderr


def test_the_configuration_file_is_taken(tmp_path):
    (_, code), = [block.values for block in blocks("json")
                  if block.values[0] == "docs/reference/configuration.md"]
    (tmp_path / "file.json").write_text(code)
    shown = cli.run("info", "--json", env={
        **os.environ, "TENSORMSG_CONFIG": str(tmp_path / "file.json")})
    assert (shown.returncode, shown.stderr) == (DONE, "")
    assert json.loads(shown.stdout)["peer_timeout_ms"] == \
        json.loads(code)["peer_timeout_ms"]


def msgpack_examples():
    """Bytes on the left of a block, what they mean on the right; a line that
    is set in goes on with the one before."""
    for match in FENCE.finditer(TEXT["docs/wire/wire-format.md"]):
        examples = []
        for line in match[3].splitlines():
            if not (parts := re.match(r"( +(?:[0-9a-f]{2} +)+) +(.*)", line)):
                break
            if not line.startswith("    ") or not examples:
                examples.append(["", ""])
            examples[-1][0] += parts[1]
            examples[-1][1] += parts[2]
        yield from ((data, said) for data, said in examples if "{" in said)


def test_the_bytes_of_the_wire_format_are_what_it_says():
    examples = list(msgpack_examples())
    assert len(examples) == 5
    for data, said in examples:
        body, end = said[said.index("{"):], 0
        while body[:end].count("{") == 0 or \
                body[:end].count("{") != body[:end].count("}"):
            end += 1
        assert msgpack.unpackb(bytes.fromhex(data), strict_map_key=False) == \
            ast.literal_eval(body[:end]), said


def test_python_is_run_by_others():
    """On these pages, wholly; on another they would not see it."""
    pages = {block.values[0] for block in blocks("python")}
    assert {page for page in pages if not re.match(
            "(docs|bindings)/(python|start|how-to)/", page)} == {
        "README.md",
        "docs/reference/loans.md", "docs/reference/observability.md",
        "docs/reference/tls.md",
        "docs/understand/engines.md"}


@pytest.mark.parametrize("page, code", blocks("cmake"))
def test_cmake_is_what_a_consumer_says(page, code):
    """install/packages builds one, install/subproject configures another, and
    embed/holoscan is built from an example's folder."""
    own = re.match(r"add_subdirectory\(tensormsg/(.*)\)\n.* (\w+)\)", code)
    if own:
        said = (SOURCE / own[1] / "CMakeLists.txt").read_text()
        assert f"add_library({own[2]} " in said
        return
    installed = (SOURCE / "tests/install/consumer/CMakeLists.txt").read_text()
    inside = (SOURCE / "tests/install/subproject.sh").read_text()
    names = re.findall(r"tensormsg::\w+", code)
    assert names and all(name in installed for name in names)
    for call in re.findall(r"(?:find_package|Fetch\w+)\(.*\)", code):
        assert call.replace("/path/to/checkout", "$1") in installed + inside


# --- shell ---

class Terminal:
    """Runs the commands of one block. What listens goes on meanwhile, and the
    others are given its URL in place of the page's."""

    def __init__(self, folder, opened):
        self.folder, self.opened, self.url = folder, opened, None
        self.env = {**os.environ, "GAUDI_MAPPING_TABLE": "[]",
                    "PATH": f"{folder}/build:{os.environ['PATH']}"}

    def serve(self, command):
        """A program that listens at the socket file that it is given."""
        words = shlex.split(command)
        process = subprocess.Popen(words, cwd=self.folder)
        self.opened.callback(process.wait)
        self.opened.callback(process.kill)
        socket = pathlib.Path(words[1].removeprefix("unix://"))
        end = time.monotonic() + BOUND
        while not socket.exists():
            assert process.poll() is None and time.monotonic() < end, command
            time.sleep(0.01)

    def listen(self, *words):
        words = [re.sub(r"^(tcp|tls)://.*", r"\1://127.0.0.1:0", word)
                 for word in words]
        it = self.opened.enter_context(
            cli.receiver(*words[1:], command=words[0], cwd=self.folder))
        self.url = it.url

    def ran(self, command):
        command = re.sub(r"(tcp|tls)://[\w.]+:\w+", lambda _: self.url, command)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=self.folder,
            env=self.env, capture_output=True, text=True, timeout=BOUND)
        assert done.returncode == 0, f"{command}: {done.stderr}"

    def built(self, command):
        if is_sanitized():
            self.read(command)
        else:
            self.ran(command)

    def dry(self, command):
        """make: that there is such a target."""
        words = shlex.split(command, comments=True)
        done = subprocess.run([*words, "-n"], cwd=SOURCE, capture_output=True,
                              text=True, timeout=BOUND)
        assert done.returncode == 0, done.stderr

    def options(self, command):
        """What takes long: that it has these options."""
        words = shlex.split(command, comments=True)
        known = cli.run(words[1], "--help").stdout
        for word in words:
            assert not word.startswith("--") or word in known, word

    def there(self, command):
        """A script of ours: that it exists, with groups that it has."""
        words = shlex.split(command, comments=True)
        assert os.access(SOURCE / words[0], os.X_OK), command
        if words[0] == "scripts/setup.sh":
            done = subprocess.run(
                [SOURCE / words[0], *words[1:]], capture_output=True,
                env={**os.environ, "TMSG_NO_SETUP": "1"}, timeout=BOUND)
            assert done.returncode == 0, done.stderr

    def read(self, command):
        """Another test runs it, or it takes what is not here: its grammar."""
        subprocess.run(["bash", "-n", "-c", command], check=True,
                       timeout=BOUND)

    def do(self, command):
        command = re.sub(r"^(there|here)?\$ +", "", command)
        command = re.sub(r"^build/tensormsg\b", "tensormsg", command)
        command = command.replace("unix:///tmp/", f"unix://{self.folder}/")
        if re.match(r"tensormsg (recv|serve)\b", command):
            self.listen(*shlex.split(command)[1:])
            return
        if self.url is None and "HOST:PORT" in command:
            self.listen("recv", "--out", "received")
        for pattern, way in WAYS:
            if re.match(pattern, command):
                way(self, command)
                return
        pytest.fail(f"nothing here says how to test: {command}")


WAYS = [
    (r"make\b", Terminal.dry),
    (r"tensormsg perf\b", Terminal.options),
    (r"(\w+=\S+ )*tensormsg ", Terminal.ran),
    (r"(\w+=\S+ )+\./program", Terminal.ran),
    (r"ldd |cp |openssl |printf |touch |echo ", Terminal.ran),
    (r"build/examples/(server|offer) ", Terminal.serve),
    (r"build/examples/hello", Terminal.read),  # python/cli
    (r"build/examples/", Terminal.ran),
    (r"cc mine\.c .*pkg-config", Terminal.read),  # install/packages
    (r"cc mine\.c", Terminal.built),
    (r"(scripts|tests|\.ci)/", Terminal.there),
    (r"cc app\.c|cmake |ctest |export ", Terminal.read),  # install/packages
    (r"git apply |scp ", Terminal.read),  # to what is not here
    # soak/python_install, which asks an index
    (r"python3 -m venv|env/bin/pip|pip download", Terminal.read),
    # bindings/commands, bindings/recording, bindings/top
    (r"python3? -m tensormsg(\.bench| (call|cut|health|info|perf|record|recv|"
     r"replay|send|top)) ", Terminal.read),
    (r"bash build/gpu-carry/", Terminal.read),  # gpu/all
    (r"gst-launch-1\.0 ", Terminal.read),  # embed/gstreamer
    # bindings/how_to, bindings/how_to_hosts, bindings/torch
    (r"python [\w-]+\.py|python -c|uvicorn |curl |cat |chmod |cc loop\.c|\./loop",
     Terminal.read),
    (r"bindings/go/with.sh ", Terminal.read),  # go/package
    (r"find /dev/shm ", Terminal.read),  # of all programs of the machine
]


def commands(code):
    """Its commands, each on one line; of a session, without what they print."""
    code = re.sub(r" *\\\n\s*", " ", code)
    lines = [line for line in code.splitlines() if line.strip()]
    if any(re.match(r"(\w+)?\$ ", line) for line in lines):
        lines = [line for line in lines if re.match(r"(\w+)?\$ ", line)]
    return lines


def sessions():
    """Each block is one, but those of some pages follow each other."""
    pages = {"docs/start/first-message.md": [], "docs/start/two-hosts.md": [],
             "docs/start/first-call.md": [], "docs/reference/tls.md": []}
    for block in blocks("sh", "console"):
        page, code = block.values
        if page in pages:
            pages[page].append(code)
        else:
            yield pytest.param([code], id=block.id)
    for page, codes in pages.items():
        yield pytest.param(codes, id=page)


@pytest.mark.parametrize("session", list(sessions()))
def test_shell(session, tmp_path):
    if any("tls://" in code for code in session) and not cli.has_tls():
        return
    build = tmp_path / "build"
    build.mkdir()
    (build / "tensormsg").symlink_to(TOOL)
    (build / "examples").symlink_to(os.environ["TENSORMSG_EXAMPLES"])
    for path in pathlib.Path(os.environ["LIBTENSORMSG"]).parent.glob(
            "libtensormsg.so*"):
        (build / path.name).symlink_to(path)
    for folder in ("examples", "include"):
        (tmp_path / folder).symlink_to(SOURCE / folder)
    (tmp_path / "program").symlink_to(pathlib.Path(cli.HELLO).with_name("echo"))
    array = np.arange(6, dtype="f4").reshape(2, 3)
    np.savez(tmp_path / "file.npz", x=array)
    safetensors.numpy.save_file({"x": array}, tmp_path / "model.safetensors")
    (tmp_path / "tensormsg.json").write_text('{"version": 1}')
    with contextlib.ExitStack() as opened:
        terminal = Terminal(tmp_path, opened)
        for code in session:
            for command in commands(code):
                terminal.do(command)


# --- links and names ---

def anchor(heading):
    """As forges, and MyST for the site, make them."""
    words = re.sub(r"`|\[(.*?)\]\(.*?\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(path):
    text = FENCE.sub("", path.read_text())
    return {anchor(line) for line in
            re.findall(r"^#+ +(.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", TEXT[page])):
        if re.match(r"https?://", link):
            continue
        place, _, at = link.partition("#")
        path = (SOURCE / page).parent / place if place else SOURCE / page
        assert path.exists(), link
        assert not at or at in anchors(path), link


def test_the_table_of_documents_has_all():
    table = TEXT["docs/README.md"]
    for page in PAGES:
        folder, _, name = page.partition("/")
        assert folder != "docs" or name == "README.md" or \
            f"({name})" in table, page


def rows_of(table):
    """{first cell, without **: the other cells} of a table."""
    cells = ([cell.strip(" *") for cell in line.strip("|").split("|")]
             for line in table.splitlines() if line.startswith("|"))
    return {first: others for first, *others in cells}


def test_the_figures_of_the_readme_are_those_of_the_run_that_it_names():
    text = TEXT["README.md"]
    run = (SOURCE / re.search(r"\(bench/results/.*?\)", text)[0].strip("()")
           ).read_text()
    maps = [rows_of(run.partition(f"## {name}, shm\n")[2].partition("\n##")[0])
            for name in ("robot-observation", "resnet50-state-dict")]
    _, table, ray = re.split(r"\n\n(?=\|)", text)
    beside = {"tensormsg, C": "tensormsg", "UCXX, C++": "UCXX C++",
              "ZeroMQ, C": "ZeroMQ", "gRPC, C++": "gRPC C++"}
    for way, said in list(rows_of(table).items())[2:]:
        for measured, ms in zip(maps, said):
            us = float(measured[beside.get(way, way)][0].replace(",", ""))
            assert float(f"{us / 1000:.2g}") == float(ms) or \
                round(us / 1000) == float(ms), way
    engines = TEXT["docs/understand/engines.md"]
    for way, (ms,) in list(rows_of(ray).items())[2:]:
        assert re.search(rf"\b{ms}\b", engines), way


def written(folder, *kinds):
    """The words of the sources in a folder."""
    return {word for kind in kinds for path in (SOURCE / folder).glob(kind)
            for word in re.findall(r"\b(?:tmsg|TMSG)_\w+", path.read_text())}


@pytest.fixture(scope="module")
def words():
    return written("include/tensormsg", "**/*.h") | written("src", "**/*.[ch]") | \
        written(".", "CMakeLists.txt", "cmake/*.cmake", "scripts/*.sh",
                "tests/**/*.[ch]")


# A change of long ago may speak of what has another name since.
@pytest.mark.parametrize("page", sorted(set(PAGES) - {"CHANGELOG.md"}))
def test_what_is_named_exists(page, words):
    named = set(re.findall(r"\b(?:tmsg|TMSG)_\w*[A-Za-z0-9]\b", TEXT[page]))
    assert named <= words
    for name in re.findall(r"`(tensormsg/\w+\.h)`", TEXT[page]):
        assert (SOURCE / "include" / name).exists(), name


# Entries of ctest that no file of the same name stands for.
MADE = re.compile(r"(?:tmsg_add_test\(|tmsg_soak\(|NAME )([a-z]+/[\w.-]+)")


@pytest.fixture(scope="module")
def entries():
    """The names of ctest's entries, as tests/ makes them of files."""
    found = {f"{path.relative_to(SOURCE / 'tests').parts[0]}/{path.stem[5:]}"
             for kind in ("c", "py")
             for path in (SOURCE / "tests").glob(f"**/test_*.{kind}")}
    found |= {f"bindings/{path.stem[5:]}" for path in
              (SOURCE / "bindings/python/tests").glob("test_*.py")}
    for room in "fuzz", "soak", "tsan":
        found |= {f"{room}/{path.stem.removeprefix(f'{room}_')}"
                  for path in (SOURCE / "tests" / room).glob("*.*")
                  if room == "tsan" or path.stem.startswith(f"{room}_")}
    for path in (SOURCE / "tests").glob("**/CMakeLists.txt"):
        found.update(MADE.findall(path.read_text()))
    return found


def test_the_tests_that_security_names_exist(entries):
    """Each row of its table names one, or promises nothing."""
    _, _, table = TEXT["docs/understand/security.md"].partition(
        "| tested by |\n")
    rows = table.partition("\n\n")[0].splitlines()[1:]
    assert len(rows) > 10
    for row in rows:
        who, _, cannot, tests = [cell.strip() for cell in
                                 row.strip("|").split(" |")]
        named = re.findall(r"`(.*?)`", tests)
        assert set(named) <= entries, who
        assert named or cannot == "(nothing is promised)", who


def test_the_header_names_what_a_context_describes():
    header = (SOURCE / "include/tensormsg/context.h").read_text()
    described = json.loads(cli.run("info", "--json").stdout)
    assert described.keys() <= set(re.findall(r'"(\w+)"', header))
