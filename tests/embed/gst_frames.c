/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_frames.c - buffers from tensormsgsink to tensormsgsrc, by GstHarness: an
 * element downstream must read what an element upstream wrote, over shared
 * memory and over TCP.
 *
 *   gst_frames PLUGIN */
#include <gst/allocators/gstdmabuf.h>
#include <gst/check/gstharness.h>
#include <linux/dma-buf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gst_pattern.h"

#define CUSTOM "TensormsgTestMeta"

static int failures, checks;

#define CHECK(is_right, ...)                                                   \
    do {                                                                       \
        checks++;                                                              \
        if (!(is_right)) {                                                     \
            failures++;                                                        \
            g_printerr(__VA_ARGS__);                                           \
            g_printerr("\n");                                                  \
        }                                                                      \
    } while (0)

static const frame_t frames[] = {
    {"RGB", 641, 3, 0, 0, 0},
    {"RGB", 641, 480, 0, 0, 0},
    {"RGB", 641, 480, 0, 0, META},
    {"RGB", 641, 480, -1, 0, META}, /* tighter than the default */
    {"RGB", 641, 3, 124, 0, META},
    {"RGB", 641, 480, 124, 0, META},
    {"RGB", 640, 480, 128, 0, META},
    {"RGB", 641, 48, 0, 0, META | LARGER},
    {"I420", 641, 480, 0, 0, 0},
    {"I420", 641, 480, 60, 0, META},
    {"I420", 641, 481, 59, 1, META},
    {"I420", 640, 480, 0, 8, META},
    {"I420", 640, 480, 0, 0, META | APART},
    {"I420", 640, 480, 64, 0, META | APART},
    {"I420", 641, 480, 60, 8, META | LARGER},
    {"I420", 641, 480, 60, 0, META | FIELDS},
    {"I420", 641, 480, 0, 0, FIELDS},
    {"YV12", 31, 33, 1, 1, META},
    {"NV12", 1918, 1080, 128, 8, META},
    {"NV12", 31, 33, 1, 1, META | APART},
    {"NV21", 31, 33, 0, 0, 0},
    {"AV12", 31, 33, 3, 0, META},
    {"GRAY8", 641, 480, 0, 0, 0},
    {"GRAY8", 641, 480, 124, 0, META},
    {"GRAY16_LE", 31, 33, 6, 0, META},
    {"GRAY16_LE", 31, 33, 7, 0, META}, /* rows at odd addresses */
    {"GRAY16_BE", 31, 33, 6, 0, META},
    {"YUY2", 31, 33, 12, 0, META},
    {"UYVY", 31, 33, 0, 0, 0},
    {"P010_10LE", 31, 33, 8, 1, META},
    {"I420_10LE", 31, 33, 8, 1, META},
    {"Y210", 31, 33, 8, 0, META},
    {"v210", 31, 33, 64, 0, META},
    {"v210", 31, 33, 0, 0, 0},
    {"NV12_10LE32", 31, 34, 4, 0, META},
    {"RGB16", 31, 33, 4, 0, META},
    {"RGB10A2_LE", 31, 33, 4, 0, META},
    {"BGRx", 31, 33, 4, 0, META},
    {"GBRA", 31, 33, 4, 0, META | APART},
    {"RGBA64_LE", 31, 33, 8, 0, META},
};

/* ---- two elements */

typedef struct {
    const gchar *name;
    GstHarness *from, *to;
    GstBus *bus; /* of both elements */
    gboolean reads_meta;
} pair_t;

static GstElement *make_element(const gchar *name, GstBus *bus)
{
    GstElement *element = gst_element_factory_make(name, NULL);

    gst_element_set_bus(element, bus);
    return element;
}

