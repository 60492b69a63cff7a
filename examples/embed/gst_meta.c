/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_meta.c - a buffer's timestamps, flags and GstMetas as metadata of a
 * message, and back:
 *
 *   gst.pts, gst.dts, gst.duration   i64, nanoseconds; absent: none
 *   gst.offset, gst.offset_end       i64; absent: none
 *   gst.flags                        i64, GstBufferFlags
 *   gst.meta.0, gst.meta.1, ...      string, a GstStructure named as the
 * GstMeta
 *
 * A custom meta arrives if the receiving process has registered its name, too
 * (gst_meta_register_custom()). gst_planes.c has GstVideoMeta. */
#include <string.h>

#include "gst_tensormsg.h"

/* These flags mean nothing in another process. */
#define LOCAL_FLAGS                                                            \
    ((GST_MINI_OBJECT_FLAG_LAST - 1) | (guint)GST_BUFFER_FLAG_TAG_MEMORY)

/* ---- each kind */

static GstStructure *write_crop(const GstMeta *meta)
{
    const GstVideoCropMeta *crop = (const GstVideoCropMeta *)meta;

    return gst_structure_new("GstVideoCropMeta", "x", G_TYPE_UINT, crop->x, "y",
                             G_TYPE_UINT, crop->y, "width", G_TYPE_UINT,
                             crop->width, "height", G_TYPE_UINT, crop->height,
                             NULL);
}

static void read_crop(GstBuffer *buffer, const GstStructure *from)
{
    GstVideoCropMeta *crop = gst_buffer_add_video_crop_meta(buffer);

    gst_structure_get(from, "x", G_TYPE_UINT, &crop->x, "y", G_TYPE_UINT,
                      &crop->y, "width", G_TYPE_UINT, &crop->width, "height",
                      G_TYPE_UINT, &crop->height, NULL);
}

static GstStructure *write_region(const GstMeta *meta)
{
    const GstVideoRegionOfInterestMeta *region =
        (const GstVideoRegionOfInterestMeta *)meta;
    GstStructure *to = gst_structure_new(
        "GstVideoRegionOfInterestMeta", "type", G_TYPE_STRING,
        g_quark_to_string(region->roi_type), "id", G_TYPE_INT, region->id,
        "parent", G_TYPE_INT, region->parent_id, "x", G_TYPE_UINT, region->x,
        "y", G_TYPE_UINT, region->y, "w", G_TYPE_UINT, region->w, "h",
        G_TYPE_UINT, region->h, NULL);
    guint count = 0;

    for (const GList *each = region->params; each != NULL; each = each->next) {
        gchar *name = g_strdup_printf("param%u", count++);

        gst_structure_set(to, name, GST_TYPE_STRUCTURE, each->data, NULL);
        g_free(name);
    }
    return to;
}

static void read_region(GstBuffer *buffer, const GstStructure *from)
{
    const gchar *type = gst_structure_get_string(from, "type");
    GstVideoRegionOfInterestMeta *region =
        gst_buffer_add_video_region_of_interest_meta(buffer, type, 0, 0, 0, 0);

    gst_structure_get(from, "id", G_TYPE_INT, &region->id, "parent", G_TYPE_INT,
                      &region->parent_id, "x", G_TYPE_UINT, &region->x, "y",
                      G_TYPE_UINT, &region->y, "w", G_TYPE_UINT, &region->w,
                      "h", G_TYPE_UINT, &region->h, NULL);
    for (guint i = 0;; i++) {
        gchar *name = g_strdup_printf("param%u", i);
        GstStructure *param = NULL;
        gboolean found =
            gst_structure_get(from, name, GST_TYPE_STRUCTURE, &param, NULL);

        g_free(name);
        if (!found) {
            return;
        }
        gst_video_region_of_interest_meta_add_param(region, param);
    }
}

static GstStructure *write_time_code(const GstMeta *meta)
{
    const GstVideoTimeCode *code = &((const GstVideoTimeCodeMeta *)meta)->tc;
    GstStructure *to = gst_structure_new(
        "GstVideoTimeCodeMeta", "fps", GST_TYPE_FRACTION,
        (gint)code->config.fps_n, (gint)code->config.fps_d, "flags",
        G_TYPE_UINT, (guint)code->config.flags, "hours", G_TYPE_UINT,
        code->hours, "minutes", G_TYPE_UINT, code->minutes, "seconds",
        G_TYPE_UINT, code->seconds, "frames", G_TYPE_UINT, code->frames,
        "field-count", G_TYPE_UINT, code->field_count, NULL);

    if (code->config.latest_daily_jam != NULL) {
        gst_structure_set(to, "jam", G_TYPE_DATE_TIME,
                          code->config.latest_daily_jam, NULL);
    }
    return to;
}

