/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "am/net/sock.h"

#define BOUND_MS 10000
#define BACKLOG 16

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/tmsg-sock-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
}

static void remove_folder(void)
{
    cr_expect(rmdir(folder) == 0, "%s was left with files in it", folder);
}

TestSuite(sock, .init = make_folder, .fini = remove_folder);

static tmsg_url_t unix_url(const char *name)
{
    tmsg_url_t url = {.kind = TMSG_URL_UNIX};

    snprintf(url.path, sizeof(url.path), "%s/%s", folder, name);
    return url;
}

static const tmsg_url_t tcp_url = {.kind = TMSG_URL_TCP, .host = "127.0.0.1"};

static tmsg_address_t tcp_address(const char *host, unsigned port)
{
    const tmsg_address_t *addresses;
    tmsg_resolve_t *resolve;
    tmsg_address_t address;
    size_t count;

    cr_assert(eq(int, tmsg_resolve_start(host, (uint16_t)port, true, &resolve),
                 TMSG_OK));
    cr_assert(eq(int, tmsg_resolve_take(resolve, &addresses, &count), TMSG_OK));
    address = addresses[0];
    tmsg_resolve_abandon(resolve);
    return address;
}

static bool wait_for(int fd, short events)
{
    struct pollfd poller = {.fd = fd, .events = events};

    return poll(&poller, 1, BOUND_MS) == 1;
}

/* Connects, accepts, and passes a byte each way. */
static void talk(const tmsg_sock_listener_t *listener, const tmsg_url_t *url,
                 const tmsg_address_t *address)
{
    char byte = 'x';
    int client, server;
    tmsg_status_t status = tmsg_sock_connect(url, address, &client);

    cr_assert(status >= 0, "%s", tmsg_error_message());
    cr_assert(wait_for(client, POLLOUT));
    cr_assert(eq(int, tmsg_sock_connect_result(client, "url"), TMSG_OK));
    cr_assert(wait_for(listener->fd, POLLIN));
    cr_assert(eq(int, tmsg_sock_accept(listener, &server), TMSG_OK));
    cr_assert(eq(int, (int)write(client, &byte, 1), 1));
    cr_assert(wait_for(server, POLLIN));
    cr_expect(eq(int, (int)read(server, &byte, 1), 1));
    cr_assert(eq(int, (int)write(server, &byte, 1), 1));
    cr_assert(wait_for(client, POLLIN));
    cr_expect(eq(int, (int)read(client, &byte, 1), 1));
    cr_expect(eq(int, (int)read(client, &byte, 1), -1), "it blocks");
    close(client);
    close(server);
}

static tmsg_sock_listener_t listen_tcp(const char *host,
                                       tmsg_address_t *address_p)
{
    tmsg_address_t address = tcp_address(host, 0);
    tmsg_sock_listener_t listener;

    cr_assert(eq(int, tmsg_sock_listen(&tcp_url, &address, BACKLOG, &listener),
                 TMSG_OK),
              "%s", tmsg_error_message());
    cr_assert(eq(int, tmsg_sock_local(listener.fd, address_p), TMSG_OK));
    return listener;
}

Test(sock, connects_over_ipv4)
{
    tmsg_address_t address;
    tmsg_sock_listener_t listener = listen_tcp("127.0.0.1", &address);

    talk(&listener, &tcp_url, &address);
    tmsg_sock_listener_close(&listener);
}

/* Containers often have none. */
static void skip_without_ipv6(void)
{
    tmsg_address_t address = tcp_address("::1", 0);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool works = fd >= 0 && bind(fd, &address.sa.any, address.bytes) == 0;

    close(fd);
    if (!works) {
        cr_skip_test("no IPv6 on this machine");
    }
}

Test(sock, connects_over_ipv6)
{
    tmsg_sock_listener_t listener;
    tmsg_address_t address;

    skip_without_ipv6();
    listener = listen_tcp("::1", &address);
    talk(&listener, &tcp_url, &address);
    tmsg_sock_listener_close(&listener);
}

Test(sock, connects_over_unix)
{
    tmsg_url_t url = unix_url("x.sock");
    tmsg_sock_listener_t listener;

    cr_assert(
        eq(int, tmsg_sock_listen(&url, NULL, BACKLOG, &listener), TMSG_OK),
        "%s", tmsg_error_message());
    talk(&listener, &url, NULL);
    tmsg_sock_listener_close(&listener);
}

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t bytes = sizeof(value);

    getsockopt(fd, level, name, &value, &bytes);
    return value;
}

