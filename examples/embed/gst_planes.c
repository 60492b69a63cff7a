/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_planes.c - a frame of raw video as tensors "plane0", "plane1", ..., and
 * back. gst_video_frame_map() finds the planes, whatever their strides, offsets
 * and memories are. The library packs padded rows on the way, so that a plane
 * arrives as an array of height x width x samples a pixel; the last dimension
 * is left out where it is 1:
 *
 *   RGB           plane0 [h, w, 3]            uint8
 *   GRAY16_LE     plane0 [h, w]               uint16
 *   YUY2          plane0 [h, even w, 2]       uint8
 *   I420          plane0 [h, w], plane1 and plane2 [h / 2, w / 2], rounded up
 *   NV12, P010    plane0 [h, w], plane1 [h / 2, w / 2, 2]; P010 is uint16
 *   v210          plane0 [h, bytes a row]     uint8: a pixel is no whole bytes
 *
 * Big-endian samples, and pixels packed into words (RGB16, RGB10A2_LE), travel
 * as uint8, too. The size, id and flags of a GstVideoMeta travel as metadata:
 * gst.width, gst.height, gst.view and gst.frame_flags, all i64. */
#include <string.h>

#include "gst_tensormsg.h"

#define KEY_WIDTH "gst.width"
#define KEY_HEIGHT "gst.height"
#define KEY_VIEW "gst.view"
#define KEY_FLAGS "gst.frame_flags"

typedef struct {
    gint rows;
    gint row_bytes;    /* without padding */
    gint pixel_bytes;  /* 0: a pixel is no whole bytes */
    gint sample_bytes; /* 1 or 2 */
} plane_t;

/* The bytes of a row whose pixels are no whole bytes. */
static gint default_stride(const GstVideoInfo *info, guint plane)
{
    GstVideoInfo tight;

    gst_video_info_set_format(&tight, GST_VIDEO_INFO_FORMAT(info),
                              (guint)GST_VIDEO_INFO_WIDTH(info),
                              (guint)GST_VIDEO_INFO_HEIGHT(info));
    return GST_VIDEO_INFO_PLANE_STRIDE(&tight, plane);
}

static plane_t measure(const GstVideoInfo *info, guint plane)
{
    plane_t result = {0, 0, G_MAXINT, 1};
    gint components[GST_VIDEO_MAX_COMPONENTS], widest = 0, samples = 0;

    gst_video_format_info_component(info->finfo, plane, components);
    for (gint i = 0; i < GST_VIDEO_MAX_COMPONENTS && components[i] >= 0; i++) {
        gint c = components[i], bytes = GST_VIDEO_INFO_COMP_PSTRIDE(info, c);

        result.rows = MAX(result.rows, GST_VIDEO_INFO_COMP_HEIGHT(info, c));
        result.row_bytes =
            MAX(result.row_bytes, GST_VIDEO_INFO_COMP_WIDTH(info, c) * bytes);
        result.pixel_bytes = MIN(result.pixel_bytes, bytes);
        widest = MAX(widest, bytes);
        if (GST_VIDEO_INFO_COMP_DEPTH(info, c) > 8) {
            result.sample_bytes = 2;
        }
    }
    if (result.pixel_bytes == 0) {
        result.row_bytes = default_stride(info, plane);
        result.sample_bytes = 1;
        return result;
    }
    for (gint i = 0; i < GST_VIDEO_MAX_COMPONENTS && components[i] >= 0; i++) {
        samples += widest / GST_VIDEO_INFO_COMP_PSTRIDE(info, components[i]);
    }
    if (samples * result.sample_bytes > widest ||
        g_str_has_suffix(GST_VIDEO_INFO_NAME(info), "BE")) {
        result.sample_bytes = 1; /* words, or another byte order */
    }
    return result;
}

/* ---- to a map */

static void give_back(void *arg)
{
    gst_video_frame_unmap(arg);
    g_free(arg);
}

/* The first plane's tensor owns the frame: all planes leave the map together.
 */
