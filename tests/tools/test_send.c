/* SPDX-License-Identifier: BSD-3-Clause */
/* `tensormsg send` before receivers that are not `tensormsg recv`, by the words
 * of docs/wire/transfer.md, and files that change meanwhile. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

#include "support/must.h"

#define BOUND_MS 30000
#define BYTES 100000 /* of each file's tensor */
#define PATH_BYTES 96
#define FILES_MOST 12

typedef struct {
    pid_t pid;
    char dir[64]; /* with files and errors in it */
    char paths[FILES_MOST][PATH_BYTES];
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_endpoint_t *endpoint;
} scene_t;

static void write_file(const char *path)
{
    static uint8_t data[BYTES];
    static const int64_t shape[] = {BYTES};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    const tmsg_file_save_params_t params = {
        .field_mask = TMSG_FILE_SAVE_PARAM_FLAGS, .flags = TMSG_SAVE_OVERWRITE};
    tmsg_map_t *map;

    memset(data, 1, sizeof(data));
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    must(tmsg_file_save(map, path, &params));
    tmsg_map_destroy(map);
}

/* Runs `tensormsg send URL 0.ending 1.ending ...`, as many as there are endings
 * before NULL. */
static void open_scene(scene_t *scene, const char *const *endings)
{
    char *words[FILES_MOST + 4] = {"tensormsg", "send"};
    char url[80], errors[80];
    int count = 0;

    *scene = (scene_t){.dir = "/tmp/tensormsg-test.XXXXXX"};
    must_true(mkdtemp(scene->dir) != NULL);
    for (; endings[count] != NULL; count++) {
        snprintf(scene->paths[count], PATH_BYTES, "%s/%d.%s", scene->dir, count,
                 endings[count]);
        write_file(scene->paths[count]);
        words[3 + count] = scene->paths[count];
    }
    snprintf(url, sizeof(url), "unix://%s/socket", scene->dir);
    snprintf(errors, sizeof(errors), "%s/errors", scene->dir);
    words[2] = url;
    must(tmsg_context_create(NULL, &scene->context));
    must(tmsg_worker_create(scene->context, NULL, &scene->worker));
    must(tmsg_listener_create(scene->worker, url, NULL, &scene->listener));
    scene->pid = fork();
    if (scene->pid == 0) {
        must_true(freopen(errors, "w", stderr) != NULL);
        execv(getenv("TENSORMSG"), words);
        _exit(127);
    }
}

/* Waits for the command; its exit code. What it said goes to `errors`. */
static int close_scene(scene_t *scene, char *errors, size_t bytes)
{
    char path[80], command[96];
    tmsg_message_t *message;
    FILE *file;
    int status;

    while (waitpid(scene->pid, &status, WNOHANG) == 0) {
        if (tmsg_worker_recv(scene->worker, 10, &message) == TMSG_OK) {
            tmsg_message_destroy(message);
        }
    }
    tmsg_listener_destroy(scene->listener);
    tmsg_worker_destroy(scene->worker);
    tmsg_context_destroy(scene->context);
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

static tmsg_message_t *take(scene_t *scene)
{
    tmsg_message_t *message;

    must(tmsg_worker_recv(scene->worker, BOUND_MS, &message));
    scene->endpoint = tmsg_message_endpoint(message);
    return message;
}

/* The next message must be this word about the file of that number. */
static tmsg_message_t *must_hear(scene_t *scene, const char *key,
                                 int64_t number)
{
    tmsg_message_t *message = take(scene);
    int64_t said;

    must(tmsg_map_get_i64(tmsg_message_map(message), key, &said));
    must_eq(said, number);
    return message;
}

static void hear_offer(scene_t *scene, int64_t number)
{
    tmsg_message_t *message = must_hear(scene, "transfer.offer", number);
    int checked;

    must(tmsg_map_get_bool(tmsg_message_map(message), "transfer.checked",
                           &checked));
    must_true(checked);
    tmsg_message_destroy(message);
}

/* `changed` is part of what is said of how; NULL: it stayed the same. */
static void hear_verdict(scene_t *scene, int64_t number, const char *changed)
{
    tmsg_message_t *message = must_hear(scene, "transfer.verdict", number);
    const char *words;

    must(tmsg_map_get_string(tmsg_message_map(message), "transfer.state",
                             &words));
    must_say(words, changed == NULL ? "same" : "changed");
    if (changed != NULL) {
        must(tmsg_map_get_string(tmsg_message_map(message), "transfer.error",
                                 &words));
        must_say(words, changed);
    }
    tmsg_message_destroy(message);
}

static void answer(scene_t *scene, int64_t number, const char *state,
                   bool checked)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_set_i64(map, "transfer.reply", number));
    must(tmsg_map_set_string(map, "transfer.state", state));
    must(tmsg_map_set_string(map, "transfer.file", "kept"));
    must(tmsg_map_set_string(map, "transfer.error", "not kept"));
    if (checked) {
        must(tmsg_map_set_bool(map, "transfer.checked", true));
    }
    must(tmsg_endpoint_send(scene->endpoint, map, NULL, NULL));
    tmsg_map_destroy(map);
}

