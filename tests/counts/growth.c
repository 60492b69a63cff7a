/* SPDX-License-Identifier: BSD-3-Clause */
/* growth FOLDER: what the functions cost that walk what a peer sent, for inputs
 * of a size, of 4 and of 16 times that. growth.py runs this under callgrind and
 * compares the instructions. Files are written into FOLDER. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

#include "am/endpoint/endpoint.h"
#include "am/ucx/packed.h"
#include "am/ucx/peer_address.h"
#include "core/bytes.h"
#include "core/json_read.h"
#include "core/limits.h"
#include "core/map.h"
#include "core/shown.h"
#include "core/utf8.h"
#include "counts/marks.h"
#include "rpc/offer.h"
#include "rpc/reflect.h"
#include "serialize/header.h"
#include "serialize/ucxx.h"
#include "support/must.h"
#include "support/schema_pair.h"

static const char *folder;

/* What a case works on. */
typedef struct {
    size_t count;
    tmsg_map_t *map;
    tmsg_limits_t limits;
    uint8_t *body;
    size_t bytes;
    uint64_t payload_bytes;
    char *text;
    char path[200];
    schema_pair_t *pair;
    tmsg_hub_t *hub;
    tmsg_offer_t *offers;
    tmsg_own_address_t *own;
} input_t;

static float element;

static void add_tensors(input_t *input, const char *form)
{
    const int64_t shape[] = {1};
    const tmsg_tensor_t tensor = {.data = &element,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .dtype = {TMSG_DTYPE_FLOAT, 32, 1},
                                  .ndim = 1,
                                  .shape = shape};

    for (size_t i = 0; i < input->count; i++) {
        char name[32];

        snprintf(name, sizeof(name), form, i);
        must(tmsg_map_add(input->map, name, &tensor, NULL));
    }
}

static void make_tensors(input_t *input) { add_tensors(input, "tensor.%06zu"); }

static void add_keys(input_t *input)
{
    for (size_t i = 0; i < input->count; i++) {
        char key[32];

        snprintf(key, sizeof(key), "key.%06zu", i);
        must(tmsg_map_set_i64(input->map, key, (int64_t)i));
    }
}

static void add_methods(input_t *input)
{
    static const char about[] = "{\"signature\": \"(x: float32[n]) -> (y: "
                                "float32[n])\", \"description\": \"words\"}";

    for (size_t i = 0; i < input->count; i++) {
        char key[32];

        snprintf(key, sizeof(key), TMSG_REFLECT_METHOD "%06zu", i);
        must(tmsg_map_set_string(input->map, key, about));
    }
}

static void encode_map(input_t *input)
{
    size_t again;

    must(tmsg_layout_bytes(input->map, &input->limits, &input->payload_bytes));
    must(tmsg_body_encode(input->map, NULL, NULL, 0, &input->bytes));
    input->body = malloc(input->bytes);
    must(tmsg_body_encode(input->map, NULL, input->body, input->bytes, &again));
    (void)tmsg_map_clear(input->map);
}

static void encode_tensors(input_t *input)
{
    make_tensors(input);
    encode_map(input);
}

static void encode_keys(input_t *input)
{
    add_keys(input);
    encode_map(input);
}

static void write_text(input_t *input, const char *piece)
{
    size_t bytes = strlen(piece);

    input->text = malloc(bytes * input->count + 1);
    for (size_t i = 0; i < input->count; i++) {
        memcpy(input->text + bytes * i, piece, bytes);
    }
    input->bytes = bytes * input->count;
    input->text[input->bytes] = '\0';
}

static void write_hidden(input_t *input) { write_text(input, "\xe2\x80\xae"); }

static void write_letters(input_t *input) { write_text(input, "\xc3\xa4"); }

static void encode_string(input_t *input)
{
    write_letters(input);
    must(tmsg_map_set_string(input->map, "text", input->text));
    encode_map(input);
}

static void decode(input_t *input)
{
    tmsg_body_extra_t extra;

    must(tmsg_body_decode(input->body, input->bytes, &input->limits, input->map,
                          &extra));
}

static void list_header(input_t *input)
{
    const tmsg_preamble_t head = {.kind = TMSG_PREAMBLE_MAP,
                                  .payload_bytes = input->payload_bytes,
                                  .body_bytes = (uint32_t)input->bytes};
    size_t bytes = TMSG_PREAMBLE_BYTES + input->bytes;
    uint8_t *whole = malloc(bytes);

    tmsg_preamble_encode(&head, whole);
    memcpy(whole + TMSG_PREAMBLE_BYTES, input->body, input->bytes);
    must(tmsg_header_to_json(whole, bytes, &input->text));
    free(whole);
}

static void list_map(input_t *input)
{
    must(tmsg_map_to_json(input->map, &input->text));
}

