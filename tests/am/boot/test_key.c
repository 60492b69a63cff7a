/* SPDX-License-Identifier: BSD-3-Clause */
/* Keyrings, and the files that they are read from. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "am/boot/key.h"
#include "support/failing_alloc.h"
#include "support/must.h"
#include "support/peers.h"

static const uint8_t one[TMSG_KEY_BYTES] = "the first key, of 32 bytes ....";
static const uint8_t two[TMSG_KEY_BYTES] = "the second key, of 32 bytes ...";

#define DIGITS                                                                 \
    "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F"

static tmsg_keyring_t *ring(void)
{
    tmsg_keyring_t *keyring;

    must(tmsg_keyring_create(&keyring));
    return keyring;
}

static unsigned count(tmsg_keyring_t *keyring)
{
    tmsg_keys_t keys;

    tmsg_keyring_copy(keyring, &keys);
    return keys.count;
}

/* Of a file with those bytes; what it says to it. */
static tmsg_status_t load_bytes(tmsg_keyring_t *keyring, const char *text,
                                size_t bytes, int mode)
{
    const char *path = scratch_path("keys");
    FILE *file;

    unlink(path);
    file = fopen(path, "w");
    must_true(file != NULL && fwrite(text, 1, bytes, file) == bytes &&
              fclose(file) == 0);
    must_eq(chmod(path, (mode_t)mode), 0);
    return tmsg_keyring_load(keyring, path);
}

static tmsg_status_t load(tmsg_keyring_t *keyring, const char *text, int mode)
{
    return load_bytes(keyring, text, strlen(text), mode);
}

static tmsg_status_t load_long(tmsg_keyring_t *keyring)
{
    static char text[64 * 1024 + 1];

    memset(text, '\n', sizeof(text));
    return load_bytes(keyring, text, sizeof(text), 0600);
}

Test(key, is_random_and_wiped)
{
    uint8_t a[TMSG_KEY_BYTES] = {0}, b[TMSG_KEY_BYTES] = {0};
    static const uint8_t zeros[TMSG_KEY_BYTES];

    must(tmsg_key_generate(a));
    must(tmsg_key_generate(b));
    cr_expect(memcmp(a, b, sizeof(a)) != 0);
    cr_expect(memcmp(a, zeros, sizeof(a)) != 0);
    tmsg_key_wipe(a);
    cr_expect(memcmp(a, zeros, sizeof(a)) == 0);
}

Test(key, of_a_principal_comes_and_goes)
{
    tmsg_keyring_t *keyring = ring();

    must(tmsg_keyring_add(keyring, "alice", one));
    must(tmsg_keyring_add(keyring, "alice", two));
    cr_expect(eq(uint, count(keyring), 2));
    must(tmsg_keyring_remove(keyring, "alice"));
    cr_expect(eq(uint, count(keyring), 0));
    must_be(tmsg_keyring_remove(keyring, "alice"), TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "no key of 'alice'");
    tmsg_keyring_destroy(keyring);
    tmsg_keyring_destroy(NULL);
}

Test(key, that_cannot_be_is_refused)
{
    static const uint8_t zeros[TMSG_KEY_BYTES];
    char name[TMSG_PRINCIPAL_MOST + 2];
    tmsg_keyring_t *keyring = ring();

    must_be(tmsg_keyring_add(keyring, "alice", zeros), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_keyring_add(keyring, NULL, one), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_keyring_add(keyring, "", one), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_keyring_add(keyring, "al ice", one), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_keyring_add(keyring, "al\nice", one), TMSG_ERR_INVALID_PARAM);
    memset(name, 'a', sizeof(name));
    name[TMSG_PRINCIPAL_MOST + 1] = '\0';
    must_be(tmsg_keyring_add(keyring, name, one), TMSG_ERR_INVALID_PARAM);
    name[TMSG_PRINCIPAL_MOST] = '\0';
    must(tmsg_keyring_add(keyring, name, one));
    must_be(tmsg_keyring_add(keyring, "bob", one), TMSG_ERR_ALREADY_EXISTS);
    cr_expect(eq(uint, count(keyring), 1));
    tmsg_keyring_destroy(keyring);
}

