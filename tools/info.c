/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg info: prints what the library finds on this machine, or at a
 * URL. */
#include <string.h>

#include "connection.h"
#include "show.h"

enum { KEY_JSON = 1000, KEY_ALL, PINGS = 20 };

static const struct argp_option option_list[] = {
    {"all", KEY_ALL, NULL, 0,
     "With a URL: also the settings of this side, and counters that are 0", 0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object", 0},
    {0},
};

typedef struct {
    connection_options_t connection;
    bool json, all;
} options_t;

static error_t parse_info_option(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    (void)arg;
    switch (key) {
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_ALL:
        options->all = true;
        return 0;
    case ARGP_KEY_END:
        if (options->all && options->connection.url == NULL) {
            argp_error(state, "--all goes with a URL");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_list,
    .parser = parse_info_option,
    .args_doc = "[URL]",
    .doc = "Show versions, transports, limits and every UCX setting with its "
           "origin. With a URL: connect to it, and show which transport would "
           "carry maps and why, whether large maps have a connection of their "
           "own (the bulk stream), the time of a round trip, and the names "
           "that the peer offers.",
};

static void print_key(const cJSON *key)
{
    const cJSON *why = cJSON_GetObjectItemCaseSensitive(key, "why");
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(key, "name");
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(key, "value");
    const cJSON *origin = cJSON_GetObjectItemCaseSensitive(key, "origin");

    printf("    ");
    put_text(stdout, cJSON_IsString(name) ? name->valuestring : "?");
    putchar('=');
    put_text(stdout, cJSON_IsString(value) ? value->valuestring : "?");
    printf("  (%s", cJSON_IsString(origin) ? origin->valuestring : "?");
    if (cJSON_IsString(why)) {
        fputs(": ", stdout);
        put_text(stdout, why->valuestring);
    }
    puts(")");
}

static const char *text_member(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsString(item) ? item->valuestring : "";
}

static double number_member(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsNumber(item) ? item->valuedouble : -1;
}

/* Prints what is known of a device, on one line. */
static void print_device(const cJSON *device)
{
    static const struct {
        const char *key, *before;
    } texts[] = {{"title", ", "}, {"uuid", ", "}, {"bus_id", ", PCI "}};
    const char *name = text_member(device, "device");

    printf("    %s",
           strstr(name, ":-1") != NULL ? text_member(device, "kind") : name);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *text = text_member(device, texts[i].key);

        if (*text != '\0') {
            fputs(texts[i].before, stdout);
            put_text(stdout, text);
        }
    }
    if (number_member(device, "numa_node") >= 0) {
        printf(", NUMA node %.0f", number_member(device, "numa_node"));
    }
    if (*text_member(device, "nic") != '\0') {
        fputs(", near ", stdout);
        put_text(stdout, text_member(device, "nic"));
    }
    if (number_member(device, "index") >= 0) {
        printf(" (%.0f in the device table)", number_member(device, "index"));
    }
    putchar('\n');
}

static void print_item(const cJSON *item);

/* Prints the numbers of a histogram or of thresholds. The buckets of a
 * histogram are for programs, and are left out. */
static void print_spread(const cJSON *spread)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, spread)
    {
        const char *comma = item == spread->child ? "" : ", ";

        if (cJSON_IsNumber(item)) {
            printf("%s%s %.0f", comma, item->string, item->valuedouble);
        } else if (cJSON_IsNull(item)) {
            printf("%s%s never", comma, item->string);
        }
    }
    putchar('\n');
}

static void print_list(const cJSON *list)
{
    const cJSON *item;

    if (cJSON_GetObjectItemCaseSensitive(list, "count") != NULL) {
        print_spread(list);
        return;
    }
    putchar('\n');
    cJSON_ArrayForEach(item, list)
    {
        if (cJSON_IsObject(item) && item->string != NULL) {
            printf("    %-16s ", item->string);
            print_spread(item);
        } else if (cJSON_GetObjectItemCaseSensitive(item, "device") != NULL) {
            print_device(item);
        } else if (cJSON_GetObjectItemCaseSensitive(item, "domain") != NULL) {
            printf("    %-16s ", text_member(item, "domain"));
            put_text(stdout, text_member(item, "how"));
            putchar('\n');
        } else if (cJSON_IsObject(item)) {
            print_key(item);
        } else if (cJSON_IsArray(list)) {
            printf("    ");
            put_text(stdout, cJSON_IsString(item) ? item->valuestring : "?");
            putchar('\n');
        } else {
            printf("  ");
            print_item(item);
        }
    }
}

