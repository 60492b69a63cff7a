/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_pattern.c - frames of raw video whose every byte is known. */
#include <string.h>

#include "gst_pattern.h"

const guint8 *row_of(guint plane, gint y)
{
    static guint8 wave[1 << 15];

    if (wave[1] == 0) {
        for (guint i = 0; i < sizeof(wave); i++) {
            wave[i] = (guint8)(i * 7);
        }
    }
    return &wave[(plane * 91 + (guint)y * 13 + 1) * 183 % 256]; /* 1 / 7 */
}

void caps_of(const frame_t *frame, GstVideoInfo *info)
{
    gst_video_info_set_interlaced_format(
        info, gst_video_format_from_string(frame->format),
        frame->how & FIELDS ? GST_VIDEO_INTERLACE_MODE_ALTERNATE
                            : GST_VIDEO_INTERLACE_MODE_PROGRESSIVE,
        (guint)frame->width, (guint)frame->height);
    info->fps_n = 30;
    info->fps_d = 1;
}

/* Bytes of the pixels of a row, and rows. */
static void extent(const GstVideoInfo *info, guint plane, gint *bytes,
                   gint *rows)
{
    *bytes = *rows = 0;
    for (guint c = 0; c < GST_VIDEO_INFO_N_COMPONENTS(info); c++) {
        if (GST_VIDEO_INFO_COMP_PLANE(info, c) == plane) {
            *bytes = MAX(*bytes, GST_VIDEO_INFO_COMP_WIDTH(info, c) *
                                     GST_VIDEO_INFO_COMP_PSTRIDE(info, c));
            *rows = MAX(*rows, GST_VIDEO_INFO_COMP_HEIGHT(info, c));
        }
    }
    if (*bytes == 0) {
        GstVideoInfo tight;

        gst_video_info_set_format(&tight, GST_VIDEO_INFO_FORMAT(info),
                                  (guint)info->width, (guint)info->height);
        *bytes = tight.stride[plane];
    }
}

static void fill(GstBuffer *buffer, const GstVideoInfo *info)
{
    GstVideoFrame frame;

    if (!gst_video_frame_map(&frame, info, buffer, GST_MAP_WRITE)) {
        g_error("no frame");
    }
    for (guint p = 0; p < GST_VIDEO_INFO_N_PLANES(info); p++) {
        guint8 *data = frame.data[p];
        gint bytes, rows;

        extent(&frame.info, p, &bytes, &rows);
        for (gint y = 0; y < rows; y++) {
            memcpy(data + y * frame.info.stride[p], row_of(p, y), (gsize)bytes);
        }
    }
    gst_video_frame_unmap(&frame);
}

GstBuffer *make_frame(const frame_t *about, GstVideoInfo *info)
{
    gsize offset[GST_VIDEO_MAX_PLANES] = {0}, at = 0;
    gint stride[GST_VIDEO_MAX_PLANES] = {0};
    GstBuffer *buffer = gst_buffer_new();
    GstVideoInfo full;

    caps_of(about, info);
    full = *info;
    full.width += about->how & LARGER ? 2 : 0;
    full.height += about->how & LARGER ? 8 : 0;
    for (guint p = 0; p < GST_VIDEO_INFO_N_PLANES(info); p++) {
        gint bytes, rows;

        extent(&full, p, &bytes, &rows);
        stride[p] = info->stride[p] + about->pad;
        stride[p] = MAX(bytes, stride[p]);
        offset[p] = about->how & META ? at : info->offset[p];
        at = offset[p] + (gsize)stride[p] * (gsize)(rows + about->rows);
        if (about->how & APART) {
            gst_buffer_append_memory(
                buffer, gst_allocator_alloc(NULL, at - offset[p], NULL));
        }
    }
    if ((about->how & APART) == 0) {
        at = about->how & META ? at : info->size;
        gst_buffer_append_memory(buffer, gst_allocator_alloc(NULL, at, NULL));
    }
    gst_buffer_memset(buffer, 0, 0x5A, at);
    if (about->how & META) {
        gst_buffer_add_video_meta_full(
            buffer, GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_INFO_FORMAT(info),
            (guint)full.width, (guint)full.height,
            GST_VIDEO_INFO_N_PLANES(info), offset, stride);
    }
    fill(buffer, info);
    return buffer;
}

gint64 count_wrong(GstBuffer *buffer, const GstVideoInfo *info)
{
    GstVideoFrame frame;
    gint64 wrong = 0;

    if (!gst_video_frame_map(&frame, info, buffer, GST_MAP_READ)) {
        return -1;
    }
    for (guint p = 0; p < GST_VIDEO_INFO_N_PLANES(info); p++) {
        const guint8 *data = frame.data[p];
        gint bytes, rows;

        extent(info, p, &bytes, &rows);
        for (gint y = 0; y < rows; y++, data += frame.info.stride[p]) {
            if (memcmp(data, row_of(p, y), (gsize)bytes) != 0) {
                for (gint i = 0; i < bytes; i++) {
                    wrong += data[i] != row_of(p, y)[i];
                }
            }
        }
    }
    gst_video_frame_unmap(&frame);
    return wrong;
}
