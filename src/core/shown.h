/* SPDX-License-Identifier: BSD-3-Clause */
/* core/shown.h - how text that a peer may have sent is shown: in errors, logs,
 * descriptions and metrics, on a terminal, and as the name of a file.
 *
 * A shown text is one line of UTF-8 in which each character can be seen. What
 * cannot be seen, or changes how others look, is escaped as Python does:
 *
 *      \xNN          controls, and bytes that are not UTF-8
 *      \uNNNN        others up to U+FFFF, such as U+202E
 *      \UNNNNNNNN    others, such as U+E0001
 *
 * A backslash is shown as it is, so a text that is shown twice is escaped once.
 * The command is built with this file, too; it includes nothing else of the
 * library's inside. */
#ifndef TMSG_CORE_SHOWN_H
#define TMSG_CORE_SHOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TMSG_SHOWN_BYTE 0x80000000u /* flag: a byte that is not UTF-8 */
#define TMSG_SHOWN_ESCAPE 11        /* longest escape, with its NUL */

/* Returns whether a character is escaped: it is a control, a format character
 * (which turns the direction of writing, or has no width), a line or paragraph
 * separator, private, not assigned, or a blank that Unicode ignores. */
bool tmsg_shown_hides(uint32_t code);

/* Reads the character at `at`, of which `left` bytes follow, 1 at least.
 * Returns its length. *code_p is the character, or a byte with
 * TMSG_SHOWN_BYTE. */
size_t tmsg_shown_read(const char *at, size_t left, uint32_t *code_p);

/* Writes the escape of what tmsg_shown_read() read, and a NUL. Returns its
 * length. */
size_t tmsg_shown_escape(char to[TMSG_SHOWN_ESCAPE], uint32_t code);

/* Shows `bytes` bytes in `to`, which has room for 4 * bytes, without a NUL.
 * They may lie behind `to`, as far as their escapes need. Returns the length.
 */
size_t tmsg_shown_write(char *to, const char *from, size_t bytes);

/* Shows the text in a buffer of `room` bytes, in place. `cut`: the text was cut
 * to fit the buffer. If it was, or its escapes do not fit, it ends in "...";
 * neither a character nor an escape is cut in half. Returns its length. */
size_t tmsg_shown_fit(char *text, size_t room, bool cut);

/* Returns how many bytes of a text are sent or kept where there is room for
 * `most`, without a character or an escape at the end that is not whole. */
size_t tmsg_shown_cut(const char *text, size_t most);

typedef struct {
    char text[164];
} tmsg_shown_t;

/* Returns a text as a line quotes it, so that a long one does not push out the
 * rest. Use the result within one expression: complain("no '%s'",
 * tmsg_shown_short(name).text) */
tmsg_shown_t tmsg_shown_short(const char *text);

/* Works as snprintf(), and shows the result as tmsg_shown_fit() does. */
void tmsg_shown_format(char *text, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns why a text must not name a file in a folder, or NULL: a name is one
 * component of a path, of up to `most` bytes, that can be seen, and is neither
 * hidden nor taken for an option. */
const char *tmsg_shown_bad_name(const char *name, size_t most);

#endif
