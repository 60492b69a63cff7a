# SPDX-License-Identifier: BSD-3-Clause
"""The comments of the public headers: each tells its story in a few calls,
which compile, and lists errors one a line."""

import re
import subprocess

import pytest

from headers import SOURCE

pytestmark = pytest.mark.once

HEADERS = {path.name: path.read_text(encoding="utf-8") for path in
           sorted((SOURCE / "include/tensormsg").glob("*.h"))}
OPENING = re.compile(r"^/\* tensormsg/\w+\.h - (.*?)\*/", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)

# What the stories use, and leave to the reader to have.
KNOWN = """
#include <stdio.h>
#include <tensormsg/tensormsg.h>
static tmsg_bell_t *bell;
static tmsg_call_stream_t *call_stream;
static tmsg_call_t *call;
static tmsg_context_params_t context_params;
static tmsg_context_t *context;
static tmsg_device_info_t info;
static tmsg_device_t device;
static tmsg_devices_t *devices;
static const tmsg_domain_t *domain;
static tmsg_domain_t table;
static tmsg_dtype_t dtype;
static tmsg_endpoint_params_t endpoint_params;
static tmsg_endpoint_t *endpoint, *peer;
static tmsg_health_t health;
static tmsg_incoming_t *incoming;
static tmsg_intercepted_t *seen;
static tmsg_interceptor_t hooks;
static tmsg_keyring_t *keyring;
static tmsg_limits_t limits;
static tmsg_listener_params_t listener_params;
static tmsg_listener_t *listener;
static tmsg_map_t *map;
static const tmsg_map_t *described, *received, *reply;
static tmsg_memory_t memory;
static tmsg_message_t *message;
static tmsg_meta_t value;
static tmsg_call_metrics_t metrics;
static tmsg_method_info_t method_info;
static tmsg_methods_t *methods;
static tmsg_offer_params_t offer_params;
static tmsg_offer_t *offer;
static tmsg_publisher_t *publisher;
static tmsg_request_t *request;
static tmsg_send_params_t send_params;
static tmsg_server_t *server;
static tmsg_signature_t *signature;
static tmsg_status_t status;
static tmsg_stream_t stream;
static tmsg_task_t *task;
static tmsg_tensor_t tensor;
static tmsg_tls_params_t tls_params;
static tmsg_tls_t *tls;
static tmsg_trace_context_t trace;
static tmsg_tracer_params_t tracer_params;
static tmsg_worker_t *worker;
static struct DLManagedTensor *managed;
static char *json, name[64], *written;
static const char *parent, *text, *url;
static int64_t frame, shape[3];
static uint64_t bytes, capacity, p99_ns, tensor_bytes;
static uint8_t pixels[6];
static void *buffer, *data, *memory_block;
static void infer(void *arg, tmsg_task_t *called) { (void)arg, (void)called; }
static void log_line(void *arg, tmsg_log_level_t level, const char *line)
{
    (void)arg, (void)level, (void)line;
}
static void on_trace(void *arg, const tmsg_trace_event_t *event)
{
    (void)arg, (void)event;
}
"""


def story(name):
    """The code at the top of a header."""
    return re.findall(r"^ \*     (.*)$", OPENING.search(HEADERS[name])[1],
                      re.MULTILINE)


def test_each_header_tells_its_story_in_calls_that_compile(tmp_path):
    code = [KNOWN]
    for name, text in HEADERS.items():
        lines = story(name)
        # The words, the version, and those that only declare.
        few = name in ("api.h", "tensormsg.h", "version.h")
        assert few == (not lines) and len(lines) <= 6, name
        own = re.findall(r"^TMSG_API .*?\b(tmsg_\w+)\(", text,
                         re.MULTILINE | re.DOTALL)
        assert few or not own or any(f"{function}(" in "\n".join(lines)
                                     for function in own), name
        code += [f"static void story_{name[:-2]}(void)", "{", *lines, "}"]
    (tmp_path / "stories.c").write_text("\n".join(code))
    done = subprocess.run(
        ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused",
         "-fsyntax-only", "-I", SOURCE / "include", tmp_path / "stories.c"],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr



def test_errors_are_listed_one_a_line():
    """One name may stand behind "Errors:". Several, and when they come, have
    lines of their own: " *   NAME - when"."""
    wrong = []
    for name, text in HEADERS.items():
        for comment in COMMENT.findall(text):
            for part in re.split(r"\bErrors[a-z ]*:", comment)[1:]:
                said = re.split(r"\n +\*   ", part)[0].replace("()", "")
                names = re.findall(r"\b[A-Z]{2}[A-Z_]+\b", said)
                if len(names) > 1 or "(" in said:
                    wrong.append(f"{name}: {said.strip()}")
    assert not wrong, "\n".join(wrong)