static void open_pair(pair_t *pair)
{
    GstElement *sink, *src;
    gchar *url = NULL;

    pair->bus = gst_bus_new();
    src = make_element("tensormsgsrc", pair->bus);
    g_object_set(src, "uri", "tcp://127.0.0.1:0", NULL);
    pair->to = gst_harness_new_with_element(src, NULL, "src");
    if (pair->reads_meta) {
        gst_harness_add_propose_allocation_meta(pair->to,
                                                GST_VIDEO_META_API_TYPE, NULL);
    }
    gst_harness_use_systemclock(pair->to);
    gst_harness_play(pair->to);
    g_object_get(src, "url", &url, NULL);
    sink = make_element("tensormsgsink", pair->bus);
    g_object_set(sink, "uri", url, NULL);
    pair->from = gst_harness_new_with_element(sink, "sink", NULL);
    gst_object_unref(sink);
    gst_object_unref(src);
    g_free(url);
}

static void close_pair(pair_t *pair)
{
    gst_harness_teardown(pair->from);
    gst_harness_teardown(pair->to);
    gst_object_unref(pair->bus);
}

static void set_caps(pair_t *pair, const GstVideoInfo *info)
{
    gst_harness_set_src_caps(pair->from, gst_video_info_to_caps(info));
}

/* What is downstream's, or NULL after a minute. */
static GstBuffer *pass(pair_t *pair, GstBuffer *buffer)
{
    GstFlowReturn flow = gst_harness_push(pair->from, buffer);

    return flow == GST_FLOW_OK ? gst_harness_pull(pair->to) : NULL;
}

/* ---- rows */

static void check_layout(const pair_t *pair, const frame_t *about,
                         GstBuffer *got, const GstVideoInfo *info)
{
    GstVideoMeta *meta = gst_buffer_get_video_meta(got);
    gint more = about->how & LARGER && pair->reads_meta;
    gint64 wrong;

    CHECK(meta != NULL && meta->width == (guint)(about->width + 2 * more) &&
              meta->height == (guint)(about->height + 8 * more),
          "%s: %s arrives as %ux%u", pair->name, about->format,
          meta == NULL ? 0 : meta->width, meta == NULL ? 0 : meta->height);
    if (pair->reads_meta) {
        CHECK(gst_buffer_n_memory(got) == GST_VIDEO_INFO_N_PLANES(info),
              "%s: %s was copied", pair->name, about->format);
        return;
    }
    /* As one who knows no GstVideoMeta sees it. */
    got = gst_buffer_copy_region(got, GST_BUFFER_COPY_MEMORY, 0, (gsize)-1);
    wrong = count_wrong(got, info);
    CHECK(wrong == 0 && gst_buffer_get_size(got) == info->size,
          "%s: %s %dx%d pad %d without meta: %" G_GINT64_FORMAT
          " wrong, %zu bytes for %zu",
          pair->name, about->format, about->width, about->height, about->pad,
          wrong, gst_buffer_get_size(got), info->size);
    gst_buffer_unref(got);
}

static void check_frame(pair_t *pair, const frame_t *about)
{
    GstVideoInfo info, arrived;
    GstBuffer *buffer = make_frame(about, &info), *got;
    gint64 wrong = -2, before = count_wrong(buffer, &info);
    GstCaps *caps;

    set_caps(pair, &info);
    got = pass(pair, buffer);
    caps = gst_pad_get_current_caps(pair->to->sinkpad);
    if (got != NULL && caps != NULL &&
        gst_video_info_from_caps(&arrived, caps)) {
        CHECK(gst_video_info_is_equal(&arrived, &info), "%s: caps of %s",
              pair->name, about->format);
        wrong = count_wrong(got, &arrived);
    }
    CHECK(wrong == 0 && before == 0,
          "%s: %s %dx%d pad %d rows %d how %d: %" G_GINT64_FORMAT
          " bytes are wrong, and %" G_GINT64_FORMAT " were",
          pair->name, about->format, about->width, about->height, about->pad,
          about->rows, about->how, wrong, before);
    if (wrong == 0) {
        check_layout(pair, about, got, &info);
    }
    gst_clear_caps(&caps);
    gst_clear_buffer(&got);
}

static const frame_t plain = {"GRAY8", 31, 33, 2, 0, META};

