/* SPDX-License-Identifier: BSD-3-Clause */
/* The configuration file: what it sets, what outranks it, what is wrong with
 * it. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

#include "am/worker/context.h"
#include "am/worker/settings.h"
#include "support/failing_alloc.h"
#include "support/must.h"
#include "support/peers.h"

static char path[] = "/tmp/tmsg-settings-XXXXXX";

static void make_file(void)
{
    int fd = mkstemp(path);

    must_true(fd >= 0);
    close(fd);
    unsetenv("TENSORMSG_CONFIG");
    unsetenv("TENSORMSG_PEER_TIMEOUT_MS");
    unsetenv("TENSORMSG_NO_THREAD");
    unsetenv("TENSORMSG_BULK_CONNECTIONS");
    unsetenv("TENSORMSG_DEVICE_TABLE");
    unsetenv("UCX_TCP_TX_SEG_SIZE");
}

static void remove_file(void) { unlink(path); }

TestSuite(settings, .init = make_file, .fini = remove_file);

static void write_bytes(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wb");

    must_true(file != NULL);
    must_true(fwrite(text, 1, bytes, file) == bytes);
    must_true(fclose(file) == 0);
}

static void write_text(const char *text) { write_bytes(text, strlen(text)); }

static tmsg_status_t create(const char *file, tmsg_context_t **context_p)
{
    const tmsg_context_params_t params = {
        .field_mask = TMSG_CONTEXT_PARAM_CONFIG_FILE, .config_file = file};

    return tmsg_context_create(&params, context_p);
}

/* With the description's tabs and line ends taken out. */
static void must_describe(const tmsg_context_params_t *params, const char *what)
{
    tmsg_context_t *context;
    char *json, *to;

    must(tmsg_context_create(params, &context));
    must(tmsg_context_describe(context, &json));
    to = json;
    for (const char *from = json; *from != '\0'; from++) {
        if (*from != '\t' && *from != '\n') {
            *to++ = *from;
        }
    }
    *to = '\0';
    must_say(json, what);
    tmsg_string_free(json);
    tmsg_context_destroy(context);
}

Test(settings, a_file_sets_what_code_and_variables_leave)
{
    const tmsg_limits_t limits = {.field_mask = TMSG_LIMIT_NDIM, .ndim = 9};
    const tmsg_context_params_t file = {
        .field_mask = TMSG_CONTEXT_PARAM_CONFIG_FILE, .config_file = path};
    const tmsg_context_params_t code = {
        .field_mask = TMSG_CONTEXT_PARAM_CONFIG_FILE |
                      TMSG_CONTEXT_PARAM_LIMITS | TMSG_CONTEXT_PARAM_FLAGS |
                      TMSG_CONTEXT_PARAM_PEER_TIMEOUT,
        .config_file = path,
        .limits = &limits,
        .peer_timeout_ms = 700};

    write_text("{\"version\": 1, \"peer_timeout_ms\": 600, "
               "\"no_thread\": true,\n"
               "\"limits\": {\"ndim\": 7, \"tensors\": 77}}\n");
    must_describe(NULL, "\"config_file\":\"\",\"peer_timeout_ms\":5000,"
                        "\"heartbeats\":true");
    must_describe(&file, path);
    must_describe(&file, "\"peer_timeout_ms\":600,\"heartbeats\":false,"
                         "\"limits\":{\"tensors\":77,\"ndim\":7,");
    must_describe(&code, "\"peer_timeout_ms\":700,\"heartbeats\":true,"
                         "\"limits\":{\"tensors\":77,\"ndim\":9,");
    setenv("TENSORMSG_PEER_TIMEOUT_MS", "900", 1);
    setenv("TENSORMSG_NO_THREAD", "0", 1);
    must_describe(&file, "\"peer_timeout_ms\":900,\"heartbeats\":true");
}

