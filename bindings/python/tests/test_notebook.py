# SPDX-License-Identifier: BSD-3-Clause
"""Under an event loop that runs already: a notebook's kernel, which is real, and
IPython."""

import ast
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from conftest import DOCS, HERE, WAIT, blocks_of, echo, environment
from recipes import PAGES, recipe  # noqa: F401

manager = pytest.importorskip("jupyter_client.manager")

PROGRAMS = [block for page in (HERE / "../README.md",
                               *sorted(DOCS.glob("python/*.md")))
            for block in blocks_of(page)]


class Notebook:
    """Runs cells in a kernel."""

    def __init__(self, folder):
        self.manager = manager.KernelManager(
            transport="ipc", connection_file=str(folder / "kernel.json"))
        self.manager.start_kernel(
            env={**environment(), "IPYTHONDIR": str(folder)},
            cwd=folder, stdout=subprocess.DEVNULL)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=WAIT)

    def begin(self, code):
        self.client.execute(textwrap.dedent(code))

    def end(self):
        """What the cell printed, and the name of what it raised, whose words
        are kept."""
        out, error = "", None
        while True:
            message = self.client.get_iopub_msg(timeout=WAIT)
            content = message["content"]
            if message["msg_type"] == "stream":
                out += content["text"]
            elif message["msg_type"] == "error":
                error, self.words = content["ename"], content["evalue"]
            elif message["msg_type"] == "status" and \
                    content["execution_state"] == "idle":
                self.client.get_shell_msg(timeout=WAIT)
                return out, error

    def run(self, code):
        self.begin(code)
        return self.end()

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel()


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    made = Notebook(tmp_path_factory.mktemp("kernel"))
    yield made
    made.close()


def test_await_in_cells(notebook):
    """What is under way goes on between them."""
    assert notebook.run("""
        import asyncio, time, numpy as np, tensormsg
        server = tensormsg.listen(":0")
        got = []

        async def receive():
            async for msg in server:
                got.append(msg.meta["frame"])
                await msg.peer.send(msg)

        receiving = asyncio.ensure_future(receive())
        ep = await tensormsg.connect(server.url)
        """) == ("", None)
    assert notebook.run("""
        await ep.send({"x": np.arange(6.)}, frame=7)
        print((await ep.recv())["x"].sum(), got)
        """) == ("15.0 [7]\n", None)
    assert notebook.run("""
        sent = [asyncio.ensure_future(ep.send({"x": np.zeros(1 << 18)}, frame=i))
                for i in range(5)]
        """) == ("", None)
    assert notebook.run("""
        print([(await ep.recv())["x"].size for _ in range(5)], got[1:],
              [task.done() for task in sent])
        """) == (f"{[1 << 18] * 5} [0, 1, 2, 3, 4] {[True] * 5}\n", None)
    assert notebook.run("""
        await ep.close()
        receiving.cancel()
        """) == ("", None)


def test_calls_that_block_in_cells(notebook):
    """The loop stands still meanwhile, and needs nothing of it."""
    with echo("sync") as (url, _):
        assert notebook.run(f"""
            import numpy as np, tensormsg
            with tensormsg.connect("{url}") as ep:
                ep.send({{"x": np.arange(6.)}}, frame=7)
                print(ep.recv({WAIT})["x"].sum())
            """) == ("15.0\n", None)


def test_who_came_between_cells_is_answered_in_either_face(notebook):
    """The loop has let it in, for asyncio."""
    assert notebook.run("""
        import tensormsg
        server = tensormsg.listen(":0")
        """) == ("", None)
    assert notebook.run("""
        ep = await tensormsg.connect(server.url)
        await ep.send({"x": 1})
        """) == ("", None)
    assert notebook.run("""
        for msg in server:
            msg.peer.send({"y": msg["x"] + 1})
            break
        """) == ("", None)
    assert notebook.run(f"""
        print((await ep.recv({WAIT}))["y"])
        await ep.send({{"x": 2}})
        msg = await server.recv({WAIT})
        await msg.peer.send({{"y": msg["x"] + 1}})
        print((await ep.recv({WAIT}))["y"])
        """) == ("2\n3\n", None)
    assert notebook.run("ep.abort()\n%reset -f")[1] is None


