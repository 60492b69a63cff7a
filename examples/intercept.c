/* intercept: a server that wants a token of each call, a caller that gives one,
 * a line of log for each call that the server was asked for and a span for each
 * that it took; all in one process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensormsg/tensormsg.h>

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "intercept: %s\n", tmsg_error_message());
        exit(1);
    }
}

/* The caller's: adds to the request, whose map stays as it is. */
static tmsg_status_t add_token(void *arg, tmsg_intercepted_t *call)
{
    const char **token = arg;

    return *token == NULL ? TMSG_OK
                          : tmsg_intercepted_set_string(call, "token", *token);
}

/* The server's: no handler sees what it refuses. */
static tmsg_status_t want_token(void *arg, tmsg_intercepted_t *call)
{
    const char *wanted = arg;
    tmsg_meta_t token;

    if (tmsg_intercepted_get_meta(call, "token", &token) != TMSG_OK ||
        token.type != TMSG_META_TYPE_STRING ||
        strcmp(token.data, wanted) != 0) {
        return tmsg_intercepted_refuse(call, TMSG_ERR_REFUSED, "no good token");
    }
    return TMSG_OK;
}

/* The method of a call that was refused is whatever a peer said: a line of its
 * own in the log, for one, or an order to the terminal. */
static void print_name(const char *name)
{
    for (; *name != '\0'; name++) {
        if (*name < ' ' || *name > '~' || *name == '\\') {
            printf("\\x%02x", (unsigned)(unsigned char)*name);
        } else {
            putchar(*name);
        }
    }
}

static void log_end(void *arg, const tmsg_intercepted_t *call)
{
    (void)arg;
    print_name(call->method);
    printf(": %s\n", tmsg_status_name(call->status));
}

static void print_span(void *arg, const tmsg_span_t *span)
{
    static const uint8_t none[TMSG_SPAN_ID_BYTES];

    (void)arg;
    printf("span of the %s%s\n",
           span->call->side == TMSG_SIDE_CALLER ? "caller" : "server",
           memcmp(span->parent_id, none, sizeof(none)) == 0 ? ", which began it"
                                                            : "");
}

static void answer(void *arg, tmsg_task_t *task)
{
    (void)arg;
    check(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

int main(void)
{
    char wanted[] = "sesame";
    const char *token = NULL;
    const tmsg_interceptor_t adds = {.field_mask = TMSG_INTERCEPTOR_BEGIN,
                                     .begin = add_token,
                                     .arg = &token};
    const tmsg_interceptor_t wants = {.field_mask = TMSG_INTERCEPTOR_BEGIN,
                                      .begin = want_token,
                                      .arg = wanted};
    const tmsg_interceptor_t logs = {.field_mask = TMSG_INTERCEPTOR_END |
                                                   TMSG_INTERCEPTOR_REFUSED,
                                     .end = log_end,
                                     .refused = log_end};
    const char *const methods[] = {"answer", "answer", "anwser"};
    const tmsg_tracer_params_t traces = {
        .field_mask = TMSG_TRACER_PARAM_ON_SPAN, .on_span = print_span};
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_server_t *server;
    tmsg_endpoint_t *endpoint;
    tmsg_call_t *call;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, NULL, &worker));
    check(tmsg_worker_trace(worker, &traces)); /* the outermost */
    check(tmsg_worker_intercept(worker, TMSG_SIDE_CALLER, &adds));
    check(tmsg_worker_intercept(worker, TMSG_SIDE_SERVER, &logs));
    check(tmsg_worker_intercept(worker, TMSG_SIDE_SERVER, &wants));
    check(tmsg_server_create(worker, NULL, &server));
    check(tmsg_server_register(server, "answer", answer, NULL, NULL));
    check(tmsg_listener_create(worker, "tcp://127.0.0.1:0", NULL, &listener));
    check(tmsg_endpoint_connect(worker, tmsg_listener_url(listener), NULL,
                                &endpoint));
    for (int i = 0; i < 3; i++) {
        check(tmsg_endpoint_call(endpoint, methods[i], NULL, NULL, &call));
        if (tmsg_call_wait(call, 10000) != TMSG_OK) {
            printf("%s\n", strstr(tmsg_call_error(call), "no "));
        }
        tmsg_call_destroy(call);
        token = wanted;
    }
    tmsg_server_destroy(server);
    tmsg_worker_destroy(worker); /* with its endpoints and its listener */
    tmsg_context_destroy(context);
}
