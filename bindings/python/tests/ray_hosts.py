# SPDX-License-Identifier: BSD-3-Clause
"""Clusters of Ray in namespaces of their own: one with loopback alone, or two
that are joined by a cable, as two hosts. Making them needs root. Ray finds its
address over a network, and takes loopback where there is none."""

import contextlib
import os
import subprocess
import sys

LONE = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--", "sh", "-c",
        'ip link set lo up && exec "$@"', "sh"]
HOSTS = "10.77.0.1", "10.77.0.2"
ADDRESS = f"{HOSTS[0]}:6379"
CABLE = "cable"  # the network interface of each host
ENV = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0",
       "RAY_DEDUP_LOGS": "0", "OMP_NUM_THREADS": "1"}


def ended(process):
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def two_hosts(folder, store_bytes, env=None):
    """Two nodes of one cluster. Gives the words before a command that is to run
    on the first; ray.init(address=ADDRESS) is there."""
    env = {**os.environ, **ENV, **(env or {})}
    with contextlib.ExitStack() as stack:
        holders = []
        for _ in HOSTS:
            holder = subprocess.Popen(
                [*LONE, "sh", "-c", "echo ready && exec sleep 3600"],
                stdout=subprocess.PIPE, text=True)
            stack.callback(ended, holder)
            if holder.stdout.readline() != "ready\n":
                raise OSError("this machine makes no such namespaces")
            holders.append(holder)
        subprocess.run(["ip", "link", "add", CABLE, "netns",
                        str(holders[0].pid), "type", "veth", "peer", "name",
                        CABLE, "netns", str(holders[1].pid)], check=True)
        prefixes = [["nsenter", "--target", str(holder.pid), "--net", "--"]
                    for holder in holders]
        for prefix, host in zip(prefixes, HOSTS):
            subprocess.run([*prefix, "sh", "-ec",
                            f"ip address add {host}/24 dev {CABLE}; "
                            f"ip link set {CABLE} up"], check=True)
        for prefix, host in zip(prefixes, HOSTS):
            where = ["--head", "--port=6379", "--include-dashboard=false",
                     f"--temp-dir={folder}"] if host == HOSTS[0] else \
                [f"--address={ADDRESS}"]
            node = subprocess.Popen(
                [*prefix, sys.executable, "-m", "ray.scripts.scripts", "start",
                 *where, f"--node-ip-address={host}", "--num-cpus=2",
                 f"--object-store-memory={store_bytes}", "--disable-usage-stats",
                 "--block"], env=env, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True)
            stack.callback(ended, node)
            for line in node.stdout:
                if "Ray runtime started" in line or "--block" in line:
                    break
            else:
                raise OSError(f"the node {host} did not start")
        yield prefixes[0]
