# SPDX-License-Identifier: BSD-3-Clause
"""The text of tmsg_metrics_text(), read by Prometheus' own parser."""

import os
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.once  # nothing of it is UCX's

ODD = 'a"b\\c\nd\N{LATIN SMALL LETTER U WITH DIAERESIS}{e="f"}, '
CALLS = 5
BYTES = 1000


def families(side):
    """By name, as the parser gives them, of the calls in metrics_text.c."""
    text = subprocess.run([os.environ["TMSG_METRICS_TEXT"], side, str(CALLS)],
                          check=True, capture_output=True, timeout=120)
    return {family.name: family for family in
            text_string_to_metric_families(text.stdout.decode("utf-8"))}


def value(family, method, suffix="", **labels):
    """Of the one sample that has these labels."""
    found = [sample for sample in family.samples
             if sample.name == family.name + suffix
             and sample.labels["method"] == method
             and labels.items() <= sample.labels.items()]
    assert len(found) == 1, found
    return found[0].value


@pytest.mark.parametrize("side", ["caller", "server"])
def test_every_family_and_sample_is_understood(side):
    found = families(side)
    assert {name: family.type for name, family in found.items()} == {
        "tensormsg_calls": "counter",
        "tensormsg_calls_in_flight": "gauge",
        "tensormsg_calls_rejected": "counter",
        "tensormsg_calls_running": "gauge",
        "tensormsg_calls_waiting": "gauge",
        "tensormsg_calls_held": "gauge",
        "tensormsg_call_stalls": "counter",
        "tensormsg_long_handlers": "counter",
        "tensormsg_call_retries": "counter",
        "tensormsg_call_bytes": "counter",
        "tensormsg_call_duration_seconds": "histogram",
        "tensormsg_late_replies": "counter",
    }
    late = found.pop("tensormsg_late_replies")
    assert [(sample.labels, sample.value) for sample in late.samples] == \
        [({}, 0)]
    for family in found.values():
        assert family.documentation
        seen = set()
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in seen, "a series occurs twice"
            seen.add(key)
            assert sample.name.startswith(family.name)
            assert sample.labels["side"] == side
            assert sample.labels["method"] in (
                ODD, "fail", "kept", "" if side == "server" else "strange")
            assert sample.value >= 0
    calls = found["tensormsg_calls"]
    assert value(calls, ODD, "_total", status="ok") == CALLS
    assert value(calls, "fail", "_total",
                 status="application error") == 2
    sent = found["tensormsg_call_bytes"]
    assert value(sent, ODD, "_total", direction="sent") == CALLS * BYTES
    assert value(sent, ODD, "_total", direction="received") == CALLS * BYTES
    assert value(found["tensormsg_calls_in_flight"], "kept") == 1
    rejected = found["tensormsg_calls_rejected"]
    if side == "server":
        assert value(rejected, "kept", "_total",
                     status="resource exhausted") == 1
        assert value(rejected, ODD, "_total",
                     status="resource exhausted") == 0
        assert value(rejected, "", "_total", status="not found") == 1
    else:
        assert not rejected.samples
    # What the server rejects never had an end there.
    assert value(found["tensormsg_call_duration_seconds"], "kept",
                 "_count") == (side == "caller")


@pytest.mark.parametrize("side", ["caller", "server"])
def test_histograms_hold_together(side):
    family = families(side)["tensormsg_call_duration_seconds"]
    for method, count in ((ODD, CALLS), ("fail", 2)):
        buckets = [(float(sample.labels["le"]), sample.value)
                   for sample in family.samples
                   if sample.name.endswith("_bucket")
                   and sample.labels["method"] == method]
        assert buckets == sorted(buckets), "bounds and counts rise"
        assert len({bound for bound, _ in buckets}) == len(buckets)
        assert buckets[-1] == (float("inf"), count)
        assert value(family, method, "_count") == count
        total = value(family, method, "_sum")
        assert 0 < total
        # What is at most in each bucket is at least the sum.
        below, most = 0, 0
        for bound, number in buckets:
            most += (number - below) * bound if number > below else 0
            below = number
        assert total <= most
