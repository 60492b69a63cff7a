/* SPDX-License-Identifier: BSD-3-Clause */
/* In the place of libgit2, of which Criterion's own library wants the
 * difference of two texts, where strings are not equal. Each test is a process
 * of its own, into which the loader would bring libgit2 and fifteen libraries
 * for repositories behind https and ssh, which start, too: twice as long as
 * most tests take. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* As <git2/diff.h> has it. */
typedef struct {
    char origin;
    int old_line;
    int new_line;
    int lines;
    size_t bytes;
    int64_t offset;
    const char *text;
} line_t;

typedef int line_fn(const void *file, const void *hunk, const line_t *line,
                    void *arg);

int git_libgit2_init(void);
int git_libgit2_shutdown(void);
int git_diff_buffers(const void *old, size_t old_bytes, const char *old_name,
                     const void *new, size_t new_bytes, const char *new_name,
                     const void *options, const void *on_file,
                     const void *on_binary, const void *on_hunk,
                     line_fn *on_line, void *arg);

int git_libgit2_init(void) { return 1; }

int git_libgit2_shutdown(void) { return 0; }

/* All of one text, then all of the other. */
static int tell(const char *text, size_t bytes, char origin, line_fn *on_line,
                void *arg)
{
    int rc = 0;

    while (bytes > 0 && rc >= 0) {
        const char *end = memchr(text, '\n', bytes);
        size_t length = end == NULL ? bytes : (size_t)(end - text) + 1;
        const line_t line = {.origin = origin, .text = text, .bytes = length};
        const line_t no_more = {.origin = '\n', .text = ""};

        rc = on_line(NULL, NULL, &line, arg);
        if (end == NULL && rc >= 0) {
            rc = on_line(NULL, NULL, &no_more, arg);
        }
        text += length;
        bytes -= length;
    }
    return rc < 0 ? rc : 0;
}

int git_diff_buffers(const void *old, size_t old_bytes, const char *old_name,
                     const void *new, size_t new_bytes, const char *new_name,
                     const void *options, const void *on_file,
                     const void *on_binary, const void *on_hunk,
                     line_fn *on_line, void *arg)
{
    int rc = tell(old, old_bytes, '-', on_line, arg);

    (void)old_name;
    (void)new_name;
    (void)options;
    (void)on_file;
    (void)on_binary;
    (void)on_hunk;
    return rc != 0 ? rc : tell(new, new_bytes, '+', on_line, arg);
}
