/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/hello.h - what two peers tell each other before anything else.
 * docs/wire/bootstrap.md has the format. */
#ifndef TMSG_AM_BOOT_HELLO_H
#define TMSG_AM_BOOT_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#define TMSG_INSTANCE_BYTES 16
#define TMSG_NONCE_BYTES 32
#define TMSG_HELLO_BYTES_MAX 1024 /* of any hello that this side writes */

/* The features of a side, a bit each. Unknown bits are ignored. */
#define TMSG_FEATURE_PING 1u      /* answers PING */
#define TMSG_FEATURE_BROADCAST 2u /* accepts tensors with strides of 0 */
#define TMSG_FEATURE_CALLS 4u     /* accepts CALL and UNCALL */
#define TMSG_FEATURE_STREAMS 16u  /* accepts STREAM and STREAM_OVER */
#define TMSG_FEATURE_SPANS 32u    /* accepts spans, with their strides */
#define TMSG_FEATURE_LEASE 128u   /* tells the address of its lease; lease.h */
/* Accepts slices of what fragments leave over. */
#define TMSG_FEATURE_SLICES 8u
/* Accepts a bulk stream, and fragments by it; bulk.h. */
#define TMSG_FEATURE_BULK 256u
#define TMSG_FEATURE_RINGS 1024u /* accepts fragments by a ring */
/* Accepts messages by a fast box; fastboxes.h. */
#define TMSG_FEATURE_FASTBOXES 2048u
#define TMSG_FEATURE_READS 4096u /* may read a payload by itself; cma.h */
/* Asks UCX for a reply endpoint with every active message of a connection but
 * the first, by which its peer knows whose the message is. */
#define TMSG_FEATURE_REPLIES 8192u
#define TMSG_FEATURE_LOANS 16384u   /* knows loans; path/loans.h */
#define TMSG_FEATURE_BORROWS 32768u /* takes any message as a loan */
/* Takes the memory of rings and fast boxes by a descriptor that comes by the
 * bootstrap socket; docs/wire/connection.md. */
#define TMSG_FEATURE_PASSES 65536u
#define TMSG_FEATURE_CARRIERS 131072u /* knows streams; pipe/pipe.h */
#define TMSG_FEATURE_SUBFLOWS 262144u /* knows subflows of a bulk stream */
/* Its UCX writes memory of devices, and it takes fragments of such tensors that
 * have a size of their own. */
#define TMSG_FEATURE_DEVICES 524288u
/* May open device memory of the peer's, and copy fragments out of it;
 * path/ipc.h. */
#define TMSG_FEATURE_DEVICE_IPC 1048576u

/* These values say who may open this process's memory. Linux decides this as
 * ptrace(2) says under "access mode checking". The decision applies to /proc,
 * where UCX finds what a process shares, and to process_vm_readv(). OPEN: other
 * processes of this user. SHUT: only a process that may trace and search
 * everything. */
#define TMSG_HELLO_MEMORY_UNKNOWN 0
#define TMSG_HELLO_MEMORY_OPEN 1
#define TMSG_HELLO_MEMORY_SHUT 2

/* The admission version decoded from a peer that does not know of admission. */
#define TMSG_HELLO_NO_ADMISSION UINT8_MAX