static void read_time_code(GstBuffer *buffer, const GstStructure *from)
{
    guint flags = 0, h = 0, m = 0, s = 0, f = 0, fields = 0;
    gint n = 0, d = 0;
    GDateTime *jam = NULL;

    gst_structure_get(from, "jam", G_TYPE_DATE_TIME, &jam, NULL);
    if (gst_structure_get(from, "fps", GST_TYPE_FRACTION, &n, &d, "flags",
                          G_TYPE_UINT, &flags, "hours", G_TYPE_UINT, &h,
                          "minutes", G_TYPE_UINT, &m, "seconds", G_TYPE_UINT,
                          &s, "frames", G_TYPE_UINT, &f, "field-count",
                          G_TYPE_UINT, &fields, NULL)) {
        gst_buffer_add_video_time_code_meta_full(
            buffer, (guint)n, (guint)d, jam, flags, h, m, s, f, fields);
    }
    g_clear_pointer(&jam, g_date_time_unref);
}

static GstStructure *write_caption(const GstMeta *meta)
{
    const GstVideoCaptionMeta *caption = (const GstVideoCaptionMeta *)meta;
    GstBuffer *data = gst_buffer_new_memdup(caption->data, caption->size);
    GstStructure *to = gst_structure_new(
        "GstVideoCaptionMeta", "type", G_TYPE_INT, (gint)caption->caption_type,
        "data", GST_TYPE_BUFFER, data, NULL);

    gst_buffer_unref(data);
    return to;
}

static void read_caption(GstBuffer *buffer, const GstStructure *from)
{
    GstBuffer *data = NULL;
    gint type = 0;
    GstMapInfo info;

    if (gst_structure_get(from, "type", G_TYPE_INT, &type, "data",
                          GST_TYPE_BUFFER, &data, NULL) &&
        gst_buffer_map(data, &info, GST_MAP_READ)) {
        gst_buffer_add_video_caption_meta(buffer, (GstVideoCaptionType)type,
                                          info.data, info.size);
        gst_buffer_unmap(data, &info);
    }
    gst_clear_buffer(&data);
}

static GstStructure *write_reference(const GstMeta *meta)
{
    const GstReferenceTimestampMeta *time =
        (const GstReferenceTimestampMeta *)meta;

    return gst_structure_new("GstReferenceTimestampMeta", "reference",
                             GST_TYPE_CAPS, time->reference, "timestamp",
                             G_TYPE_UINT64, time->timestamp, "duration",
                             G_TYPE_UINT64, time->duration, NULL);
}

static void read_reference(GstBuffer *buffer, const GstStructure *from)
{
    guint64 timestamp = 0, duration = 0;
    GstCaps *reference = NULL;

    if (gst_structure_get(from, "reference", GST_TYPE_CAPS, &reference,
                          "timestamp", G_TYPE_UINT64, &timestamp, "duration",
                          G_TYPE_UINT64, &duration, NULL)) {
        gst_buffer_add_reference_timestamp_meta(buffer, reference, timestamp,
                                                duration);
    }
    gst_clear_caps(&reference);
}

typedef void reader_t(GstBuffer *buffer, const GstStructure *from);

static const struct {
    const gchar *name;
    GType (*api)(void);
    GstStructure *(*write)(const GstMeta *meta);
    reader_t *read;
} kinds[] = {
    {"GstVideoCropMeta", gst_video_crop_meta_api_get_type, write_crop,
     read_crop},
    {"GstVideoRegionOfInterestMeta",
     gst_video_region_of_interest_meta_api_get_type, write_region, read_region},
    {"GstVideoTimeCodeMeta", gst_video_time_code_meta_api_get_type,
     write_time_code, read_time_code},
    {"GstVideoCaptionMeta", gst_video_caption_meta_api_get_type, write_caption,
     read_caption},
    {"GstReferenceTimestampMeta", gst_reference_timestamp_meta_api_get_type,
     write_reference, read_reference},
};

/* ---- all of them */

static gboolean has_tag(GType api, const gchar *tag)
{
    return gst_meta_api_type_has_tag(api, g_quark_from_string(tag));
}

/* NULL: the meta does not travel. Metas that describe the memory of this
 * process (GstParentBufferMeta, ...) are left out silently. */
static GstStructure *write_any(GstBuffer *buffer, GstMeta *meta)
{
    const GType api = meta->info->api;

    for (gsize i = 0; i < G_N_ELEMENTS(kinds); i++) {
        if (api == kinds[i].api()) {
            return kinds[i].write(meta);
        }
    }
    if (gst_meta_info_is_custom(meta->info)) {
        return gst_structure_copy(
            gst_custom_meta_get_structure((GstCustomMeta *)meta));
    }
    if (!has_tag(api, "memory") && !has_tag(api, "memory-reference")) {
        GST_WARNING("%" GST_PTR_FORMAT " loses its %s", buffer,
                    g_type_name(meta->info->type));
    }
    return NULL;
}

