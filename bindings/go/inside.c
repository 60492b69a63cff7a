/* SPDX-License-Identifier: BSD-3-Clause */
/* inside.c - what goes on in a worker and in its peers, each call with its
 * words. */
#include "hub.h"

tmsggo_result_t tmsggo_metrics_start(tmsggo_hub_t *hub)
{
    return tmsggo_result(tmsg_metrics_start(tmsggo_worker(hub)));
}

tmsggo_result_t tmsggo_metrics_text(tmsggo_hub_t *hub, char **text_p)
{
    return tmsggo_result(tmsg_metrics_text(tmsggo_worker(hub), text_p));
}

tmsggo_result_t tmsggo_metrics_read(tmsggo_hub_t *hub, tmsg_side_t side,
                                    const char *method,
                                    tmsg_call_metrics_t *metrics_p)
{
    return tmsggo_result(
        tmsg_metrics_read(tmsggo_worker(hub), side, method, metrics_p));
}

tmsggo_result_t tmsggo_metrics_latency(tmsggo_hub_t *hub, tmsg_side_t side,
                                       const char *method, uint32_t millionths,
                                       uint64_t *ns_p)
{
    return tmsggo_result(tmsg_metrics_latency(tmsggo_worker(hub), side, method,
                                              millionths, ns_p));
}

tmsggo_result_t tmsggo_methods_read(const tmsg_map_t *reply,
                                    tmsg_methods_t **methods_p)
{
    return tmsggo_result(tmsg_methods_read(reply, methods_p));
}

tmsggo_result_t tmsggo_health_read(const tmsg_map_t *reply,
                                   tmsg_health_report_t *report_p)
{
    return tmsggo_result(tmsg_health_report_read(reply, report_p));
}

tmsggo_result_t tmsggo_load(const char *path, tmsg_file_load_params_t params,
                            tmsg_map_t **map_p)
{
    return tmsggo_result(tmsg_file_load(path, &params, map_p));
}

tmsggo_result_t tmsggo_save(const tmsg_map_t *map, const char *path,
                            tmsg_file_save_params_t params)
{
    return tmsggo_result(tmsg_file_save(map, path, &params));
}