static void check_announcement(pair_t *pair)
{
    GstQuery *query;
    GstVideoInfo info;
    GstCaps *caps;

    caps_of(&plain, &info);
    caps = gst_video_info_to_caps(&info);
    query = gst_query_new_allocation(caps, TRUE);
    CHECK(gst_pad_peer_query(pair->from->srcpad, query) &&
              gst_query_find_allocation_meta(query, GST_VIDEO_META_API_TYPE,
                                             NULL),
          "%s: no GstVideoMeta is announced", pair->name);
    gst_query_unref(query);
    gst_caps_unref(caps);
}

#define BUFFER_FLAGS                                                           \
    (GST_BUFFER_FLAG_DISCONT | GST_BUFFER_FLAG_CORRUPTED |                     \
     GST_BUFFER_FLAG_MARKER | GST_BUFFER_FLAG_HEADER |                         \
     GST_BUFFER_FLAG_DELTA_UNIT | GST_BUFFER_FLAG_DROPPABLE |                  \
     GST_VIDEO_BUFFER_FLAG_INTERLACED | GST_VIDEO_BUFFER_FLAG_TFF |            \
     GST_VIDEO_BUFFER_FLAG_RFF)

/* Those of GstMiniObject, and what tells of the memory, do not. */
#define TRAVELS                                                                \
    ~((GST_MINI_OBJECT_FLAG_LAST - 1) | (guint)GST_BUFFER_FLAG_TAG_MEMORY)

/* All that is set, then nothing: neither is left of the one before. */
static void check_times(pair_t *pair)
{
    for (int i = 0; i < 2; i++) {
        GstVideoInfo info;
        GstBuffer *buffer = make_frame(&plain, &info), *got;
        GstVideoMeta *meta = gst_buffer_get_video_meta(buffer);
        guint64 numbers[] = {1, 2, 3, 4, 5};
        guint flags = i == 0 ? BUFFER_FLAGS : 0;

        if (i == 0) {
            meta->flags =
                GST_VIDEO_FRAME_FLAG_INTERLACED | GST_VIDEO_FRAME_FLAG_TFF;
            meta->id = 3;
            GST_BUFFER_PTS(buffer) = numbers[0] = 40 * GST_SECOND + 1;
            GST_BUFFER_DTS(buffer) = numbers[1] = 40 * GST_SECOND;
        } else {
            memset(numbers, 0xFF, sizeof(numbers)); /* none */
        }
        GST_BUFFER_DURATION(buffer) = numbers[2];
        GST_BUFFER_OFFSET(buffer) = numbers[3];
        GST_BUFFER_OFFSET_END(buffer) = numbers[4];
        GST_BUFFER_FLAG_SET(buffer, flags);
        set_caps(pair, &info);
        got = pass(pair, buffer);
        CHECK(got != NULL && GST_BUFFER_PTS(got) == numbers[0] &&
                  GST_BUFFER_DTS(got) == numbers[1] &&
                  GST_BUFFER_DURATION(got) == numbers[2] &&
                  GST_BUFFER_OFFSET(got) == numbers[3] &&
                  GST_BUFFER_OFFSET_END(got) == numbers[4],
              "%s: times or offsets are other ones", pair->name);
        CHECK(got != NULL && (GST_BUFFER_FLAGS(got) & TRAVELS) == flags,
              "%s: flags %x for %x", pair->name,
              got == NULL ? 0 : GST_BUFFER_FLAGS(got), flags);
        meta = got == NULL ? NULL : gst_buffer_get_video_meta(got);
        CHECK(meta != NULL && meta->id == (i == 0 ? 3 : 0) &&
                  meta->flags == (i == 0 ? GST_VIDEO_FRAME_FLAG_INTERLACED |
                                               GST_VIDEO_FRAME_FLAG_TFF
                                         : 0),
              "%s: id or flags of the GstVideoMeta are other ones", pair->name);
        gst_clear_buffer(&got);
    }
}