Test(settings, huge_pages_are_asked_for_where_it_is_said)
{
    const tmsg_context_params_t file = {
        .field_mask = TMSG_CONTEXT_PARAM_CONFIG_FILE, .config_file = path};

    write_text("{\"version\": 1, \"huge_page_bytes\": 65536}");
    must_describe(NULL, "\"huge_page_bytes\":4194304");
    must_describe(&file, "\"huge_page_bytes\":65536");
    setenv("TENSORMSG_HUGE_PAGE_BYTES", "0", 1);
    must_describe(&file, "\"huge_page_bytes\":0");
}

Test(settings, connections_for_large_payloads_are_as_many_as_it_is_said)
{
    const tmsg_context_params_t file = {
        .field_mask = TMSG_CONTEXT_PARAM_CONFIG_FILE, .config_file = path};

    write_text("{\"version\": 1, \"bulk_connections\": 3}");
    must_describe(NULL, "\"bulk_connections\":0");
    must_describe(&file, "\"bulk_connections\":3");
    setenv("TENSORMSG_BULK_CONNECTIONS", "2", 1);
    must_describe(&file, "\"bulk_connections\":2");
    setenv("TENSORMSG_BULK_CONNECTIONS", "5", 1);
    must_be(tmsg_context_create(NULL, &(tmsg_context_t *){NULL}),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(),
             "TENSORMSG_BULK_CONNECTIONS='5' is not a number from 0 to 4");
}

Test(settings, the_thresholds_in_force_are_told)
{
    const tmsg_context_params_t file = {
        .field_mask = TMSG_CONTEXT_PARAM_CONFIG_FILE, .config_file = path};

    must_describe(NULL, "\"tcp\":{\"gather_bytes\":65536,"
                        "\"gather_mean_bytes\":16384,"
                        "\"gather_most_bytes\":16777216,"
                        "\"fragment_bytes\":1048576,\"chunk_bytes\":131072,"
                        "\"eager_bytes\":1048576,"
                        "\"eager_single_bytes\":1048576,\"rndv_bytes\":null,"
                        "\"eager_list_bytes\":0,\"rndv_list_bytes\":null,"
                        "\"slice_bytes\":16777216,"
                        "\"lone_chunk_bytes\":1048576,"
                        "\"device_chunk_bytes\":4194304,"
                        "\"device_gather_bytes\":65536,"
                        "\"bulk_bytes\":262144,\"bulk_single_bytes\":262144,"
                        "\"lend_bytes\":null,\"device_ipc_bytes\":null,"
                        "\"fastbox_bytes\":0}");
    write_text("{\"version\": 1, \"thresholds\": {\"shm\": "
               "{\"gather_bytes\": 77, \"rndv_bytes\": 4096}}}");
    must_describe(&file, "\"shm\":{\"gather_bytes\":77,");
    must_describe(&file, "\"rndv_bytes\":4096,");
    write_text("{\"version\": 1, \"thresholds\": {\"tcp\": "
               "{\"eager_bytes\": 88, \"bulk_bytes\": \"never\"}}}");
    must_describe(&file, "\"eager_bytes\":88,");
    must_describe(&file, "\"lone_chunk_bytes\":1048576,"
                         "\"device_chunk_bytes\":4194304,"
                         "\"device_gather_bytes\":65536,"
                         "\"bulk_bytes\":null,\"bulk_single_bytes\":null,"
                         "\"lend_bytes\":null,\"device_ipc_bytes\":null,"
                         "\"fastbox_bytes\":0},\"rdma\"");
}

Test(settings, a_variable_names_the_file_unless_code_does)
{
    const tmsg_context_params_t none = {
        .field_mask = TMSG_CONTEXT_PARAM_CONFIG_FILE, .config_file = ""};

    write_text("{\"version\": 1, \"peer_timeout_ms\": 600}");
    setenv("TENSORMSG_CONFIG", path, 1);
    must_describe(NULL, "\"peer_timeout_ms\":600");
    must_describe(&none, "\"peer_timeout_ms\":5000");
    setenv("TENSORMSG_CONFIG", "", 1);
    must_describe(NULL, "\"peer_timeout_ms\":5000");
}

