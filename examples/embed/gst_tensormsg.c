/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_tensormsg.c - a GStreamer plug-in: tensormsgsink sends each buffer as a
 * map of one tensor, tensormsgsrc gives them out at the other end. Caps,
 * timestamps and the end of the stream travel as metadata.
 *
 *   gst-launch-1.0 tensormsgsrc uri=tcp://:9000 ! videoconvert ! autovideosink
 *   gst-launch-1.0 videotestsrc ! tensormsgsink uri=tcp://localhost:9000
 *
 * Neither waits: what finds no room in the sink makes room for newer buffers,
 * and the source takes no more than a few before they are asked for. Each has a
 * worker of its own, which a thread of its own drives: it sleeps on the
 * worker's descriptor and on one by which it is called.
 *
 *   gst_sink.c   the sink
 *   gst_src.c    the source
 *   this file    the thread, and the plug-in */
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gst_tensormsg.h"

#define PACKAGE "tensormsg"

void link_call(link_t *link)
{
    const guint64 one = 1;

    (void)!write(link->called, &one, sizeof(one));
}

static gpointer link_loop(gpointer arg)
{
    link_t *link = arg;
    guint64 calls;

    while (!g_atomic_int_get(&link->stopped)) {
        struct pollfd wakes[] = {
            {.fd = tmsg_worker_fd(link->worker), .events = POLLIN},
            {.fd = link->called, .events = POLLIN}};

        tmsg_worker_progress(link->worker);
        link->look(link);
        if (tmsg_worker_arm(link->worker) == TMSG_OK) {
            poll(wakes, 2, -1);
        }
        if (wakes[1].revents != 0) {
            (void)!read(link->called, &calls, sizeof(calls));
        }
    }
    return NULL;
}

tmsg_status_t link_open(link_t *link, const tmsg_worker_params_t *params)
{
    tmsg_status_t status = tmsg_context_create(NULL, &link->context);

    if (status == TMSG_OK) {
        status = tmsg_worker_create(link->context, params, &link->worker);
    }
    link->stopped = 0;
    link->called = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return status;
}

void link_start(link_t *link, void (*look)(link_t *link))
{
    link->look = look;
    link->loop = g_thread_new("tensormsg", link_loop, link);
}

void link_close(link_t *link)
{
    if (link->loop != NULL) {
        g_atomic_int_set(&link->stopped, 1);
        link_call(link);
        g_thread_join(link->loop);
    }
    tmsg_worker_destroy(link->worker);
    tmsg_context_destroy(link->context);
    close(link->called);
    *link = (link_t){NULL};
}

GParamSpec *uri_property(void)
{
    return g_param_spec_string("uri", "URI", "tcp://host:port or unix://path",
                               "tcp://127.0.0.1:9000",
                               G_PARAM_WRITABLE | G_PARAM_STATIC_STRINGS);
}

static gboolean plugin_init(GstPlugin *plugin)
{
    return gst_element_register(plugin, "tensormsgsink", GST_RANK_NONE,
                                tensormsg_sink_get_type()) &&
           gst_element_register(plugin, "tensormsgsrc", GST_RANK_NONE,
                                tensormsg_src_get_type());
}

GST_PLUGIN_DEFINE(GST_VERSION_MAJOR, GST_VERSION_MINOR, tensormsg,
                  "Buffers as maps of tensors", plugin_init, "0.1", "BSD",
                  PACKAGE, "https://openucx.org")