static void write_over(const char *path)
{
    char byte = 7;
    int fd = open(path, O_WRONLY);

    must_true(fd >= 0 && pwrite(fd, &byte, 1, BYTES / 2) == 1);
    close(fd);
}

static void extend(const char *path)
{
    must_true(truncate(path, 2 * BYTES) == 0);
}

static void cut(const char *path) { must_true(truncate(path, 100) == 0); }

static void cut_and_mend(const char *path)
{
    struct stat about;

    must_true(stat(path, &about) == 0 && truncate(path, BYTES / 2) == 0 &&
              truncate(path, about.st_size) == 0);
}

/* What ctime alone tells: mtime is what it was. */
static void write_over_in_secret(const char *path)
{
    struct stat about;

    must_true(stat(path, &about) == 0);
    write_over(path);
    must_true(utimensat(AT_FDCWD, path,
                        (struct timespec[]){about.st_atim, about.st_mtim},
                        0) == 0);
}

static void replace(const char *path)
{
    char other[PATH_BYTES + 4];

    snprintf(other, sizeof(other), "%s.npy", path);
    write_file(other);
    must_true(rename(other, path) == 0);
}

static void take_away(const char *path) { must_true(unlink(path) == 0); }

static void leave(const char *path) { must_true(access(path, F_OK) == 0); }

static const struct {
    const char *ending;
    void (*change)(const char *path);
    const char *words; /* of it; NULL: there are none */
} rows[] = {
    {"npy", leave, NULL},
    {"npy", write_over, "the file changed"},
    {"npy", write_over_in_secret, "the file or its attributes changed"},
    {"npy", cut_and_mend, "the file changed"},
    {"npy", extend, "the file grew"},
    {"npy", replace, "another file"},
    {"npy", take_away, "removed"},
    {"npz", write_over, "the file changed"},
    {"safetensors", write_over, "the file changed"},
    {"safetensors", leave, NULL},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* One command sends them all; each changes when it was offered, and is given a
 * verdict that comes before "done". */
Test(send, says_of_each_file_whether_it_stayed_the_same)
{
    const char *endings[ROWS + 1] = {NULL};
    char errors[4096], *line = errors;
    scene_t scene;

    for (size_t i = 0; i < ROWS; i++) {
        endings[i] = rows[i].ending;
    }
    open_scene(&scene, endings);
    for (size_t i = 0; i < ROWS; i++) {
        int64_t number = (int64_t)i + 1;
        bool good = rows[i].words == NULL;

        hear_offer(&scene, number);
        rows[i].change(scene.paths[i]);
        answer(&scene, number, "go", true);
        tmsg_message_destroy(take(&scene));
        hear_verdict(&scene, number, rows[i].words);
        answer(&scene, number, good ? "done" : "failed", false);
    }
    must_eq(close_scene(&scene, errors, sizeof(errors)), 1);
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].words != NULL) {
            char *end = strchr(line, '\n');

            must_true(end != NULL);
            *end = '\0';
            must_say(line, strrchr(scene.paths[i], '/') + 1);
            must_say(line, rows[i].words);
            line = end + 1;
        }
    }
    must_eq(strlen(line), 0);
}

/* It says nothing of a verdict, is told none, and is done at once; that is no
 * reason to take its word for a file that changed. */
Test(send, fails_for_what_changed_where_the_receiver_does_not_wait)
{
    static const char *const endings[] = {"npy", "npy", NULL};
    char errors[4096];
    scene_t scene;

    open_scene(&scene, endings);
    for (int64_t number = 1; number <= 2; number++) {
        hear_offer(&scene, number);
        if (number == 1) {
            write_over(scene.paths[0]);
        }
        answer(&scene, number, "go", false);
        tmsg_message_destroy(take(&scene));
        answer(&scene, number, "done", false);
    }
    must_eq(close_scene(&scene, errors, sizeof(errors)), 1);
    must_say(errors, "0.npy: the file changed");
    must_say(errors, "may have this one");
    must_true(strstr(errors, "1.npy") == NULL);
}

/* What is read of it may be a fault, an error or nothing. */
Test(send, ends_with_a_line_where_its_file_is_cut)
{
    static const char *const endings[] = {"npy", NULL};
    char errors[4096];
    const char *last;
    tmsg_message_t *message;
    scene_t scene;

    open_scene(&scene, endings);
    hear_offer(&scene, 1);
    cut(scene.paths[0]);
    answer(&scene, 1, "go", true);
    if (tmsg_endpoint_recv(scene.endpoint, BOUND_MS, &message) == TMSG_OK) {
        tmsg_message_destroy(message);
        hear_verdict(&scene, 1, "cut short");
        answer(&scene, 1, "failed", false);
    }
    must_eq(close_scene(&scene, errors, sizeof(errors)), 1);
    must_say(errors, "0.npy: the file was cut short");
    last = strstr(errors, "tensormsg: ");
    must_true(last != NULL && strchr(last, '\n') == last + strlen(last) - 1);
}
