/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_src.c - tensormsgsrc: messages to buffers. It leaves out a message whose
 * tensors do not fit its caps, and posts a warning that says why. */
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
    format_t format;
    gchar *segment;
    gboolean takes_meta; /* downstream reads a GstVideoMeta */
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
    format_clear(&self->format);
    g_clear_pointer(&self->segment, g_free);
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

/* GstBaseSrc asks downstream after each change of caps, and after a change of
 * the elements there. */
static gboolean src_decide_allocation(GstBaseSrc *base, GstQuery *query)
{
    ((TensormsgSrc *)base)->takes_meta =
        gst_query_find_allocation_meta(query, GST_VIDEO_META_API_TYPE, NULL);
    return GST_BASE_SRC_CLASS(tensormsg_src_parent_class)
        ->decide_allocation(base, query);
}

static gchar *follow_caps(TensormsgSrc *self, const tmsg_map_t *map)
{
    GstBaseSrc *base = GST_BASE_SRC(self);
    gchar *error = NULL;
    const char *text;
    GstCaps *caps;

    if (tmsg_map_get_string(map, KEY_CAPS, &text) != TMSG_OK ||
        g_strcmp0(text, self->format.text) == 0) {
        return NULL;
    }
    caps = gst_caps_from_string(text);
    if (caps == NULL) {
        return g_strdup_printf("'%s' is no caps", text);
    }
    error = format_read(&self->format, caps);
    if (error == NULL &&
        !(gst_base_src_set_caps(base, caps) && gst_base_src_negotiate(base))) {
        error = g_strdup_printf("no element downstream takes %s", text);
        format_clear(&self->format);
    }
    gst_caps_unref(caps);
    return error;
}

static void follow_segment(TensormsgSrc *self, const tmsg_map_t *map)
{
    GValue value = G_VALUE_INIT;
    const char *text;

    if (tmsg_map_get_string(map, KEY_SEGMENT, &text) != TMSG_OK ||
        g_strcmp0(text, self->segment) == 0) {
        return;
    }
    g_free(self->segment);
    self->segment = g_strdup(text);
    g_value_init(&value, GST_TYPE_SEGMENT);
    if (gst_value_deserialize(&value, text)) {
        const GstSegment *segment = g_value_get_boxed(&value);

        if (segment->format == GST_FORMAT_TIME) {
            gst_base_src_new_segment(GST_BASE_SRC(self), segment);
        }
    }
    g_value_unset(&value);
}

static gchar *take_bytes(const tmsg_map_t *map, tmsg_message_t **held,
                         GstBuffer **buffer_p)
{
    tmsg_tensor_t tensor;
    GstMemory *memory;
    gchar *error;

    if (tmsg_map_find(map, KEY_BYTES, &tensor) != TMSG_OK) {
        return g_strdup("no tensor '" KEY_BYTES "'");
    }
    error = tensor_memory(&tensor, held, &memory);
    if (error == NULL) {
        *buffer_p = gst_buffer_new();
        gst_buffer_append_memory(*buffer_p, memory);
        meta_take(map, *buffer_p);
    }
    return error;
}

static gchar *take_frame(TensormsgSrc *self, const tmsg_map_t *map,
                         tmsg_message_t **held, GstBuffer **buffer_p)
{
    GstBuffer *buffer, *copy = NULL;
    gchar *error = planes_take(map, &self->format.info, held, &buffer);

    if (error != NULL) {
        return error;
    }
    meta_take(map, buffer);
    if (!self->takes_meta) {
        error = planes_plain(buffer, &self->format.info, &copy);
    }
    if (error != NULL || copy != NULL) {
        gst_buffer_unref(buffer);
    }
    if (copy != NULL) {
        meta_take(map, copy);
    }
    *buffer_p = copy != NULL ? copy : buffer;
    return error;
}

/* The buffer's memories are the message's; the last of them destroys it. */
static gchar *take(TensormsgSrc *self, tmsg_message_t *message,
                   GstBuffer **buffer_p)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    tmsg_message_t **held = g_atomic_rc_box_dup(sizeof(message), &message);
    gchar *error = texts_check(map);

    if (error == NULL) {
        error = follow_caps(self, map);
    }
    if (error == NULL) {
        follow_segment(self, map);
        error = self->format.is_video ? take_frame(self, map, held, buffer_p)
                                      : take_bytes(map, held, buffer_p);
    }
    let_go(held);
    return error;
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

static gboolean is_end(const tmsg_message_t *message)
{
    int end = 0;

    return tmsg_map_get_bool(tmsg_message_map(message), KEY_END, &end) ==
               TMSG_OK &&
           end;
}

static GstFlowReturn src_create(GstPushSrc *base, GstBuffer **buffer_p)
{
    TensormsgSrc *self = (TensormsgSrc *)base;
    gchar *error;

    do {
        tmsg_message_t *message = next(self);

        if (message == NULL) {
            return GST_FLOW_FLUSHING;
        }
        if (is_end(message)) {
            tmsg_message_destroy(message);
            return GST_FLOW_EOS;
        }
        error = take(self, message, buffer_p);
        if (error != NULL) {
            GST_ELEMENT_WARNING(self, RESOURCE, READ,
                                ("message left out: %s", error), (NULL));
        }
        g_free(error);
    } while (error != NULL);
    return GST_FLOW_OK;
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
    base->decide_allocation = src_decide_allocation;
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
    gst_base_src_set_automatic_eos(GST_BASE_SRC(self), FALSE);
}