static void expect_flags(int fd)
{
    int status_flags = fcntl(fd, F_GETFL), fd_flags = fcntl(fd, F_GETFD);

    cr_expect(eq(int, status_flags &O_NONBLOCK, O_NONBLOCK));
    cr_expect(eq(int, fd_flags &FD_CLOEXEC, FD_CLOEXEC));
}

Test(sock, sets_nodelay_keepalive_nonblock_and_cloexec)
{
    tmsg_address_t address;
    tmsg_sock_listener_t listener = listen_tcp("127.0.0.1", &address);
    int fds[2];

    cr_assert(tmsg_sock_connect(&tcp_url, &address, &fds[0]) >= 0);
    cr_assert(wait_for(listener.fd, POLLIN));
    cr_assert(eq(int, tmsg_sock_accept(&listener, &fds[1]), TMSG_OK));
    for (int i = 0; i < 2; i++) {
        cr_expect(option(fds[i], IPPROTO_TCP, TCP_NODELAY) != 0);
        cr_expect(option(fds[i], SOL_SOCKET, SO_KEEPALIVE) != 0);
        expect_flags(fds[i]);
        close(fds[i]);
    }
    expect_flags(listener.fd);
    tmsg_sock_listener_close(&listener);
}

Test(sock, keeps_ipv4_and_ipv6_apart)
{
    tmsg_address_t address4, address6;
    tmsg_sock_listener_t listener4, listener6;

    skip_without_ipv6();
    listener4 = listen_tcp("127.0.0.1", &address4);
    address6 = tcp_address(
        "::", ntohs(((struct sockaddr_in *)&address4.sa)->sin_port));
    cr_expect(eq(int,
                 tmsg_sock_listen(&tcp_url, &address6, BACKLOG, &listener6),
                 TMSG_OK),
              "%s", tmsg_error_message());
    tmsg_sock_listener_close(&listener4);
    tmsg_sock_listener_close(&listener6);
}

Test(sock, names_the_port_in_use)
{
    char name[TMSG_URL_TEXT_BYTES], expected[TMSG_URL_TEXT_BYTES + 64];
    tmsg_sock_listener_t second = {.fd = -7};
    tmsg_address_t address;
    tmsg_sock_listener_t first = listen_tcp("127.0.0.1", &address);

    tmsg_url_format_sockaddr(&address.sa.any, address.bytes, name,
                             sizeof(name));
    snprintf(expected, sizeof(expected), "%s: Address already in use", name);
    cr_expect(eq(int, tmsg_sock_listen(&tcp_url, &address, BACKLOG, &second),
                 TMSG_ERR_ALREADY_EXISTS));
    cr_expect_str_eq(tmsg_error_message(), expected);
    cr_expect(eq(int, second.fd, -7));
    tmsg_sock_listener_close(&first);
}

Test(sock, takes_a_port_again_while_old_connections_linger)
{
    tmsg_address_t address;
    tmsg_sock_listener_t listener = listen_tcp("127.0.0.1", &address);
    int client, server;

    cr_assert(tmsg_sock_connect(&tcp_url, &address, &client) >= 0);
    cr_assert(wait_for(listener.fd, POLLIN));
    cr_assert(eq(int, tmsg_sock_accept(&listener, &server), TMSG_OK));
    close(server); /* first: TIME_WAIT stays with this port */
    close(client);
    tmsg_sock_listener_close(&listener);
    cr_expect(eq(int, tmsg_sock_listen(&tcp_url, &address, BACKLOG, &listener),
                 TMSG_OK),
              "%s", tmsg_error_message());
    tmsg_sock_listener_close(&listener);
}

Test(sock, names_an_address_of_another_machine)
{
    tmsg_address_t address = tcp_address("192.0.2.77", 4000);
    tmsg_sock_listener_t listener;

    cr_expect(eq(int, tmsg_sock_listen(&tcp_url, &address, BACKLOG, &listener),
                 TMSG_ERR_NOT_FOUND));
    cr_expect_str_eq(tmsg_error_message(),
                     "tcp://192.0.2.77:4000: Cannot assign requested address");
}

