/* SPDX-License-Identifier: BSD-3-Clause */
/* Any text as a signature: it is refused, with a place, or printed as one that
 * reads back as the same. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/tensormsg.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void use(tmsg_signature_t *signature)
{
    tmsg_signature_t *again;
    char *text, *second, *json;
    tmsg_map_t *map;
    tmsg_status_t status = tmsg_signature_to_text(signature, &text);

    if (status != TMSG_OK) { /* "," became ", " */
        expect(status == TMSG_ERR_LIMIT_EXCEEDED);
        return;
    }
    expect(tmsg_signature_parse(text, &again) == TMSG_OK);
    expect(tmsg_signature_to_text(again, &second) == TMSG_OK);
    expect(strcmp(text, second) == 0);
    expect(tmsg_signature_to_json(again, &json) == TMSG_OK);
    expect(tmsg_map_create(&map) == TMSG_OK);
    (void)tmsg_signature_check_inputs(again, map);
    (void)tmsg_signature_check_outputs(again, map, map);
    tmsg_map_destroy(map);
    tmsg_string_free(json);
    tmsg_string_free(second);
    tmsg_string_free(text);
    tmsg_signature_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tmsg_signature_t *signature;
    char *text = calloc(1, size + 1);

    expect(text != NULL);
    if (size > 0) {
        memcpy(text, data, size);
    }
    if (tmsg_signature_parse(text, &signature) == TMSG_OK) {
        use(signature);
        tmsg_signature_destroy(signature);
    } else {
        expect(strstr(tmsg_error_message(), "signature") != NULL);
    }
    free(text);
    return 0;
}
