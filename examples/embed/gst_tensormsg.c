/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_tensormsg.c - a GStreamer plug-in: tensormsgsink sends each buffer as a
 * map, and tensormsgsrc makes a buffer of each map at the other end. A plane of
 * raw video is a tensor; any other buffer is one tensor of bytes. Caps,
 * segment, timestamps, flags, GstMetas and the end of the stream travel as
 * metadata.
 *
 *   gst-launch-1.0 tensormsgsrc uri=tcp://:9000 ! videoconvert ! \
 *       autovideosink sync=false
 *   gst-launch-1.0 videotestsrc ! tensormsgsink uri=tcp://localhost:9000
 *
 * Neither element waits: a full sink drops its oldest buffer, and the source
 * takes a few messages before they are asked for. Each has a worker of its own,
 * which a thread of its own drives.
 *
 *   gst_sink.c    the sink: buffer to message
 *   gst_src.c     the source: message to buffer
 *   gst_format.c  what the caps say, and which are refused
 *   gst_planes.c  a video frame as tensors, and back
 *   gst_meta.c    the rest of a buffer as metadata, and back
 *   gst_text.c    which text of a peer is refused
 *   this file     the thread, and the plug-in */
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gst_tensormsg.h"

#define PACKAGE "tensormsg"

GST_DEBUG_CATEGORY(tensormsg_debug);

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
    GST_DEBUG_CATEGORY_INIT(tensormsg_debug, "tensormsg", 0, "tensormsg");
    return gst_element_register(plugin, "tensormsgsink", GST_RANK_NONE,
                                tensormsg_sink_get_type()) &&
           gst_element_register(plugin, "tensormsgsrc", GST_RANK_NONE,
                                tensormsg_src_get_type());
}

GST_PLUGIN_DEFINE(GST_VERSION_MAJOR, GST_VERSION_MINOR, tensormsg,
                  "Buffers as maps of tensors", plugin_init, "0.1", "BSD",
                  PACKAGE, "https://openucx.org")