static void add_metas(GstBuffer *buffer)
{
    GstCaps *reference = gst_caps_new_empty_simple("timestamp/x-ptp");
    GDateTime *jam = g_date_time_new_utc(2026, 11, 28, 7, 0, 0);
    GstVideoRegionOfInterestMeta *region;
    GstVideoCropMeta *crop;

    crop = gst_buffer_add_video_crop_meta(buffer);
    crop->width = 30;
    crop->height = 31;
    region = gst_buffer_add_video_region_of_interest_meta(buffer, "face", 1, 2,
                                                          3, 4);
    region->id = 5;
    region->parent_id = 6;
    gst_video_region_of_interest_meta_add_param(
        region, gst_structure_new("detection", "confidence", G_TYPE_DOUBLE, 0.1,
                                  "label", G_TYPE_STRING, "a \"b\"; c,", NULL));
    gst_video_region_of_interest_meta_add_param(
        region, gst_structure_new("roi/x265", "delta", G_TYPE_INT, -3, NULL));
    gst_buffer_add_video_region_of_interest_meta(buffer, "car", 7, 8, 9, 10);
    gst_buffer_add_reference_timestamp_meta(buffer, reference, 11, 12);
    gst_buffer_add_video_time_code_meta_full(
        buffer, 30000, 1001, jam, GST_VIDEO_TIME_CODE_FLAGS_DROP_FRAME, 1, 2, 3,
        4, 1);
    gst_buffer_add_video_caption_meta(buffer, GST_VIDEO_CAPTION_TYPE_CEA708_RAW,
                                      (const guint8 *)"\0\1\377", 3);
    gst_structure_set(gst_custom_meta_get_structure(
                          gst_buffer_add_custom_meta(buffer, CUSTOM)),
                      "exposure", G_TYPE_DOUBLE, 0.125, "text", G_TYPE_STRING,
                      "\303\244\n", NULL);
    g_date_time_unref(jam);
    gst_caps_unref(reference);
}

static void check_regions(const pair_t *pair, GstBuffer *got)
{
    GstVideoRegionOfInterestMeta *region =
        gst_buffer_get_video_region_of_interest_meta_id(got, 5);
    GstStructure *param = NULL;
    gdouble confidence = 0;
    gint delta = 0;

    CHECK(region != NULL && region->x == 1 && region->y == 2 &&
              region->w == 3 && region->h == 4 && region->parent_id == 6 &&
              strcmp(g_quark_to_string(region->roi_type), "face") == 0,
          "%s: region of interest", pair->name);
    if (region != NULL) {
        param =
            gst_video_region_of_interest_meta_get_param(region, "detection");
    }
    CHECK(param != NULL &&
              gst_structure_get_double(param, "confidence", &confidence) &&
              confidence == 0.1 &&
              g_strcmp0(gst_structure_get_string(param, "label"),
                        "a \"b\"; c,") == 0,
          "%s: parameter of a region", pair->name);
    if (region != NULL) {
        param = gst_video_region_of_interest_meta_get_param(region, "roi/x265");
    }
    CHECK(param != NULL && gst_structure_get_int(param, "delta", &delta) &&
              delta == -3,
          "%s: other parameter of a region", pair->name);
    CHECK(gst_buffer_get_n_meta(
              got, GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE) == 2,
          "%s: regions of interest", pair->name);
}

