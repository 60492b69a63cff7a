/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_peer.c - the other end of bindings/python/tests/test_gstreamer.py:
 *
 *   gst_peer PLUGIN send URL    sends some frames
 *   gst_peer PLUGIN recv        prints its URL, then a line for each buffer and
 *                               each warning, to the end of the stream */
#include <gst/check/gstharness.h>

#include "gst_pattern.h"

static void send_frames(const gchar *url)
{
    static const frame_t some[] = {
        {"RGB", 641, 48, 124, 0, META},    {"GRAY8", 31, 33, 2, 0, META},
        {"I420", 31, 33, 3, 1, META},      {"NV12", 31, 33, 1, 1, META | APART},
        {"P010_10LE", 31, 33, 8, 0, META}, {"YUY2", 31, 33, 0, 0, 0},
        {"v210", 31, 33, 64, 0, META},     {"RGB16", 31, 33, 4, 0, META},
        {"GRAY16_BE", 31, 33, 6, 0, META}, {"RGB", 8, 4, 0, 0, META | LARGER}};
    GstElement *sink = gst_element_factory_make("tensormsgsink", NULL);
    GstHarness *from;

    g_object_set(sink, "uri", url, NULL);
    from = gst_harness_new_with_element(sink, "sink", NULL);
    for (gsize i = 0; i < LENGTH(some); i++) {
        GstVideoInfo info;
        GstBuffer *buffer = make_frame(&some[i], &info);

        GST_BUFFER_PTS(buffer) = i;
        GST_BUFFER_DTS(buffer) = i == 0 ? GST_CLOCK_TIME_NONE : 2 * i;
        gst_harness_set_src_caps(from, gst_video_info_to_caps(&info));
        if (gst_harness_push(from, buffer) != GST_FLOW_OK) {
            g_error("frame %zu", i);
        }
    }
    gst_harness_push_event(from, gst_event_new_eos());
    gst_harness_teardown(from);
    gst_object_unref(sink);
}

/* A line a buffer: its caps' format, bytes, their checksum, its PTS. */
static void print_buffer(GstElement *sink, GstBuffer *buffer, GstPad *pad,
                         gpointer arg)
{
    GstCaps *caps = gst_pad_get_current_caps(pad);
    GstMapInfo info;
    gchar *sum;

    (void)sink;
    (void)arg;
    gst_buffer_map(buffer, &info, GST_MAP_READ);
    sum = g_compute_checksum_for_data(G_CHECKSUM_SHA256, info.data, info.size);
    g_print("buffer %s %zu %s %" G_GINT64_FORMAT "\n",
            caps == NULL ? "-"
                         : gst_structure_get_string(
                               gst_caps_get_structure(caps, 0), "format"),
            info.size, sum, (gint64)GST_BUFFER_PTS(buffer));
    g_free(sum);
    gst_buffer_unmap(buffer, &info);
    gst_clear_caps(&caps);
}

static void receive(void)
{
    GstElement *pipeline = gst_parse_launch(
        "tensormsgsrc name=src uri=tcp://127.0.0.1:0 ! fakesink name=sink "
        "signal-handoffs=true sync=false",
        NULL);
    GstElement *sink = gst_bin_get_by_name(GST_BIN(pipeline), "sink");
    GstElement *src = gst_bin_get_by_name(GST_BIN(pipeline), "src");
    GstBus *bus = gst_element_get_bus(pipeline);
    GstMessageType type = GST_MESSAGE_UNKNOWN;
    gchar *url = NULL;

    g_signal_connect(sink, "handoff", G_CALLBACK(print_buffer), NULL);
    gst_element_set_state(pipeline, GST_STATE_PLAYING);
    g_object_get(src, "url", &url, NULL);
    g_print("%s\n", url);
    while (type != GST_MESSAGE_EOS) {
        GstMessage *message = gst_bus_timed_pop_filtered(
            bus, 60 * GST_SECOND,
            GST_MESSAGE_EOS | GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
        GError *error = NULL;

        if (message == NULL) {
            g_error("nothing comes");
        }
        type = GST_MESSAGE_TYPE(message);
        if (type == GST_MESSAGE_WARNING) {
            gst_message_parse_warning(message, &error, NULL);
            g_print("warning %s\n", error->message);
            g_error_free(error);
        } else if (type == GST_MESSAGE_ERROR) {
            g_error("an error");
        }
        gst_message_unref(message);
    }
    gst_element_set_state(pipeline, GST_STATE_NULL);
    g_free(url);
    gst_object_unref(bus);
    gst_object_unref(src);
    gst_object_unref(sink);
    gst_object_unref(pipeline);
}

int main(int count, char **arguments)
{
    gst_init(&count, &arguments);
    if (count < 3 || gst_plugin_load_file(arguments[1], NULL) == NULL) {
        g_printerr("usage: gst_peer PLUGIN {send URL | recv}\n");
        return 2;
    }
    if (count > 3) {
        send_frames(arguments[3]);
    } else {
        receive();
    }
    return 0;
}