static void find_tensors(input_t *input)
{
    for (size_t i = 0; i < input->count; i++) {
        char name[32];
        tmsg_tensor_t tensor;

        snprintf(name, sizeof(name), "tensor.%06zu", input->count - 1 - i);
        must(tmsg_map_find(input->map, name, &tensor));
    }
}

static void find_keys(input_t *input)
{
    for (size_t i = 0; i < input->count; i++) {
        char key[32];
        int64_t value;

        snprintf(key, sizeof(key), "key.%06zu", input->count - 1 - i);
        must(tmsg_map_get_i64(input->map, key, &value));
    }
}

static void set_keys_again(input_t *input) { add_keys(input); }

static void measure_layout(input_t *input)
{
    uint64_t bytes;

    must(tmsg_layout_bytes(input->map, &input->limits, &bytes));
}

static void show(input_t *input)
{
    char *to = malloc(4 * input->bytes);

    must_true(tmsg_shown_write(to, input->text, input->bytes) > 0);
    free(to);
}

static void check_utf8(input_t *input)
{
    must_true(tmsg_utf8_valid(input->text, input->bytes));
}

static void read_methods(input_t *input)
{
    tmsg_methods_t *methods;

    must(tmsg_methods_read(input->map, &methods));
    must_eq(tmsg_methods_size(methods), input->count);
    tmsg_methods_destroy(methods);
}

static void write_signature(input_t *input)
{
    input->text = calloc(1, input->count * 16 + 16);
    strcpy(input->text, "(");
    for (size_t i = 0; i < input->count; i++) {
        sprintf(input->text + strlen(input->text), "%sp%04zu: int8[]",
                i == 0 ? "" : ", ", i);
    }
    strcat(input->text, ") -> ()");
}

static void read_signature(input_t *input)
{
    tmsg_signature_t *signature;

    must(tmsg_signature_parse(input->text, &signature));
    tmsg_signature_destroy(signature);
}

static void write_user_header(input_t *input)
{
    tmsg_map_t *one;
    const tmsg_tensor_t tensor = {.data = &element,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .dtype = {TMSG_DTYPE_FLOAT, 32, 1}};

    write_letters(input);
    must(tmsg_map_create(&one));
    must(tmsg_map_add(one, "x", &tensor, NULL));
    must(tmsg_map_set_bytes(one, TMSG_META_UCXX_HEADER, input->text,
                            input->bytes));
    must(tmsg_ucxx_from_map(one, 0, &input->body, &input->bytes));
    tmsg_map_destroy(one);
}

static void read_user_header(input_t *input)
{
    tmsg_ucxx_header_t header;

    must(tmsg_ucxx_decode(input->body, input->bytes, &header));
    must(tmsg_ucxx_to_map(&header, 4, &input->limits, input->map));
}

static void save(input_t *input, const char *ending)
{
    make_tensors(input);
    snprintf(input->path, sizeof(input->path), "%s/%zu.%s", folder,
             input->count, ending);
    must(tmsg_file_save(input->map, input->path, NULL));
    (void)tmsg_map_clear(input->map);
}

static void save_safetensors(input_t *input) { save(input, "safetensors"); }

static void save_npz(input_t *input) { save(input, "npz"); }

static void load(input_t *input)
{
    tmsg_map_t *map;

    must(tmsg_file_load(input->path, NULL, &map));
    must_eq(tmsg_map_size(map), input->count);
    tmsg_map_destroy(map);
}

static void open_pair(input_t *input)
{
    make_tensors(input);
    input->pair = calloc(1, sizeof(*input->pair));
    schema_pair_open(input->pair, 4, 1u << 20, 1u << 20);
}

/* The layout is defined, and referred to. */
static void pass_schemas(input_t *input)
{
    for (int i = 0; i < 3; i++) {
        (void)schema_pair_send(input->pair, input->map);
        schema_pair_settle(input->pair);
    }
    must_true(input->pair->referred > 0);
}

/* As many layouts as the count says, of one tensor each, one after the other.
 */
static void open_small_pair(input_t *input)
{
    input->pair = calloc(1, sizeof(*input->pair));
    schema_pair_open(input->pair, 200, 1u << 20, 1u << 20);
}

static void pass_layouts(input_t *input)
{
    input_t one = {.count = 1, .map = input->map};

    for (size_t i = 0; i < input->count; i++) {
        char form[32];

        snprintf(form, sizeof(form), "%zu.%%zu", i);
        add_tensors(&one, form);
        for (int again = 0; again < 3; again++) {
            (void)schema_pair_send(input->pair, input->map);
            schema_pair_settle(input->pair);
        }
        (void)tmsg_map_clear(input->map);
    }
}

