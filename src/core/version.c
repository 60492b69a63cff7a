/* SPDX-License-Identifier: BSD-3-Clause */
#include <tensormsg/version.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

const char *tmsg_version(void)
{
    return TEXT(TMSG_VERSION_MAJOR) "." TEXT(TMSG_VERSION_MINOR) "." TEXT(
        TMSG_VERSION_PATCH);
}
