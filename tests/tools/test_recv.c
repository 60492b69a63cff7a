/* SPDX-License-Identifier: BSD-3-Clause */
/* `tensormsg recv` before senders that are not `tensormsg send`: by the words
 * of docs/wire/transfer.md, and by lies. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

#include "support/must.h"

#define BOUND_MS 30000

typedef struct {
    pid_t pid;
    FILE *out;
    char dir[64]; /* with out/ and errors in it */
    char url[256];
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t *endpoint;
} scene_t;

/* Runs `tensormsg recv --out DIR/out ...` and connects to it. */
static void open_scene(scene_t *scene, const char *count, const char *timeout)
{
    char out[80], errors[80];
    int fds[2];

    *scene = (scene_t){.dir = "/tmp/tensormsg-test.XXXXXX"};
    must_true(mkdtemp(scene->dir) != NULL && pipe(fds) == 0);
    snprintf(out, sizeof(out), "%s/out", scene->dir);
    snprintf(errors, sizeof(errors), "%s/errors", scene->dir);
    scene->pid = fork();
    if (scene->pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(fds[1]);
        must_true(freopen(errors, "w", stderr) != NULL);
        execl(getenv("TENSORMSG"), "tensormsg", "recv", "--out", out, "--count",
              count, "--timeout", timeout, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    scene->out = fdopen(fds[0], "r");
    must_true(fgets(scene->url, sizeof(scene->url), scene->out) != NULL);
    scene->url[strcspn(scene->url, "\n")] = '\0';
    must(tmsg_context_create(NULL, &scene->context));
    must(tmsg_worker_create(scene->context, NULL, &scene->worker));
}

static void dial(scene_t *scene)
{
    tmsg_request_t *ready;

    must(tmsg_endpoint_connect(scene->worker, scene->url, NULL,
                               &scene->endpoint));
    must(tmsg_endpoint_ready(scene->endpoint, &ready));
    must(tmsg_request_wait(ready, BOUND_MS));
    tmsg_request_destroy(ready);
}

/* Closes in order and waits for the receiver; its exit code. What it said on
 * standard error goes to `errors`. */
static int close_scene(scene_t *scene, char *errors, size_t bytes)
{
    tmsg_request_t *closed;
    char path[80], command[96];
    FILE *file;
    int status;

    if (scene->endpoint != NULL) {
        must(tmsg_endpoint_close(scene->endpoint, &closed));
        must(tmsg_request_wait(closed, BOUND_MS));
        tmsg_request_destroy(closed);
    }
    tmsg_endpoint_destroy(scene->endpoint);
    tmsg_worker_destroy(scene->worker);
    tmsg_context_destroy(scene->context);
    must_true(waitpid(scene->pid, &status, 0) == scene->pid);
    fclose(scene->out);
    snprintf(path, sizeof(path), "%s/errors", scene->dir);
    file = fopen(path, "r");
    must_true(file != NULL);
    errors[fread(errors, 1, bytes - 1, file)] = '\0';
    fclose(file);
    snprintf(command, sizeof(command), "rm -r %s", scene->dir);
    must_true(system(command) == 0);
    must_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static unsigned count_files(const scene_t *scene)
{
    char path[80];
    struct dirent *entry;
    unsigned count = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/out", scene->dir);
    dir = opendir(path);
    must_true(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        count +=
            strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(dir);
    return count;
}

static bool exists(const scene_t *scene, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", scene->dir, name);
    return access(path, F_OK) == 0;
}

/* A map of one tensor, called "x". */
static tmsg_map_t *make_map(tmsg_dtype_t dtype)
{
    static double data[4] = {1, 2, 3, 4};
    static const int64_t shape[] = {2};
    const tmsg_tensor_t tensor = {data, {TMSG_DEVICE_CPU, 0}, dtype, 1, shape,
                                  NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    return map;
}

static const tmsg_dtype_t float64 = {TMSG_DTYPE_FLOAT, 64, 1};

/* Sends a map, waits until the receiver has taken it, and frees it. */
static void send_taken(scene_t *scene, tmsg_map_t *map)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_ACKED};
    tmsg_request_t *request;

    must(tmsg_endpoint_send(scene->endpoint, map, &params, &request));
    must(tmsg_request_wait(request, BOUND_MS));
    tmsg_request_destroy(request);
    tmsg_map_destroy(map);
}

static void offer_checked(scene_t *scene, int64_t number, const char *name,
                          const char *format, int64_t bytes, bool checked)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_set_i64(map, "transfer.offer", number));
    if (checked) {
        must(tmsg_map_set_bool(map, "transfer.checked", true));
    }
    must(tmsg_map_set_i64(map, "transfer.bytes", bytes));
    if (name != NULL) {
        must(tmsg_map_set_string(map, TMSG_META_FILE_NAME, name));
    }
    if (format != NULL) {
        must(tmsg_map_set_string(map, TMSG_META_FILE_FORMAT, format));
    }
    must(tmsg_endpoint_send(scene->endpoint, map, NULL, NULL));
    tmsg_map_destroy(map);
}

static void offer(scene_t *scene, int64_t number, const char *name,
                  const char *format, int64_t bytes)
{
    offer_checked(scene, number, name, format, bytes, false);
}

/* The next reply that is not "alive" must be this; its words must hold part. Of
 * "go", whether there is a part is whether it waits for a verdict. */
static void must_reply(scene_t *scene, int64_t number, const char *state,
                       const char *part)
{
    const char *got = "alive", *words = "";
    tmsg_message_t *message;
    int64_t replied;

    must(tmsg_endpoint_recv(scene->endpoint, BOUND_MS, &message));
    must(tmsg_map_get_i64(tmsg_message_map(message), "transfer.reply",
                          &replied));
    must(
        tmsg_map_get_string(tmsg_message_map(message), "transfer.state", &got));
    must_eq(replied, number);
    if (strcmp(got, "alive") == 0) {
        tmsg_message_destroy(message);
        must_reply(scene, number, state, part);
        return;
    }
    must_say(got, state);
    if (strcmp(state, "go") == 0) {
        int checked = 0;

        tmsg_map_get_bool(tmsg_message_map(message), "transfer.checked",
                          &checked);
        must_eq(checked, part != NULL);
    } else if (part != NULL) {
        must(tmsg_map_get_string(tmsg_message_map(message),
                                 strcmp(state, "done") == 0 ? "transfer.file"
                                                            : "transfer.error",
                                 &words));
        must_say(words, part);
    }
    tmsg_message_destroy(message);
}

static const struct {
    const char *name;
    const char *format;
    const char *why;
} bad_names[] = {
    {"", "npy", "empty"},
    {"/tmp/tensormsg-escaped.npy", "npy", "leave"},
    {"../escaped.npy", "npy", "leave"},
    {"a/b.npy", "npy", "leave"},
    {"..", "npy", "dot"},
    {".", "npy", "dot"},
    {".bashrc", "npy", "dot"},
    {"a\nb.npy", "npy", "control"},
    {"\033[2J.npy", "npy", "control"},
    {"\x7f.npy", "npy", "control"},
    {"\xc2\x9b"
     "31m.npy",
     "npy", "control"},
    {"\xe2\x80\xaegnp.npy", "npy", "invisible"},
    {"\xe2\x80\xa8.npy", "npy", "invisible"},
    {"-rf.npy", "npy", "as options do"},
    {"--help", "npy", "as options do"},
    {"a.npy", "exe", "exe"},
    {"a.txt", NULL, "a.txt"},
};

#define BAD_NAMES (sizeof(bad_names) / sizeof(bad_names[0]))

/* None of them is offered; and one that comes without an offer costs that map
 * alone. */
Test(recv, refuses_names_that_leave_the_folder)
{
    char errors[16384];
    scene_t scene;
    tmsg_map_t *map;

    open_scene(&scene, "1", "10");
    dial(&scene);
    for (size_t i = 0; i < BAD_NAMES; i++) {
        map = make_map(float64);
        must(tmsg_map_set_string(map, TMSG_META_FILE_NAME, bad_names[i].name));
        if (bad_names[i].format != NULL) {
            must(tmsg_map_set_string(map, TMSG_META_FILE_FORMAT,
                                     bad_names[i].format));
            offer(&scene, (int64_t)i + 1, bad_names[i].name,
                  bad_names[i].format, 16);
            must_reply(&scene, (int64_t)i + 1, "failed", bad_names[i].why);
        }
        send_taken(&scene, map);
    }
    send_taken(&scene, make_map(float64));
    must_true(fgets(errors, sizeof(errors), scene.out) != NULL);
    must_eq(count_files(&scene), 1);
    must_true(!exists(&scene, "escaped.npy"));
    must_true(access("/tmp/tensormsg-escaped.npy", F_OK) != 0);
    must_eq(close_scene(&scene, errors, sizeof(errors)), 0);
    for (size_t i = 0; i < BAD_NAMES; i++) {
        must_say(errors, bad_names[i].why);
    }
    must_true(strchr(errors, '\033') == NULL);
    must_true(strstr(errors, "\xc2\x9b") == NULL);
    must_say(errors, "\\x9b31m.npy");
    must_say(errors, "\\u202egnp.npy");
}

Test(recv, refuses_names_with_nul_and_long_names)
{
    char errors[4096], name[400];
    const tmsg_meta_t nul = {
        .type = TMSG_META_TYPE_STRING, .data = "a\0b", .bytes = 3};
    scene_t scene;
    tmsg_map_t *map = make_map(float64);

    open_scene(&scene, "1", "10");
    dial(&scene);
    must(tmsg_map_set_meta(map, TMSG_META_FILE_NAME, &nul));
    send_taken(&scene, map);
    memset(name, 'a', sizeof(name));
    snprintf(name + 300, sizeof(name) - 300, ".npy");
    offer(&scene, 1, name, "npy", 16);
    must_reply(&scene, 1, "failed", "too long");
    send_taken(&scene, make_map(float64));
    must_eq(close_scene(&scene, errors, sizeof(errors)), 0);
    must_say(errors, "control characters");
}

Test(recv, names_the_format_that_can_hold_a_dtype)
{
    char errors[4096];
    scene_t scene;
    tmsg_map_t *map = make_map((tmsg_dtype_t){TMSG_DTYPE_COMPLEX, 128, 1});

    open_scene(&scene, "1", "10");
    dial(&scene);
    must(tmsg_map_set_string(map, TMSG_META_FILE_NAME, "a.safetensors"));
    must(tmsg_map_set_string(map, TMSG_META_FILE_FORMAT, "safetensors"));
    offer(&scene, 7, "a.safetensors", "safetensors", 32);
    must_reply(&scene, 7, "go", NULL);
    send_taken(&scene, map);
    must_reply(&scene, 7, "failed", "npy");
    must_eq(count_files(&scene), 0);
    send_taken(&scene, make_map(float64));
    must_eq(close_scene(&scene, errors, sizeof(errors)), 0);
    must_say(errors, "complex128");
}

Test(recv, answers_by_the_words_of_the_protocol)
{
    char errors[4096];
    scene_t scene;
    tmsg_map_t *map;

    open_scene(&scene, "2", "10");
    dial(&scene);
    for (int64_t i = 1; i <= 2; i++) {
        char name[16];

        snprintf(name, sizeof(name), "%d.npy", (int)i);
        map = make_map(float64);
        must(tmsg_map_set_string(map, TMSG_META_FILE_NAME, name));
        must(tmsg_map_set_string(map, TMSG_META_FILE_FORMAT, "npy"));
        offer(&scene, i, name, "npy", 16);
        must_reply(&scene, i, "go", NULL);
        send_taken(&scene, map);
        must_reply(&scene, i, "done", name);
        must_eq(count_files(&scene), i);
    }
    must_eq(close_scene(&scene, errors, sizeof(errors)), 0);
    must_eq(strlen(errors), 0);
}

/* An offer is not a file: the next one replaces it. */
Test(recv, survives_offers_without_files)
{
    char errors[4096];
    scene_t scene;

    open_scene(&scene, "1", "10");
    dial(&scene);
    for (int64_t i = 1; i <= 3; i++) {
        offer(&scene, i, "a.npy", "npy", 16);
        must_reply(&scene, i, "go", NULL);
    }
    offer(&scene, -1, "a.npy", "npy", -5); /* no offer: a map */
    must_reply(&scene, 3, "failed", "a.npy");
    send_taken(&scene, make_map(float64));
    must_eq(close_scene(&scene, errors, sizeof(errors)), 0);
    must_say(errors, "'a.npy' did not arrive");
}

Test(recv, refuses_what_the_disk_cannot_hold)
{
    char errors[4096];
    scene_t scene;

    open_scene(&scene, "1", "10");
    dial(&scene);
    offer(&scene, 1, "a.npy", "npy", INT64_MAX);
    must_reply(&scene, 1, "failed", "disk full");
    send_taken(&scene, make_map(float64));
    must_eq(close_scene(&scene, errors, sizeof(errors)), 0);
}

/* Dies after its offer: the receiver ends with 1 when no other has come. */
Test(recv, ends_when_the_only_sender_died_half_way)
{
    char errors[4096];
    scene_t scene;

    open_scene(&scene, "1", "0.3");
    dial(&scene);
    offer(&scene, 1, "a.npy", "npy", 16);
    must_reply(&scene, 1, "go", NULL);
    tmsg_endpoint_destroy(scene.endpoint);
    scene.endpoint = NULL;
    must_eq(close_scene(&scene, errors, sizeof(errors)), 1);
    must_say(errors, "'a.npy' did not arrive");
    must_say(errors, "0 of 1 maps came");
}

/* Another one comes within the timeout, and may then take its time. */
Test(recv, waits_for_another_sender)
{
    char errors[4096];
    scene_t scene;

    open_scene(&scene, "1", "5");
    dial(&scene);
    offer(&scene, 1, "a.npy", "npy", 16);
    must_reply(&scene, 1, "go", NULL);
    tmsg_endpoint_destroy(scene.endpoint);
    dial(&scene);
    send_taken(&scene, make_map(float64));
    must_eq(close_scene(&scene, errors, sizeof(errors)), 0);
}

static void give_verdict(scene_t *scene, int64_t number, const char *state)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_set_i64(map, "transfer.verdict", number));
    must(tmsg_map_set_string(map, "transfer.state", state));
    must(tmsg_map_set_string(map, "transfer.error", "the file grew"));
    must(tmsg_endpoint_send(scene->endpoint, map, NULL, NULL));
    tmsg_map_destroy(map);
}