static tmsg_status_t add_metas(tmsg_map_t *map, GstBuffer *buffer)
{
    tmsg_status_t status = TMSG_OK;
    gpointer state = NULL;
    guint count = 0;
    GstMeta *meta;

    while (status == TMSG_OK &&
           (meta = gst_buffer_iterate_meta(buffer, &state)) != NULL) {
        GstStructure *structure = write_any(buffer, meta);

        if (structure != NULL) {
            gchar *key = g_strdup_printf(KEY_META, count);
            gchar *text = gst_structure_to_string(structure);
            gchar *error = text_check(key, text);

            if (error == NULL) {
                count++;
                status = tmsg_map_set_string(map, key, text);
            } else {
                GST_WARNING("%" GST_PTR_FORMAT " loses its %s: %s", buffer,
                            gst_structure_get_name(structure), error);
            }
            g_free(error);
            g_free(text);
            g_free(key);
            gst_structure_free(structure);
        }
    }
    return status;
}

static tmsg_status_t add_number(tmsg_map_t *map, const char *key, guint64 value)
{
    G_STATIC_ASSERT(GST_CLOCK_TIME_NONE == GST_BUFFER_OFFSET_NONE);
    if (value == GST_CLOCK_TIME_NONE) {
        return TMSG_OK;
    }
    return tmsg_map_set_i64(map, key, (int64_t)value);
}

tmsg_status_t meta_add(tmsg_map_t *map, GstBuffer *buffer)
{
    const guint flags = GST_BUFFER_FLAGS(buffer) & ~LOCAL_FLAGS;
    const struct {
        const char *key;
        guint64 value;
    } numbers[] = {{"gst.pts", GST_BUFFER_PTS(buffer)},
                   {"gst.dts", GST_BUFFER_DTS(buffer)},
                   {"gst.duration", GST_BUFFER_DURATION(buffer)},
                   {"gst.offset", GST_BUFFER_OFFSET(buffer)},
                   {"gst.offset_end", GST_BUFFER_OFFSET_END(buffer)},
                   {"gst.flags", flags}};
    tmsg_status_t status = TMSG_OK;

    for (gsize i = 0; status == TMSG_OK && i < G_N_ELEMENTS(numbers); i++) {
        status = add_number(map, numbers[i].key, numbers[i].value);
    }
    return status == TMSG_OK ? add_metas(map, buffer) : status;
}

static gboolean set_field(GQuark field, const GValue *value, gpointer to)
{
    gst_structure_id_set_value(to, field, value);
    return TRUE;
}

static void read_custom(GstBuffer *buffer, const GstStructure *from)
{
    const gchar *name = gst_structure_get_name(from);

    gst_structure_foreach(from, set_field,
                          gst_custom_meta_get_structure(
                              gst_buffer_add_custom_meta(buffer, name)));
}

/* What reads a meta of that name, or NULL. */
static reader_t *find_reader(const gchar *name)
{
    const GstMetaInfo *info;

    for (gsize i = 0; i < G_N_ELEMENTS(kinds); i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            return kinds[i].read;
        }
    }
    info = gst_meta_get_info(name);
    return info != NULL && gst_meta_info_is_custom(info) ? read_custom : NULL;
}

/* Text of an unknown name is not parsed. */
static void take_meta(GstBuffer *buffer, const char *text)
{
    gchar *name = g_strstrip(g_strndup(text, strcspn(text, ",;")));
    reader_t *reader = find_reader(name);
    GstStructure *structure = NULL;

    if (reader == NULL) {
        GST_WARNING("no custom meta %s is registered here", name);
    } else {
        structure = gst_structure_from_string(text, NULL);
    }
    if (structure != NULL && gst_structure_has_name(structure, name)) {
        reader(buffer, structure);
    }
    g_clear_pointer(&structure, gst_structure_free);
    g_free(name);
}

void meta_take(const tmsg_map_t *map, GstBuffer *buffer)
{
    const struct {
        const char *key;
        guint64 *value_p;
    } numbers[] = {{"gst.pts", &GST_BUFFER_PTS(buffer)},
                   {"gst.dts", &GST_BUFFER_DTS(buffer)},
                   {"gst.duration", &GST_BUFFER_DURATION(buffer)},
                   {"gst.offset", &GST_BUFFER_OFFSET(buffer)},
                   {"gst.offset_end", &GST_BUFFER_OFFSET_END(buffer)}};
    int64_t value;

    for (gsize i = 0; i < G_N_ELEMENTS(numbers); i++) {
        if (tmsg_map_get_i64(map, numbers[i].key, &value) == TMSG_OK) {
            *numbers[i].value_p = (guint64)value;
        }
    }
    if (tmsg_map_get_i64(map, "gst.flags", &value) == TMSG_OK) {
        GST_BUFFER_FLAG_SET(buffer, (guint)value & ~LOCAL_FLAGS);
    }
    for (guint i = 0;; i++) {
        gchar *key = g_strdup_printf(KEY_META, i);
        const char *text;
        gboolean found = tmsg_map_get_string(map, key, &text) == TMSG_OK;

        g_free(key);
        if (!found) {
            return;
        }
        take_meta(buffer, text);
    }
}
