/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/locales.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/must.h"

void locale_enter(const char *name, const char *point)
{
    char dir[] = "/tmp/tensormsg-locale-XXXXXX", command[256];
    int made;

    must_true(mkdtemp(dir) != NULL);
    snprintf(command, sizeof(command), "localedef -i %s -f UTF-8 %s/%s.UTF-8",
             name, dir, name);
    made = system(command);
    must_true(setenv("LOCPATH", dir, 1) == 0);
    snprintf(command, sizeof(command), "%s.UTF-8", name);
    if (made != 0 || setlocale(LC_ALL, command) == NULL ||
        strcmp(localeconv()->decimal_point, point) != 0) {
        die("no locale %s; localedef and /usr/share/i18n make it (Debian's "
            "packages libc-bin and locales)",
            name);
    }
    snprintf(command, sizeof(command), "rm -rf %s", dir); /* it is loaded */
    must_true(system(command) == 0);
}