static void print_item(const cJSON *item)
{
    if (cJSON_IsString(item) && *item->valuestring == '\0') {
        return;
    }
    printf("  %-18s ", item->string);
    if (cJSON_IsString(item)) {
        put_text(stdout, item->valuestring);
        putchar('\n');
    } else if (cJSON_IsNumber(item)) {
        printf("%.0f\n", item->valuedouble);
    } else if (cJSON_IsBool(item)) {
        puts(cJSON_IsTrue(item) ? "yes" : "no");
    } else {
        print_list(item);
    }
}

/* Removes numbers that are 0, and groups that hold nothing else. */
static void drop_zeros(cJSON *object)
{
    cJSON *next;

    for (cJSON *item = object->child; item != NULL; item = next) {
        next = item->next;
        if (cJSON_IsObject(item)) {
            drop_zeros(item);
        }
        if ((cJSON_IsNumber(item) && item->valuedouble == 0) ||
            ((cJSON_IsObject(item) || cJSON_IsArray(item)) &&
             item->child == NULL)) {
            cJSON_Delete(cJSON_DetachItemViaPointer(object, item));
        }
    }
}

/* Prints a description that the library gave as JSON. */
static void print_description(const char *title, const char *json, bool all)
{
    cJSON *object = cJSON_Parse(json);
    const cJSON *item;

    if (!all && object != NULL) {
        drop_zeros(object);
    }
    printf("%s\n", title);
    cJSON_ArrayForEach(item, object) { print_item(item); }
    cJSON_Delete(object);
}

/* Prints a number of an offer. Those above 2^53 come as text. */
static void print_number(const cJSON *offer, const char *key)
{
    const char *text = text_member(offer, key);

    if (text[0] != '\0') {
        put_text(stdout, text);
    } else {
        printf("%.0f", number_member(offer, key));
    }
}

/* Prints what the peer offers, a line for each name. */
static void print_offers(const char *json)
{
    cJSON *list = cJSON_Parse(json);
    const cJSON *offers = cJSON_GetObjectItemCaseSensitive(list, "offers");
    const cJSON *offer;

    puts(cJSON_GetArraySize(offers) > 0 ? "  offers" : "  offers  none");
    cJSON_ArrayForEach(offer, offers)
    {
        printf("    ");
        put_text(stdout, text_member(offer, "name"));
        printf("  (version ");
        print_number(offer, "version");
        printf(": ");
        print_number(offer, "tensors");
        printf(" tensor%s, ", number_member(offer, "tensors") == 1 ? "" : "s");
        print_number(offer, "bytes");
        puts(" bytes)");
    }
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(list, "more"))) {
        puts("    and more");
    }
    cJSON_Delete(list);
}

/* Prints the list of offers as JSON, and whether there are more. */
static void print_offers_json(const char *json)
{
    cJSON *list = cJSON_Parse(json == NULL ? "{}" : json);
    char *offers =
        cJSON_Print(cJSON_GetObjectItemCaseSensitive(list, "offers"));

    fputs(",\n\"offers\": ", stdout);
    put_json(stdout, offers == NULL ? "null" : offers);
    if (offers != NULL) {
        printf(",\n\"more_offers\": %s",
               cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(list, "more"))
                   ? "true"
                   : "false");
    }
    cJSON_free(offers);
    cJSON_Delete(list);
}

/* Measures round trips, for `timeout_ms` at most. The first one prepares what
 * the others use. If the peer does not answer, its description is printed
 * without them. Returns false if it was silent. */