Test(sock, says_that_nobody_listens)
{
    char name[TMSG_URL_TEXT_BYTES], expected[TMSG_URL_TEXT_BYTES + 64];
    tmsg_address_t address;
    tmsg_sock_listener_t listener = listen_tcp("127.0.0.1", &address);
    tmsg_status_t status;
    int fd;

    tmsg_sock_listener_close(&listener);
    tmsg_url_format_sockaddr(&address.sa.any, address.bytes, name,
                             sizeof(name));
    snprintf(expected, sizeof(expected), "%s: Connection refused", name);
    status = tmsg_sock_connect(&tcp_url, &address, &fd);
    if (status == TMSG_IN_PROGRESS) {
        cr_assert(wait_for(fd, POLLOUT));
        status = tmsg_sock_connect_result(fd, name);
        close(fd);
    }
    cr_expect(eq(int, status, TMSG_ERR_UNREACHABLE));
    cr_expect_str_eq(tmsg_error_message(), expected);
}

Test(sock, says_that_nobody_listens_at_a_path)
{
    tmsg_url_t url = unix_url("none.sock");
    char expected[TMSG_URL_TEXT_BYTES + 64];
    int fd;

    snprintf(expected, sizeof(expected), "unix://%s: No such file or directory",
             url.path);
    cr_expect(
        eq(int, tmsg_sock_connect(&url, NULL, &fd), TMSG_ERR_UNREACHABLE));
    cr_expect_str_eq(tmsg_error_message(), expected);
}

#define QUEUED_MOST 16

/* A listener that takes nobody more, and who has come: the last one waits. */
typedef struct {
    int listener;
    int clients[QUEUED_MOST];
    int count;
} queue_t;

static queue_t fill_a_queue(void)
{
    queue_t queue = {.listener = socket(AF_INET, SOCK_STREAM, 0)};
    tmsg_address_t address = tcp_address("127.0.0.1", 0);
    struct pollfd last;

    cr_assert(bind(queue.listener, &address.sa.any, address.bytes) == 0);
    cr_assert(listen(queue.listener, 0) == 0);
    cr_assert(eq(int, tmsg_sock_local(queue.listener, &address), TMSG_OK));
    do {
        cr_assert(lt(int, queue.count, QUEUED_MOST));
        cr_assert(tmsg_sock_connect(&tcp_url, &address,
                                    &queue.clients[queue.count]) >= 0);
        last = (struct pollfd){queue.clients[queue.count++], POLLOUT, 0};
    } while (poll(&last, 1, 200) == 1);
    return queue;
}

static void empty(const queue_t *queue)
{
    for (int i = 0; i < queue->count; i++) {
        close(queue->clients[i]);
    }
    close(queue->listener);
}

Test(sock, is_in_progress_while_nothing_is_known)
{
    queue_t queue = fill_a_queue();
    int fd = queue.clients[queue.count - 1];
    tmsg_address_t address;

    cr_expect(eq(int, tmsg_sock_connect_result(fd, "url"), TMSG_IN_PROGRESS));
    cr_expect(eq(int, tmsg_sock_peer(fd, &address), TMSG_ERR_IO));
    shutdown(fd, SHUT_RDWR);
    cr_expect(
        eq(int, tmsg_sock_connect_result(fd, "url"), TMSG_ERR_UNREACHABLE));
    empty(&queue);
    cr_expect(
        eq(int, tmsg_sock_connect_result(fd, "url"), TMSG_ERR_UNREACHABLE));
}

/* Shut down after it was connected, before anybody looked. */
Test(sock, sees_that_a_connection_has_ended_before_its_result)
{
    tmsg_address_t address;
    tmsg_sock_listener_t listener = listen_tcp("127.0.0.1", &address);
    int fd;

    cr_assert(tmsg_sock_connect(&tcp_url, &address, &fd) >= 0);
    cr_assert(wait_for(fd, POLLOUT));
    shutdown(fd, SHUT_RDWR);
    tmsg_sock_listener_close(&listener);
    cr_expect(
        eq(int, tmsg_sock_connect_result(fd, "url"), TMSG_ERR_UNREACHABLE));
    close(fd);
}

