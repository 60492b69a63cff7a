/* SPDX-License-Identifier: BSD-3-Clause */
/* The two strings of the W3C's Trace Context, read and written. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include <tensormsg/span.h>

#include "support/must.h"

#define TRACE "0123456789abcdef0123456789abcdef"
#define SPAN "1234567890abcdef"
#define GOOD "00-" TRACE "-" SPAN "-01"

typedef struct {
    const char *parent;
    const char *fault; /* NULL: it is good, */
    int sampled;       /* and this */
} row_t;

Test(trace_context, parents_are_read_as_section_3_2_says)
{
    static const row_t rows[] = {
        {GOOD, NULL, 1},
        {"00-" TRACE "-" SPAN "-00", NULL, 0},
        {"00-" TRACE "-" SPAN "-ff", NULL, 1}, /* other flags are not ours */
        {"00-" TRACE "-" SPAN "-02", NULL, 0},
        {"cc-" TRACE "-" SPAN "-01", NULL, 1}, /* a later version */
        {"cc-" TRACE "-" SPAN "-01-what else", NULL, 1},
        {"01-" TRACE "-" SPAN "-01-", NULL, 1},
        {"cc-" TRACE "-" SPAN "-01.what else", "too long", 0},
        {"00-" TRACE "-" SPAN "-01-what else", "too long", 0},
        {"00-" TRACE "-" SPAN "-01.", "too long", 0},
        {"ff-" TRACE "-" SPAN "-01", "version ff", 0},
        {"", "too short", 0},
        {"00", "too short", 0},
        {"00-" TRACE "-" SPAN "-0", "too short", 0},
        {"00-" TRACE "-" SPAN "-", "too short", 0},
        {"0-" TRACE "-" SPAN "-01 ", "where it belongs", 0},
        {".0-" TRACE "-" SPAN "-01", "hexadecimal", 0},
        {"0x-" TRACE "-" SPAN "-01", "hexadecimal", 0},
        {"00-0123456789ABCDEF0123456789abcdef-" SPAN "-01", "hexadecimal", 0},
        {"00-" TRACE "-1234567890ABCDEF-01", "hexadecimal", 0},
        {"00-" TRACE "-" SPAN "-0A", "hexadecimal", 0},
        {"CC-" TRACE "-" SPAN "-01", "hexadecimal", 0},
        {"00-g123456789abcdef0123456789abcdef-" SPAN "-01", "hexadecimal", 0},
        {"00-00000000000000000000000000000000-" SPAN "-01", "id is 0", 0},
        {"00-" TRACE "-0000000000000000-01", "id is 0", 0},
        {"00_" TRACE "-" SPAN "-01", "where it belongs", 0},
        {"00-" TRACE "_" SPAN "-01", "where it belongs", 0},
        {"00-" TRACE "-" SPAN "_01", "where it belongs", 0},
        {" " GOOD, "where it belongs", 0},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tmsg_trace_context_t context = {.flags = 77};
        char text[TMSG_TRACE_PARENT_TEXT + 1];
        tmsg_status_t status =
            tmsg_trace_context_parse(rows[i].parent, NULL, &context);

        if (rows[i].fault != NULL) {
            cr_expect_eq(status, TMSG_ERR_MALFORMED, "%s", rows[i].parent);
            must_say(tmsg_error_message(), rows[i].fault);
            must_eq(context.flags, 77);
            continue;
        }
        cr_assert_eq(status, TMSG_OK, "%s", rows[i].parent);
        cr_expect_eq(context.flags, (unsigned)rows[i].sampled, "%s",
                     rows[i].parent);
        tmsg_trace_context_format(&context, text);
        cr_expect_eq(strncmp(text, "00-" TRACE "-" SPAN "-", 53), 0, "%s",
                     text);
        cr_expect_str_eq(text + 53, rows[i].sampled ? "01" : "00");
    }
    must_be(tmsg_trace_context_parse(NULL, NULL, NULL), TMSG_ERR_INVALID_PARAM);
}

#define A15 "aaaaaaaaaaaaaaa"
#define A60 A15 A15 A15 A15
#define A240 A60 A60 A60 A60
#define A255 A240 A15

