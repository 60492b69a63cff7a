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
 * worker's descriptor and on one by which it is called. */
#include <gst/base/gstbasesink.h>
#include <gst/base/gstpushsrc.h>
#include <gst/gst.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <tensormsg/tensormsg.h>
#include <unistd.h>

#define PACKAGE "tensormsg"
#define KEY_CAPS "gst.caps"
#define KEY_PTS "gst.pts"
#define KEY_DURATION "gst.duration"
#define KEY_END "gst.eos"
#define QUEUE 16 /* buffers that may wait in a sink */

enum { PROP_URI = 1, PROP_URL };

static GstStaticPadTemplate sink_template = GST_STATIC_PAD_TEMPLATE(
    "sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
static GstStaticPadTemplate src_template = GST_STATIC_PAD_TEMPLATE(
    "src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);

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

static void link_call(link_t *link)
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

static tmsg_status_t link_open(link_t *link, const tmsg_worker_params_t *params)
{
    tmsg_status_t status = tmsg_context_create(NULL, &link->context);

    if (status == TMSG_OK) {
        status = tmsg_worker_create(link->context, params, &link->worker);
    }
    link->stopped = 0;
    link->called = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return status;
}

static void link_start(link_t *link, void (*look)(link_t *link))
{
    link->look = look;
    link->loop = g_thread_new("tensormsg", link_loop, link);
}

static void link_close(link_t *link)
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

/* ---- the sink */

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

static GParamSpec *uri_property(void)
{
    return g_param_spec_string("uri", "URI", "tcp://host:port or unix://path",
                               "tcp://127.0.0.1:9000",
                               G_PARAM_WRITABLE | G_PARAM_STATIC_STRINGS);
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

/* ---- the source */

typedef struct {
    GstPushSrc parent;
    gchar *uri, *url;
    link_t link;
    GMutex mutex;
    GCond cond;
    GQueue ready; /* messages, QUEUE at most: more stay with their sender */
    gboolean flushing;
    gchar *caps;
} TensormsgSrc;

typedef GstPushSrcClass TensormsgSrcClass;
G_DEFINE_TYPE(TensormsgSrc, tensormsg_src, GST_TYPE_PUSH_SRC)

/* Payloads come into memory of GStreamer's. */
typedef struct {
    GstMemory *memory;
    GstMapInfo info;
} block_t;

static tmsg_status_t block_alloc(void *arg, tmsg_device_t device,
                                 uint64_t bytes, uint64_t alignment,
                                 void **data_p, void **token_p)
{
    GstAllocationParams params;
    block_t *block = g_new0(block_t, 1);

    (void)arg;
    (void)device;
    gst_allocation_params_init(&params);
    params.align = alignment - 1;
    block->memory = gst_allocator_alloc(NULL, bytes, &params);
    if (block->memory == NULL ||
        !gst_memory_map(block->memory, &block->info, GST_MAP_READWRITE)) {
        if (block->memory != NULL) {
            gst_memory_unref(block->memory);
        }
        g_free(block);
        return TMSG_ERR_NO_MEMORY;
    }
    *data_p = block->info.data;
    *token_p = block;
    return TMSG_OK;
}

static void block_release(void *arg, void *data, uint64_t bytes, void *token)
{
    block_t *block = token;

    (void)arg;
    (void)data;
    (void)bytes;
    gst_memory_unmap(block->memory, &block->info);
    gst_memory_unref(block->memory);
    g_free(block);
}

static void look_for_messages(link_t *link)
{
    TensormsgSrc *self =
        (TensormsgSrc *)((char *)link - offsetof(TensormsgSrc, link));
    tmsg_message_t *message;

    g_mutex_lock(&self->mutex);
    while (g_queue_get_length(&self->ready) < QUEUE &&
           tmsg_worker_recv(link->worker, 0, &message) == TMSG_OK) {
        g_queue_push_tail(&self->ready, message);
        g_cond_signal(&self->cond);
    }
    g_mutex_unlock(&self->mutex);
}

static gboolean src_start(GstBaseSrc *base)
{
    TensormsgSrc *self = (TensormsgSrc *)base;
    const tmsg_allocator_t allocator = {block_alloc, block_release, NULL};
    const tmsg_worker_params_t params = {
        .field_mask = TMSG_WORKER_PARAM_FLAGS | TMSG_WORKER_PARAM_ALLOCATOR,
        .flags = TMSG_WORKER_SHARED, /* messages are given back anywhere */
        .allocator = &allocator};
    tmsg_listener_t *listener;
    tmsg_status_t status = link_open(&self->link, &params);

    if (status == TMSG_OK) {
        status =
            tmsg_listener_create(self->link.worker, self->uri, NULL, &listener);
    }
    if (status != TMSG_OK) {
        GST_ELEMENT_ERROR(self, RESOURCE, OPEN_READ,
                          ("%s", tmsg_error_message()), (NULL));
        link_close(&self->link);
        return FALSE;
    }
    g_free(self->url);
    self->url = g_strdup(tmsg_listener_url(listener));
    link_start(&self->link, look_for_messages);
    return TRUE;
}

static void destroy_message(gpointer message) { tmsg_message_destroy(message); }

static gboolean src_stop(GstBaseSrc *base)
{
    TensormsgSrc *self = (TensormsgSrc *)base;

    link_close(&self->link);
    g_queue_clear_full(&self->ready, destroy_message);
    g_clear_pointer(&self->caps, g_free);
    return TRUE;
}

static void set_flushing(GstBaseSrc *base, gboolean flushing)
{
    TensormsgSrc *self = (TensormsgSrc *)base;

    g_mutex_lock(&self->mutex);
    self->flushing = flushing;
    g_cond_signal(&self->cond);
    g_mutex_unlock(&self->mutex);
}

static gboolean src_unlock(GstBaseSrc *base)
{
    set_flushing(base, TRUE);
    return TRUE;
}

static gboolean src_unlock_stop(GstBaseSrc *base)
{
    set_flushing(base, FALSE);
    return TRUE;
}

static void follow_caps(TensormsgSrc *self, const tmsg_map_t *map)
{
    const char *text;
    GstCaps *caps;

    if (tmsg_map_get_string(map, KEY_CAPS, &text) != TMSG_OK ||
        g_strcmp0(text, self->caps) == 0) {
        return;
    }
    caps = gst_caps_from_string(text);
    if (caps != NULL) {
        gst_base_src_set_caps(GST_BASE_SRC(self), caps);
        gst_caps_unref(caps);
    }
    g_free(self->caps);
    self->caps = g_strdup(text);
}

/* The buffer is the message's memory, which goes when the buffer does. */
static GstFlowReturn wrap(TensormsgSrc *self, tmsg_message_t *message,
                          GstBuffer **buffer_p)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    tmsg_tensor_t tensor;
    uint64_t bytes = 0;
    int64_t time;
    int end = 0;

    if (tmsg_map_get_bool(map, KEY_END, &end) == TMSG_OK && end) {
        tmsg_message_destroy(message);
        return GST_FLOW_EOS;
    }
    if (tmsg_map_find(map, "buffer", &tensor) != TMSG_OK ||
        tmsg_tensor_bytes(&tensor, &bytes) != TMSG_OK) {
        tmsg_message_destroy(message); /* not of ours */
        return GST_FLOW_CUSTOM_SUCCESS;
    }
    follow_caps(self, map);
    *buffer_p =
        gst_buffer_new_wrapped_full(GST_MEMORY_FLAG_READONLY, tensor.data,
                                    bytes, 0, bytes, message, destroy_message);
    if (tmsg_map_get_i64(map, KEY_PTS, &time) == TMSG_OK) {
        GST_BUFFER_PTS(*buffer_p) = (GstClockTime)time;
    }
    if (tmsg_map_get_i64(map, KEY_DURATION, &time) == TMSG_OK) {
        GST_BUFFER_DURATION(*buffer_p) = (GstClockTime)time;
    }
    return GST_FLOW_OK;
}

/* NULL: it is called back. */
static tmsg_message_t *next(TensormsgSrc *self)
{
    tmsg_message_t *message = NULL;

    g_mutex_lock(&self->mutex);
    while (!self->flushing &&
           (message = g_queue_pop_head(&self->ready)) == NULL) {
        g_cond_wait(&self->cond, &self->mutex);
    }
    g_mutex_unlock(&self->mutex);
    link_call(&self->link); /* there is room for another */
    return message;
}

static GstFlowReturn src_create(GstPushSrc *base, GstBuffer **buffer_p)
{
    TensormsgSrc *self = (TensormsgSrc *)base;
    GstFlowReturn result = GST_FLOW_CUSTOM_SUCCESS;

    while (result == GST_FLOW_CUSTOM_SUCCESS) {
        tmsg_message_t *message = next(self);

        result =
            message == NULL ? GST_FLOW_FLUSHING : wrap(self, message, buffer_p);
    }
    return result;
}

static void src_set(GObject *object, guint id, const GValue *value,
                    GParamSpec *spec)
{
    TensormsgSrc *self = (TensormsgSrc *)object;

    (void)id;
    (void)spec;
    g_free(self->uri);
    self->uri = g_value_dup_string(value);
}

static void src_get(GObject *object, guint id, GValue *value, GParamSpec *spec)
{
    (void)id;
    (void)spec;
    g_value_set_string(value, ((TensormsgSrc *)object)->url);
}

static void src_finalize(GObject *object)
{
    g_free(((TensormsgSrc *)object)->uri);
    g_free(((TensormsgSrc *)object)->url);
    g_mutex_clear(&((TensormsgSrc *)object)->mutex);
    g_cond_clear(&((TensormsgSrc *)object)->cond);
    G_OBJECT_CLASS(tensormsg_src_parent_class)->finalize(object);
}

static void tensormsg_src_class_init(TensormsgSrcClass *class)
{
    GstBaseSrcClass *base = GST_BASE_SRC_CLASS(class);

    G_OBJECT_CLASS(class)->set_property = src_set;
    G_OBJECT_CLASS(class)->get_property = src_get;
    G_OBJECT_CLASS(class)->finalize = src_finalize;
    g_object_class_install_property(G_OBJECT_CLASS(class), PROP_URI,
                                    uri_property());
    g_object_class_install_property(
        G_OBJECT_CLASS(class), PROP_URL,
        g_param_spec_string("url", "URL", "Where it listens, once it is PAUSED",
                            NULL, G_PARAM_READABLE | G_PARAM_STATIC_STRINGS));
    gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(class),
                                              &src_template);
    gst_element_class_set_static_metadata(
        GST_ELEMENT_CLASS(class), "tensormsg source", "Source/Network",
        "Gives out maps as buffers", "libtensormsg");
    base->start = src_start;
    base->stop = src_stop;
    base->unlock = src_unlock;
    base->unlock_stop = src_unlock_stop;
    class->create = src_create;
}

static void tensormsg_src_init(TensormsgSrc *self)
{
    self->uri = g_strdup("tcp://127.0.0.1:9000");
    g_mutex_init(&self->mutex);
    g_cond_init(&self->cond);
    g_queue_init(&self->ready);
    gst_base_src_set_live(GST_BASE_SRC(self), TRUE);
    gst_base_src_set_format(GST_BASE_SRC(self), GST_FORMAT_TIME);
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
