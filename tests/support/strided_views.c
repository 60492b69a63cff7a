/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/strided_views.h"

#include <stdlib.h>
#include <string.h>

#include "support/must.h"

#define ELEMENTS 70000
#define MANY_MOST 300

static int32_t buffer[ELEMENTS];

tmsg_tensor_t view_tensor(const view_t *view)
{
    return (tmsg_tensor_t){
        buffer + view->first, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_INT, 32, 1},
        view->ndim,           view->shape,          view->strides};
}

tmsg_map_t *views_map(const view_t *first, size_t count)
{
    tmsg_map_t *map;

    for (int i = 0; i < ELEMENTS; i++) {
        buffer[i] = i;
    }
    must(tmsg_map_create(&map));
    for (size_t i = 0; i < count; i++) {
        const tmsg_tensor_t tensor = view_tensor(&first[i]);

        must(tmsg_map_add(map, first[i].name, &tensor, NULL));
    }
    return map;
}

void view_check(const view_t *view, const tmsg_tensor_t *tensor)
{
    const tmsg_tensor_t wanted = view_tensor(view);
    int32_t *got, *expected;
    uint64_t bytes;

    must_eq(tensor->ndim, view->ndim);
    must_true(memcmp(tensor->shape, view->shape,
                     (size_t)view->ndim * sizeof(int64_t)) == 0);
    must(tmsg_tensor_bytes(&wanted, &bytes));
    got = malloc(bytes + 1);
    expected = malloc(bytes + 1);
    must(tmsg_tensor_pack(tensor, got));
    must(tmsg_tensor_pack(&wanted, expected));
    if (memcmp(got, expected, bytes) != 0) {
        die("'%s' is not what was sent", view->name);
    }
    free(got);
    free(expected);
}

void views_repeat(view_t *many, size_t count, const view_t *views, size_t of)
{
    static char names[MANY_MOST][200];

    must_true(count <= MANY_MOST);
    for (size_t i = 0; i < count; i++) {
        many[i] = views[i % of];
        memset(names[i], 'x', sizeof(names[i]) - 1);
        names[i][0] = (char)('a' + i % 26);
        names[i][1] = (char)('a' + i / 26);
        many[i].name = names[i];
    }
}

tmsg_map_t *views_room(const view_t *first, size_t count, bool fortran,
                       void (*place)(const view_t *view, tmsg_tensor_t *tensor))
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < count; i++) {
        tmsg_map_add_params_t params = {
            .field_mask = TMSG_MAP_ADD_PARAM_RELEASE, .release = free};
        tmsg_tensor_t tensor = view_tensor(&first[i]);
        int64_t strides[3], step = 1;
        uint64_t bytes;

        for (int32_t axis = 0; axis < tensor.ndim; axis++) {
            strides[axis] = step;
            step *= tensor.shape[axis];
        }
        tensor.strides = fortran ? strides : NULL;
        if (place != NULL) {
            place(&first[i], &tensor);
        }
        must(tmsg_tensor_bytes(&tensor, &bytes));
        tensor.data = malloc(bytes + 1);
        params.release_arg = tensor.data;
        must(tmsg_map_add(map, first[i].name, &tensor, &params));
    }
    return map;
}