static bool measure_round_trips(tmsg_endpoint_t *endpoint, int timeout_ms)
{
    uint64_t end = now_ns() + (uint64_t)timeout_ms * 1000000;
    tmsg_request_t *request;

    for (int i = 0; i < PINGS && ms_until(end) > 0; i++) {
        tmsg_status_t status = tmsg_endpoint_ping(endpoint, &request);

        if (status != TMSG_OK) {
            return true;
        }
        status = tmsg_request_wait(request, ms_until(end));
        tmsg_request_destroy(request);
        if (status != TMSG_OK) {
            return status != TMSG_ERR_TIMED_OUT;
        }
    }
    return true;
}

/* Prints the error. If UCX does not open, info prints all the same what it
 * knows. */
static int fail_info(void)
{
    complain("%s", tmsg_error_message());
    return EXIT_FAILED;
}

/* What is told of the peer at a URL; NULL: it is not known. */
typedef struct {
    char *connection, *offers;
} there_t;

static int describe_peer(const options_t *options, tmsg_worker_t *worker,
                         there_t *there)
{
    const connection_options_t *connection = &options->connection;
    tmsg_endpoint_t *endpoint = NULL;
    int code = connect_to(connection, connection->url, worker, &endpoint);

    if (code == EXIT_DONE) {
        bool answers = measure_round_trips(endpoint, connection->timeout_ms);

        await_bulk(worker, endpoint);
        if (tmsg_endpoint_describe(endpoint, &there->connection) != TMSG_OK) {
            code = fail_info();
        }
        if (answers) { /* a peer with an older library has no offers */
            answers =
                tmsg_endpoint_offers(endpoint, connection->timeout_ms,
                                     &there->offers) != TMSG_ERR_TIMED_OUT;
        }
        if (answers) {
            close_in_order(endpoint, connection->timeout_ms);
        }
    }
    tmsg_endpoint_destroy(endpoint);
    return code;
}

static void print_info(const options_t *options, const char *here,
                       const there_t *there)
{
    const char *url = options->connection.url;

    if (options->json && url == NULL) {
        put_json(stdout, here);
        putchar('\n');
    } else if (options->json) {
        fputs("{\"here\": ", stdout);
        put_json(stdout, here);
        fputs(",\n\"connection\": ", stdout);
        put_json(stdout,
                 there->connection == NULL ? "null" : there->connection);
        print_offers_json(there->offers);
        puts("}");
    } else {
        if (url == NULL || options->all) {
            print_description("here", here, true);
        }
        if (there->connection != NULL) {
            print_description(url, there->connection, options->all);
        }
        if (there->offers != NULL) {
            print_offers(there->offers);
        }
    }
}

/* Tells whether a receiver could listen here. Listening opens UCX. */
static int try_to_listen(tmsg_worker_t *worker)
{
    tmsg_listener_t *listener;

    if (tmsg_listener_create(worker, LISTEN_DEFAULT, NULL, &listener) !=
        TMSG_OK) {
        return fail_info();
    }
    tmsg_listener_destroy(listener);
    return EXIT_DONE;
}

int info_main(int argc, char **argv)
{
    options_t options = {.json = false};
    tmsg_context_t *context = NULL;
    tmsg_worker_t *worker = NULL;
    there_t there = {.connection = NULL};
    char *here = NULL;
    int code;

    parse_command(&parser, CONNECTS, argc, argv, &options, &options.connection);
    code = open_context(&options.connection, NULL, &context);
    if (code != EXIT_DONE) {
        return code;
    }
    if (tmsg_context_describe(context, &here) != TMSG_OK ||
        tmsg_worker_create(context, NULL, &worker) != TMSG_OK) {
        code = fail_info();
    } else if (options.connection.url != NULL) {
        code = describe_peer(&options, worker, &there);
    } else {
        code = try_to_listen(worker);
    }
    if (here != NULL && code != EXIT_USAGE) {
        /* The description tells why, if something failed. */
        print_info(&options, here, &there);
    }
    tmsg_string_free(here);
    tmsg_string_free(there.connection);
    tmsg_string_free(there.offers);
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return code;
}
