/* hello, then hello tcp://127.0.0.1:13337 in another terminal */
#include <stdio.h>
#include <tensormsg/tensormsg.h>

int main(int argc, char **argv)
{
    float pixels[2][3] = {{1, 2, 3}, {4, 5, 6}};
    tmsg_worker_t *worker = NULL;
    tmsg_endpoint_t *peer;
    tmsg_message_t *message = NULL;
    tmsg_map_t *map = NULL;
    tmsg_tensor_t image;
    int failed = tmsg_worker_create(NULL, NULL, &worker);

    if (!failed && argc > 1) { /* the URL to send to */
        failed = tmsg_map_create(&map) ||
                 tmsg_map_add_array(map, "image", pixels, "float32", 2,
                                    (int64_t[]){2, 3}) ||
                 tmsg_endpoint_connect(worker, argv[1], NULL, &peer) ||
                 tmsg_endpoint_send_wait(peer, map, NULL, 10000) ||
                 tmsg_endpoint_close_wait(peer, 10000);
    } else if (!failed) {
        failed =
            tmsg_listener_create(worker, "tcp://:13337", NULL, NULL) ||
            tmsg_worker_recv(worker, -1, &message) ||
            tmsg_map_find_array(tmsg_message_map(message), "image", "float32",
                                2, &image) ||
            printf("image: %d rows\n", (int)image.shape[0]) < 0 ||
            tmsg_endpoint_close_wait(tmsg_message_endpoint(message), 10000);
    }
    fprintf(stderr, "%s\n", failed ? tmsg_error_message() : "done");
    tmsg_message_destroy(message);
    tmsg_map_destroy(map);
    tmsg_worker_destroy(worker);
    return failed;
}