def cells_of(program):
    """Each statement is a cell, and each of `async def main()`, whose body is what
    asyncio.run(main()) runs elsewhere."""
    for node in ast.parse(program).body:
        within = getattr(node, "name", "") == "main"
        for one in node.body if within else [node]:
            first = min([one.lineno] + [each.lineno for each in getattr(
                one, "decorator_list", [])])
            cell = "\n".join(program.splitlines()[first - 1:one.end_lineno])
            if cell != "asyncio.run(main())":
                yield cell


@pytest.mark.parametrize("index", range(len(PROGRAMS)))
def test_a_program_of_the_pages(index, notebook):
    """In both faces; what one cell listens at, the next ones connect to."""
    program, said = PROGRAMS[index], ""
    for cell in cells_of(program):
        out, ended = notebook.run(cell)
        if "sys.exit" in cell:
            assert (ended, notebook.words) == ("SystemExit", "0")
        else:
            assert ended is None, (cell, notebook.words, out)
            said += out
    assert (said != "") == ("print" in program), said
    assert notebook.run("%reset -f")[1] is None


CONNECTS = "with tensormsg.connect(it.url, timeout={}) as ep: pass"
AWAITS = "async with tensormsg.connect(it.url, timeout={}) as ep: pass"


@pytest.mark.parametrize("opens, then, raises, words, cure", [
    ("tensormsg.sync.listen(':0')", CONNECTS, "TimedOut",
     "make it with background=True",
     "tensormsg.sync.listen(':0', background=True)"),
    ("tensormsg.sync.listen(':0')", AWAITS, "TimedOut",
     "make it with background=True",
     "tensormsg.sync.listen(':0', background=True)"),
    ("tensormsg.sync.publish(':0', background=False)", CONNECTS, "TimedOut",
     "make it with background=True", "tensormsg.sync.publish(':0')"),
    ("tensormsg.listen(':0')", CONNECTS, "WouldBlock",
     "or listen with background=True",
     "tensormsg.listen(':0', background=True)"),
    ("await tensormsg.listen(':0')", CONNECTS, "WouldBlock",
     "or listen with background=True",
     "await tensormsg.listen(':0', background=True)"),
    ("await tensormsg.publish(':0')", CONNECTS, "WouldBlock",
     "or listen with background=True",
     "await tensormsg.publish(':0', background=True)"),
    ("await tensormsg.listen(':0'); server = it.serve()", CONNECTS,
     "WouldBlock", "or listen by tensormsg.sync.listen()",
     "tensormsg.sync.listen(':0'); server = it.serve()"),
    ("tensormsg.listen(':0')", "tensormsg.connect(it.url).recv()",
     "AttributeError", "`async with` or `with`, or await it", None)])
def test_the_words_name_the_cure(opens, then, raises, words, cure, notebook):
    """Where one cell listens, and the next connects."""
    notebook.run("import tensormsg")
    assert notebook.run(f"it = {opens}") == ("", None)
    short = 1 if raises == "TimedOut" else WAIT
    assert notebook.run(then.format(short))[1] == raises
    assert words in notebook.words
    for cell in ["it = " + cure, then.format(WAIT)] if cure else []:
        said, ended = notebook.run(cell)
        assert ended is None, (cell, said, notebook.words)
    notebook.run("%reset -f")


def test_asyncio_run_is_refused_by_asyncio_alone(notebook):
    """And harms no connection."""
    assert notebook.run("""
        import asyncio, warnings, numpy as np, tensormsg
        warnings.simplefilter("ignore")
        server = tensormsg.listen(":0")
        ep = await tensormsg.connect(server.url)
        asyncio.run(ep.recv())
        """)[1] == "RuntimeError"
    assert notebook.run("""
        async with server as listener:
            await ep.send({"x": np.arange(6.)})
            print((await listener.recv())["x"].sum())
            await ep.close()
        """) == ("15.0\n", None)