static void check_metas(pair_t *pair)
{
    GstVideoInfo info;
    GstBuffer *buffer = make_frame(&plain, &info), *got;
    GstVideoCropMeta *crop;
    GstReferenceTimestampMeta *reference;
    GstVideoTimeCodeMeta *code;
    GstVideoCaptionMeta *caption;
    GstCustomMeta *custom;
    gdouble exposure = 0;
    gchar *text;

    add_metas(buffer);
    set_caps(pair, &info);
    got = pass(pair, buffer);
    if (got == NULL) {
        CHECK(FALSE, "%s: no buffer with metas", pair->name);
        return;
    }
    crop = gst_buffer_get_video_crop_meta(got);
    CHECK(crop != NULL && crop->x == 0 && crop->width == 30 &&
              crop->height == 31,
          "%s: crop", pair->name);
    check_regions(pair, got);
    reference = gst_buffer_get_reference_timestamp_meta(got, NULL);
    CHECK(reference != NULL && reference->timestamp == 11 &&
              reference->duration == 12 &&
              gst_structure_has_name(
                  gst_caps_get_structure(reference->reference, 0),
                  "timestamp/x-ptp"),
          "%s: reference timestamp", pair->name);
    code = gst_buffer_get_video_time_code_meta(got);
    text = code == NULL ? NULL : gst_video_time_code_to_string(&code->tc);
    CHECK(g_strcmp0(text, "01:02:03;04") == 0 && code->tc.field_count == 1 &&
              code->tc.config.fps_n == 30000 &&
              code->tc.config.latest_daily_jam != NULL &&
              g_date_time_to_unix(code->tc.config.latest_daily_jam) ==
                  1795849200,
          "%s: time code %s", pair->name, text);
    g_free(text);
    caption = gst_buffer_get_video_caption_meta(got);
    CHECK(caption != NULL && caption->size == 3 &&
              caption->caption_type == GST_VIDEO_CAPTION_TYPE_CEA708_RAW &&
              memcmp(caption->data, "\0\1\377", 3) == 0,
          "%s: caption", pair->name);
    custom = gst_buffer_get_custom_meta(got, CUSTOM);
    CHECK(custom != NULL &&
              gst_structure_get_double(gst_custom_meta_get_structure(custom),
                                       "exposure", &exposure) &&
              exposure == 0.125 &&
              g_strcmp0(gst_structure_get_string(
                            gst_custom_meta_get_structure(custom), "text"),
                        "\303\244\n") == 0,
          "%s: custom meta", pair->name);
    gst_buffer_unref(got);
}

/* A meta whose text no source would take is left out, not the buffer. */
static void check_deep_meta(pair_t *pair)
{
    const gchar *texts[] = {
        CUSTOM ", d=<<<<<<<<<<<<<<<<<(int)1>>>>>>>>>>>>>>>>>;",
        CUSTOM ", d=<<<<<<<<<<<<<<<<(int)1>>>>>>>>>>>>>>>>;"};

    for (gsize i = 0; i < LENGTH(texts); i++) {
        GstVideoInfo info;
        GstBuffer *buffer = make_frame(&plain, &info), *got;
        GstStructure *structure = gst_structure_from_string(texts[i], NULL);

        gst_structure_set_value(gst_custom_meta_get_structure(
                                    gst_buffer_add_custom_meta(buffer, CUSTOM)),
                                "d", gst_structure_get_value(structure, "d"));
        gst_structure_free(structure);
        set_caps(pair, &info);
        got = pass(pair, buffer);
        CHECK(got != NULL &&
                  (gst_buffer_get_custom_meta(got, CUSTOM) != NULL) == (i == 1),
              "%s: deep meta %zu", pair->name, i);
        gst_clear_buffer(&got);
    }
}

/* The running time of a buffer is the sender's. */
static void check_segment(pair_t *pair)
{
    GstVideoInfo info;
    GstBuffer *buffer = make_frame(&plain, &info);
    const GstSegment *segment = NULL;
    GstClockTime start = 3600 * GST_SECOND, at = 0;
    GstSegment sent;
    GstEvent *event;

    gst_segment_init(&sent, GST_FORMAT_TIME);
    sent.start = start;
    set_caps(pair, &info);
    gst_harness_push_event(pair->from, gst_event_new_segment(&sent));
    GST_BUFFER_PTS(buffer) = start + 7;
    buffer = pass(pair, buffer);
    event = gst_pad_get_sticky_event(pair->to->sinkpad, GST_EVENT_SEGMENT, 0);
    if (event != NULL) {
        gst_event_parse_segment(event, &segment);
        at = gst_segment_to_running_time(segment, GST_FORMAT_TIME, start + 7);
    }
    CHECK(buffer != NULL && at == 7, "%s: running time %" G_GUINT64_FORMAT,
          pair->name, at);
    gst_clear_event(&event);
    gst_clear_buffer(&buffer);
}

