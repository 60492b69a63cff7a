/* SPDX-License-Identifier: BSD-3-Clause */
#include "credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "connection.h"
#include "signals.h"

#define PASSWORD_BYTES 1024 /* with the end of its line */

static tmsg_keyring_t *kept_keys;
static tmsg_tls_t *kept_tls;

int read_keys(const connection_options_t *options, tmsg_keyring_t **keyring_p)
{
    tmsg_status_t status;

    if (options->key == NULL) {
        return EXIT_DONE;
    }
    status = tmsg_keyring_create(keyring_p);
    if (status == TMSG_OK) {
        status = tmsg_keyring_load(*keyring_p, options->key);
    }
    return status == TMSG_OK ? EXIT_DONE : fail_by(status);
}

static bool is_private(const char *path, int fd)
{
    struct stat about;

    if (fstat(fd, &about) != 0) {
        complain("password file %s: %s", path, strerror(errno));
    } else if (!S_ISREG(about.st_mode)) {
        complain("password file %s: it must be a regular file", path);
    } else if ((about.st_uid != geteuid() && about.st_uid != 0) ||
               (about.st_mode & 027) != 0) {
        complain("password file %s: others can read or change it: it must "
                 "belong to this user and have mode 600",
                 path);
    } else {
        return true;
    }
    return false;
}

/* Reads the first line of a file. Not by stdio, which would leave a copy. */
static int read_password(const char *path, char password[PASSWORD_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t bytes = -1;

    if (fd < 0) {
        complain("password file %s: %s", path, strerror(errno));
        return EXIT_USAGE;
    }
    if (is_private(path, fd)) {
        bytes = read(fd, password, PASSWORD_BYTES - 1);
        password[bytes > 0 ? bytes : 0] = '\0';
        password[strcspn(password, "\r\n")] = '\0';
        if (bytes < 0 || bytes == PASSWORD_BYTES - 1 || password[0] == '\0') {
            complain("password file %s: its first line is not a password",
                     path);
            bytes = -1;
        }
    }
    close(fd);
    return bytes < 0 ? EXIT_USAGE : EXIT_DONE;
}

int read_tls(const tls_options_t *tls, tmsg_tls_t **tls_p)
{
    tmsg_tls_params_t params = {
        .field_mask = TMSG_TLS_PARAM_CA | TMSG_TLS_PARAM_CERT |
                      TMSG_TLS_PARAM_KEY | TMSG_TLS_PARAM_NAME |
                      TMSG_TLS_PARAM_CRL | TMSG_TLS_PARAM_PIN |
                      TMSG_TLS_PARAM_PASSWORD,
        .ca = tls->ca,
        .cert = tls->cert,
        .key = tls->key,
        .name = tls->name,
        .crl = tls->crl,
        .pin = tls->pin,
    };
    char password[PASSWORD_BYTES];
    int code = EXIT_DONE;
    tmsg_status_t status;

    if (tls->cert == NULL) {
        return EXIT_DONE;
    }
    if (tls->password != NULL) {
        code = read_password(tls->password, password);
        params.password = password;
    }
    if (code == EXIT_DONE) {
        status = tmsg_tls_create(&params, tls_p);
        code = status == TMSG_OK ? EXIT_DONE : fail_by(status);
    }
    explicit_bzero(password, sizeof(password));
    return code;
}

void keep_keys(const connection_options_t *options, tmsg_keyring_t *keyring)
{
    if (options->listen == NULL) {
        tmsg_keyring_destroy(keyring);
    } else {
        kept_keys = keyring;
    }
}

void keep_tls(const connection_options_t *options, tmsg_tls_t *tls)
{
    if (options->listen == NULL) {
        tmsg_tls_destroy(tls);
    } else {
        kept_tls = tls;
    }
}

bool credentials_hear(const connection_options_t *options)
{
    return options->sandbox || (kept_keys == NULL && kept_tls == NULL) ||
           signals_take_hangup() >= 0;
}

void credentials_look(const connection_options_t *options)
{
    tmsg_status_t status = TMSG_OK;

    if (!signals_hung_up()) {
        return;
    }
    if (kept_keys != NULL) {
        status = tmsg_keyring_load(kept_keys, options->key);
    }
    if (status == TMSG_OK && kept_tls != NULL) {
        status = tmsg_tls_reload(kept_tls);
    }
    if (status == TMSG_OK) {
        complain("%s: read again",
                 kept_tls != NULL ? options->tls.cert : options->key);
    } else {
        complain("%s; the previous ones stay in use", tmsg_error_message());
    }
}