static gchar *add_plane(tmsg_map_t *map, GstVideoFrame *frame, guint plane,
                        const plane_t *size)
{
    const tmsg_map_add_params_t first = {.field_mask =
                                             TMSG_MAP_ADD_PARAM_RELEASE,
                                         .release = give_back,
                                         .release_arg = frame};
    const gint stride = GST_VIDEO_FRAME_PLANE_STRIDE(frame, plane);
    const gint sample =
        stride % size->sample_bytes == 0 ? size->sample_bytes : 1;
    const gint pixel = size->pixel_bytes == 0 ? 1 : size->pixel_bytes;
    const int64_t shape[] = {size->rows, size->row_bytes / pixel,
                             pixel / sample};
    const int64_t strides[] = {stride / sample, shape[2], 1};
    const tmsg_tensor_t tensor = {
        .data = GST_VIDEO_FRAME_PLANE_DATA(frame, plane),
        .device = {TMSG_DEVICE_CPU, 0},
        .dtype = {TMSG_DTYPE_UINT, (uint8_t)(8 * sample), 1},
        .ndim = shape[2] == 1 ? 2 : 3,
        .shape = shape,
        .strides = strides};
    gchar *name = g_strdup_printf("plane%u", plane), *error = NULL;

    if (tmsg_map_add(map, name, &tensor, plane == 0 ? &first : NULL) !=
        TMSG_OK) {
        error = g_strdup(tmsg_error_message());
    }
    g_free(name);
    return error;
}

/* gst_video_frame_map() looks at the first byte of each plane only. */
static gchar *check_plane(const GstVideoFrame *frame, guint plane,
                          const plane_t *size)
{
    const gint stride = GST_VIDEO_FRAME_PLANE_STRIDE(frame, plane);
    const GstMapInfo *map = &frame->map[plane];
    const guint8 *data = GST_VIDEO_FRAME_PLANE_DATA(frame, plane);
    gsize bytes =
        (gsize)(size->rows - 1) * (gsize)stride + (gsize)size->row_bytes;

    if (stride < size->row_bytes) {
        return g_strdup_printf("plane %u has rows of %d bytes %d bytes apart",
                               plane, size->row_bytes, stride);
    }
    if (frame->meta != NULL && map->data != NULL &&
        (gsize)(data - map->data) + bytes > map->size) {
        return g_strdup_printf("plane %u ends outside of its memory", plane);
    }
    return NULL;
}

static gchar *check_meta(const GstVideoInfo *info, GstBuffer *buffer)
{
    const GstVideoMeta *meta = gst_buffer_get_video_meta(buffer);

    if (gst_buffer_get_n_meta(buffer, GST_VIDEO_META_API_TYPE) > 1) {
        return g_strdup("a buffer with several GstVideoMeta, views of their "
                        "own, cannot be sent");
    }
    if (meta != NULL && (meta->format != GST_VIDEO_INFO_FORMAT(info) ||
                         meta->n_planes != GST_VIDEO_INFO_N_PLANES(info) ||
                         meta->width < (guint)GST_VIDEO_INFO_WIDTH(info) ||
                         meta->height < (guint)GST_VIDEO_INFO_HEIGHT(info))) {
        return g_strdup_printf(
            "a GstVideoMeta of %s %ux%u is not of caps of %s %dx%d",
            gst_video_format_to_string(meta->format), meta->width, meta->height,
            GST_VIDEO_INFO_NAME(info), GST_VIDEO_INFO_WIDTH(info),
            GST_VIDEO_INFO_HEIGHT(info));
    }
    return NULL;
}

static gchar *add_video_meta(tmsg_map_t *map, const GstVideoMeta *meta)
{
    if (meta == NULL ||
        (tmsg_map_set_i64(map, KEY_WIDTH, meta->width) == TMSG_OK &&
         tmsg_map_set_i64(map, KEY_HEIGHT, meta->height) == TMSG_OK &&
         tmsg_map_set_i64(map, KEY_VIEW, meta->id) == TMSG_OK &&
         tmsg_map_set_i64(map, KEY_FLAGS, meta->flags) == TMSG_OK)) {
        return NULL;
    }
    return g_strdup(tmsg_error_message());
}