/* What is no raw video arrives as bytes. */
static void check_bytes(pair_t *pair)
{
    static const struct {
        const gchar *caps;
        gsize bytes;
    } rows[] = {
        {"audio/x-raw,format=S16LE,rate=48000,channels=2,layout=interleaved,"
         "channel-mask=(bitmask)3",
         4096},
        {"application/octet-stream", 100003},
        {"application/octet-stream", 0},
        {"video/x-h264,stream-format=byte-stream,alignment=au", 77},
        {"video/x-bayer,format=bggr,width=7,height=3", 24},
    };

    for (gsize i = 0; i < LENGTH(rows); i++) {
        guint8 *bytes = g_malloc0(rows[i].bytes + 1);
        GstBuffer *buffer, *got;
        GstCaps *caps, *wanted = gst_caps_from_string(rows[i].caps);

        memcpy(bytes, row_of(0, 0), MIN(rows[i].bytes, 30000));
        buffer = gst_buffer_new_wrapped(bytes, rows[i].bytes);
        gst_buffer_ref(buffer);
        gst_harness_set_src_caps(pair->from, gst_caps_ref(wanted));
        got = pass(pair, buffer);
        caps = gst_pad_get_current_caps(pair->to->sinkpad);
        CHECK(got != NULL && gst_buffer_get_size(got) == rows[i].bytes &&
                  gst_buffer_memcmp(got, 0, bytes, rows[i].bytes) == 0 &&
                  gst_caps_is_equal(caps, wanted),
              "%s: %s", pair->name, rows[i].caps);
        gst_clear_buffer(&got);
        gst_buffer_unref(buffer);
        gst_clear_caps(&caps);
        gst_caps_unref(wanted);
    }
}

/* ---- dma-bufs
 *
 * No device that makes one is needed. The memory is one that the kernel reads
 * for no other process, as it is with most dma-bufs, or any where it has none
 * such. GStreamer tells the kernel when the CPU reads; that is caught here. */

static struct {
    int fd;
    gint begun, ended, other; /* calls for that descriptor, from any thread */
} synced;

int ioctl(int fd, unsigned long request, ...)
{
    const struct dma_buf_sync *sync;
    va_list more;

    va_start(more, request);
    sync = va_arg(more, void *);
    va_end(more);
    if (request != DMA_BUF_IOCTL_SYNC || fd != synced.fd) {
        return (int)syscall(SYS_ioctl, fd, request, sync);
    }
    g_atomic_int_inc(sync->flags == (DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ)
                         ? &synced.begun
                     : sync->flags == (DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ)
                         ? &synced.ended
                         : &synced.other);
    return 0;
}

/* The same frame in a dma-buf. */
static GstBuffer *in_dmabuf(GstBuffer *frame)
{
    gsize bytes = gst_buffer_get_size(frame);
    GstAllocator *allocator = gst_dmabuf_allocator_new();
    GstVideoMeta *meta = gst_buffer_get_video_meta(frame);
    GstBuffer *buffer = gst_buffer_new();
    GstMemory *memory;
    GstMapInfo info;

    synced.fd = (int)syscall(SYS_memfd_secret, 0);
    if (synced.fd < 0) {
        synced.fd = memfd_create("dma-buf", MFD_CLOEXEC);
    }
    if (synced.fd < 0 || ftruncate(synced.fd, (off_t)bytes) != 0) {
        g_error("no memory");
    }
    memory = gst_dmabuf_allocator_alloc(allocator, synced.fd, bytes);
    gst_memory_map(memory, &info, GST_MAP_WRITE);
    gst_buffer_extract(frame, 0, info.data, bytes);
    gst_memory_unmap(memory, &info);
    gst_buffer_append_memory(buffer, memory);
    if (meta != NULL) {
        gst_buffer_add_video_meta_full(
            buffer, meta->flags, meta->format, meta->width, meta->height,
            meta->n_planes, meta->offset, meta->stride);
    }
    gst_object_unref(allocator);
    gst_buffer_unref(frame);
    return buffer;
}

static const frame_t in_dmabufs[] = {
    {"GRAY8", 31, 33, 0, 0, META},    {"GRAY8", 320, 240, 0, 0, META},
    {"GRAY8", 640, 480, 0, 0, 0},     {"GRAY8", 1280, 720, 0, 0, META},
    {"NV12", 1280, 720, 64, 0, META}, {"RGB", 1280, 720, 0, 0, META},
};

