/* A UCP server and client that connect by a listener's address, not by a worker's: tagged messages, echoed and checked.
 * ucp server PORT | ucp client ADDRESS PORT */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

enum { MESSAGES = 50, LARGEST = 1 << 20, TAG = 7, LAST = 8 };

static ucp_worker_h worker;
static ucp_conn_request_h request;

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

static void wait_for(void *operation, const char *what)
{
    if (operation == NULL)
        return;
    if (UCS_PTR_IS_ERR(operation))
        check(UCS_PTR_STATUS(operation), what);
    ucs_status_t status;
    while ((status = ucp_request_check_status(operation)) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    ucp_request_free(operation);
    check(status, what);
}

static void on_request(ucp_conn_request_h r, void *unused)
{
    request = r;
}

static void on_error(void *unused, ucp_ep_h endpoint, ucs_status_t status)
{
    fprintf(stderr, "endpoint: %s\n", ucs_status_string(status));
}

static size_t size(int message)
{
    size_t sizes[] = {1, 64, 1000, 8192, 65536, 300000, LARGEST};
    return sizes[message % 7];
}

static void pass(ucp_ep_h endpoint, int sends, unsigned char *buffer, size_t len, ucp_tag_t tag)
{
    ucp_request_param_t param = {0};
    if (sends)
        wait_for(ucp_tag_send_nbx(endpoint, buffer, len, tag, &param), "send");
    else
        wait_for(ucp_tag_recv_nbx(worker, buffer, len, tag, ~(ucp_tag_t)0, &param), "receive");
}

int main(int argc, char **argv)
{
    int serves = argc == 3;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[argc - 1]))};
    if (!serves)
        inet_pton(AF_INET, argv[2], &address.sin_addr);
    ucs_sock_addr_t sockaddr = {(struct sockaddr *)&address, sizeof address};
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_h context;
    check(ucp_init(&params, NULL, &context), "ucp_init");
    ucp_worker_params_t of_worker = {0};
    check(ucp_worker_create(context, &of_worker, &worker), "ucp_worker_create");
    ucp_ep_params_t of_endpoint = {.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                   .err_mode = UCP_ERR_HANDLING_MODE_PEER, .err_handler.cb = on_error};
    ucp_listener_h listener = NULL;
    if (serves) {
        ucp_listener_params_t of_listener = {
            .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
            .sockaddr = sockaddr, .conn_handler.cb = on_request};
        check(ucp_listener_create(worker, &of_listener, &listener), "ucp_listener_create");
        puts("listening");
        fflush(stdout);
        while (request == NULL)
            ucp_worker_progress(worker);
        of_endpoint.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
        of_endpoint.conn_request = request;
    } else {
        of_endpoint.field_mask |= UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
        of_endpoint.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        of_endpoint.sockaddr = sockaddr;
    }
    ucp_ep_h endpoint;
    check(ucp_ep_create(worker, &of_endpoint, &endpoint), "ucp_ep_create");
    unsigned char *buffer = malloc(LARGEST);
    for (int message = 0; message < MESSAGES; message++) {
        size_t len = size(message);
        if (!serves)
            for (size_t i = 0; i < len; i++)
                buffer[i] = (i * 31 + i / 251 + message) & 255;
        pass(endpoint, !serves, buffer, len, TAG);
        if (!serves)
            memset(buffer, 0, len);
        pass(endpoint, serves, buffer, len, TAG);
        for (size_t i = 0; !serves && i < len; i++)
            if (buffer[i] != ((i * 31 + i / 251 + message) & 255)) {
                fprintf(stderr, "byte %zu of message %d\n", i, message);
                return 1;
            }
    }
    pass(endpoint, !serves, buffer, 1, LAST);
    ucp_request_param_t close = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = 0};
    /* All data were checked. Whoever closes last may have a peer that has gone: over UD, UCX then repeats its last packet for
     * as long as UCX_UD_VERBS_TIMEOUT, so it gets three seconds. */
    void *closing = ucp_ep_close_nbx(endpoint, &close);
    time_t end = time(NULL) + 3;
    if (UCS_PTR_IS_PTR(closing)) {
        while (ucp_request_check_status(closing) == UCS_INPROGRESS && time(NULL) <= end)
            ucp_worker_progress(worker);
        ucp_request_free(closing);
    }
    if (listener)
        ucp_listener_destroy(listener);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    printf("%d messages\n", MESSAGES);
    return 0;
}
