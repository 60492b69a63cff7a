/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_sink.c - tensormsgsink: buffers to messages. */
#include <gst/base/gstbasesink.h>

#include "gst_tensormsg.h"

enum { PROP_URI = 1 };

static GstStaticPadTemplate sink_template = GST_STATIC_PAD_TEMPLATE(
    "sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);

typedef struct {
    GstBaseSink parent;
    gchar *uri;
    link_t link;
    tmsg_endpoint_t *endpoint;
    GstCaps *caps;
} TensormsgSink;

typedef GstBaseSinkClass TensormsgSinkClass;
G_DEFINE_TYPE(TensormsgSink, tensormsg_sink, GST_TYPE_BASE_SINK)

static void look_for_nothing(link_t *link) { (void)link; }

static gboolean sink_start(GstBaseSink *base)
{
    TensormsgSink *self = (TensormsgSink *)base;
    const tmsg_queue_params_t queue = {.field_mask = TMSG_QUEUE_PARAM_MESSAGES |
                                                     TMSG_QUEUE_PARAM_POLICY,
                                       .messages = QUEUE,
                                       .policy = TMSG_QUEUE_DROP_OLDEST};
    const tmsg_worker_params_t params = {
        .field_mask = TMSG_WORKER_PARAM_FLAGS | TMSG_WORKER_PARAM_SEND_QUEUE,
        .flags = TMSG_WORKER_SHARED,
        .send_queue = queue};
    tmsg_status_t status = link_open(&self->link, &params);

    if (status == TMSG_OK) {
        status = tmsg_endpoint_connect(self->link.worker, self->uri, NULL,
                                       &self->endpoint);
    }
    if (status != TMSG_OK) {
        GST_ELEMENT_ERROR(self, RESOURCE, OPEN_WRITE,
                          ("%s", tmsg_error_message()), (NULL));
        link_close(&self->link);
        return FALSE;
    }
    link_start(&self->link, look_for_nothing);
    return TRUE;
}

/* What was accepted leaves first, for two seconds at most: this is the one
 * place where GStreamer lets a sink take its time. */
static gboolean sink_stop(GstBaseSink *base)
{
    TensormsgSink *self = (TensormsgSink *)base;
    tmsg_request_t *closed;

    if (tmsg_endpoint_close(self->endpoint, &closed) == TMSG_OK) {
        tmsg_request_wait(closed, 2000);
        tmsg_request_destroy(closed);
    }
    link_close(&self->link);
    gst_caps_replace(&self->caps, NULL);
    return TRUE;
}

static gboolean sink_set_caps(GstBaseSink *base, GstCaps *caps)
{
    gst_caps_replace(&((TensormsgSink *)base)->caps, caps);
    return TRUE;
}

/* A buffer that is lent to a message. */
typedef struct {
    GstBuffer *buffer;
    GstMapInfo info;
} lent_t;

static void give_back(void *arg)
{
    lent_t *lent = arg;

    gst_buffer_unmap(lent->buffer, &lent->info);
    gst_buffer_unref(lent->buffer);
    g_free(lent);
}

static tmsg_status_t add_buffer(tmsg_map_t *map, GstBuffer *buffer)
{
    lent_t *lent = g_new0(lent_t, 1);
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = give_back,
                                          .release_arg = lent};
    tmsg_tensor_t tensor = {.device = {TMSG_DEVICE_CPU, 0},
                            .dtype = {TMSG_DTYPE_UINT, 8, 1},
                            .ndim = 1};
    tmsg_status_t status;
    int64_t shape;

    lent->buffer = gst_buffer_ref(buffer);
    if (!gst_buffer_map(buffer, &lent->info, GST_MAP_READ)) {
        gst_buffer_unref(buffer);
        g_free(lent);
        return TMSG_ERR_IO;
    }
    shape = (int64_t)lent->info.size;
    tensor.shape = &shape;
    tensor.data = lent->info.data;
    status = tmsg_map_add(map, "buffer", &tensor, &params);
    if (status != TMSG_OK) {
        give_back(lent);
    }
    return status;
}

static tmsg_status_t add_meta(tmsg_map_t *map, const GstCaps *caps,
                              GstClockTime pts, GstClockTime duration)
{
    gchar *text = caps == NULL ? NULL : gst_caps_to_string(caps);
    tmsg_status_t status = TMSG_OK;

    if (text != NULL) {
        status = tmsg_map_set_string(map, KEY_CAPS, text);
    }
    if (status == TMSG_OK && GST_CLOCK_TIME_IS_VALID(pts)) {
        status = tmsg_map_set_i64(map, KEY_PTS, (int64_t)pts);
    }
    if (status == TMSG_OK && GST_CLOCK_TIME_IS_VALID(duration)) {
        status = tmsg_map_set_i64(map, KEY_DURATION, (int64_t)duration);
    }
    g_free(text);
    return status;
}

static tmsg_status_t sink_send(TensormsgSink *self, GstBuffer *buffer)
{
    tmsg_map_t *map;
    tmsg_status_t status = tmsg_map_create(&map);

    if (status != TMSG_OK) {
        return status;
    }
    if (buffer == NULL) {
        status = tmsg_map_set_bool(map, KEY_END, 1);
    } else {
        status = add_buffer(map, buffer);
        if (status == TMSG_OK) {
            status = add_meta(map, self->caps, GST_BUFFER_PTS(buffer),
                              GST_BUFFER_DURATION(buffer));
        }
    }
    if (status == TMSG_OK) {
        status = tmsg_endpoint_send(self->endpoint, map, NULL, NULL);
    }
    tmsg_map_destroy(map);
    return status;
}

static GstFlowReturn sink_render(GstBaseSink *base, GstBuffer *buffer)
{
    if (sink_send((TensormsgSink *)base, buffer) != TMSG_OK) {
        GST_ELEMENT_ERROR(base, RESOURCE, WRITE, ("%s", tmsg_error_message()),
                          (NULL));
        return GST_FLOW_ERROR;
    }
    return GST_FLOW_OK;
}

static gboolean sink_event(GstBaseSink *base, GstEvent *event)
{
    if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) {
        sink_send((TensormsgSink *)base, NULL);
    }
    return GST_BASE_SINK_CLASS(tensormsg_sink_parent_class)->event(base, event);
}

static void sink_set(GObject *object, guint id, const GValue *value,
                     GParamSpec *spec)
{
    TensormsgSink *self = (TensormsgSink *)object;

    (void)id;
    (void)spec;
    g_free(self->uri);
    self->uri = g_value_dup_string(value);
}

static void sink_finalize(GObject *object)
{
    g_free(((TensormsgSink *)object)->uri);
    G_OBJECT_CLASS(tensormsg_sink_parent_class)->finalize(object);
}

static void tensormsg_sink_class_init(TensormsgSinkClass *class)
{
    G_OBJECT_CLASS(class)->set_property = sink_set;
    G_OBJECT_CLASS(class)->finalize = sink_finalize;
    g_object_class_install_property(G_OBJECT_CLASS(class), PROP_URI,
                                    uri_property());
    gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(class),
                                              &sink_template);
    gst_element_class_set_static_metadata(
        GST_ELEMENT_CLASS(class), "tensormsg sink", "Sink/Network",
        "Sends buffers as maps", "libtensormsg");
    class->start = sink_start;
    class->stop = sink_stop;
    class->set_caps = sink_set_caps;
    class->render = sink_render;
    class->event = sink_event;
}

static void tensormsg_sink_init(TensormsgSink *self)
{
    self->uri = g_strdup("tcp://127.0.0.1:9000");
    gst_base_sink_set_sync(GST_BASE_SINK(self), FALSE);
}
