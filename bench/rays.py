# SPDX-License-Identifier: BSD-3-Clause
"""rays: tensors from actor to actor of Ray: its object store, with and without
RAY_ENABLE_ZERO_COPY_TORCH_TENSORS, GLOO, NIXL, and TENSORMSG, with and without
frozen=True. The producer holds a torch.randn(), the consumer sums all of it.

    bench/rays.py [--sizes 1,64,256] [--runs 20] [--hosts 2] [--only NAME...]

needs ray, torch and the package; NIXL and GLOO are left out where they are not
there, and NIXL takes a processor all the time: use --only. It runs in namespaces of its own (bindings/python/tests/ray_hosts.py).
Prints a line of JSON for each row.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent /
                       "../bindings/python/tests"))

import ray_hosts  # noqa: E402

# The flag and frozen= are of a whole cluster.
CLUSTERS = {"plain": ("store", "TENSORMSG", "GLOO", "NIXL"),
            "frozen": ("store_flag", "TENSORMSG_frozen")}
MIB = 1 << 20
STORE_BYTES = 800 * MIB
WARM = 3  # memory that is used again is there
SETTLE_S = 0.2  # what the run before has used is freed


def actor_class(ray, transports):
    import torch

    def checksum(x):
        return int(x.numpy().view("i8").sum())

    class Actor:
        def prepare(self, nbytes):
            self.x = torch.randn(nbytes // 4)
            return checksum(self.x)

        def store(self):
            return self.x

        def use(self, x):
            return checksum(x)

        def nothing(self):
            pass

    for name in transports:
        def give(self):
            return self.x
        give.__name__ = name
        setattr(Actor, name, ray.method(tensor_transport=name)(give))
    return ray.remote(num_cpus=0.01, enable_tensor_transport=True)(Actor)


class Cluster:
    """Runs in a process of its own; says a line for each thing it is asked."""

    def __init__(self, kind, hosts, only):
        import ray
        import tensormsg.ray
        from ray.util.scheduling_strategies import \
            NodeAffinitySchedulingStrategy as On
        self.ray = ray
        self.names = [name for name in CLUSTERS[kind] if name in only]
        if hosts == 2:
            ray.init(address=ray_hosts.ADDRESS, log_to_driver=False)
        else:
            ray.init(num_cpus=2, object_store_memory=STORE_BYTES,
                     include_dashboard=False, log_to_driver=False)
        tensormsg.ray.register(frozen=kind == "frozen")
        nodes = sorted(ray.nodes(), key=lambda n: n["NodeManagerAddress"])
        transports = [name.split("_")[0] for name in self.names
                      if not name.startswith("store")]
        Actor = actor_class(ray, transports)
        # An actor that has moved a tensor past the object store no more heeds
        # the flag.
        self.a, self.b, self.c, self.d = (Actor.options(
            scheduling_strategy=On(nodes[i % len(nodes)]["NodeID"], soft=False)
            ).remote() for i in range(4))
        ray.get([self.a.nothing.remote(), self.b.nothing.remote(),
                 self.c.nothing.remote(), self.d.nothing.remote()])
        if "GLOO" in self.names:
            from ray.experimental.collective import create_collective_group
            try:
                create_collective_group([self.a, self.b], backend="gloo")
            except Exception as error:
                print(f"no GLOO: {error!r:.300}", file=sys.stderr)
                self.names.remove("GLOO")

    def prepare(self, nbytes):
        self.sums = self.ray.get([self.a.prepare.remote(nbytes),
                                  self.c.prepare.remote(nbytes)])
        for name in list(self.names):
            try:
                for _ in range(WARM):
                    self.once(name)
            except Exception as error:
                print(f"no {name}: {error!r:.300}", file=sys.stderr)
                self.names.remove(name)
        return self.names

    def once(self, name):
        method = name.split("_")[0]
        a, b, wanted = (self.c, self.d, self.sums[1]) if method == "store" \
            else (self.a, self.b, self.sums[0])
        begun = time.perf_counter()
        got = self.ray.get(b.use.remote(getattr(a, method).remote()),
                           timeout=100)
        took = time.perf_counter() - begun
        assert got == wanted, (name, got, wanted)
        return took

    def serve(self):
        for line in sys.stdin:
            call, argument = line.split()
            print("=" + json.dumps(
                self.prepare(int(argument)) if call == "prepare"
                else self.once(argument)), flush=True)
        self.ray.shutdown()


class Asked:
    """A Cluster from outside."""

    def __init__(self, kind, hosts, only, stack):
        env = {}
        if kind == "frozen":
            env["RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"] = "1"
        prefix = ray_hosts.LONE
        if hosts == 2:
            folder = stack.enter_context(tempfile.TemporaryDirectory(
                prefix="ray", ignore_cleanup_errors=True))
            env["GLOO_SOCKET_IFNAME"] = ray_hosts.CABLE
            prefix = stack.enter_context(ray_hosts.two_hosts(
                folder, STORE_BYTES, env))
        self.process = subprocess.Popen(
            [*prefix, sys.executable, __file__, "--serve", kind,
             "--hosts", str(hosts), "--only", *only], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
            env={**os.environ, **ray_hosts.ENV, **env})
        stack.callback(self.end)

    def __call__(self, call, argument):
        self.process.stdin.write(f"{call} {argument}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("="):
                return json.loads(line[1:])
        raise SystemExit("a cluster has ended")

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


def measure(clusters, args):
    """Interleaved: each in turn, run after run, and each begins as often as the
    others."""
    for mib in map(int, args.sizes.split(",")):
        took = {name: [] for asked in clusters.values()
                for name in asked("prepare", mib * MIB)}
        turns = [(asked, name) for kind, asked in clusters.items()
                 for name in CLUSTERS[kind] if name in took]
        for run in range(args.runs):
            first = run % len(turns)
            for asked, name in turns[first:] + turns[:first]:
                time.sleep(SETTLE_S)
                took[name].append(1e3 * asked("once", name))
        for name, each in took.items():
            print(json.dumps({
                "work": "ray", "transport": name, "mib": mib,
                "hosts": args.hosts, "ms": round(statistics.median(each), 2),
                "best": round(min(each), 2), "runs": args.runs}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="1,64,256")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--serve")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--only", nargs="+",
                        default=[name for names in CLUSTERS.values()
                                 for name in names])
    args = parser.parse_args()
    if args.serve:
        Cluster(args.serve, args.hosts, args.only).serve()
        return
    with contextlib.ExitStack() as stack:
        measure({kind: Asked(kind, args.hosts, args.only, stack)
                 for kind, names in CLUSTERS.items()
                 if set(names) & set(args.only)}, args)


if __name__ == "__main__":
    main()
