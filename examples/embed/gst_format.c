/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_format.c - reads caps. It refuses caps whose buffers would not arrive as
 * they were sent. */
#include <string.h>

#include "gst_tensormsg.h"

/* The sink reads buffers by the CPU, and they arrive in memory of the CPU. A
 * feature "meta:..." promises a GstMeta that gst_meta.c does not send. */
static gchar *check_features(GstCaps *caps)
{
    const GstCapsFeatures *features = gst_caps_get_features(caps, 0);

    for (guint i = 0; i < gst_caps_features_get_size(features); i++) {
        const gchar *name = gst_caps_features_get_nth(features, i);

        if ((g_str_has_prefix(name, "memory:") &&
             strcmp(name, GST_CAPS_FEATURE_MEMORY_SYSTEM_MEMORY) != 0) ||
            g_str_has_prefix(name, "meta:")) {
            return g_strdup_printf("%s cannot be sent", name);
        }
    }
    return NULL;
}

static gchar *read_video(GstVideoInfo *info, GstCaps *caps)
{
    const gchar *why = NULL;

    if (!gst_video_info_from_caps(info, caps)) {
        return gst_info_strdup_printf("%" GST_PTR_FORMAT " is not understood",
                                      caps);
    }
    if (GST_VIDEO_FORMAT_INFO_HAS_PALETTE(info->finfo)) {
        why = "has a palette";
    } else if (GST_VIDEO_FORMAT_INFO_TILE_MODE(info->finfo) !=
               GST_VIDEO_TILE_MODE_UNKNOWN) {
        why = "lies in tiles";
    } else if (GST_VIDEO_INFO_WIDTH(info) > MOST_PIXELS ||
               GST_VIDEO_INFO_HEIGHT(info) > MOST_PIXELS) {
        why = "is too large";
    }
    return why == NULL ? NULL
                       : g_strdup_printf("%s %s and cannot be sent",
                                         GST_VIDEO_INFO_NAME(info), why);
}

gchar *format_read(format_t *format, GstCaps *caps)
{
    const GstStructure *structure;
    format_t next = {NULL};
    gchar *error;

    if (!gst_caps_is_fixed(caps)) {
        return gst_info_strdup_printf("%" GST_PTR_FORMAT " is not fixed", caps);
    }
    structure = gst_caps_get_structure(caps, 0);
    error = check_features(caps);
    next.is_video = gst_structure_has_name(structure, "video/x-raw");
    if (error == NULL && next.is_video) {
        error = read_video(&next.info, caps);
    }
    if (error == NULL &&
        g_strcmp0(gst_structure_get_string(structure, "layout"),
                  "non-interleaved") == 0) {
        error = g_strdup("non-interleaved audio cannot be sent");
    }
    if (error == NULL) {
        next.text = gst_caps_to_string(caps);
        error = text_check(KEY_CAPS, next.text);
    }
    if (error == NULL) {
        format_clear(format);
        *format = next;
    } else {
        g_free(next.text);
    }
    return error;
}

void format_clear(format_t *format)
{
    g_free(format->text);
    *format = (format_t){NULL};
}