gchar *planes_add(tmsg_map_t *map, const GstVideoInfo *info, GstBuffer *buffer)
{
    gchar *error = check_meta(info, buffer);
    GstVideoFrame *frame;

    if (error != NULL) {
        return error;
    }
    frame = g_new0(GstVideoFrame, 1);
    if (!gst_video_frame_map(frame, info, buffer, GST_MAP_READ)) {
        g_free(frame);
        return g_strdup_printf(
            "a buffer of %" G_GSIZE_FORMAT " bytes is no frame of %s %dx%d",
            gst_buffer_get_size(buffer), GST_VIDEO_INFO_NAME(info),
            GST_VIDEO_INFO_WIDTH(info), GST_VIDEO_INFO_HEIGHT(info));
    }
    for (guint i = 0; error == NULL && i < GST_VIDEO_FRAME_N_PLANES(frame);
         i++) {
        const plane_t size = measure(&frame->info, i);

        error = check_plane(frame, i, &size);
        if (error == NULL) {
            error = add_plane(map, frame, i, &size);
        }
        if (error != NULL && i == 0) {
            give_back(frame); /* later, the map owns it */
        }
    }
    return error != NULL
               ? error
               : add_video_meta(map, gst_buffer_get_video_meta(buffer));
}

/* ---- from a map */

static void destroy_message(gpointer held)
{
    tmsg_message_destroy(*(tmsg_message_t **)held);
}

void let_go(gpointer held)
{
    g_atomic_rc_box_release_full(held, destroy_message);
}

gchar *tensor_memory(const tmsg_tensor_t *tensor, tmsg_message_t **held,
                     GstMemory **memory_p)
{
    uint64_t bytes = 0;
    GstMapInfo info;

    if (tmsg_tensor_bytes(tensor, &bytes) != TMSG_OK) {
        return g_strdup(tmsg_error_message());
    }
    if (tensor->device.type != TMSG_DEVICE_CPU) {
        return g_strdup("a tensor in the memory of a device");
    }
    if (bytes > 0 && tmsg_tensor_is_contiguous(tensor)) {
        *memory_p = gst_memory_new_wrapped(
            GST_MEMORY_FLAG_READONLY, tensor->data, bytes, 0, bytes,
            g_atomic_rc_box_acquire(held), let_go);
        return NULL;
    }
    *memory_p = gst_allocator_alloc(NULL, bytes, NULL);
    if (*memory_p == NULL || !gst_memory_map(*memory_p, &info, GST_MAP_WRITE)) {
        g_clear_pointer(memory_p, gst_memory_unref);
        return g_strdup("no memory");
    }
    if (tmsg_tensor_pack(tensor, info.data) != TMSG_OK) {
        gst_memory_unmap(*memory_p, &info);
        g_clear_pointer(memory_p, gst_memory_unref);
        return g_strdup(tmsg_error_message());
    }
    gst_memory_unmap(*memory_p, &info);
    return NULL;
}

/* The frame may be larger than its caps. */
static gchar *read_size(const tmsg_map_t *map, const GstVideoInfo *info,
                        GstVideoInfo *full)
{
    int64_t width = GST_VIDEO_INFO_WIDTH(info);
    int64_t height = GST_VIDEO_INFO_HEIGHT(info);

    (void)tmsg_map_get_i64(map, KEY_WIDTH, &width);
    (void)tmsg_map_get_i64(map, KEY_HEIGHT, &height);
    if (width < GST_VIDEO_INFO_WIDTH(info) || width > MOST_PIXELS ||
        height < GST_VIDEO_INFO_HEIGHT(info) || height > MOST_PIXELS ||
        !gst_video_info_set_interlaced_format(
            full, GST_VIDEO_INFO_FORMAT(info),
            GST_VIDEO_INFO_INTERLACE_MODE(info), (guint)width, (guint)height)) {
        return g_strdup_printf("a frame of %" G_GINT64_FORMAT
                               "x%" G_GINT64_FORMAT " in caps of %dx%d",
                               width, height, GST_VIDEO_INFO_WIDTH(info),
                               GST_VIDEO_INFO_HEIGHT(info));
    }
    return NULL;
}

/* Takes any shape and dtype with the plane's rows and bytes a row. */
static gchar *take_plane(const tmsg_map_t *map, guint plane,
                         const plane_t *size, tmsg_message_t **held,
                         GstBuffer *buffer)
{
    gchar *name = g_strdup_printf("plane%u", plane), *error = NULL;
    tmsg_tensor_t tensor;
    uint64_t bytes = 0;
    GstMemory *memory;

    if (tmsg_map_find(map, name, &tensor) != TMSG_OK ||
        tmsg_tensor_bytes(&tensor, &bytes) != TMSG_OK) {
        error = g_strdup_printf("no tensor '%s'", name);
    } else if (tensor.ndim == 0 || tensor.shape[0] != size->rows ||
               bytes != (uint64_t)size->rows * (uint64_t)size->row_bytes) {
        error = g_strdup_printf(
            "tensor '%s' has %" G_GUINT64_FORMAT " bytes, not %d rows of %d",
            name, (guint64)bytes, size->rows, size->row_bytes);
    } else {
        error = tensor_memory(&tensor, held, &memory);
    }
    if (error == NULL) {
        gst_buffer_append_memory(buffer, memory);
    }
    g_free(name);
    return error;
}

