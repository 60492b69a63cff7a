/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_tensormsg.h - what the files of the GStreamer plug-in share. */
#ifndef GST_TENSORMSG_H
#define GST_TENSORMSG_H

#include <gst/gst.h>
#include <tensormsg/tensormsg.h>

#define KEY_CAPS "gst.caps"
#define KEY_PTS "gst.pts"
#define KEY_DURATION "gst.duration"
#define KEY_END "gst.eos"
#define QUEUE 16 /* buffers that may wait in a sink, and in a source */

/* A worker and who drives it. */
typedef struct link link_t;
struct link {
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    GThread *loop;
    int called; /* eventfd */
    gint stopped;
    void (*look)(link_t *link); /* each time that something may have come */
};

tmsg_status_t link_open(link_t *link, const tmsg_worker_params_t *params);
void link_start(link_t *link, void (*look)(link_t *link));
void link_call(link_t *link);
void link_close(link_t *link);

GType tensormsg_sink_get_type(void);
GType tensormsg_src_get_type(void);
GParamSpec *uri_property(void);

#endif