Test(settings, ucx_keys_stand_between_the_environment_and_our_defaults)
{
    tmsg_context_params_t params = {.field_mask =
                                        TMSG_CONTEXT_PARAM_CONFIG_FILE |
                                        TMSG_CONTEXT_PARAM_UCX_CONFIG,
                                    .config_file = path,
                                    .ucx_config = "TLS=tcp"};

    write_text("{\"version\": 1, \"ucx\": {\"TCP_TX_SEG_SIZE\": \"30k\"}}");
    must_describe(&params, "\"name\":\"UCX_TCP_TX_SEG_SIZE\",\"value\":\"30k\","
                           "\"origin\":\"file\"");
    setenv("UCX_TCP_TX_SEG_SIZE", "32k", 1);
    must_describe(&params, "\"name\":\"UCX_TCP_TX_SEG_SIZE\",\"value\":\"32k\","
                           "\"origin\":\"environment\"");
    params.ucx_config = "TLS=tcp;TCP_TX_SEG_SIZE=16k";
    must_describe(&params, "\"name\":\"UCX_TCP_TX_SEG_SIZE\",\"value\":\"16k\","
                           "\"origin\":\"code\"");
}

Test(settings, thresholds_yield_to_the_variable)
{
    tmsg_context_t *context;

    write_text("{\"version\": 1, \"thresholds\": {"
               "\"tcp\": {\"fragment_bytes\": 111, \"rndv_bytes\": 222},"
               "\"shm\": {\"eager_bytes\": 333}}}");
    setenv("TENSORMSG_THRESHOLDS", "tcp.fragment_bytes=444", 1);
    must(create(path, &context));
    cr_expect(
        eq(u64, context->tuning.of[TMSG_TRANSPORT_TCP].fragment_bytes, 444));
    cr_expect(eq(u64, context->tuning.of[TMSG_TRANSPORT_TCP].rndv_bytes, 222));
    cr_expect(eq(u64, context->tuning.of[TMSG_TRANSPORT_SHM].eager_bytes, 333));
    tmsg_context_destroy(context);
}

typedef struct {
    const char *text;
    const char *words; /* of the error, beside the path */
} bad_t;

