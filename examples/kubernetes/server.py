# SPDX-License-Identifier: BSD-3-Clause
"""A server for a pod: it is ready when its model is loaded, and after SIGTERM it
lets the calls under way end."""

import argparse
import sys
import time

import numpy as np
import tensormsg

parser = argparse.ArgumentParser()
parser.add_argument("--listen", default="127.0.0.1:13337")
parser.add_argument("--key")
parser.add_argument("--grace", type=float, default=20)
options = parser.parse_args()


def load_model():
    time.sleep(1)  # which takes longer
    return np.ones((64, 10), "f4")


with tensormsg.listen(options.listen, key=options.key,
                      background=True) as listener:
    server = listener.serve(threads=4, ready=False)
    weights = load_model()

    @server.method("infer")
    def infer(request):
        """Scores of features; `seconds` of metadata is how long it takes."""
        time.sleep(request.meta.get("seconds", 0))
        return {"scores": request["features"] @ weights}

    server.ready = True
    code = server.run(grace=options.grace)
sys.exit(code)
