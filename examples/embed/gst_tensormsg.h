/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_tensormsg.h - what the files of the GStreamer plug-in share. A function
 * that returns gchar * returns NULL on success, else an error text, which the
 * caller frees with g_free(). */
#ifndef GST_TENSORMSG_H
#define GST_TENSORMSG_H

#include <gst/gst.h>
#include <gst/video/video.h>
#include <tensormsg/tensormsg.h>

#define QUEUE 16          /* buffers that may wait in a sink, and in a source */
#define MOST_PIXELS 65536 /* of a row, and rows */

/* Metadata keys of a message; gst_meta.c has those of a buffer. */
#define KEY_CAPS "gst.caps"
#define KEY_SEGMENT "gst.segment"
#define KEY_END "gst.eos"
#define KEY_META "gst.meta.%u"
#define KEY_BYTES "buffer" /* the tensor of what is not raw video */

GST_DEBUG_CATEGORY_EXTERN(tensormsg_debug);
#define GST_CAT_DEFAULT tensormsg_debug

/* A worker and the thread that drives it. The thread sleeps on the worker's
 * descriptor and on one by which link_call() wakes it. */
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

/* The caps of a stream; of raw video also what they say of a frame. */
typedef struct {
    gchar *text;
    gboolean is_video;
    GstVideoInfo info;
} format_t;

/* Reads caps into *format. Refuses caps whose buffers would not arrive as they
 * were sent (memory of a GPU, frames in tiles, ...) and leaves *format then. */
gchar *format_read(format_t *format, GstCaps *caps);
void format_clear(format_t *format);

/* Refuses text that GStreamer's parser would crash of, or be long with. The
 * error names the key. Both elements ask: the sink sends no text that the
 * source would refuse. */
gchar *text_check(const gchar *key, const gchar *text);
gchar *texts_check(const tmsg_map_t *map); /* all that a peer sent */

/* Adds a frame as tensors "plane0", "plane1", ... The map keeps the buffer. */
gchar *planes_add(tmsg_map_t *map, const GstVideoInfo *info, GstBuffer *buffer);

/* Makes a buffer with a GstVideoMeta of these tensors. Its memories are the
 * message's: each keeps a reference to `held`, a g_atomic_rc_box. */
gchar *planes_take(const tmsg_map_t *map, const GstVideoInfo *info,
                   tmsg_message_t **held, GstBuffer **buffer_p);

/* For elements that read no GstVideoMeta: copies the frame into the layout that
 * its caps imply. Leaves *copy_p if it is in that layout already. */
gchar *planes_plain(GstBuffer *buffer, const GstVideoInfo *info,
                    GstBuffer **copy_p);

/* The elements of a tensor in C order: the message's memory, or a copy of it if
 * they lie otherwise. */
gchar *tensor_memory(const tmsg_tensor_t *tensor, tmsg_message_t **held,
                     GstMemory **memory_p);
void let_go(gpointer held);

/* Timestamps, offsets, flags and GstMetas of a buffer. */
tmsg_status_t meta_add(tmsg_map_t *map, GstBuffer *buffer);
void meta_take(const tmsg_map_t *map, GstBuffer *buffer);

GType tensormsg_sink_get_type(void);
GType tensormsg_src_get_type(void);
GParamSpec *uri_property(void);

#endif
