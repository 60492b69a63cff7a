/* SPDX-License-Identifier: BSD-3-Clause */
/* core/json_read.h - JSON that people write, read strictly: nothing after its
 * end, no key twice, no \u0000, integers only where they are exact. What is
 * wrong is said with the source and the key. */
#ifndef TMSG_CORE_JSON_READ_H
#define TMSG_CORE_JSON_READ_H

#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include <tensormsg/status.h>

#define TMSG_JSON_EXACT_MOST                                                   \
    (1LL << 53) /* a double has every integer so far                           \
                 */

/* `status` is sticky: the first error stays. */
typedef struct {
    const char *what;   /* "the configuration file" */
    const char *source; /* its name */
    tmsg_status_t status;
} tmsg_json_reader_t;

/* INVALID_PARAM: "source: 'key' what". */
void tmsg_json_fail(tmsg_json_reader_t *reader, const cJSON *item,
                    const char *what);

/* An integer from 0 to `most`; 0 where it is none. */
uint64_t tmsg_json_read_number(tmsg_json_reader_t *reader, const cJSON *item,
                               uint64_t most);

/* Whether it is an object whose keys are all different, in time that grows with
 * their number. Errors: INVALID_PARAM, NO_MEMORY. */
bool tmsg_json_check_object(tmsg_json_reader_t *reader, const cJSON *object);

/* The first \u0000 of a text, where cJSON would end a string, or NULL: to be
 * asked before cJSON is, by everybody who has JSON of others. */
const char *tmsg_json_find_nul(const char *text, size_t bytes);

/* The value that is `text`, or that the file called `source` holds (1 MiB at
 * most), freed with cJSON_Delete(); NULL: the reader's status says why. Errors:
 * NOT_FOUND, IO, LIMIT_EXCEEDED, INVALID_PARAM, NO_MEMORY. */
cJSON *tmsg_json_parse(tmsg_json_reader_t *reader, const char *text);
cJSON *tmsg_json_load(tmsg_json_reader_t *reader);

#endif
