/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of DLPack share: tensors whose deleters count. */
#ifndef TEST_DLPACK_TOOLS_H
#define TEST_DLPACK_TOOLS_H

#include "core/dlpack.h"
#include "test_map_tools.h"

static int deleted;

static inline void delete_plain(struct DLManagedTensor *self)
{
    cr_expect(self->manager_ctx == &deleted);
    deleted++;
}

static inline void delete_versioned(struct DLManagedTensorVersioned *self)
{
    cr_expect(self->manager_ctx == &deleted);
    deleted++;
}

static int64_t shape[] = {2, 3};

static inline struct DLManagedTensor plain_2_3(void)
{
    return (struct DLManagedTensor){.dl_tensor = {.data = data,
                                                  .device = {1, 0},
                                                  .ndim = 2,
                                                  .dtype = {2, 32, 1},
                                                  .shape = shape},
                                    .manager_ctx = &deleted,
                                    .deleter = delete_plain};
}

static inline struct DLManagedTensorVersioned versioned_2_3(void)
{
    return (struct DLManagedTensorVersioned){.major = 1,
                                             .manager_ctx = &deleted,
                                             .deleter = delete_versioned,
                                             .dl_tensor =
                                                 plain_2_3().dl_tensor};
}

static inline void expect_error(const char *want)
{
    cr_expect_str_eq(tmsg_error_message(), want, "'%s', not '%s'",
                     tmsg_error_message(), want);
}

#endif
