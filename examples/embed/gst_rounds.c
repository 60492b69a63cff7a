/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_rounds.c - two pipelines in one process, joined by tensormsgsink and
 * tensormsgsrc, started and stopped again and again:
 *
 *   gst_rounds PLUGIN [ROUNDS]
 */
#include <dirent.h>
#include <gst/gst.h>
#include <stdlib.h>

#define BUFFERS 30
#define BYTES 100000

static int seen, wrong;

/* fakesrc's pattern goes on from buffer to buffer. */
static void handed_off(GstElement *sink, GstBuffer *buffer, GstPad *pad,
                       gpointer arg)
{
    GstMapInfo info;

    (void)sink;
    (void)pad;
    (void)arg;
    seen++;
    if (!gst_buffer_map(buffer, &info, GST_MAP_READ)) {
        wrong++;
        return;
    }
    wrong += info.size != BYTES;
    for (gsize i = 1; i < info.size; i++) {
        wrong += info.data[i] != (guint8)(info.data[i - 1] + 1);
    }
    gst_buffer_unmap(buffer, &info);
}

static GstElement *launch(const gchar *line)
{
    GError *error = NULL;
    GstElement *pipeline = gst_parse_launch(line, &error);

    if (pipeline == NULL || error != NULL) {
        g_error("%s: %s", line, error->message);
    }
    return pipeline;
}

static void stop(GstElement *pipeline)
{
    gst_element_set_state(pipeline, GST_STATE_NULL);
    gst_object_unref(pipeline);
}

/* The end of the stream, which has come from the other pipeline. */
static void await_end(GstElement *pipeline)
{
    GstBus *bus = gst_element_get_bus(pipeline);
    GstMessage *message = gst_bus_timed_pop_filtered(
        bus, 60 * GST_SECOND, GST_MESSAGE_EOS | GST_MESSAGE_ERROR);

    if (message == NULL || GST_MESSAGE_TYPE(message) != GST_MESSAGE_EOS) {
        g_error("no end of the stream");
    }
    gst_message_unref(message);
    gst_object_unref(bus);
}

static void run(void)
{
    GstElement *to = launch("tensormsgsrc name=src uri=tcp://127.0.0.1:0 ! "
                            "fakesink name=sink signal-handoffs=true "
                            "sync=false");
    GstElement *from, *element = gst_bin_get_by_name(GST_BIN(to), "sink");
    gchar *url = NULL, *line;

    g_signal_connect(element, "handoff", G_CALLBACK(handed_off), NULL);
    gst_object_unref(element);
    gst_element_set_state(to, GST_STATE_PLAYING);
    element = gst_bin_get_by_name(GST_BIN(to), "src");
    g_object_get(element, "url", &url, NULL);
    gst_object_unref(element);
    line = g_strdup_printf("fakesrc num-buffers=%d sizetype=fixed sizemax=%d "
                           "filltype=pattern-span ! tensormsgsink uri=%s",
                           BUFFERS, BYTES, url);
    from = launch(line);
    gst_element_set_state(from, GST_STATE_PLAYING);
    await_end(from);
    await_end(to);
    stop(from);
    stop(to);
    g_free(line);
    g_free(url);
}

/* One that is stopped while nothing comes. */
static void run_idle(void)
{
    GstElement *to = launch("tensormsgsrc uri=tcp://127.0.0.1:0 ! fakesink");

    gst_element_set_state(to, GST_STATE_PLAYING);
    stop(to);
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

int main(int count, char **arguments)
{
    int rounds = count > 2 ? atoi(arguments[2]) : 3, descriptors = 0;

    gst_init(&count, &arguments);
    if (count < 2 || gst_plugin_load_file(arguments[1], NULL) == NULL) {
        g_printerr("usage: gst_rounds PLUGIN [ROUNDS]\n");
        return 2;
    }
    for (int i = 0; i < rounds; i++) {
        run();
        run_idle();
        if (i == 1) {
            descriptors = count_descriptors();
        }
    }
    if (wrong > 0 || seen < rounds ||
        (rounds > 2 && count_descriptors() > descriptors)) {
        g_printerr("%d buffers, %d bytes wrong, %d descriptors for %d\n", seen,
                   wrong, count_descriptors(), descriptors);
        return 1;
    }
    g_print("%d rounds, %d of %d buffers\n", rounds, seen, rounds * BUFFERS);
    return 0;
}
