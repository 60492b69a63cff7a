/* SPDX-License-Identifier: BSD-3-Clause */
/* core/json_read.h - reads JSON that people write, strictly: nothing after its
 * end, no key twice, no \u0000, integers only if they are exact. An error names
 * the source and the key. */
#ifndef TMSG_CORE_JSON_READ_H
#define TMSG_CORE_JSON_READ_H

#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include <tensormsg/status.h>

/* A double holds every integer up to here. */
#define TMSG_JSON_EXACT_MOST (1LL << 53)

/* Reads one text. `status` is sticky: the first error stays. */
typedef struct {
    const char *what;   /* such as "the configuration file" */
    const char *source; /* name of the file */
    tmsg_status_t status;
} tmsg_json_reader_t;

/* Sets the status to INVALID_PARAM, with the message "source: 'key' what". */
void tmsg_json_fail(tmsg_json_reader_t *reader, const cJSON *item,
                    const char *what);

/* Returns an integer from 0 to `most`. If `item` is not one, the reader fails
 * and the result is 0. */
uint64_t tmsg_json_read_number(tmsg_json_reader_t *reader, const cJSON *item,
                               uint64_t most);

/* Returns whether `object` is an object whose keys are all different, in time
 * that grows with their number. Errors: INVALID_PARAM, NO_MEMORY. */
bool tmsg_json_check_object(tmsg_json_reader_t *reader, const cJSON *object);

/* Returns the first \u0000 of a text, or NULL. cJSON would end a string there.
 * Call this before cJSON for every JSON that comes from others. */
const char *tmsg_json_find_nul(const char *text, size_t bytes);

/* tmsg_json_parse() returns the value of `text`, tmsg_json_load() that of the
 * regular file called `source` (1 MiB at most). The caller frees it with
 * cJSON_Delete(). NULL: the reader's status says why. Errors: NOT_FOUND, IO,
 * LIMIT_EXCEEDED, INVALID_PARAM, NO_MEMORY. */
cJSON *tmsg_json_parse(tmsg_json_reader_t *reader, const char *text);
cJSON *tmsg_json_load(tmsg_json_reader_t *reader);

#endif
