/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/hello.h - what two peers tell each other before anything else. The
 * format is docs/bootstrap.md. */
#ifndef TMSG_AM_BOOT_HELLO_H
#define TMSG_AM_BOOT_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#define TMSG_INSTANCE_BYTES 16
#define TMSG_NONCE_BYTES 32
#define TMSG_HELLO_BYTES_MAX 1024 /* of every hello that we write */

/* What a side does, a bit each; unknown ones are passed over. */
#define TMSG_FEATURE_PING 1u      /* answers PING */
#define TMSG_FEATURE_BROADCAST 2u /* takes tensors with strides of 0 */
#define TMSG_FEATURE_CALLS 4u     /* takes CALL and UNCALL */
#define TMSG_FEATURE_STREAMS 16u  /* takes STREAM and STREAM_OVER */
#define TMSG_FEATURE_SPANS 32u    /* takes spans, with their strides */
#define TMSG_FEATURE_LEASE 128u   /* says where its lease stands; lease.h */
#define TMSG_FEATURE_SLICES 8u   /* takes slices of what is left beside parts */
#define TMSG_FEATURE_LANE 256u   /* takes a lane, and parts by it; lane.h */
#define TMSG_FEATURE_RINGS 1024u /* takes parts by a ring; lane_ring.h */
#define TMSG_FEATURE_BOXES 2048u /* takes small messages by a box; boxes.h */
#define TMSG_FEATURE_READS 4096u /* may read a payload by itself; cma.h */

/* Linux opens a process's memory to others of its user as ptrace(2) says under
 * "access mode checking": by /proc, where UCX finds what it shares, and by
 * process_vm_readv(). */
#define TMSG_HELLO_MEMORY_UNKNOWN 0
#define TMSG_HELLO_MEMORY_OPEN 1
#define TMSG_HELLO_MEMORY_SHUT                                                 \
    2 /* but to who may trace and search anything                              \
       */

/* Decoded from who does not know of admission at all. */
#define TMSG_HELLO_NO_ADMISSION UINT8_MAX

typedef struct {
    uint8_t wire_version;
    uint16_t ucx_major;
    uint16_t ucx_minor;
    uint16_t ucx_patch;
    uint8_t instance_id[TMSG_INSTANCE_BYTES]; /* random, of the context */
    uint32_t uid;                             /* effective */
    uint32_t pid;
    uint32_t max_am_header; /* longest AM header this side can take */
    uint32_t queue_depth;   /* message credits that the peer gets */
    uint32_t features;      /* TMSG_FEATURE_* */
    char host[64];          /* printable ASCII */
    char boot_id[37];       /* "" when unknown */
    uint64_t ns_pid;        /* inodes of /proc/self/ns, 0 when unknown */
    uint64_t ns_ipc;
    uint64_t ns_mnt;
    uint64_t ns_user;
    uint64_t ns_net;
    uint64_t tcp_tx_seg; /* UCX segment sizes in bytes, 0 when unknown */
    uint64_t tcp_rx_seg;
    uint64_t posix_seg;
    uint64_t max_tensors; /* limits this side holds its peer to */
    uint64_t max_ndim;
    uint64_t max_name_bytes;
    uint64_t max_metadata_bytes;
    uint64_t max_header_bytes;
    uint64_t max_message_bytes;
    uint64_t ucx_id;       /* of the UCX worker, and of no other */
    uint16_t schema_slots; /* schemas this side keeps of its peer's, 0: none */
    uint32_t schema_bytes; /* of encoded bodies, all of them together */
    uint32_t checksums;    /* that this side can check: bit n is algorithm n */
    uint64_t max_metadata_keys; /* a further limit; the default if absent */
    uint32_t heartbeat_ms; /* between two of the peer's; 0: nobody sends any */
    uint16_t parts;     /* of messages, that this side keeps for an endpoint */
    uint8_t aborts;     /* 1: this side understands ABORT */
    uint32_t subscribe; /* TMSG_SUBSCRIBE_*: how a publisher is to serve it */
    uint16_t channels;  /* that the peer may use, from 0 on; 1 if absent */
    uint64_t eager_bytes; /* that it may send ahead; UINT64_MAX: not counted */
    uint32_t resume_ms;   /* how long a session outlives its connection */
    uint8_t resumes;      /* 1: this connection is to take up a session */
    uint8_t admission;    /* the version that this side asks for; 0: none, as it
                           * has no key; or TMSG_HELLO_NO_ADMISSION */
    uint8_t nonce[TMSG_NONCE_BYTES]; /* random; zeros without admission */
    char near_end[80];               /* of its socket, with admission */
    char far_end[80];
    char devices[256]; /* by number; see numbers.h */
    uint8_t memory;    /* TMSG_HELLO_MEMORY_*: of this process */
    uint32_t gid;      /* effective; it and what follows if memory is told */
    uint64_t caps;     /* capabilities: permitted, which a reader has to have */
    uint64_t caps_used; /* and effective, by which it reads */
} tmsg_hello_t;

/* Zeroes *hello and fills in what the machine says: wire version, instance id,
 * uid, pid, host, boot id, namespaces, and who may open its memory. What cannot
 * be read stays unknown, which but for the last never counts as the same
 * machine. UCX's part, segment sizes, limits
 * and credits are the caller's. */
void tmsg_hello_fill_local(const uint8_t instance_id[TMSG_INSTANCE_BYTES],
                           tmsg_hello_t *hello);

/* As an older version tells nothing of its memory: who may open it is then not
 * asked. */
void tmsg_hello_untell_memory(tmsg_hello_t *hello);

/* Encodes it. TMSG_HELLO_BYTES_MAX is always enough. Errors: LIMIT_EXCEEDED
 * (capacity). */
tmsg_status_t tmsg_hello_encode(const tmsg_hello_t *hello, void *buffer,
                                size_t capacity, size_t *bytes_p);

/* Decodes one that fills `bytes` exactly. Unknown fields are skipped. Of a
 * hello of another wire version only the fields that look like ours are read:
 * tmsg_hello_check() refuses it by name. On error *hello_p is untouched.
 * Errors: MALFORMED (names the field). */
tmsg_status_t tmsg_hello_decode(const void *data, size_t bytes,
                                tmsg_hello_t *hello_p);

/* Whether the two can work together; `shm_only` when they meet at a unix://
 * URL. Errors: INCOMPATIBLE, with both sides' values. */
tmsg_status_t tmsg_hello_check(const tmsg_hello_t *mine,
                               const tmsg_hello_t *theirs, bool shm_only);

/* Whether shared memory should work between the two: same boot, user, and pid,
 * ipc, mount, user and network namespaces, and each may open the other's
 * memory, if both tell of it. Writes the reason to `why`, in words, cut to
 * `why_bytes`: "same machine, user and namespaces", "other user (uid 1000, here
 * 0)". */
bool tmsg_hello_same_machine(const tmsg_hello_t *mine,
                             const tmsg_hello_t *theirs, char *why,
                             size_t why_bytes);

#define TMSG_CHANNELS_MOST 1024u /* that it may offer */

#endif
