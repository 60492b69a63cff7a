/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/locales.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/must.h"

/* Of the locale nothing but how it writes numbers: the rest takes seconds. */
static bool compile_numbers(const char *name, const char *point,
                            const char *dir)
{
    bool ascii = (unsigned char)point[0] < 0x80;
    char command[512];

    snprintf(command, sizeof(command),
             "printf 'LC_NUMERIC\\ncopy \"%s\"\\nEND LC_NUMERIC\\n' > "
             "%s/source && localedef -c -i %s/source -f %s %s/%s 2> %s/log",
             name, dir, dir, ascii ? "ANSI_X3.4-1968" : "UTF-8", dir, name,
             dir);
    return system(command) != -1; /* it warns of what is missing */
}

void locale_enter(const char *name, const char *point)
{
    char dir[] = "/tmp/tensormsg-locale-XXXXXX", command[256];

    must_true(mkdtemp(dir) != NULL);
    must_true(compile_numbers(name, point, dir));
    must_true(setenv("LOCPATH", dir, 1) == 0);
    if (setlocale(LC_NUMERIC, name) == NULL ||
        strcmp(localeconv()->decimal_point, point) != 0) {
        die("no locale %s; localedef and /usr/share/i18n make it (Debian's "
            "packages libc-bin and locales)",
            name);
    }
    snprintf(command, sizeof(command), "rm -rf %s", dir); /* it is loaded */
    must_true(system(command) == 0);
}
