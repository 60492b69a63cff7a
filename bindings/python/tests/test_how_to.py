# SPDX-License-Identifier: BSD-3-Clause
"""The recipes of docs/how-to: their programs run as processes of their own, and
print what the page shows. test_torch.py runs those of dataloader.md,
test_notebook.py those of notebook.md, and test_how_to_hosts.py those that have
to do with networks and other frameworks."""

import signal

from conftest import HERE
from recipes import PAGES, recipe  # noqa: F401


def test_every_page_with_programs_is_run():
    tests = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    tests += "ucxx.md"  # tests/python/test_ucxx.py
    for page in PAGES.glob("*.md"):
        assert "```python" not in page.read_text() or page.name in tests, page


def test_a_camera_and_its_viewers(recipe):  # noqa: F811
    start = recipe("camera-viewers.md", camera={
        "range(90)": "range(12)",
        "    image = ": "    camera.wait_for(2, timeout=30)\n    image = "})
    viewers = start("python viewer.py 0"), start("python viewer.py 0.5")
    camera = start("python camera.py")
    for viewer in viewers:
        viewer.ends(numbers=False)
    camera.ends()


def test_weights_and_their_readers(recipe):  # noqa: F811
    start = recipe("weights-to-readers.md",
                   # Waits until both readers have each version.
                   trainer={"        time.sleep(0.5)": """
        while listener.describe()["fetched_maps"] < 2 * step:
            time.sleep(0.01)""", "sleep(30)": "sleep(0)"})
    trainer = start("python trainer.py")
    readers = [start("python reader.py") for _ in range(2)]
    trainer.ends()
    for reader in readers:
        reader.ends()


def test_an_inference_server(recipe):  # noqa: F811
    start = recipe("inference-server.md")
    server = start("python server.py")
    start("python client.py").ends()
    server.ends(signal.SIGTERM)


def test_a_stream_of_tokens(recipe):  # noqa: F811
    start = recipe("token-stream.md")
    model = start("python model.py")
    start("python ask.py").ends()
    model.ends(signal.SIGINT)


def test_a_work_queue_that_loses_a_worker(recipe):  # noqa: F811
    start = recipe("work-queue.md", worker={"sleep(0.1)": "sleep(60)"})
    queue, submit = start("python jobs.py"), start("python submit.py")
    worker = start("python worker.py")
    worker.line()  # it has a job
    worker.process.kill()
    worker = recipe("work-queue.md", worker={"sleep(0.1)": "sleep(0)"})(
        "python worker.py")
    submit.ends()
    assert "goes to another worker" in queue.rest(signal.SIGINT)
    assert worker.rest().endswith("the queue has ended\n")
