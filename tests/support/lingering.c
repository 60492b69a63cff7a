/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/lingering.h"

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

#include "support/must.h"

int lingering_socket(void)
{
    static const uint8_t data[1 << 16];
    const struct linger linger = {.l_onoff = 1, .l_linger = 900};
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    must_eq(bind(listener, (struct sockaddr *)&address, bytes), 0);
    must_eq(listen(listener, 1), 0);
    must_eq(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    must_eq(connect(fd, (struct sockaddr *)&address, bytes), 0);
    must_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0) {
    }
    return fd; /* the listener stays */
}