gchar *planes_take(const tmsg_map_t *map, const GstVideoInfo *info,
                   tmsg_message_t **held, GstBuffer **buffer_p)
{
    GstBuffer *buffer = gst_buffer_new();
    gint stride[GST_VIDEO_MAX_PLANES] = {0};
    gsize offset[GST_VIDEO_MAX_PLANES] = {0};
    int64_t flags = 0, view = 0;
    GstVideoInfo full;
    gchar *error = read_size(map, info, &full);

    for (guint i = 0; error == NULL && i < GST_VIDEO_INFO_N_PLANES(info); i++) {
        const plane_t size = measure(&full, i);

        offset[i] = gst_buffer_get_size(buffer);
        stride[i] = size.row_bytes;
        error = take_plane(map, i, &size, held, buffer);
    }
    if (error != NULL) {
        gst_buffer_unref(buffer);
        return error;
    }
    (void)tmsg_map_get_i64(map, KEY_FLAGS, &flags);
    (void)tmsg_map_get_i64(map, KEY_VIEW, &view);
    gst_buffer_add_video_meta_full(
        buffer, (GstVideoFrameFlags)flags, GST_VIDEO_INFO_FORMAT(info),
        (guint)GST_VIDEO_INFO_WIDTH(&full), (guint)GST_VIDEO_INFO_HEIGHT(&full),
        GST_VIDEO_INFO_N_PLANES(info), offset, stride)
        ->id = (gint)view;
    *buffer_p = buffer;
    return NULL;
}

static gboolean is_default(const GstVideoMeta *meta, const GstVideoInfo *info)
{
    gboolean same = meta->width == (guint)GST_VIDEO_INFO_WIDTH(info) &&
                    meta->height == (guint)GST_VIDEO_INFO_HEIGHT(info) &&
                    gst_buffer_get_size(meta->buffer) == info->size;

    for (guint i = 0; i < meta->n_planes; i++) {
        same = same && meta->offset[i] == info->offset[i] &&
               meta->stride[i] == info->stride[i];
    }
    return same;
}

/* Takes the first rows and columns of a frame that is larger than its caps. */
gchar *planes_plain(GstBuffer *buffer, const GstVideoInfo *info,
                    GstBuffer **copy_p)
{
    const GstVideoMeta *meta = gst_buffer_get_video_meta(buffer);
    const GstVideoCropMeta *crop = gst_buffer_get_video_crop_meta(buffer);
    GstVideoInfo layout = *info;
    GstVideoFrame from, to;
    GstBuffer *copy;

    if (is_default(meta, info)) {
        return NULL;
    }
    if (crop != NULL && (crop->x != 0 || crop->y != 0)) {
        return g_strdup("a frame with a GstVideoCropMeta, for an element that "
                        "takes no GstVideoMeta");
    }
    copy = gst_buffer_new_allocate(NULL, info->size, NULL);
    if (copy == NULL ||
        !gst_video_frame_map(&from, info, buffer, GST_MAP_READ)) {
        gst_clear_buffer(&copy);
        return g_strdup("no memory");
    }
    gst_buffer_memset(copy, 0, 0, info->size); /* the padding */
    gst_buffer_add_video_meta_full(copy, meta->flags, meta->format,
                                   (guint)GST_VIDEO_INFO_WIDTH(info),
                                   (guint)GST_VIDEO_INFO_HEIGHT(info),
                                   meta->n_planes, layout.offset, layout.stride)
        ->id = meta->id;
    gst_video_frame_map(&to, info, copy, GST_MAP_WRITE);
    gst_video_frame_copy(&to, &from);
    gst_video_frame_unmap(&to);
    gst_video_frame_unmap(&from);
    *copy_p = copy;
    return NULL;
}
