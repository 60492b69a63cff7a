/* SPDX-License-Identifier: BSD-3-Clause */
#include "raw.h"

#include <string.h>

#include "am/ucx/config.h"
#include "side.h"

#include <tensormsg/status.h>

void bench_raw_must(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        bench_die("raw UCX: %s: %s", what, ucs_status_string(status));
    }
}

/* The keys of ours where the way asks for them; the transport always. */
static ucp_config_t *configure(bench_settings_t settings,
                               bench_transport_t transport)
{
    static const char *const no_error_handling =
        ";POSIX_ERROR_HANDLING=n;CMA_MEMORY_INVALIDATE=n";
    const char *tls = transport == BENCH_TCP ? "tcp,self" : "posix,cma,self";
    const tmsg_ucx_scope_t scope = {.device = "lo"};
    static tmsg_ucx_keys_t keys;
    char code[128] = "TLS=";
    const tmsg_ucx_given_t given = {.code = code};
    ucp_config_t *config;

    if (settings == BENCH_UNTOUCHED) {
        bench_raw_must(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
        bench_raw_must(ucp_config_modify(config, "TLS", tls), "TLS");
        bench_raw_must(ucp_config_modify(config, "NET_DEVICES", "lo"),
                       "NET_DEVICES");
        return config;
    }
    strcat(code, tls);
    if (settings == BENCH_BEST && transport == BENCH_SHM) {
        strcat(code, no_error_handling);
    }
    if (tmsg_ucx_config_resolve(&given, &scope, &keys) != TMSG_OK ||
        tmsg_ucx_config_apply(&keys, &config) != TMSG_OK) {
        bench_die("raw UCX: %s", tmsg_error_message());
    }
    return config;
}

void bench_raw_start(bench_raw_t *raw, bench_settings_t settings, bool sleeps,
                     bench_transport_t transport,
                     ucp_am_recv_callback_t arrived, void *arg)
{
    bool ours = settings == BENCH_OUR_SETTINGS;
    ucp_config_t *config = configure(settings, transport);
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_AM | (ours || sleeps ? UCP_FEATURE_WAKEUP : 0),
    };
    const ucp_worker_params_t worker_params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode =
            ours ? UCS_THREAD_MODE_SERIALIZED : UCS_THREAD_MODE_SINGLE,
    };
    const ucp_am_handler_param_t am = {
        .field_mask =
            UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
            UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = BENCH_RAW_AM,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = arrived,
        .arg = arg,
    };

    raw->settings = settings;
    bench_raw_must(ucp_init(&params, config, &raw->context), "ucp_init");
    ucp_config_release(config);
    bench_raw_must(
        ucp_worker_create(raw->context, &worker_params, &raw->worker),
        "ucp_worker_create");
    bench_raw_must(ucp_worker_set_am_recv_handler(raw->worker, &am),
                   "the AM handler");
}

void bench_raw_tell(const bench_raw_t *raw, int socket)
{
    ucp_address_t *address;
    size_t bytes;

    bench_raw_must(ucp_worker_get_address(raw->worker, &address, &bytes),
                   "an address");
    bench_tell(socket, address, bytes);
    ucp_worker_release_address(raw->worker, address);
}

static void broken(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg;
    (void)ep;
    bench_raw_must(status, "the connection");
}

ucp_ep_h bench_raw_connect(const bench_raw_t *raw, const void *address)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = raw->settings == BENCH_OUR_SETTINGS
                        ? UCP_ERR_HANDLING_MODE_PEER
                        : UCP_ERR_HANDLING_MODE_NONE,
        .err_handler.cb = broken,
    };
    ucp_ep_h ep;

    bench_raw_must(ucp_ep_create(raw->worker, &params, &ep), "ucp_ep_create");
    return ep;
}

void bench_raw_disconnect(const bench_raw_t *raw, ucp_ep_h ep)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags =
            raw->settings == BENCH_OUR_SETTINGS ? UCP_EP_CLOSE_FLAG_FORCE : 0,
    };
    ucs_status_ptr_t request = ucp_ep_close_nbx(ep, &param);

    while (UCS_PTR_IS_PTR(request) &&
           ucp_request_check_status(request) == UCS_INPROGRESS) {
        ucp_worker_progress(raw->worker);
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

void bench_raw_stop(bench_raw_t *raw)
{
    ucp_worker_destroy(raw->worker);
    ucp_cleanup(raw->context);
}
