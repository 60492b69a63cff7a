/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_pattern.h - frames of raw video whose every byte is known. */
#ifndef TESTS_EMBED_GST_PATTERN_H
#define TESTS_EMBED_GST_PATTERN_H

#include <gst/video/video.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

enum { META = 1, APART = 2, LARGER = 4, FIELDS = 8 };

typedef struct {
    const gchar *format;
    gint width, height;
    gint pad, rows; /* bytes after each row, rows after each plane */
    int how;        /* a GstVideoMeta; a memory a plane; a frame of 2 more
                     * columns and 8 more rows than the caps; fields, in
                     * buffers of their own */
} frame_t;

/* Byte i of row y of plane p is p * 91 + y * 13 + i * 7 + 1. */
const guint8 *row_of(guint plane, gint y);

void caps_of(const frame_t *frame, GstVideoInfo *info);

/* A buffer that lies as *about says, with its caps. Its padding is 0x5A. */
GstBuffer *make_frame(const frame_t *about, GstVideoInfo *info);

/* Bytes of pixels that are wrong; -1 if it is no frame. Of a frame that was
 * larger than its caps what the caps say counts. */
gint64 count_wrong(GstBuffer *buffer, const GstVideoInfo *info);

#endif