Test(key, is_one_of_64_at_most)
{
    tmsg_keyring_t *keyring = ring();
    uint8_t key[TMSG_KEY_BYTES] = {0};

    for (uint8_t i = 1; i <= TMSG_KEYS_MOST; i++) {
        key[0] = i;
        must(tmsg_keyring_add(keyring, "alice", key));
    }
    key[0] = 200;
    must_be(tmsg_keyring_add(keyring, "alice", key), TMSG_ERR_LIMIT_EXCEEDED);
    tmsg_keyring_destroy(keyring);
}

Test(key, files_are_read_line_by_line)
{
    tmsg_keyring_t *keyring = ring();
    tmsg_keys_t keys;

    must(tmsg_keyring_add(keyring, "gone", two));
    must_be(load(keyring, "alice " DIGITS "\n  \nff" DIGITS "\r\n", 0600),
            TMSG_ERR_MALFORMED);
    cr_expect(eq(uint, count(keyring), 1), "an error leaves it as it was");
    must(
        load(keyring,
             "# keys of the farm\n\nalice " DIGITS " \r\n"
             "1f1f02030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
             0640));
    tmsg_keyring_copy(keyring, &keys);
    cr_assert(eq(uint, keys.count, 2));
    cr_expect_str_eq(keys.keys[0].principal, "alice");
    cr_expect_str_eq(keys.keys[1].principal, "default");
    for (uint8_t i = 0; i < TMSG_KEY_BYTES; i++) {
        cr_expect(eq(u8, keys.keys[0].bytes[i], i));
    }
    tmsg_keyring_destroy(keyring);
}

Test(key, files_that_are_none_say_why_and_show_nothing)
{
    static const struct {
        const char *text;
        int mode;
        tmsg_status_t status;
        const char *words;
    } rows[] = {
        {"alice " DIGITS "\n", 0644, TMSG_ERR_INSECURE, "mode 644"},
        {"alice " DIGITS "\n", 0660, TMSG_ERR_INSECURE, "chmod 600"},
        {"alice deadbeef\n", 0600, TMSG_ERR_MALFORMED, "line 1"},
        {"alice  " DIGITS "\n", 0600, TMSG_ERR_MALFORMED, "line 1"},
        {"#\nalice" DIGITS "\n", 0600, TMSG_ERR_MALFORMED, "line 2"},
        {"alice " DIGITS "00\n", 0600, TMSG_ERR_MALFORMED, "line 1"},
        {"alice g" DIGITS "\n", 0600, TMSG_ERR_MALFORMED, "line 1"},
        {"alice " DIGITS "\nbob " DIGITS "\n", 0600, TMSG_ERR_ALREADY_EXISTS,
         "line 2: the keyring has this key of 'bob' already, as that of "
         "'alice'"},
    };
    tmsg_keyring_t *keyring = ring();

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        must_be(load(keyring, rows[i].text, rows[i].mode), rows[i].status);
        must_say(tmsg_error_message(), rows[i].words);
        cr_expect(strstr(tmsg_error_message(), "0102") == NULL &&
                  strstr(tmsg_error_message(), "dead") == NULL);
    }
    must_be(tmsg_keyring_load(keyring, scratch_path("none")),
            TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "none");
    must_be(tmsg_keyring_load(keyring, "/"), TMSG_ERR_IO);
    must_be(tmsg_keyring_load(keyring, "/dev/zero"), TMSG_ERR_IO);
    must_say(tmsg_error_message(), "key file /dev/zero is a device");
    must_eq(mkfifo(scratch_path("fifo"), 0600), 0);
    must_be(tmsg_keyring_load(keyring, scratch_path("fifo")), TMSG_ERR_IO);
    must_say(tmsg_error_message(), "is a FIFO or pipe");
    must_be(load_long(keyring), TMSG_ERR_LIMIT_EXCEEDED);
    cr_expect(eq(uint, count(keyring), 0));
    tmsg_keyring_destroy(keyring);
}

/* A name would end there, and be another's. */
Test(key, files_have_no_zero_bytes)
{
    static const char inside[] = "al\0ice " DIGITS "\n";
    static const char behind[] = "alice " DIGITS "\0\n";
    static const char alone[] = "\0\n";
    tmsg_keyring_t *keyring = ring();

    must_be(load_bytes(keyring, inside, sizeof(inside) - 1, 0600),
            TMSG_ERR_MALFORMED);
    must_be(load_bytes(keyring, behind, sizeof(behind) - 1, 0600),
            TMSG_ERR_MALFORMED);
    must_be(load_bytes(keyring, alone, sizeof(alone) - 1, 0600),
            TMSG_ERR_MALFORMED);
    cr_expect(eq(uint, count(keyring), 0));
    tmsg_keyring_destroy(keyring);
}

