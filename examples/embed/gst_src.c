/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_src.c - tensormsgsrc: messages to buffers. */
#include <gst/base/gstpushsrc.h>
#include <stddef.h>

#include "gst_tensormsg.h"

enum { PROP_URI = 1, PROP_URL };

static GstStaticPadTemplate src_template = GST_STATIC_PAD_TEMPLATE(
    "src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);

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