Test(trace_context, states_are_read_as_section_3_3_says)
{
    static const struct {
        const char *state, *read;
    } rows[] = {
        {"", ""},
        {"foo=1", "foo=1"},
        {"foo=1,bar=2", "foo=1,bar=2"},
        {" foo=1\t,\t bar=2 ", "foo=1,bar=2"},
        {"foo=1,,bar=2,", "foo=1,bar=2"},
        {",", ""},
        {"foo@vendor=1", "foo@vendor=1"},
        {"1foo@vendor=1", "1foo@vendor=1"},
        {"z0_-*/=1", "z0_-*/=1"},
        {"foo= 1", "foo= 1"},
        {"foo=a b!~", "foo=a b!~"},
        {A255 "a=1", A255 "a=1"},
        {A240 "a@"
              "aaaaaaaaaaaaaa=1",
         A240 "a@"
              "aaaaaaaaaaaaaa=1"},
        /* malformed, and so left out as a whole */
        {"foo", ""},
        {"foo=", ""},
        {"=1", ""},
        {"foo=1=2", ""},
        {"foo =1", ""},
        {"Foo=1", ""},
        {"1foo=1", ""},
        {"_foo=1", ""},
        {"foo@=1", ""},
        {"@foo=1", ""},
        {"foo@1bar=1", ""},
        {"foo@bar@baz=1", ""},
        {"foo=1,foo=2", ""},
        {"foo=1,bar=\x7f", ""},
        {"foo=1,bar=a\tb", ""},
        {"foo=\xc3\xbc", ""},
        {"foo:bar=1", ""},
        {A255 "aa=1", ""},
        {A240 "aa@v=1", ""},
        {"a@"
         "aaaaaaaaaaaaaaa=1",
         ""},
        {"a=" A255 "aa", ""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tmsg_trace_context_t context;

        must(tmsg_trace_context_parse(GOOD, rows[i].state, &context));
        cr_expect_str_eq(context.state, rows[i].read, "'%s' gave '%s'",
                         rows[i].state, context.state);
    }
}

Test(trace_context, states_of_32_members_are_whole_and_long_ones_are_cut)
{
    char state[4096] = "", *to = state;
    tmsg_trace_context_t context;

    for (int i = 0; i < 33; i++) {
        to += sprintf(to, "%sk%02d=v", i == 0 ? "" : ",", i);
        must(tmsg_trace_context_parse(GOOD, state, &context));
        cr_expect_str_eq(context.state, i < 32 ? state : "");
    }
    /* The long one goes before short ones do, those from the end. */
    sprintf(state, "a=1,long=%.200s,b=%.120s,c=%.120s,d=%.120s,e=%.120s", A240,
            A240, A240, A240, A240);
    must(tmsg_trace_context_parse(GOOD, state, &context));
    sprintf(state, "a=1,b=%.120s,c=%.120s,d=%.120s,e=%.120s", A240, A240, A240,
            A240);
    cr_expect_str_eq(context.state, state);
    sprintf(state, "a=1,b=%.120s,c=%.120s,d=%.120s,e=%.120s,f=%.120s", A240,
            A240, A240, A240, A240);
    must(tmsg_trace_context_parse(GOOD, state, &context));
    *strrchr(state, ',') = '\0';
    cr_expect_str_eq(context.state, state);
}

Test(trace_context, maps_carry_both)
{
    tmsg_trace_context_t context, read;
    tmsg_map_t *map;
    const char *text;

    must(tmsg_map_create(&map));
    must_be(tmsg_map_get_trace(map, &read), TMSG_ERR_NOT_FOUND);
    must(tmsg_trace_context_parse(GOOD, "foo=1", &context));
    must(tmsg_map_set_trace(map, &context));
    must(tmsg_map_get_string(map, TMSG_META_TRACE_PARENT, &text));
    cr_expect_str_eq(text, GOOD);
    must(tmsg_map_get_trace(map, &read));
    must_eq(memcmp(&read, &context, offsetof(tmsg_trace_context_t, state)), 0);
    cr_expect_str_eq(read.state, "foo=1");
    context.state[0] = '\0';
    must(tmsg_map_set_trace(map, &context));
    must_be(tmsg_map_get_string(map, TMSG_META_TRACE_STATE, &text),
            TMSG_ERR_NOT_FOUND);
    must(tmsg_map_set_string(map, TMSG_META_TRACE_PARENT, "no"));
    must_be(tmsg_map_get_trace(map, &read), TMSG_ERR_MALFORMED);
    must_be(tmsg_map_get_trace(NULL, &read), TMSG_ERR_INVALID_PARAM);
    tmsg_map_destroy(map);
}
