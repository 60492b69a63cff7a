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
    format_t format;
    gchar *segment;
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

    (void)tmsg_endpoint_close_wait(self->endpoint, 2000);
    link_close(&self->link);
    format_clear(&self->format);
    g_clear_pointer(&self->segment, g_free);
    return TRUE;
}

static gboolean sink_set_caps(GstBaseSink *base, GstCaps *caps)
{
    gchar *error = format_read(&((TensormsgSink *)base)->format, caps);

    if (error != NULL) {
        GST_ELEMENT_ERROR(base, STREAM, FORMAT, ("%s", error), (NULL));
        g_free(error);
        return FALSE;
    }
    return TRUE;
}

/* Upstream need not copy a frame into the layout of the caps: the sink reads
 * strides and offsets from the GstVideoMeta. */
static gboolean sink_propose_allocation(GstBaseSink *base, GstQuery *query)
{
    (void)base;
    gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, NULL);
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

static gchar *add_bytes(tmsg_map_t *map, GstBuffer *buffer)
{
    lent_t *lent = g_new0(lent_t, 1);
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = give_back,
                                          .release_arg = lent};
    tmsg_tensor_t tensor = {.device = {TMSG_DEVICE_CPU, 0},
                            .dtype = {TMSG_DTYPE_UINT, 8, 1},
                            .ndim = 1};
    int64_t shape;

    if (!gst_buffer_map(buffer, &lent->info, GST_MAP_READ)) {
        g_free(lent);
        return g_strdup("a buffer cannot be mapped");
    }
    lent->buffer = gst_buffer_ref(buffer);
    shape = (int64_t)lent->info.size;
    tensor.shape = &shape;
    tensor.data = lent->info.data;
    if (tmsg_map_add(map, KEY_BYTES, &tensor, &params) != TMSG_OK) {
        give_back(lent);
        return g_strdup(tmsg_error_message());
    }
    return NULL;
}

static gchar *add_words(tmsg_map_t *map, const TensormsgSink *self)
{
    tmsg_status_t status = TMSG_OK;

    if (self->format.text != NULL) {
        status = tmsg_map_set_string(map, KEY_CAPS, self->format.text);
    }
    if (status == TMSG_OK && self->segment != NULL) {
        status = tmsg_map_set_string(map, KEY_SEGMENT, self->segment);
    }
    return status == TMSG_OK ? NULL : g_strdup(tmsg_error_message());
}

/* The end of the stream if buffer is NULL. */
static gchar *fill(tmsg_map_t *map, TensormsgSink *self, GstBuffer *buffer)
{
    gchar *error;

    if (buffer == NULL) {
        return tmsg_map_set_bool(map, KEY_END, 1) == TMSG_OK
                   ? NULL
                   : g_strdup(tmsg_error_message());
    }
    error = self->format.is_video ? planes_add(map, &self->format.info, buffer)
                                  : add_bytes(map, buffer);
    if (error == NULL && meta_add(map, buffer) != TMSG_OK) {
        error = g_strdup(tmsg_error_message());
    }
    return error == NULL ? add_words(map, self) : error;
}

/* Whether a device may have mapped it: V4L2's memory, a dma-buf. */
static gboolean is_mapped(GstBuffer *buffer)
{
    for (guint i = 0; i < gst_buffer_n_memory(buffer); i++) {
        if (!gst_memory_is_type(gst_buffer_peek_memory(buffer, i),
                                GST_ALLOCATOR_SYSMEM)) {
            return TRUE;
        }
    }
    return FALSE;
}

/* One tensor of 32 to 512 KiB is read by a receiver on this machine, in the
 * memory of this process and by the kernel, which reads no pages of a device:
 * that message would be lost. What goes eagerly, and what is longer, the CPU
 * reads here. */
#define READ_THERE (512 << 10)

static gchar *sink_send(TensormsgSink *self, GstBuffer *buffer)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                       .protocol = TMSG_PROTOCOL_EAGER};
    const gboolean eagerly = buffer != NULL && is_mapped(buffer) &&
                             gst_buffer_get_size(buffer) < READ_THERE;
    tmsg_map_t *map;
    gchar *error;

    if (tmsg_map_create(&map) != TMSG_OK) {
        return g_strdup(tmsg_error_message());
    }
    error = fill(map, self, buffer);
    if (error == NULL &&
        tmsg_endpoint_send(self->endpoint, map, eagerly ? &params : NULL,
                           NULL) != TMSG_OK) {
        error = g_strdup(tmsg_error_message());
    }
    tmsg_map_destroy(map);
    return error;
}

static GstFlowReturn sink_render(GstBaseSink *base, GstBuffer *buffer)
{
    gchar *error = sink_send((TensormsgSink *)base, buffer);

    if (error != NULL) {
        GST_ELEMENT_ERROR(base, RESOURCE, WRITE, ("%s", error), (NULL));
        g_free(error);
        return GST_FLOW_ERROR;
    }
    return GST_FLOW_OK;
}

/* A timestamp means nothing without its segment: some encoders begin at 1000
 * hours. The source counts time, so a segment of bytes is not sent. */
static void follow_segment(TensormsgSink *self, GstEvent *event)
{
    GValue value = G_VALUE_INIT;
    const GstSegment *segment;

    gst_event_parse_segment(event, &segment);
    g_clear_pointer(&self->segment, g_free);
    if (segment->format == GST_FORMAT_TIME) {
        g_value_init(&value, GST_TYPE_SEGMENT);
        g_value_set_boxed(&value, segment);
        self->segment = gst_value_serialize(&value);
        g_value_unset(&value);
    }
}

static gboolean sink_event(GstBaseSink *base, GstEvent *event)
{
    if (GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT) {
        follow_segment((TensormsgSink *)base, event);
    } else if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) {
        g_free(sink_send((TensormsgSink *)base, NULL));
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
    class->propose_allocation = sink_propose_allocation;
    class->render = sink_render;
    class->event = sink_event;
}

static void tensormsg_sink_init(TensormsgSink *self)
{
    self->uri = g_strdup("tcp://127.0.0.1:9000");
    gst_base_sink_set_sync(GST_BASE_SINK(self), FALSE);
}
