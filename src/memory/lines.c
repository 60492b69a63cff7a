/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/lines.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "core/error.h"
#include "memory/cuda_lines.h"
#include "memory/domain.h"

#define PAGE_BYTES 4096

/* Holds the lines of one device, or of no device. */
typedef struct tmsg_line_page {
    struct tmsg_line_page *next;
    uint8_t *host;
    uint64_t address;
    tmsg_device_t device;
    uint32_t epoch; /* of the device; see tmsg_cuda_epoch() */
    unsigned used;  /* bytes that were given out */
} page_t;

void tmsg_lines_init(tmsg_lines_t *lines)
{
    pthread_mutex_init(&lines->lock, NULL);
    lines->pages = NULL;
}

/* A page that the driver does not give back stays: it may still write there. */
static void free_page(page_t *page)
{
    if (page->address == 0 || tmsg_cuda_unmap_lines(page->host)) {
        munmap(page->host, PAGE_BYTES);
    }
    free(page);
}

void tmsg_lines_end(tmsg_lines_t *lines)
{
    while (lines->pages != NULL) {
        page_t *page = lines->pages;

        lines->pages = page->next;
        free_page(page);
    }
    pthread_mutex_destroy(&lines->lock);
}

/* The child of a fork() does not get the page. If it did, this process would
 * get another page than the device has, by copying on write. */
static tmsg_status_t map_page(page_t *page)
{
    page->host = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page->host == MAP_FAILED) {
        return tmsg_error_memory("a bell's line");
    }
    madvise(page->host, PAGE_BYTES, MADV_DONTFORK);
    if (page->device.type != TMSG_DEVICE_CUDA) {
        return TMSG_OK;
    }
    page->epoch = tmsg_cuda_epoch(page->device);
    return tmsg_cuda_map_lines(page->device, page->host, PAGE_BYTES,
                               &page->address);
}

static tmsg_status_t add_page(tmsg_lines_t *lines, tmsg_device_t device)
{
    page_t *page = calloc(1, sizeof(*page));
    tmsg_status_t status;

    if (page == NULL) {
        return tmsg_error_memory("a bell's line");
    }
    page->device = device;
    status = map_page(page);
    if (status != TMSG_OK) {
        if (page->host != MAP_FAILED) {
            munmap(page->host, PAGE_BYTES);
        }
        free(page);
        return status;
    }
    page->next = lines->pages;
    lines->pages = page;
    return TMSG_OK;
}

static bool has_room(const page_t *page, tmsg_device_t device)
{
    return page->device.type == device.type && page->device.id == device.id &&
           page->used < PAGE_BYTES &&
           (page->address == 0 || page->epoch == tmsg_cuda_epoch(device));
}

static page_t *find_page(const tmsg_lines_t *lines, tmsg_device_t device)
{
    page_t *page = lines->pages;

    while (page != NULL && !has_room(page, device)) {
        page = page->next;
    }
    return page;
}

/* Finds the device by which a line is mapped. All devices reach it then, so for
 * the CPU's memory that is any device in use. */
static tmsg_status_t choose_device(tmsg_device_t *device)
{
    switch (device->type) {
    case TMSG_DEVICE_CUDA:
        return TMSG_OK;
    case TMSG_DEVICE_CUDA_MANAGED:
        device->type = TMSG_DEVICE_CUDA;
        return TMSG_OK;
    case TMSG_DEVICE_CPU:
    case TMSG_DEVICE_CUDA_HOST:
        *device = (tmsg_device_t){TMSG_DEVICE_CPU, 0};
        if (tmsg_cuda_is_loaded() && tmsg_cuda_is_ready()) {
            tmsg_cuda_find_used(device);
        }
        return TMSG_OK;
    default:
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "bell: memory of device type %d: bells are for "
                              "memory of the CPU and of CUDA devices",
                              device->type);
    }
}

tmsg_status_t tmsg_line_take(tmsg_lines_t *lines, tmsg_device_t device,
                             tmsg_line_t *line_p)
{
    bool is_host =
        device.type == TMSG_DEVICE_CPU || device.type == TMSG_DEVICE_CUDA_HOST;
    tmsg_status_t status = choose_device(&device);
    page_t *page;

    if (status != TMSG_OK) {
        return status;
    }
    pthread_mutex_lock(&lines->lock);
    page = find_page(lines, device);
    if (page == NULL) {
        status = add_page(lines, device);
        page = lines->pages;
    }
    if (status == TMSG_OK) {
        *line_p = (tmsg_line_t){
            .host = page->host + page->used,
            .address = page->address == 0 ? 0 : page->address + page->used,
            .device = device,
            .flushes = !is_host && tmsg_cuda_needs_flush(device)};
        page->used += TMSG_LINE_BYTES;
    }
    pthread_mutex_unlock(&lines->lock);
    return status;
}

tmsg_status_t tmsg_line_flush(const tmsg_line_t *line)
{
    return line->flushes ? tmsg_cuda_flush_writes(line->device) : TMSG_OK;
}

static tmsg_status_t give_stream(const tmsg_line_t *line, tmsg_stream_t stream,
                                 bool writes)
{
    if (line->address == 0) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED,
            "no stream can ring this bell: it was made for memory of the CPU "
            "while no CUDA device was in use");
    }
    return tmsg_cuda_give_line(line->device, stream, line->address, writes);
}

tmsg_status_t tmsg_line_ring(const tmsg_line_t *line, tmsg_stream_t stream)
{
    return give_stream(line, stream, true);
}

tmsg_status_t tmsg_line_await(const tmsg_line_t *line, tmsg_stream_t stream)
{
    return give_stream(line, stream, false);
}