static const bad_t bad[] = {
    {"", "is not JSON: see line 1"},
    {"{\"version\": 1,\n\"limits\": {]}\n", "is not JSON: see line 2"},
    {"{\"version\": 1} x", "is not JSON"},
    {"{\"version\": 1,\n\"limits\\u0000\": {}}",
     "line 2: a string holds \\u0000"},
    {"{\"version\": 1, \"ucx\": {\"TLS\": \"tcp\\u0000,ib\"}}",
     "line 1: a string holds \\u0000"},
    {"[1]", "is not an object"},
    {"{}", "has no \"version\": 1"},
    {"{\"version\": 2}", "'version' is not 1"},
    {"{\"version\": \"1\"}", "'version' is not an integer"},
    {"{\"version\": 1, \"colour\": 3}", "'colour' is not a setting"},
    {"{\"version\": 1, \"version\": 1}", "'version' occurs twice"},
    {"{\"version\": 1, \"peer_timeout_ms\": -1}", "'peer_timeout_ms'"},
    {"{\"version\": 1, \"peer_timeout_ms\": 1.5}", "'peer_timeout_ms'"},
    {"{\"version\": 1, \"peer_timeout_ms\": 3e9}", "to 2147483647"},
    {"{\"version\": 1, \"peer_timeout_ms\": 100}", "neither 0 nor within"},
    {"{\"version\": 1, \"no_thread\": 1}", "neither true nor false"},
    {"{\"version\": 1, \"huge_page_bytes\": 5e9}", "to 4294967295"},
    {"{\"version\": 1, \"limits\": 3}", "'limits' is not an object"},
    {"{\"version\": 1, \"limits\": {\"x\": 3}}", "'x' is not a limit"},
    {"{\"version\": 1, \"limits\": {\"ndim\": 3, \"ndim\": 3}}",
     "'ndim' occurs twice"},
    {"{\"version\": 1, \"limits\": {\"ndim\": true}}", "'ndim' is not an"},
    {"{\"version\": 1, \"limits\": {\"ndim\": 65}}", "ndim 65 is not in 1..64"},
    {"{\"version\": 1, \"limits\": {\"held_bytes\": 1e300}}", "'held_bytes'"},
    {"{\"version\": 1, \"thresholds\": 3}", "'thresholds' is not an object"},
    {"{\"version\": 1, \"thresholds\": {\"shm\": 3}}", "'shm' is not an"},
    {"{\"version\": 1, \"thresholds\": {\"shm\": {\"x\": -1}}}",
     "'x' is not an integer"},
    {"{\"version\": 1, \"thresholds\": {\"shm\": {\"fragment_bytes\": \"1\"}}}",
     "'fragment_bytes' is not an integer"},
    {"{\"version\": 1, \"thresholds\": {\"shm\": {\"x\": \"never\"}}}",
     "'shm.x=never' is not a threshold"},
    {"{\"version\": 1, \"thresholds\": {\"shm\": {\"x\": 1}}}",
     "'shm.x=1' is not a threshold"},
    {"{\"version\": 1, \"thresholds\": {\"tcp\": {\"part_bytes\": 1}}}",
     "'tcp.part_bytes=1' is not a threshold: it is now called fragment_bytes"},
    {"{\"version\": 1, \"thresholds\": {\"tcp\": {\"eager_piece_bytes\": 1}}}",
     "'tcp.eager_piece_bytes=1' is not a threshold: it is now called "
     "eager_single_bytes"},
    {"{\"version\": 1, \"thresholds\": {\"tcp\": {\"lane_bytes\": 1}}}",
     "'tcp.lane_bytes=1' is not a threshold: it is now called bulk_bytes"},
    {"{\"version\": 1, \"thresholds\": {\"tcp\": {\"lane_piece_bytes\": 1}}}",
     "'tcp.lane_piece_bytes=1' is not a threshold: it is now called "
     "bulk_single_bytes"},
    {"{\"version\": 1, \"thresholds\": {\"tcp\": {\"box_bytes\": 1}}}",
     "'tcp.box_bytes=1' is not a threshold: it is now called fastbox_bytes"},
    {"{\"version\": 1, \"thresholds\": {\"air\": {\"fragment_bytes\": 1}}}",
     "'air.fragment_bytes=1' is not a threshold"},
    {"{\"version\": 1, \"ucx\": []}", "'ucx' is not an object"},
    {"{\"version\": 1, \"ucx\": {\"TLS\": 3}}", "'TLS' is not a string"},
    {"{\"version\": 1, \"ucx\": {\"TLS\": \"\"}}", "'TLS' is not a string"},
    {"{\"version\": 1, \"ucx\": {\"UCX_TLS\": \"tcp\"}}", "UCX_ prefix"},
    {"{\"version\": 1, \"ucx\": {\"A=B\": \"tcp\"}}", "is not a UCX key"},
    {"{\"version\": 1, \"ucx\": {\"\": \"tcp\"}}", "is not a UCX key"},
    {"{\"version\": 1, \"ucx\": {\"TLS\": \"a;B=c\"}}", "holds a ';'"},
};

Test(settings, what_is_wrong_with_a_file_is_said_by_its_name)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        tmsg_context_t *context = NULL;
        const char *error;

        write_text(bad[i].text);
        must_be(create(path, &context), TMSG_ERR_INVALID_PARAM);
        error = tmsg_error_message();
        must_say(error, bad[i].words);
        if (strstr(bad[i].words, "within") == NULL) {
            must_say(error, path);
        }
        cr_expect(context == NULL);
    }
}

Test(settings, ucx_keys_that_ucx_has_not_are_refused_by_file)
{
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_status_t status;

    write_text("{\"version\": 1, \"ucx\": {\"NO_SUCH_KEY\": \"1\"}}");
    status = create(path, &context);
    if (status == TMSG_OK) { /* UCX up to 1.20 */
        must(tmsg_worker_create(context, NULL, &worker));
        status = tmsg_listener_create(worker, "tcp://:0", NULL, &listener);
        tmsg_worker_destroy(worker);
        tmsg_context_destroy(context);
    }
    must_be(status, TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), path);
    must_say(tmsg_error_message(), "NO_SUCH_KEY=1");
}