static void write_json(input_t *input)
{
    input->text = calloc(1, input->count * 16 + 16);
    strcpy(input->text, "{");
    for (size_t i = 0; i < input->count; i++) {
        sprintf(input->text + strlen(input->text), "%s\"k%06zu\":1",
                i == 0 ? "" : ",", i);
    }
    strcat(input->text, "}");
}

static void read_json(input_t *input)
{
    tmsg_json_reader_t reader = {.what = "what came", .source = "here"};
    cJSON *json = tmsg_json_parse(&reader, input->text);

    must_true(json != NULL && tmsg_json_check_object(&reader, json));
    cJSON_Delete(json);
}

static void make_versions(input_t *input)
{
    input->hub = calloc(1, sizeof(*input->hub));
    input->hub->lent_most = INT64_MAX;
    must(tmsg_offers_create(&input->hub->offers));
    must(tmsg_offers_begin(input->hub->offers));
    input->offers = calloc(input->count, sizeof(*input->offers));
    for (size_t i = 0; i < input->count; i++) {
        input->offers[i] = (tmsg_offer_t){.hub = input->hub,
                                          .version = i * 797 % input->count,
                                          .name = input->path,
                                          .name_bytes = 1};
    }
    strcpy(input->path, "w");
}

static void free_offers(input_t *input)
{
    tmsg_offers_free(input->hub->offers);
    free(input->offers);
    free(input->hub);
    input->path[0] = '\0';
}

/* As many fetches wait as may, of eight peers. As often as there are such, a
 * further fetch finds no room, and another name is offered. */
static void offer_beside_waits(input_t *input)
{
    enum { PEERS = 8 };
    static tmsg_rpc_peer_t peers[PEERS];
    static tmsg_task_t tasks[PEERS];
    tmsg_fetch_wait_t *waits = calloc(input->count, sizeof(*waits));
    tmsg_fetch_wait_t more = {.name = 1, .task = tasks, .places = 1};
    tmsg_offer_t other = {.hub = input->hub, .name = input->path};

    for (size_t i = 0; i < input->count; i++) {
        tasks[i % PEERS].peer = &peers[i % PEERS];
        waits[i].name = 2 + i;
        waits[i].task = &tasks[i % PEERS];
        waits[i].places = (uint32_t)(TMSG_FETCHES_WAITING / input->count);
        must(tmsg_waits_take_place(input->hub, &waits[i]));
        tmsg_waits_begin(input->hub, &waits[i]);
    }
    for (size_t i = 0; i < input->count; i++) {
        must_be(tmsg_waits_take_place(input->hub, &more),
                TMSG_ERR_RESOURCE_EXHAUSTED);
        tmsg_fetch_look_again(input->hub, &other);
    }
    for (size_t i = 0; i < input->count; i++) {
        tmsg_waits_end(input->hub, &waits[i]);
        tmsg_waits_give_place(input->hub, &waits[i]);
    }
    must_eq(input->hub->offers->places, 0);
    free(waits);
    free_offers(input);
}

/* Of many versions of one name each is offered, and withdrawn as the newest. */
static void find_versions(input_t *input)
{
    static const tmsg_endpoint_t asker; /* without a principal */
    const tmsg_fetch_ask_t ask = {.name = "w"};
    tmsg_offers_t *offers = input->hub->offers;

    for (size_t i = 0; i < input->count; i++) {
        must(tmsg_offers_add(input->hub, &input->offers[i]));
    }
    for (size_t i = 0; i < input->count; i++) {
        tmsg_offer_t *newest;

        must(tmsg_offers_find(offers, &ask, &asker, true, &newest));
        must_eq(newest->version, input->count - 1 - i);
        tmsg_offer_finish(newest, TMSG_ERR_CANCELED);
    }
    must_eq(offers->by_reader.count, 0);
    free_offers(input);
}

/* As often as offers have ended that were for others, one is looked for by name
 * and by a number. */
static void miss_what_ended(input_t *input)
{
    static const tmsg_endpoint_t asker; /* without a principal */
    const tmsg_fetch_ask_t by_name = {.name = "w"};
    tmsg_offers_t *offers = input->hub->offers;

    for (size_t i = 0; i < input->count; i++) {
        input->offers[i].principals = strdup("bob carol");
        input->offers[i].name_key = tmsg_offer_name_key("w", 1);
        must(tmsg_offers_add(input->hub, &input->offers[i]));
        tmsg_offer_finish(&input->offers[i], TMSG_ERR_CANCELED);
    }
    for (size_t i = 0; i < input->count; i++) {
        tmsg_fetch_ask_t by_key = {
            .key = {.epoch = offers->epoch, .number = i + 1}};
        tmsg_offer_t *none;

        memcpy(by_key.key.instance, offers->instance, TMSG_KEY_INSTANCE);
        must_be(tmsg_offers_find(offers, &by_name, &asker, true, &none),
                TMSG_ERR_NOT_FOUND);
        must_be(tmsg_offers_find(offers, &by_key, &asker, true, &none),
                TMSG_ERR_NOT_FOUND);
    }
    free_offers(input);
}