/* Each plane is read between both calls. */
static void check_dmabufs(pair_t *pair)
{
    for (gsize i = 0; i < LENGTH(in_dmabufs); i++) {
        GstVideoInfo info;
        GstBuffer *buffer = in_dmabuf(make_frame(&in_dmabufs[i], &info)), *got;
        gint planes = (gint)GST_VIDEO_INFO_N_PLANES(&info);
        gint64 wrong;

        synced.begun = synced.ended = synced.other = 0;
        set_caps(pair, &info);
        got = pass(pair, buffer);
        wrong = got == NULL ? -1 : count_wrong(got, &info);
        CHECK(wrong == 0 && synced.begun == planes,
              "%s: dma-buf %zu: %" G_GINT64_FORMAT
              " bytes are wrong, begun %d times",
              pair->name, i, wrong, synced.begun);
        for (int turn = 0; turn < 30000; turn++) {
            if (g_atomic_int_get(&synced.ended) >= planes) {
                break;
            }
            g_usleep(1000); /* the sink hears of it by its own thread */
        }
        CHECK(synced.ended == planes && synced.other == 0,
              "%s: dma-buf %zu: ended %d times, and %d other calls", pair->name,
              i, synced.ended, synced.other);
        gst_clear_buffer(&got);
    }
}

/* ---- what is refused */

static gchar *pop_error(pair_t *pair)
{
    GstMessage *message = gst_bus_pop_filtered(pair->bus, GST_MESSAGE_ERROR);
    GError *error = NULL;
    gchar *text;

    if (message == NULL) {
        return NULL;
    }
    gst_message_parse_error(message, &error, NULL);
    text = g_strdup(error->message);
    g_error_free(error);
    gst_message_unref(message);
    return text;
}

static void check_refused_caps(pair_t *pair)
{
    static const struct {
        const gchar *caps, *says;
    } rows[] = {
        {"video/x-raw,format=NV12_4L4,width=64,height=64", "tiles"},
        {"video/x-raw,format=RGB8P,width=64,height=64", "palette"},
        {"video/x-raw,format=none-such,width=64,height=64", "none-such"},
        {"video/x-raw,format=GRAY8,width=70000,height=64", "large"},
        {"video/x-raw(memory:GLMemory),format=RGBA,width=64,height=64",
         "memory:GLMemory"},
        {"video/x-raw(memory:DMABuf),format=RGBA,width=64,height=64",
         "memory:DMABuf"},
        {"video/x-raw(meta:GstVideoOverlayComposition),format=I420,width=64,"
         "height=64",
         "meta:GstVideoOverlayComposition"},
        {"audio/x-raw,format=S16LE,rate=48000,channels=2,layout="
         "non-interleaved",
         "non-interleaved"},
        {"a/b, c=<<<<<<<<<<<<<<<<<(int)1>>>>>>>>>>>>>>>>>", "'gst.caps'"},
    };

    for (gsize i = 0; i < LENGTH(rows); i++) {
        gchar *error;

        gst_pad_push_event(
            pair->from->srcpad,
            gst_event_new_caps(gst_caps_from_string(rows[i].caps)));
        error = pop_error(pair);
        CHECK(error != NULL && strstr(error, rows[i].says) != NULL,
              "%s: %s: %s", pair->name, rows[i].caps, error);
        g_free(error);
    }
}

static GstBuffer *with_meta(const GstVideoInfo *info, gsize bytes, guint width,
                            gint stride, gsize offset)
{
    GstBuffer *buffer = gst_buffer_new_allocate(NULL, bytes, NULL);
    gsize offsets[GST_VIDEO_MAX_PLANES] = {offset};
    gint strides[GST_VIDEO_MAX_PLANES] = {stride};

    gst_buffer_add_video_meta_full(buffer, 0, GST_VIDEO_INFO_FORMAT(info),
                                   width, 33, 1, offsets, strides);
    return buffer;
}