/* Up to where the receiver has the file, and waits. */
static void send_checked(scene_t *scene, int64_t number)
{
    tmsg_map_t *map = make_map(float64);

    must(tmsg_map_set_string(map, TMSG_META_FILE_NAME, "a.npy"));
    must(tmsg_map_set_string(map, TMSG_META_FILE_FORMAT, "npy"));
    offer_checked(scene, number, "a.npy", "npy", 16, true);
    must_reply(scene, number, "go", "checked");
    send_taken(scene, map);
}

/* It says "alive" meanwhile. */
Test(recv, keeps_nothing_before_its_senders_verdict)
{
    char errors[4096];
    tmsg_message_t *message;
    scene_t scene;

    open_scene(&scene, "2", "10");
    dial(&scene);
    send_checked(&scene, 1);
    give_verdict(&scene, 2, "same"); /* of a file that is none */
    must(tmsg_endpoint_recv(scene.endpoint, BOUND_MS, &message));
    tmsg_message_destroy(message);
    must_true(!exists(&scene, "out/a.npy"));
    give_verdict(&scene, 1, "changed");
    must_reply(&scene, 1, "failed", "the file grew");
    send_checked(&scene, 2);
    give_verdict(&scene, 2, "unheard of");
    must_reply(&scene, 2, "failed", "the file grew");
    must_eq(count_files(&scene), 0);
    send_checked(&scene, 3);
    give_verdict(&scene, 3, "same");
    must_reply(&scene, 3, "done", "a.npy");
    give_verdict(&scene, 3, "changed"); /* too late */
    send_taken(&scene, make_map(float64));
    must_eq(close_scene(&scene, errors, sizeof(errors)), 0);
    must_say(errors, "map 1 is lost: the file grew");
    must_say(errors, "map 2 is lost: the file grew");
}

Test(recv, drops_a_file_whose_sender_gives_no_verdict)
{
    char errors[4096];
    scene_t scene;

    open_scene(&scene, "1", "0.3");
    dial(&scene);
    send_checked(&scene, 1);
    send_checked(&scene, 2); /* in place of the first */
    must_eq(count_files(&scene), 0);
    tmsg_endpoint_destroy(scene.endpoint);
    scene.endpoint = NULL;
    must_eq(close_scene(&scene, errors, sizeof(errors)), 1);
    must_say(errors, "'a.npy' did not arrive");
    must_say(errors, "0 of 1 maps came");
}