/* Only root can give a file away. */
Test(key, files_of_others_are_refused)
{
    const char *path = scratch_path("others");
    tmsg_keyring_t *keyring = ring();

    must(tmsg_key_save(path, "alice", one));
    if (chown(path, 4711, (gid_t)-1) == 0) {
        must_be(tmsg_keyring_load(keyring, path), TMSG_ERR_INSECURE);
        must_say(tmsg_error_message(), "belongs to user 4711");
        must_eq(chown(path, geteuid(), (gid_t)-1), 0);
    }
    must(tmsg_keyring_load(keyring, path));
    tmsg_keyring_destroy(keyring);
}

Test(key, that_cannot_be_written_whole_leaves_no_file)
{
    const char *path = scratch_path("short");
    struct rlimit before, limit;

    must_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    must_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 20;
    must_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    errno = ENOTTY; /* which it is not */
    must_be(tmsg_key_save(path, "alice", one), TMSG_ERR_IO);
    must_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    must_say(tmsg_error_message(), "File too large");
    must_true(access(path, F_OK) != 0);
}

Test(key, is_saved_for_its_owner_and_replaces_nothing)
{
    const char *path = scratch_path("saved");
    tmsg_keyring_t *keyring = ring();
    tmsg_keys_t keys;
    struct stat stat_of;

    must(tmsg_key_save(path, "alice", one));
    must_eq(stat(path, &stat_of), 0);
    must_eq(stat_of.st_mode & 0777, 0600);
    must_be(tmsg_key_save(path, "alice", two), TMSG_ERR_ALREADY_EXISTS);
    must_say(tmsg_error_message(), path);
    must_be(tmsg_key_save("/none/such", "alice", two), TMSG_ERR_IO);
    must_be(tmsg_key_save(path, "al ice", two), TMSG_ERR_INVALID_PARAM);
    must(tmsg_keyring_load(keyring, path));
    tmsg_keyring_copy(keyring, &keys);
    must_eq(keys.count, 1);
    cr_expect(memcmp(keys.keys[0].bytes, one, sizeof(one)) == 0);
    tmsg_keyring_destroy(keyring);
}

static tmsg_status_t give_two(void *arg, tmsg_keyring_t *keyring)
{
    must(tmsg_keyring_add(keyring, "alice", one));
    must(tmsg_keyring_add(keyring, "bob", two));
    return *(tmsg_status_t *)arg;
}

Test(key, may_come_from_a_callback)
{
    tmsg_keyring_t *keyring = ring();
    tmsg_status_t outcome = TMSG_ERR_UNAVAILABLE;

    must(tmsg_keyring_add(keyring, "old", one));
    must_be(tmsg_keyring_fill(keyring, give_two, &outcome),
            TMSG_ERR_UNAVAILABLE);
    cr_expect(eq(uint, count(keyring), 1));
    outcome = TMSG_OK;
    must(tmsg_keyring_fill(keyring, give_two, &outcome));
    cr_expect(eq(uint, count(keyring), 2));
    must_be(tmsg_keyring_remove(keyring, "old"), TMSG_ERR_NOT_FOUND);
    tmsg_keyring_destroy(keyring);
}

Test(key, says_when_there_is_no_memory)
{
    tmsg_keyring_t *keyring = NULL, *untouched = NULL;
    bool failed = true;

    failing_alloc_arm(1);
    must_be(tmsg_keyring_create(&untouched), TMSG_ERR_NO_MEMORY);
    must_true(failing_alloc_disarm() && untouched == NULL);
    keyring = ring();
    must(tmsg_keyring_add(keyring, "old", two));
    must(tmsg_key_save(scratch_path("keys"), "alice", one));
    for (unsigned long n = 1; failed; n++) {
        tmsg_status_t status;

        failing_alloc_arm(n);
        status = tmsg_keyring_load(keyring, scratch_path("keys"));
        failed = failing_alloc_disarm();
        must_be(status, failed ? TMSG_ERR_NO_MEMORY : TMSG_OK);
        must_eq(count(keyring), 1);
    }
    must(tmsg_keyring_remove(keyring, "alice"));
    tmsg_keyring_destroy(keyring);
}
