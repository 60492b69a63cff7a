/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/header.h - what is measured of headers. */
#ifndef TMSG_BENCH_HEADER_H
#define TMSG_BENCH_HEADER_H

#include <stddef.h>

#include <tensormsg/map.h>

/* A map with names and shapes like those of a model's weights. */
tmsg_map_t *bench_header_map(size_t tensors);

/* Nanoseconds of one `round`: the median of several blocks of `rounds`. */
double bench_header_time(void (*round)(void *arg), void *arg, unsigned rounds);

/* Nanoseconds for writing and reading its header, preamble included, as a send
 * and a receive do it: a tensor, of the first message with that layout, which
 * both ends keep; a message of that layout, but not like the one before it; and
 * one that is, as those behind each other mostly are. */
double bench_header_first(size_t tensors, unsigned rounds);
double bench_header_known(size_t tensors, unsigned rounds);
double bench_header_steady(size_t tensors, unsigned rounds);

/* A tensor, of others' headers for the same map. msgpack-c alone packs and
 * unpacks name, dtype and shape, and makes no map of it; safetensors is the
 * JSON of such a file, as this library writes it and makes a map of it. */
double bench_header_msgpack(size_t tensors, unsigned rounds);
double bench_header_safetensors(size_t tensors, unsigned rounds);

#endif
