/* SPDX-License-Identifier: BSD-3-Clause */
#include "file_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    load_and_read(TMSG_FILE_NPY, data, size);
    return 0;
}