Test(sock, is_not_fooled_by_a_connection_to_itself)
{
    tmsg_address_t address = tcp_address("127.0.0.1", 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    cr_assert(bind(fd, &address.sa.any, address.bytes) == 0);
    cr_assert(eq(int, tmsg_sock_local(fd, &address), TMSG_OK));
    (void)connect(fd, &address.sa.any, address.bytes);
    cr_assert(wait_for(fd, POLLOUT));
    cr_expect(eq(int, tmsg_sock_connect_result(fd, "tcp://h:1"),
                 TMSG_ERR_UNREACHABLE));
    cr_expect_str_eq(tmsg_error_message(), "tcp://h:1: Connection refused");
    close(fd);
}

Test(sock, has_nothing_to_accept)
{
    tmsg_address_t address;
    tmsg_sock_listener_t listener = listen_tcp("127.0.0.1", &address);
    int fd = -7;

    cr_expect(eq(int, tmsg_sock_accept(&listener, &fd), TMSG_IN_PROGRESS));
    cr_expect(eq(int, fd, -7));
    tmsg_sock_listener_close(&listener);
}

/* From now on this process can open no more descriptors. */
static void exhaust_descriptors(void)
{
    struct rlimit limit;

    cr_assert(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = (rlim_t)dup(0);
    close((int)limit.rlim_cur);
    cr_assert(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

Test(sock, names_the_limit_of_descriptors)
{
    tmsg_url_t url = unix_url("x.sock");
    tmsg_address_t address;
    tmsg_sock_listener_t listener = listen_tcp("127.0.0.1", &address), other;
    int client, fd;

    cr_assert(tmsg_sock_connect(&tcp_url, &address, &client) >= 0);
    cr_assert(wait_for(listener.fd, POLLIN));
    exhaust_descriptors();
    cr_expect(
        eq(int, tmsg_sock_accept(&listener, &fd), TMSG_ERR_LIMIT_EXCEEDED));
    cr_expect(strstr(tmsg_error_message(), "RLIMIT_NOFILE") != NULL, "%s",
              tmsg_error_message());
    cr_expect(strstr(tmsg_error_message(), "tcp://127.0.0.1:") != NULL, "%s",
              tmsg_error_message());
    cr_expect(eq(int, tmsg_sock_connect(&tcp_url, &address, &fd),
                 TMSG_ERR_LIMIT_EXCEEDED));
    cr_expect(eq(int, tmsg_sock_listen(&tcp_url, &address, BACKLOG, &other),
                 TMSG_ERR_LIMIT_EXCEEDED));
    cr_expect(eq(int, tmsg_sock_listen(&url, NULL, BACKLOG, &other),
                 TMSG_ERR_LIMIT_EXCEEDED));
    close(client);
    tmsg_sock_listener_close(&listener);
}

Test(sock, makes_a_file_for_its_owner_and_removes_it)
{
    tmsg_url_t url = unix_url("x.sock");
    tmsg_sock_listener_t listener;
    struct stat file;

    umask(0);
    cr_assert(
        eq(int, tmsg_sock_listen(&url, NULL, BACKLOG, &listener), TMSG_OK));
    cr_assert(stat(url.path, &file) == 0);
    cr_expect(eq(uint, file.st_mode & 07777, 0600));
    tmsg_sock_listener_close(&listener);
    cr_expect(lstat(url.path, &file) == -1);
    cr_expect(eq(int, listener.fd, -1));
    tmsg_sock_listener_close(&listener); /* once more does nothing */
}

/* Leaves a socket file that nobody listens on, as a killed process does. */
static void make_stale(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
    cr_assert(bind(fd, (struct sockaddr *)&un, sizeof(un)) == 0);
    cr_assert(listen(fd, 1) == 0);
    close(fd);
}

Test(sock, replaces_a_stale_file)
{
    tmsg_url_t url = unix_url("x.sock");
    tmsg_sock_listener_t listener;

    make_stale(url.path);
    cr_assert(
        eq(int, tmsg_sock_listen(&url, NULL, BACKLOG, &listener), TMSG_OK),
        "%s", tmsg_error_message());
    talk(&listener, &url, NULL);
    tmsg_sock_listener_close(&listener);
}

static void expect_taken(const tmsg_url_t *url)
{
    char expected[TMSG_URL_TEXT_BYTES + 64];
    tmsg_sock_listener_t listener;

    snprintf(expected, sizeof(expected), "unix://%s: Address already in use",
             url->path);
    cr_expect(eq(int, tmsg_sock_listen(url, NULL, BACKLOG, &listener),
                 TMSG_ERR_ALREADY_EXISTS));
    cr_expect_str_eq(tmsg_error_message(), expected);
}

Test(sock, keeps_a_live_socket)
{
    tmsg_url_t url = unix_url("x.sock");
    tmsg_sock_listener_t listener;
    int probe;

    cr_assert(
        eq(int, tmsg_sock_listen(&url, NULL, BACKLOG, &listener), TMSG_OK));
    expect_taken(&url);
    cr_assert(eq(int, tmsg_sock_accept(&listener, &probe), TMSG_OK));
    close(probe); /* by which it was seen to live */
    talk(&listener, &url, NULL);
    tmsg_sock_listener_close(&listener);
}

Test(sock, keeps_a_live_socket_whose_queue_is_full)
{
    tmsg_url_t url = unix_url("x.sock");
    tmsg_sock_listener_t listener;
    int clients[2], fd;

    cr_assert(eq(int, tmsg_sock_listen(&url, NULL, 0, &listener), TMSG_OK));
    cr_assert(eq(int, tmsg_sock_connect(&url, NULL, &clients[0]), TMSG_OK));
    cr_expect(eq(int, tmsg_sock_connect(&url, NULL, &fd), TMSG_ERR_BUSY));
    cr_expect(strstr(tmsg_error_message(), "queue of connections is full") !=
                  NULL,
              "%s", tmsg_error_message());
    expect_taken(&url);
    cr_assert(eq(int, tmsg_sock_accept(&listener, &fd), TMSG_OK));
    close(fd);
    close(clients[0]);
    tmsg_sock_listener_close(&listener);
}

Test(sock, keeps_other_files)
{
    tmsg_url_t url = unix_url("file");
    struct stat file;
    int fd = open(url.path, O_CREAT | O_WRONLY, 0600);

    close(fd);
    expect_taken(&url);
    cr_expect(lstat(url.path, &file) == 0 && S_ISREG(file.st_mode));
    unlink(url.path);

    cr_assert(symlink("nowhere", url.path) == 0);
    expect_taken(&url);
    cr_expect(lstat(url.path, &file) == 0 && S_ISLNK(file.st_mode));
    unlink(url.path);

    cr_assert(mkdir(url.path, 0700) == 0);
    expect_taken(&url);
    cr_expect(rmdir(url.path) == 0);
}

Test(sock, keeps_a_live_socket_of_another_type)
{
    tmsg_url_t url = unix_url("dgram.sock");
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

    memcpy(un.sun_path, url.path, sizeof(un.sun_path));
    cr_assert(bind(fd, (struct sockaddr *)&un, sizeof(un)) == 0);
    expect_taken(&url);
    close(fd);
    unlink(url.path);
}

Test(sock, removes_only_its_own_file)
{
    tmsg_url_t url = unix_url("x.sock");
    tmsg_sock_listener_t first, second;

    cr_assert(eq(int, tmsg_sock_listen(&url, NULL, BACKLOG, &first), TMSG_OK));
    unlink(url.path);
    cr_assert(eq(int, tmsg_sock_listen(&url, NULL, BACKLOG, &second), TMSG_OK));
    tmsg_sock_listener_close(&first);
    talk(&second, &url, NULL);
    tmsg_sock_listener_close(&second);
}

Test(sock, names_a_folder_that_is_not_there)
{
    tmsg_url_t url = unix_url("no/x.sock");
    tmsg_sock_listener_t listener;

    cr_expect(eq(int, tmsg_sock_listen(&url, NULL, BACKLOG, &listener),
                 TMSG_ERR_NOT_FOUND));
    cr_expect(strstr(tmsg_error_message(), url.path) != NULL, "%s",
              tmsg_error_message());
}

#define RACERS 8

static void *race(void *arg)
{
    tmsg_url_t url = unix_url("x.sock");
    tmsg_sock_listener_t *listener = arg;
    tmsg_status_t status = tmsg_sock_listen(&url, NULL, BACKLOG, listener);

    if (status != TMSG_OK && status != TMSG_ERR_ALREADY_EXISTS) {
        fprintf(stderr, "%s\n", tmsg_error_message());
        abort();
    }
    return NULL;
}

Test(sock, lets_one_of_many_replace_a_stale_file)
{
    tmsg_url_t url = unix_url("x.sock");

    for (int round = 0; round < 20; round++) {
        tmsg_sock_listener_t listeners[RACERS];
        pthread_t threads[RACERS];
        int winners = 0;

        make_stale(url.path);
        for (int i = 0; i < RACERS; i++) {
            listeners[i].fd = -1;
            cr_assert(pthread_create(&threads[i], NULL, race, &listeners[i]) ==
                      0);
        }
        for (int i = 0; i < RACERS; i++) {
            pthread_join(threads[i], NULL);
            winners += listeners[i].fd >= 0;
        }
        cr_assert(eq(int, winners, 1));
        for (int i = 0; i < RACERS; i++) {
            tmsg_sock_listener_close(&listeners[i]);
        }
    }
}

/* Bound but not yet listening looks stale: hence the lock on the folder. */
Test(sock, waits_for_who_is_about_to_listen)
{
    tmsg_url_t url = unix_url("x.sock");
    tmsg_sock_listener_t listener = {.fd = -1};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int lock = open(folder, O_RDONLY | O_DIRECTORY);
    int other = socket(AF_UNIX, SOCK_STREAM, 0);
    struct timespec soon;
    pthread_t thread;

    memcpy(un.sun_path, url.path, sizeof(un.sun_path));
    cr_assert(flock(lock, LOCK_EX) == 0);
    cr_assert(bind(other, (struct sockaddr *)&un, sizeof(un)) == 0);
    cr_assert(pthread_create(&thread, NULL, race, &listener) == 0);
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 100 * 1000 * 1000;
    soon.tv_sec += soon.tv_nsec / 1000000000;
    soon.tv_nsec %= 1000000000;
    cr_assert(eq(int, pthread_timedjoin_np(thread, NULL, &soon), ETIMEDOUT));
    cr_assert(listen(other, 1) == 0);
    close(lock);
    cr_assert(pthread_join(thread, NULL) == 0);
    cr_expect(eq(int, listener.fd, -1), "it took the other's path");
    close(other);
    unlink(url.path);
}

typedef struct {
    int socket, lock;
} late_t;

static void *listen_late(void *arg)
{
    const late_t *late = arg;

    poll(NULL, 0, 20);
    cr_assert(listen(late->socket, 1) == 0);
    close(late->lock);
    return NULL;
}

/* Whose file is there, but who does not listen yet. */
Test(sock, connects_to_who_is_about_to_listen)
{
    tmsg_url_t url = unix_url("x.sock");
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    late_t late = {socket(AF_UNIX, SOCK_STREAM, 0),
                   open(folder, O_RDONLY | O_DIRECTORY)};
    pthread_t thread;
    int client;

    memcpy(un.sun_path, url.path, sizeof(un.sun_path));
    cr_assert(flock(late.lock, LOCK_EX) == 0);
    cr_assert(bind(late.socket, (struct sockaddr *)&un, sizeof(un)) == 0);
    cr_assert(pthread_create(&thread, NULL, listen_late, &late) == 0);
    cr_assert(eq(int, tmsg_sock_connect(&url, NULL, &client), TMSG_OK));
    cr_assert(pthread_join(thread, NULL) == 0);
    close(client);
    close(late.socket);
    unlink(url.path);
}

Test(sock, names_its_peer)
{
    char name[TMSG_URL_TEXT_BYTES], expected[TMSG_URL_TEXT_BYTES];
    tmsg_address_t address;
    tmsg_sock_listener_t listener = listen_tcp("127.0.0.1", &address);
    int client;

    cr_assert(tmsg_sock_connect(&tcp_url, &address, &client) >= 0);
    cr_assert(wait_for(client, POLLOUT));
    tmsg_url_format_sockaddr(&address.sa.any, address.bytes, expected,
                             sizeof(expected));
    cr_expect_str_eq(tmsg_sock_peer_name(client, name, sizeof(name)), expected);
    close(client);
    cr_expect_str_eq(tmsg_sock_peer_name(client, name, sizeof(name)),
                     "unknown address");
    tmsg_sock_listener_close(&listener);
}

Test(sock, names_both_ends_of_unix_by_the_path)
{
    char name[TMSG_URL_TEXT_BYTES], expected[TMSG_URL_TEXT_BYTES];
    tmsg_url_t url = unix_url("x.sock");
    tmsg_sock_listener_t listener;
    int fds[2];

    tmsg_url_format(&url, expected, sizeof(expected));
    cr_assert(
        eq(int, tmsg_sock_listen(&url, NULL, BACKLOG, &listener), TMSG_OK));
    cr_assert(eq(int, tmsg_sock_connect(&url, NULL, &fds[0]), TMSG_OK));
    cr_assert(eq(int, tmsg_sock_accept(&listener, &fds[1]), TMSG_OK));
    for (int i = 0; i < 2; i++) {
        cr_expect_str_eq(tmsg_sock_peer_name(fds[i], name, sizeof(name)),
                         expected);
        close(fds[i]);
    }
    tmsg_sock_listener_close(&listener);
}

static tmsg_url_t abstract_url(const char *name)
{
    tmsg_url_t url = {.kind = TMSG_URL_UNIX};

    snprintf(url.path, sizeof(url.path), "@tmsg-%d-%s", (int)getpid(), name);
    return url;
}

Test(sock, an_abstract_socket_has_no_file_and_one_listener)
{
    char name[TMSG_URL_TEXT_BYTES], expected[TMSG_URL_TEXT_BYTES];
    tmsg_url_t url = abstract_url("x");
    tmsg_sock_listener_t listener, other;
    int client;

    cr_assert(
        eq(int, tmsg_sock_listen(&url, NULL, BACKLOG, &listener), TMSG_OK),
        "%s", tmsg_error_message());
    talk(&listener, &url, NULL);
    cr_assert(eq(int, tmsg_sock_connect(&url, NULL, &client), TMSG_OK));
    cr_expect_str_eq(tmsg_sock_peer_name(client, name, sizeof(name)),
                     tmsg_url_format(&url, expected, sizeof(expected)));
    close(client);
    cr_expect(eq(int, tmsg_sock_listen(&url, NULL, BACKLOG, &other),
                 TMSG_ERR_ALREADY_EXISTS));
    tmsg_sock_listener_close(&listener);
    cr_expect(
        eq(int, tmsg_sock_connect(&url, NULL, &client), TMSG_ERR_UNREACHABLE));
}

/* Forks a child of another user, which calls `act` and exits with what that
 * returns. */
static pid_t as_another_user(int (*act)(const tmsg_url_t *url),
                             const tmsg_url_t *url)
{
    pid_t child = fork();

    if (child == 0) {
        _exit(setuid(65534) == 0 ? act(url) : 99);
    }
    return child;
}

static int dial_and_read(const tmsg_url_t *url)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    socklen_t bytes =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(url->path));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    char byte;

    memcpy(un.sun_path + 1, url->path + 1, strlen(url->path) - 1);
    if (connect(fd, (const struct sockaddr *)&un, bytes) != 0) {
        return 98;
    }
    return read(fd, &byte, 1) == 0 ? 0 : 1;
}

static int dial_a_stranger(const tmsg_url_t *url)
{
    int fd;

    return tmsg_sock_connect(url, NULL, &fd) == TMSG_ERR_REFUSED ? 0 : 1;
}

Test(sock, another_user_gets_nowhere_by_an_abstract_name)
{
    tmsg_url_t url = abstract_url("y");
    tmsg_sock_listener_t listener;
    int fd, status;
    pid_t child;

    if (geteuid() != 0) {
        cr_skip_test("not root, who alone can become another user");
    }
    cr_assert(
        eq(int, tmsg_sock_listen(&url, NULL, BACKLOG, &listener), TMSG_OK));
    child = as_another_user(dial_and_read, &url);
    cr_assert(wait_for(listener.fd, POLLIN));
    cr_expect(eq(int, tmsg_sock_accept(&listener, &fd), TMSG_IN_PROGRESS));
    cr_assert(eq(int, waitpid(child, &status, 0), child));
    cr_expect(eq(int, status, 0));
    child = as_another_user(dial_a_stranger, &url);
    cr_assert(eq(int, waitpid(child, &status, 0), child));
    cr_expect(eq(int, status, 0));
    tmsg_sock_listener_close(&listener);
}