static GstBuffer *with_views(const GstVideoInfo *info)
{
    GstBuffer *buffer = with_meta(info, info->size, 31, 32, 0);

    gst_buffer_add_video_meta(buffer, 0, GST_VIDEO_INFO_FORMAT(info), 31, 33)
        ->id = 1;
    return buffer;
}

static void check_refused_frames(pair_t *pair)
{
    GstVideoInfo info;
    gchar *error;

    caps_of(&plain, &info);
    set_caps(pair, &info);
    {
        const struct {
            GstBuffer *buffer;
            const gchar *says;
        } rows[] = {
            {gst_buffer_new_allocate(NULL, info.size - 1, NULL), "no frame"},
            {with_meta(&info, info.size, 30, 32, 0), "GstVideoMeta"},
            {with_meta(&info, info.size, 31, 30, 0), "30 bytes apart"},
            {with_meta(&info, 33 * 32 - 2, 31, 32, 0), "outside"},
            {with_meta(&info, 33 * 32 + 98, 31, 32, 100), "outside"},
            {with_views(&info), "several GstVideoMeta"},
        };

        for (gsize i = 0; i < LENGTH(rows); i++) {
            CHECK(gst_harness_push(pair->from, rows[i].buffer) ==
                      GST_FLOW_ERROR,
                  "%s: refused frame %zu", pair->name, i);
            error = pop_error(pair);
            CHECK(error != NULL && strstr(error, rows[i].says) != NULL,
                  "%s: %s: %s", pair->name, rows[i].says, error);
            g_free(error);
        }
    }
}

/* Who reads no GstVideoMeta crops nothing either. */
static void check_cropped(pair_t *pair)
{
    const frame_t about = {"RGB", 31, 33, 0, 0, META | LARGER};
    GstVideoInfo info;
    GstBuffer *buffer = make_frame(&about, &info), *got = NULL;
    GstVideoCropMeta *crop = gst_buffer_add_video_crop_meta(buffer);
    GstMessage *message = NULL;

    crop->x = 1;
    crop->width = 31;
    crop->height = 33;
    set_caps(pair, &info);
    if (pair->reads_meta) {
        got = pass(pair, buffer);
        crop = got == NULL ? NULL : gst_buffer_get_video_crop_meta(got);
        CHECK(crop != NULL && crop->x == 1 && count_wrong(got, &info) == 0,
              "%s: a cropped frame", pair->name);
    } else {
        gst_harness_push(pair->from, buffer);
        message = gst_bus_timed_pop_filtered(pair->bus, 60 * GST_SECOND,
                                             GST_MESSAGE_WARNING);
        CHECK(message != NULL && gst_harness_buffers_in_queue(pair->to) == 0,
              "%s: a cropped frame arrives", pair->name);
    }
    gst_clear_message(&message);
    gst_clear_buffer(&got);
}

static void check_all(const gchar *name, gboolean reads_meta)
{
    pair_t pair = {.name = name, .reads_meta = reads_meta};

    open_pair(&pair);
    for (gsize i = 0; i < LENGTH(frames); i++) {
        check_frame(&pair, &frames[i]);
    }
    check_announcement(&pair);
    check_times(&pair);
    check_metas(&pair);
    check_deep_meta(&pair);
    check_bytes(&pair);
    check_dmabufs(&pair);
    check_refused_caps(&pair);
    check_refused_frames(&pair);
    check_cropped(&pair);
    check_segment(&pair);
    check_frame(&pair, &plain); /* it works still */
    close_pair(&pair);
}

int main(int count, char **arguments)
{
    gst_init(&count, &arguments);
    gst_meta_register_custom(CUSTOM, (const gchar *[]){NULL}, NULL, NULL, NULL);
    if (count < 2 || gst_plugin_load_file(arguments[1], NULL) == NULL) {
        g_printerr("usage: gst_frames PLUGIN\n");
        return 2;
    }
    check_all("shared memory", FALSE);
    check_all("shared memory, GstVideoMeta", TRUE);
    g_setenv("UCX_TLS", "tcp", TRUE);
    check_all("tcp", FALSE);
    check_all("tcp, GstVideoMeta", TRUE);
    g_print("%d of %d checks failed\n", failures, checks);
    return failures != 0;
}
