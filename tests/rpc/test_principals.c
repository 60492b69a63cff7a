/* SPDX-License-Identifier: BSD-3-Clause */
/* Who calls, and who may. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "rpc/principal.h"
#include "support/failing_alloc.h"
#include "support/peers.h"

typedef struct {
    pair_t pair;
    tmsg_server_t *server;
    char caller[64]; /* as the last handler that ran saw it; "" for nobody */
    unsigned runs;
} scene_t;

static void note(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    const char *caller = tmsg_task_principal(task);

    scene->runs++;
    snprintf(scene->caller, sizeof(scene->caller), "%s",
             caller == NULL ? "" : caller);
    must(tmsg_task_reply(task, NULL, NULL));
}

/* b is `caller` to a; NULL: no key is asked for. */
static void open_scene(scene_t *scene, const char *caller)
{
    static const uint8_t key[TMSG_KEY_BYTES] = {1};
    side_options_t options = {.keyring = NULL};

    memset(scene, 0, sizeof(*scene));
    if (caller != NULL) {
        must(tmsg_keyring_create(&options.keyring));
        must(tmsg_keyring_add(options.keyring, caller, key));
    }
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, &options, &options);
    tmsg_keyring_destroy(options.keyring);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
}

static tmsg_status_t offer(scene_t *scene, const char *method,
                           const char *principals)
{
    const tmsg_method_params_t params = {
        .field_mask = TMSG_METHOD_PARAM_PRINCIPALS, .principals = principals};

    return tmsg_server_register(scene->server, method, note, scene, &params);
}

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static void expect(scene_t *scene, const char *method, const char *refused)
{
    unsigned runs = scene->runs;
    tmsg_call_t *call;

    must(tmsg_endpoint_call(scene->pair.to_a, method, NULL, NULL, &call));
    pair_await(&scene->pair, has_ended, call, "the end of a call");
    if (refused == NULL) {
        must_be(tmsg_call_status(call), TMSG_OK);
        must_eq(scene->runs, runs + 1);
    } else {
        must_be(tmsg_call_status(call), TMSG_ERR_REFUSED);
        must_say(tmsg_call_error(call), refused);
        must_eq(scene->runs, runs);
    }
    tmsg_call_destroy(call);
}

Test(principals, are_known_to_handlers_and_may_be_required)
{
    scene_t scene;

    open_scene(&scene, "alice");
    must(offer(&scene, "all", NULL));
    must(offer(&scene, "known", "*"));
    must(offer(&scene, "alice's", "bob alice"));
    must(offer(&scene, "others'", "bob alic alices malice"));
    expect(&scene, "all", NULL);
    cr_expect_str_eq(scene.caller, "alice");
    expect(&scene, "known", NULL);
    expect(&scene, "alice's", NULL);
    expect(&scene, "others'", "the method is not for 'alice'");
    close_scene(&scene);
}

Test(principals, are_nobody_without_keys)
{
    scene_t scene;

    open_scene(&scene, NULL);
    must(offer(&scene, "all", NULL));
    must(offer(&scene, "known", "*"));
    expect(&scene, "all", NULL);
    cr_expect_str_eq(scene.caller, "");
    expect(&scene, "known", "callers that have proved a key");
    close_scene(&scene);
}

Test(principals, that_are_no_names_are_refused)
{
    char longest[2 + TMSG_PRINCIPAL_MOST + 2] = "a ";
    const char *const bad[] = {"", " ", " a", "a ", "a  b", "a\nb", longest};
    scene_t scene;
    char *copy;

    memset(longest + 2, 'b', TMSG_PRINCIPAL_MOST + 1);
    open_scene(&scene, NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        must_be(offer(&scene, "some", bad[i]), TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), "principals");
    }
    must(offer(&scene, "some", "a b"));
    must(offer(&scene, "other", longest + 3));
    must_be(offer(&scene, "some", "a b"), TMSG_ERR_ALREADY_EXISTS);
    failing_alloc_arm(1);
    must_be(tmsg_principals_read("method", "a b", &copy), TMSG_ERR_NO_MEMORY);
    must_true(failing_alloc_disarm());
    close_scene(&scene);
}
