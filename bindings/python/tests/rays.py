# SPDX-License-Identifier: BSD-3-Clause
"""tensormsg.ray with a real Ray: what it promises, the program of
docs/understand/engines.md, and faults. Each part runs in a process, and a
namespace with
loopback alone, of its own.

    rays.py ROUNDS TORCH RAY [PART...]

The two are folders with torch, and with a Ray (scripts/setup.sh torch ray). Ends
with 77 where there is no Ray, torch, or leave to make namespaces.
"""

import gc
import importlib.util
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import ray_hosts

HERE = pathlib.Path(__file__).parent
WAIT = 90  # seconds, before something is called a failure
LOST = 40  # seconds until a receiver hears that an owner is gone
MIB = 1 << 20


def fds():
    """What a process has open, without what comes and goes."""
    return len(os.listdir("/proc/self/fd"))


def abstract():
    """Names of abstract sockets of ours in this namespace."""
    with open("/proc/net/unix") as table:
        return {line.split()[-1] for line in table if "@tensormsg-ray-" in line}


def start(**options):
    """A cluster, and a class of actors. They hold what they need: Ray takes
    them by value."""
    import ray
    import tensormsg.ray
    import torch
    ray.init(num_cpus=2, object_store_memory=256 * MIB, include_dashboard=False,
             log_to_driver=False)
    tensormsg.ray.register(**options)

    def transport():
        from ray.experimental.rdt import util
        return util.get_tensor_transport_manager("TENSORMSG")

    @ray.remote(num_cpus=0.01, enable_tensor_transport=True)
    class Actor:
        @ray.method(tensor_transport="TENSORMSG")
        def make(self, count, value):
            self.x = torch.full((count,), value)
            return self.x

        @ray.method(tensor_transport="TENSORMSG")
        def nested(self):
            return {"a": [torch.ones(3), "words"],
                    "b": {"c": torch.zeros(2, 2, dtype=torch.bfloat16)}}

        @ray.method(tensor_transport="TENSORMSG")
        def nothing(self):
            return []

        def put(self, count):
            return [ray.put(torch.arange(count), _tensor_transport="tensormsg")]

        def use(self, x, value):
            return bool((x == value).all()), len(x)

        def write(self, x):
            x[:] = 0
            return x.sum().item()

        def keep(self, x):
            self.kept = x

        def kept_is(self, value):
            return bool((self.kept == value).all())

        def shape(self, tree):
            return (tree["a"][0].sum().item(), tree["a"][1],
                    tuple(tree["b"]["c"].shape), str(tree["b"]["c"].dtype))

        def length(self, x):
            return len(x)

        def borrow(self, refs):
            return ray.get(refs[0]).sum().item()

        def into(self, refs, count):
            from ray.experimental import set_target_for_ref
            mine = torch.zeros(count, dtype=torch.int64)
            set_target_for_ref(refs[0], [mine])
            got = ray.get(refs[0])
            return mine.sum().item(), (got[0] if isinstance(got, list)
                                       else got) is mine

        def freed(self, timeout):
            from ray.experimental import wait_tensor_freed
            try:
                wait_tensor_freed(self.x, timeout)
            except TimeoutError:
                return False
            return True

        def spin(self, seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pass

        def pid(self):
            return os.getpid()

        def left(self):
            gc.collect()
            mine = transport()
            node = mine._here()
            return {"objects": len(mine._offered),
                    "offers": node.near.describe()["offers"] +
                    node.far.describe()["offers"],
                    "receiving": len(mine._receiving),
                    "descriptors": len(os.listdir("/proc/self/fd"))}

    return ray, torch, Actor


def until(holds, what):
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def part_behaviour():
    ray, torch, Actor = start()
    a, b, c = Actor.remote(), Actor.remote(), Actor.remote()
    count = 1 << 20
    assert ray.get(b.shape.remote(a.nested.remote())) == \
        (3, "words", (2, 2), "torch.bfloat16")
    assert ray.get(b.length.remote(a.nothing.remote())) == 0
    ref = a.make.remote(count, 3)
    assert ray.get([b.use.remote(ref, 3), c.use.remote(ref, 3),
                    b.write.remote(ref), c.use.remote(ref, 3)]) == \
        [(True, count), (True, count), 0, (True, count)]
    assert bool((ray.get(ref) == 3).all())  # in the driver
    assert not ray.get(a.freed.remote(0.2))
    ray.get(b.keep.remote(ref))
    del ref
    gc.collect()
    assert ray.get(a.freed.remote(WAIT))
    assert ray.get(a.left.remote())["objects"] == 0
    ray.get(a.make.remote(count, 4), timeout=WAIT)
    assert ray.get(b.kept_is.remote(3))  # what was lent has not changed
    ref = ray.put(torch.full((count,), 5), _tensor_transport="tensormsg")
    assert ray.get(b.borrow.remote([ref])) == 5 * count
    assert ray.get(b.into.remote([ref], count)) == (5 * count, True)
    assert ray.get(b.use.remote(ref, 5)) == (True, count)
    [ref] = ray.get(a.put.remote(1000))
    assert ray.get(ref).sum() == 499500

    @ray.remote(num_cpus=0.01)
    class Async:
        @ray.method(tensor_transport="TENSORMSG")
        async def make(self, count):
            return torch.arange(count)

        async def use(self, x):
            return x.sum().item()

    d, e = Async.remote(), Async.remote()
    assert ray.get(e.use.remote(d.make.remote(1000))) == 499500
    ref = a.make.remote(count, 7)
    ray.get(b.use.remote(ref, 7))
    busy = a.spin.remote(3)
    begun = time.monotonic()
    assert ray.get(c.use.remote(ref, 7)) == (True, count)
    print(f"a fetch from an owner that computes: "
          f"{time.monotonic() - begun:.2f} s")
    ray.get(busy)


def part_restarted_actor():
    ray, torch, _ = start()

    @ray.remote(num_cpus=0.01, max_restarts=1, max_task_retries=2)
    class Phoenix:
        def __init__(self):
            import tensormsg.ray
            tensormsg.ray.register()

        @ray.method(tensor_transport="TENSORMSG")
        def make(self, value):
            return torch.full((1000,), value)

        def use(self, x):
            return x.sum().item()

        def pid(self):
            return os.getpid()

    a, b = Phoenix.remote(), Phoenix.remote()
    assert ray.get(b.use.remote(a.make.remote(1))) == 1000
    before = ray.get(a.pid.remote())
    os.kill(before, signal.SIGKILL)
    until(lambda: ray.get(a.pid.remote()) != before, "no restart")
    assert ray.get(b.use.remote(a.make.remote(2))) == 2000


def part_owner_killed():
    ray, _, Actor = start()
    a, b = Actor.remote(), Actor.remote()
    ref, ready = a.make.remote(4 * MIB, 9), abstract()
    assert ray.get(b.use.remote(ref, 9))[0]
    ready = abstract()
    os.kill(ray.get(a.pid.remote()), signal.SIGKILL)
    begun = time.monotonic()
    try:
        ray.get(b.use.remote(ref, 9), timeout=WAIT)
        raise AssertionError("no error")
    except ray.exceptions.RayError as error:
        print(f"killed: {time.monotonic() - begun:.1f} s, {error!s:.200}")
    assert time.monotonic() - begun < LOST
    assert ray.get(b.length.remote([1]), timeout=WAIT) == 1
    until(lambda: len(abstract()) < len(ready), abstract())


def part_owner_stopped():
    os.environ["RAY_rdt_fetch_fail_timeout_milliseconds"] = "3000"
    ray, _, Actor = start()
    a, b = Actor.remote(), Actor.remote()
    ref = a.make.remote(4 * MIB, 9)
    assert ray.get(b.use.remote(ref, 9))[0]
    pid = ray.get(a.pid.remote())
    os.kill(pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        try:
            ray.get(b.use.remote(ref, 9), timeout=WAIT)
            raise AssertionError("no error")
        except ray.exceptions.RayError as error:
            print(f"stopped: {time.monotonic() - begun:.1f} s, {error!s:.200}")
        assert time.monotonic() - begun < LOST
        assert ray.get(b.length.remote([1]), timeout=WAIT) == 1
        until(lambda: ray.get(b.left.remote())["receiving"] == 0, "a fetch")
    finally:
        os.kill(pid, signal.SIGCONT)


def part_freed_under_fetch(count=1000):
    ray, _, Actor = start()
    a, b = Actor.remote(), Actor.remote()
    assert ray.get(b.use.remote(a.make.remote(1000, 0), 0))[0]
    before = ray.get([a.left.remote(), b.left.remote()])
    good = failed = 0
    for i in range(count // 20):
        results = [b.use.remote(a.make.remote(40000, 20 * i + j), 20 * i + j)
                   for j in range(20)]  # each ref is dropped at once
        for result in results:
            try:
                is_whole, length = ray.get(result, timeout=WAIT)
                assert is_whole and length == 40000
                good += 1
            except ray.exceptions.RayError:
                failed += 1
    print(f"freed under fetch: {good} whole, {failed} errors")
    assert good > 0
    nothing_left(ray, [a, b], before)


def nothing_left(ray, actors, before):
    def is_clean():
        gc.collect()
        left = ray.get([actor.left.remote() for actor in actors])
        print(left)
        return all(now["objects"] == now["offers"] == now["receiving"] == 0 and
                   now["descriptors"] <= was["descriptors"] + 12
                   for now, was in zip(left, before))

    until(is_clean, f"before: {before}")


def part_random(rounds):
    ray, _, Actor = start()
    seed = random.randrange(1 << 30)
    print("seed", seed)
    dice = random.Random(seed)
    actors = [Actor.remote() for _ in range(3)]
    for a in actors:
        for b in actors:
            ray.get(a.use.remote(b.make.remote(10, 1), 1))
    before = ray.get([actor.left.remote() for actor in actors])
    good = failed = 0

    def look(result, count):
        nonlocal good, failed
        try:
            is_whole, length = ray.get(result, timeout=WAIT)
            assert is_whole and length == count, (seed, count, length)
            good += 1
        except ray.exceptions.RayError:
            failed += 1

    for i in range(rounds):
        count = int(10 ** dice.uniform(0, 5.7))
        a, b, c = dice.sample(range(3), 3)
        ref = actors[a].make.remote(count, i)
        what = dice.randrange(8)
        if what == 0:  # a request that is dropped
            try:
                ray.get(ref, timeout=dice.choice((0, 0.001, 0.01)))
            except ray.exceptions.GetTimeoutError:
                pass
        elif what == 1:
            ref = [actors[b].use.remote(ref, i), actors[c].use.remote(ref, i)]
            look(ref[0], count)
            look(ref[1], count)
        elif what == 2 and dice.random() < 0.1:
            result = actors[b].use.remote(ref, i)
            ray.kill(actors[a])
            look(result, count)
            actors[a] = Actor.remote()
            ray.get(actors[a].use.remote(actors[b].make.remote(10, 1), 1))
        else:
            look(actors[b].use.remote(ref, i), count)
        del ref
    print(f"random: {good} whole, {failed} errors")
    before = [before[0]] * 3
    nothing_left(ray, actors, before)
    assert len(abstract()) <= 4  # of three actors, and the driver


def part_document():
    from conftest import blocks_of
    (block,) = blocks_of(HERE / "../../../docs/understand/engines.md", "ray")
    exec(compile(block, "docs/understand/engines.md", "exec"), {})


def main():
    folders = sys.argv[2:4]
    sys.path[:0] = folders
    for needed in "ray", "torch":
        if importlib.util.find_spec(needed) is None:
            print(f"SKIPPED: no {needed}: scripts/setup.sh torch ray")
            return 77
    if subprocess.run([*ray_hosts.LONE, "true"]).returncode != 0:
        print("SKIPPED: no leave to make namespaces")
        return 77
    names = sys.argv[4:] or [name for name in globals()
                             if name.startswith("part_")]
    for name in names:
        begun = time.monotonic()
        subprocess.run(
            [*ray_hosts.LONE, sys.executable, "-W", "ignore", "-B", __file__,
             "--one", name, sys.argv[1]], check=True, timeout=1800,
            env={**os.environ, **ray_hosts.ENV,
                 "PYTHONPATH": os.pathsep.join(folders)})
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        part = globals()[sys.argv[2]]
        part(*([int(sys.argv[3])] if sys.argv[2] == "part_random" else []))
        import ray
        ray.shutdown()
    else:
        sys.exit(main())
