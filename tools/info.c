/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg info: what the library finds here, or at the end of a URL. */
#include <errno.h>
#include <string.h>

#include "key.h"
#include "show.h"

enum { KEY_JSON = 1000, KEY_KEY, KEY_ALL, PINGS = 20 };

static const struct argp_option option_list[] = {
    {"connect", 'c', "URL", 0,
     "Instead connect to URL, and tell which transport would carry maps and "
     "why, whether large ones have a connection of their own (the lane), and "
     "the time of a round trip",
     0},
    {"all", KEY_ALL, NULL, 0,
     "With --connect: what there is here as well, and counters that are 0", 0},
    {"timeout", 't', "S", 0, "For --connect; default 10", 0},
    {"key", KEY_KEY, "FILE", 0, KEY_HELP "; for --connect", 0},
    {"json", KEY_JSON, NULL, 0, "As one JSON object", 0},
    {0},
};

typedef struct {
    const char *url;
    const char *key; /* file of keys, or NULL */
    int timeout_ms;
    bool json, all;
} options_t;

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    switch (key) {
    case 'c':
        options->url = arg;
        return 0;
    case 't':
        options->timeout_ms = parse_seconds(arg, state);
        return 0;
    case KEY_KEY:
        options->key = arg;
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_ALL:
        options->all = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is one argument too many", arg);
        return EINVAL;
    case ARGP_KEY_END:
        if (options->key != NULL && options->url == NULL) {
            argp_error(state, "--key is for --connect");
        }
        if (options->all && options->url == NULL) {
            argp_error(state, "--all is for --connect");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_list,
    .parser = parse_option,
    .doc = "Tell versions, transports, limits and every UCX setting with its "
           "origin, or what a connection is made of.",
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
        printf(": %s", why->valuestring);
    }
    puts(")");
}

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsString(item) ? item->valuestring : "";
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsNumber(item) ? item->valuedouble : -1;
}

/* What is known of a device in one line. */
static void print_device(const cJSON *device)
{
    static const struct {
        const char *key, *before;
    } texts[] = {{"title", ", "}, {"uuid", ", "}, {"bus_id", ", PCI "}};
    const char *name = text_of(device, "device");

    printf("    %s",
           strstr(name, ":-1") != NULL ? text_of(device, "kind") : name);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *text = text_of(device, texts[i].key);

        if (*text != '\0') {
            fputs(texts[i].before, stdout);
            put_text(stdout, text);
        }
    }
    if (number_of(device, "numa_node") >= 0) {
        printf(", NUMA node %.0f", number_of(device, "numa_node"));
    }
    if (*text_of(device, "nic") != '\0') {
        fputs(", near ", stdout);
        put_text(stdout, text_of(device, "nic"));
    }
    if (number_of(device, "index") >= 0) {
        printf(" (%.0f in the device table)", number_of(device, "index"));
    }
    putchar('\n');
}

static void print_item(const cJSON *item);

/* A histogram, whose buckets are for programs, or thresholds. */
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
            printf("    %-16s %s\n", text_of(item, "domain"),
                   text_of(item, "how"));
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

/* Takes out numbers that are 0, and groups of nothing else. */
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

/* A description of the library's, which comes as JSON. */
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

static int fail(void)
{
    complain("%s", tmsg_error_message());
    return EXIT_FAILED;
}

/* Measures round trips, the first of which makes ready what the others use. A
 * peer that answers none is described all the same. */
static void measure(tmsg_endpoint_t *endpoint, int timeout_ms)
{
    tmsg_request_t *request;

    for (int i = 0; i < PINGS; i++) {
        tmsg_status_t status = tmsg_endpoint_ping(endpoint, &request);

        if (status != TMSG_OK) {
            return;
        }
        status = tmsg_request_wait(request, timeout_ms);
        tmsg_request_destroy(request);
        if (status != TMSG_OK) {
            return;
        }
    }
}

static int describe_peer(const options_t *options, tmsg_worker_t *worker,
                         char **json_p)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = options->timeout_ms,
    };
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *request;
    tmsg_status_t status =
        tmsg_endpoint_connect(worker, options->url, &params, &endpoint);

    if (status != TMSG_OK) {
        fail();
        return status == TMSG_ERR_INVALID_PARAM ? EXIT_USAGE : EXIT_FAILED;
    }
    status = tmsg_endpoint_ready(endpoint, &request);
    if (status == TMSG_OK) {
        status = tmsg_request_wait(request, -1);
        tmsg_request_destroy(request);
    }
    if (status == TMSG_OK) {
        measure(endpoint, options->timeout_ms);
        await_lane(worker, endpoint);
        status = tmsg_endpoint_describe(endpoint, json_p);
    }
    if (status != TMSG_OK) {
        fail();
    } else if (tmsg_endpoint_close(endpoint, &request) == TMSG_OK) {
        tmsg_request_wait(request, options->timeout_ms);
        tmsg_request_destroy(request);
    }
    tmsg_endpoint_destroy(endpoint);
    return status == TMSG_OK ? EXIT_DONE : EXIT_FAILED;
}

static void print(const options_t *options, const char *here, const char *there)
{
    if (options->json && options->url == NULL) {
        put_json(stdout, here);
        putchar('\n');
    } else if (options->json) {
        fputs("{\"here\": ", stdout);
        put_json(stdout, here);
        fputs(",\n\"connection\": ", stdout);
        put_json(stdout, there == NULL ? "null" : there);
        puts("}");
    } else {
        if (options->url == NULL || options->all) {
            print_description("here", here, true);
        }
        if (there != NULL) {
            print_description(options->url, there, options->all);
        }
    }
}

/* Whether a receiver could listen here, which opens UCX. */
static int try_to_listen(tmsg_worker_t *worker)
{
    tmsg_listener_t *listener;

    if (tmsg_listener_create(worker, "tcp://127.0.0.1:0", NULL, &listener) !=
        TMSG_OK) {
        return fail();
    }
    tmsg_listener_destroy(listener);
    return EXIT_DONE;
}

int info_main(int argc, char **argv)
{
    options_t options = {.timeout_ms = 10000};
    tmsg_context_t *context;
    tmsg_worker_t *worker = NULL;
    char *here = NULL, *there = NULL;
    int code = EXIT_DONE;

    argp_parse(&parser, argc, argv, 0, NULL, &options);
    if (create_context(options.key, NULL, &context) != TMSG_OK) {
        return fail();
    }
    if (tmsg_context_describe(context, &here) != TMSG_OK ||
        tmsg_worker_create(context, NULL, &worker) != TMSG_OK) {
        code = fail();
    }
    if (code == EXIT_DONE) {
        code = options.url != NULL ? describe_peer(&options, worker, &there)
                                   : try_to_listen(worker);
    }
    if (here != NULL && code != EXIT_USAGE) {
        print(&options, here, there); /* where all else fails, it says why */
    }
    tmsg_string_free(here);
    tmsg_string_free(there);
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return code;
}