/* The part of a worker address, in UCX's second version, for TCP on a device.
 */
static uint8_t *write_device(uint8_t *at, size_t number, bool last)
{
    const uint8_t device[] = {0,
                              (uint8_t)((last ? 0x80 : 0) | 6),
                              0,
                              AF_INET,
                              10,
                              0,
                              (uint8_t)(number >> 8),
                              (uint8_t)number};
    const uint8_t entry[] = {1, 1, 1, 0, 0, 4, 2, 0, 0x80 | 2, 1, 2};

    memcpy(at, device, sizeof(device));
    at += sizeof(device);
    tmsg_put_le(at, tmsg_packed_checksum("tcp"), 2);
    memcpy(at + 2, entry, sizeof(entry));
    return at + 2 + sizeof(entry);
}

static void write_worker_address(input_t *input, size_t count, uint64_t uuid)
{
    unsigned minor = tmsg_ucx_version().minor;
    uint8_t *at;

    input->body = malloc(10 + 32 * count);
    input->body[0] = (uint8_t)(1 | (minor >= 16 ? minor % 16 << 4 : 0));
    input->body[1] = TMSG_PACKED_UUID;
    tmsg_put_le(input->body + 2, uuid, 8);
    at = input->body + 10;
    for (size_t i = 0; i < count; i++) {
        at = write_device(at, (size_t)uuid + i, i + 1 == count);
    }
    input->bytes = (size_t)(at - input->body);
}

static void write_devices(input_t *input)
{
    write_worker_address(input, 1, 1);
    must(tmsg_own_address_read(input->body, input->bytes, input->body,
                               input->bytes, &input->own));
    must_true(input->own != NULL);
    input->text = (char *)input->body; /* to which `own` refers */
    write_worker_address(input, input->count, 2);
}

static void check_worker_address(input_t *input)
{
    const tmsg_hello_t hello = {.pid = 1};
    const tmsg_address_claim_t claim = {&hello, true, false};
    tmsg_ucx_t ucx = {.own = input->own};
    tmsg_peer_address_t *address;

    must(tmsg_peer_address_check(&ucx, &claim, input->body, input->bytes,
                                 &address));
    tmsg_peer_address_free(address);
}

static const struct {
    const char *name;
    size_t base;
    void (*prepare)(input_t *input);
    void (*run)(input_t *input);
} cases[] = {
    {"decode tensors", 64, encode_tensors, decode},
    {"decode metadata", 64, encode_keys, decode},
    {"decode a text", 4096, encode_string, decode},
    {"list a header", 64, encode_tensors, list_header},
    {"list a map", 64, make_tensors, list_map},
    {"find tensors", 64, make_tensors, find_tensors},
    {"find metadata", 64, add_keys, find_keys},
    {"set metadata", 64, add_keys, set_keys_again},
    {"measure a layout", 64, make_tensors, measure_layout},
    {"show a text", 1024, write_hidden, show},
    {"check a text", 4096, write_letters, check_utf8},
    {"read methods", 16, add_methods, read_methods},
    {"read a signature", 4, write_signature, read_signature},
    {"read a header of UCXX", 16384, write_user_header, read_user_header},
    {"load a .safetensors", 64, save_safetensors, load},
    {"load a .npz", 16, save_npz, load},
    {"pass a layout", 32, open_pair, pass_schemas},
    {"pass layouts", 8, open_small_pair, pass_layouts},
    {"read JSON", 64, write_json, read_json},
    {"find versions", 256, make_versions, find_versions},
    {"miss what ended", 64, make_versions, miss_what_ended},
    {"offer beside waits", 64, make_versions, offer_beside_waits},
    {"check a worker address", 8, write_devices, check_worker_address},
};

static void measure(size_t at, size_t times)
{
    input_t input = {.count = cases[at].base * times,
                     .limits = tmsg_limits_usual()};
    char label[100];

    must(tmsg_map_create(&input.map));
    cases[at].prepare(&input);
    snprintf(label, sizeof(label), "%s;%zu", cases[at].name, times);
    growth_begin();
    cases[at].run(&input);
    growth_end(label);
    if (input.pair != NULL) {
        schema_pair_close(input.pair);
        free(input.pair);
    }
    if (input.path[0] != '\0') {
        (void)unlink(input.path);
    }
    tmsg_map_destroy(input.map);
    tmsg_own_address_free(input.own);
    free(input.body);
    free(input.text);
}

int main(int argc, char **argv)
{
    must_true(argc == 2);
    folder = argv[1];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t times = 1; times <= 16; times *= 4) {
            measure(i, times);
        }
    }
    return 0;
}