/* By code, by the variable, and wrongly. */
Test(settings, a_table_numbers_the_devices)
{
    const char *table = "{\"version\":1,\"devices\":[{\"index\":%d,"
                        "\"kind\":\"host\"}]}";
    tmsg_context_params_t params = {
        .field_mask = TMSG_CONTEXT_PARAM_DEVICE_TABLE, .device_table = path};
    tmsg_context_t *context = NULL;
    char text[128];

    must_describe(NULL, "\"devices\":[{\"device\":\"cpu:0\",\"kind\":\"host\","
                        "\"index\":-1,");
    snprintf(text, sizeof(text), table, 3);
    write_text(text);
    must_describe(&params, "\"kind\":\"host\",\"index\":3,");
    snprintf(text, sizeof(text), table, 4);
    setenv("TENSORMSG_DEVICE_TABLE", text, 1);
    must_describe(NULL, "\"kind\":\"host\",\"index\":4,");
    must_describe(&params, "\"kind\":\"host\",\"index\":3,");
    params.device_table = "";
    must_describe(&params, "\"kind\":\"host\",\"index\":-1,");
    params.device_table = "[{\"index\":0,\"bus_id\":\"ffff:ff:1f.7\"}]";
    must_be(tmsg_context_create(&params, &context), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(),
             "entry 0: 'ffff:ff:1f.7' is not a gaudi device "
             "of this machine");
    setenv("TENSORMSG_DEVICE_TABLE", "/no/such/table", 1);
    must_be(tmsg_context_create(NULL, &context), TMSG_ERR_NOT_FOUND);
    must_true(context == NULL);
}

Test(settings, files_that_cannot_be_read_are_refused)
{
    tmsg_context_t *context;
    char *text = calloc(1, (1 << 20) + 2);

    must_be(create("/no/such/file.json", &context), TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "/no/such/file.json: No such file");
    must_be(create("/tmp", &context), TMSG_ERR_IO);
    must_eq(mkfifo(scratch_path("fifo"), 0600), 0);
    must_be(create(scratch_path("fifo"), &context), TMSG_ERR_IO);
    must_say(tmsg_error_message(), "is a FIFO or pipe");
    setenv("TENSORMSG_DEVICE_TABLE", scratch_path("fifo"), 1);
    must_be(tmsg_context_create(NULL, &context), TMSG_ERR_IO);
    must_say(tmsg_error_message(), "the device table");
    unsetenv("TENSORMSG_DEVICE_TABLE");
    must_true(text != NULL);
    memset(text, ' ', (1 << 20) + 1);
    write_text(text);
    must_be(create(path, &context), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "larger than 1 MiB");
    free(text);
    write_bytes("{\"version\": 1}\0x", 16);
    must_be(create(path, &context), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "NUL");
}

Test(settings, every_failing_allocation_is_an_error)
{
    unsigned long n = 0;
    tmsg_status_t status;
    bool failed;

    write_text("{\"version\": 1, \"ucx\": {\"TLS\": \"tcp\"}}");
    setenv("TENSORMSG_CONFIG", path, 1);
    do {
        tmsg_settings_t settings;

        failing_alloc_arm(++n);
        status = tmsg_settings_read(NULL, &settings);
        failed = failing_alloc_disarm();
        /* stdio does without a buffer; cJSON does not say why it gave up. */
        must_true(failed || status == TMSG_OK);
        must_true(status == TMSG_OK || status == TMSG_ERR_NO_MEMORY ||
                  status == TMSG_ERR_NOT_FOUND ||
                  status == TMSG_ERR_INVALID_PARAM);
        must_true(status == TMSG_OK || settings.path == NULL);
        tmsg_settings_free(&settings);
    } while (failed);
    cr_expect(ge(ulong, n, 5));
}