@pytest.mark.parametrize("wait", ["ep.recv()", "await aep.recv()"])
def test_a_cell_is_interrupted(notebook, wait):
    """By what the button sends."""
    assert notebook.run("""
        import asyncio, numpy as np, tensormsg
        server = tensormsg.listen(":0", background=True)
        ep = tensormsg.sync.connect(server.url)
        aep = await tensormsg.connect(server.url)
        """) == ("", None)
    notebook.begin(f"print('waits', flush=True)\n{wait}")
    while True:
        message = notebook.client.get_iopub_msg(timeout=WAIT)
        if message["msg_type"] == "stream":
            break
    notebook.manager.interrupt_kernel()
    assert notebook.end()[1] in ("KeyboardInterrupt", "CancelledError")
    said, ended = notebook.run("""
        ep.send({"x": np.arange(3)})
        await aep.send({"x": np.arange(4)})
        with server as listener:
            print(sorted(listener.recv(10)["x"].size for _ in range(2)))
            ep.abort(), aep.abort()
        """)
    assert ended is None
    assert [line for line in said.splitlines()  # but that they were lost
            if not line.startswith("lost ")] == ["[3, 4]"]


def test_it_ends_with_connections_open(tmp_path):
    """At once, when it is told to."""
    notebook = Notebook(tmp_path)
    assert notebook.run("""
        import asyncio, numpy as np, tensormsg
        server = tensormsg.listen(":0")
        ep = await tensormsg.connect(server.url)
        receiving = asyncio.ensure_future(ep.recv())
        """) == ("", None)
    notebook.client.shutdown()
    code = notebook.manager.provisioner.process.wait(WAIT)
    notebook.close()
    assert code == 0


def test_ipython(tmp_path):
    """Its loop runs during a cell alone."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "IPython", "--quick",
         "--no-banner", "--no-confirm-exit", "--colors=nocolor",
         "--simple-prompt", "--HistoryManager.enabled=False"],
        input="""\
import asyncio, numpy as np, tensormsg
server = tensormsg.listen(":0")
listener = await server.__aenter__()
ep = await tensormsg.connect(server.url)
await ep.send({"x": np.arange(6.)}, frame=7)
print("sum", (await listener.recv())["x"].sum())
task = asyncio.ensure_future(ep.recv()); await asyncio.sleep(0)
await listener.peers[0].send({"x": np.arange(4.)})
print("sum", (await task)["x"].sum())
await ep.close()
print("closed", ep.closed)
""", text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=50, env={**os.environ, "IPYTHONDIR": str(tmp_path),
                         "UCX_LOG_LEVEL": "fatal"})
    said = [line.partition(": ")[2] for line in ran.stdout.splitlines()
            if line.endswith((".0", "True"))]
    assert said == ["sum 15.0", "sum 6.0", "closed True"], ran.stdout
    assert "Error" not in ran.stdout


def test_the_cells_of_the_recipe(notebook, recipe, tmp_path):  # noqa: F811
    pytest.importorskip("matplotlib")
    film = recipe("camera-viewers.md", camera={"range(90)": "range(10**9)"})
    infers = recipe("inference-server.md")
    camera = film("python camera.py")
    printed = []
    for cell in blocks_of(PAGES / "notebook.md", "notebook"):
        if "model = await" in cell:
            camera.process.kill()
            camera.process.wait()
            model = infers("python server.py")
        out, error = notebook.run(
            cell.replace('"localhost:4000"', f'"unix://{tmp_path}/socket"'))
        assert error is None, (cell, notebook.words)
        printed.append(out)
    assert "480" in printed[0] and printed[3] == "True\n"
    assert "infer" in printed[5] and printed[6] == "2.0\n"
    model.ends(signal.SIGTERM)