typedef struct {
    uint8_t wire_version;
    uint16_t ucx_major;
    uint16_t ucx_minor;
    uint16_t ucx_patch;
    uint8_t instance_id[TMSG_INSTANCE_BYTES]; /* random, one for each context */
    uint32_t uid;                             /* effective user id */
    uint32_t pid;
    uint32_t max_am_header; /* longest AM header that this side accepts */
    uint32_t queue_depth;   /* message credits that the peer gets */
    uint32_t features;      /* TMSG_FEATURE_* */
    char host[64];          /* printable ASCII */
    char boot_id[37];       /* "": unknown */
    uint64_t ns_pid;        /* ns_*: inode in /proc/self/ns; 0: unknown */
    uint64_t ns_ipc;
    uint64_t ns_mnt;
    uint64_t ns_user;
    uint64_t ns_net;
    uint64_t tcp_tx_seg; /* *_seg: UCX's segment size in bytes; 0: unknown */
    uint64_t tcp_rx_seg;
    uint64_t posix_seg;
    uint64_t max_tensors; /* max_*: limits that this side holds its peer to */
    uint64_t max_ndim;
    uint64_t max_name_bytes;
    uint64_t max_metadata_bytes;
    uint64_t max_header_bytes;
    uint64_t max_message_bytes;
    uint64_t ucx_id; /* unique to the UCX worker */
    /* Schemas that this side keeps for its peer; 0: none. */
    uint16_t schema_slots;
    /* Limit of all encoded bodies of kept schemas together. */
    uint32_t schema_bytes;
    /* Algorithms that this side can check: bit n is algorithm n. */
    uint32_t checksums;
    /* One more limit for the peer; the default if absent. */
    uint64_t max_metadata_keys;
    /* Interval for the peer's heartbeats; 0: nobody sends any. */
    uint32_t heartbeat_ms;
    /* Fragments that this side keeps for an endpoint before it fetches them. */
    uint16_t fragments;
    uint8_t aborts; /* 1: this side understands ABORT */
    /* TMSG_SUBSCRIBE_*: how a publisher is to serve this side. */
    uint32_t subscribe;
    uint16_t channels; /* how many the peer may use, from 0 on; 1 if absent */
    /* Bytes that the peer may send ahead; UINT64_MAX: not counted. */
    uint64_t eager_bytes;
    uint32_t resume_ms; /* how long a session outlives its connection */
    uint8_t resumes;    /* 1: this connection is to continue a session */
    /* The version that this side asks for; 0: none, as it has no key; or
     * TMSG_HELLO_NO_ADMISSION. */
    uint8_t admission;
    uint8_t nonce[TMSG_NONCE_BYTES]; /* random; zeros without admission */
    /* near_end, far_end: addresses of the socket's ends, with admission. */
    char near_end[80];
    char far_end[80];
    char devices[256]; /* devices by number; see device_ids.h */
    uint8_t memory;    /* TMSG_HELLO_MEMORY_*: of this process */
    uint32_t gid; /* effective group id; it and caps only if `memory` is told */
    uint64_t caps;      /* permitted capabilities, which a reader must have */
    uint64_t caps_used; /* effective capabilities, with which this side reads */
    /* 1 + the number of this side's descriptor of the TCP socket, or 0. */
    uint32_t descriptor;
    uint8_t carrier; /* TMSG_CARRIER_* that this side asks for */
} tmsg_hello_t;

/* Zeroes *hello and fills in what the machine says: wire version, instance id,
 * uid, pid, host, boot id, namespaces, and who may open its memory. What cannot
 * be read stays unknown. An unknown value never counts as the same machine,
 * except that of who may open the memory. The caller fills in UCX's part,
 * segment sizes, limits and credits. */
void tmsg_hello_fill_local(const uint8_t instance_id[TMSG_INSTANCE_BYTES],
                           tmsg_hello_t *hello);

/* Makes the hello tell nothing of who may open the memory, as that of an older
 * version. The peer then does not ask for it. */
void tmsg_hello_untell_memory(tmsg_hello_t *hello);

/* Encodes a hello. TMSG_HELLO_BYTES_MAX is always enough. Errors:
 * LIMIT_EXCEEDED (capacity). */
tmsg_status_t tmsg_hello_encode(const tmsg_hello_t *hello, void *buffer,
                                size_t capacity, size_t *bytes_p);

/* Decodes a hello that fills `bytes` exactly. Unknown fields are skipped. In a
 * hello of another wire version, fields that do not look like ours are skipped,
 * too: tmsg_hello_check() refuses it with both versions. On error *hello_p is
 * untouched. Errors: MALFORMED (names the field). */
tmsg_status_t tmsg_hello_decode(const void *data, size_t bytes,
                                tmsg_hello_t *hello_p);

/* Checks whether the two sides can work together; `shm_only` if they meet at a
 * unix:// URL. Errors: INCOMPATIBLE, with both sides' values. */
tmsg_status_t tmsg_hello_check(const tmsg_hello_t *mine,
                               const tmsg_hello_t *theirs, bool shm_only);

/* Likewise, if a stream is to carry the messages: UCX does not count. */
tmsg_status_t tmsg_hello_check_stream(const tmsg_hello_t *mine,
                                      const tmsg_hello_t *theirs);

/* Returns whether shared memory should work between the two. They must have the
 * same boot, user, and pid, ipc, mount, user and network namespaces, and each
 * may open the other's memory, if both tell of it. Writes the reason to `why`,
 * in words, cut to `why_bytes`: "same machine, user and namespaces", "other
 * user (uid 1000, here 0)". */
bool tmsg_hello_same_machine(const tmsg_hello_t *mine,
                             const tmsg_hello_t *theirs, char *why,
                             size_t why_bytes);

#define TMSG_CHANNELS_MOST 1024u /* the most that a side may offer */

#endif
