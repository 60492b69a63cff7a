// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"encoding/json"
	"sync"
	"time"
	"unsafe"
)

// A Context is what the workers of a process share: limits, keys, UCX's keys,
// how long a peer may be silent.
type Context struct {
	life   sync.RWMutex
	c      *C.tmsg_context_t // nil: closed
	silent time.Duration
}

// A ContextOption is one of those that begin with Context.
type ContextOption func(*contextOptions)

type contextOptions struct {
	given
	proofs
	params C.tmsg_context_params_t
}

// ContextPeerTimeout says after which silence a peer is lost: 200 ms or more;
// 5 s by default. 0: never; then a call whose context has ended, while the peer
// may still read its slices, waits until the peer answers or is gone.
func ContextPeerTimeout(d time.Duration) ContextOption {
	return func(o *contextOptions) {
		o.params.field_mask |= C.TMSG_CONTEXT_PARAM_PEER_TIMEOUT
		o.params.peer_timeout_ms = C.uint32_t(o.time("ContextPeerTimeout", d))
	}
}

// ContextUCXConfig gives keys of UCX, "TLS=tcp;RNDV_THRESH=64k".
func ContextUCXConfig(keys string) ContextOption {
	return func(o *contextOptions) {
		o.params.field_mask |= C.TMSG_CONTEXT_PARAM_UCX_CONFIG
		o.params.ucx_config = o.text("ContextUCXConfig", keys)
	}
}

// ContextConfigFile names a configuration file (docs/reference/configuration.md).
func ContextConfigFile(name string) ContextOption {
	return func(o *contextOptions) {
		o.params.field_mask |= C.TMSG_CONTEXT_PARAM_CONFIG_FILE
		o.params.config_file = o.text("ContextConfigFile", name)
	}
}

// ContextLimits says what is taken from peers at most.
func ContextLimits(limits Limits) ContextOption {
	return func(o *contextOptions) {
		o.params.field_mask |= C.TMSG_CONTEXT_PARAM_LIMITS
		o.params.limits = o.limits(limits)
	}
}

// ContextNoThread makes a context without a thread of its own: neither side of
// a connection then notices that the other one is stopped or hangs.
func ContextNoThread() ContextOption {
	return func(o *contextOptions) {
		o.params.field_mask |= C.TMSG_CONTEXT_PARAM_FLAGS
		o.params.flags |= C.TMSG_CONTEXT_NO_THREAD
	}
}

// ContextRequirePath has tensors of devices fail, with ErrUnsupported, where
// they would go through the host's memory and a faster path is there
// (docs/reference/domains.md).
func ContextRequirePath() ContextOption {
	return func(o *contextOptions) {
		o.params.field_mask |= C.TMSG_CONTEXT_PARAM_FLAGS
		o.params.flags |= C.TMSG_CONTEXT_REQUIRE_PATH
	}
}

// NewContext makes a context. Fails with ErrInvalidParam, ErrNotFound, ErrIO
// and ErrNoMemory.
func NewContext(options ...ContextOption) (*Context, error) {
	var o contextOptions
	for _, option := range options {
		option(&o)
	}
	defer o.free()
	ring, _ := o.hold(&o.given)
	defer o.let()
	if o.err != nil {
		return nil, o.err
	}
	if ring != nil {
		o.params.field_mask |= C.TMSG_CONTEXT_PARAM_KEYRING
		o.params.keyring = ring
	}
	c := &Context{}
	if err := errOf(C.tmsggo_context(o.params, &c.c)); err != nil {
		return nil, err
	}
	text, err := c.Describe()
	if err == nil {
		err = c.read(text)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// How long a peer may be silent, which a variable or a file may say, too.
func (c *Context) read(text string) error {
	var said struct {
		MS int64 `json:"peer_timeout_ms"`
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return fail(ErrInternal, err.Error())
	}
	c.silent = time.Duration(said.MS) * time.Millisecond
	return nil
}

// Describe gives the machine and the set-up as JSON: versions, limits, UCX's
// keys and transports, devices.
func (c *Context) Describe() (string, error) {
	c.life.RLock()
	defer c.life.RUnlock()
	if c.c == nil {
		return "", fail(ErrClosed, "the context is closed")
	}
	return taken(C.tmsggo_describe_context(c.c))
}

// Close gives the context back. Its workers keep what they need of it. Again
// does nothing. The error is nil.
func (c *Context) Close() error {
	c.life.Lock()
	defer c.life.Unlock()
	C.tmsg_context_destroy(c.c)
	c.c = nil
	return nil
}

// Limits bound what peers send. 0 stands for the default.
type Limits struct {
	Tensors       uint64 // in one map: 2^20
	NDim          uint64 // of one tensor: 64
	NameBytes     uint64 // of one tensor's name or key: 4096
	MetadataBytes uint64 // keys and values of one map: 64 MiB
	MetadataKeys  uint64 // in one map: 65536
	HeaderBytes   uint64 // encoded names, shapes, metadata: 512 MiB
	MessageBytes  uint64 // payload of one message: 1 TiB
	HeldBytes     uint64 // received and not closed, of one worker: a quarter of RAM
	LentBytes     uint64 // of tensors in the offers of one worker: no limit
}

func (g *given) limits(limits Limits) *C.tmsg_limits_t {
	c := (*C.tmsg_limits_t)(C.malloc(C.sizeof_tmsg_limits_t))
	*c = C.tmsg_limits_t{}
	g.memory = append(g.memory, unsafe.Pointer(c))
	for _, limit := range []struct {
		is  uint64
		bit C.uint64_t
		to  *C.uint64_t
	}{
		{limits.Tensors, C.TMSG_LIMIT_TENSORS, &c.tensors},
		{limits.NDim, C.TMSG_LIMIT_NDIM, &c.ndim},
		{limits.NameBytes, C.TMSG_LIMIT_NAME_BYTES, &c.name_bytes},
		{limits.MetadataBytes, C.TMSG_LIMIT_METADATA_BYTES, &c.metadata_bytes},
		{limits.MetadataKeys, C.TMSG_LIMIT_METADATA_KEYS, &c.metadata_keys},
		{limits.HeaderBytes, C.TMSG_LIMIT_HEADER_BYTES, &c.header_bytes},
		{limits.MessageBytes, C.TMSG_LIMIT_MESSAGE_BYTES, &c.message_bytes},
		{limits.HeldBytes, C.TMSG_LIMIT_HELD_BYTES, &c.held_bytes},
		{limits.LentBytes, C.TMSG_LIMIT_LENT_BYTES, &c.lent_bytes},
	} {
		if limit.is != 0 {
			c.field_mask |= limit.bit
			*limit.to = C.uint64_t(limit.is)
		}
	}
	return c
}

// Version is that of the library that was loaded: "0.1.0".
func Version() string { return C.GoString(C.tmsg_version()) }

// A QueuePolicy says what becomes of a send for which there is no room.
type QueuePolicy int32

const (
	QueueReject     QueuePolicy = C.TMSG_QUEUE_REJECT      // it fails with ErrBusy
	QueueDropOldest QueuePolicy = C.TMSG_QUEUE_DROP_OLDEST // those that have waited longest end with ErrDropped
	QueueDropNewest QueuePolicy = C.TMSG_QUEUE_DROP_NEWEST // it ends with ErrDropped itself
	QueueNewest     QueuePolicy = C.TMSG_QUEUE_NEWEST      // live: the newest alone waits, until the peer's application took the one before
)

// A Queue says how much may wait to be sent on one endpoint. 0 stands for the
// default.
type Queue struct {
	Policy   QueuePolicy
	Messages int           // that wait: 65536
	Bytes    uint64        // of their tensors: no bound
	Window   int           // that have gone and that the peer's application has not taken: as many as it has room for
	Most     time.Duration // how long one may wait: no bound
}

func (g *given) queue(option string, q Queue) (p C.tmsg_queue_params_t) {
	p.field_mask = C.TMSG_QUEUE_PARAM_POLICY
	p.policy = C.int32_t(q.Policy)
	if q.Policy != QueueReject && (q.Policy < QueueDropOldest || q.Policy > QueueNewest) {
		g.wrong(option, "%d is not a QueuePolicy", q.Policy)
	}
	if q.Messages != 0 {
		p.field_mask |= C.TMSG_QUEUE_PARAM_MESSAGES
		p.messages = g.count(option+": Messages", q.Messages)
	}
	if q.Bytes != 0 {
		p.field_mask |= C.TMSG_QUEUE_PARAM_BYTES
		p.bytes = C.uint64_t(q.Bytes)
	}
	if q.Window != 0 {
		p.field_mask |= C.TMSG_QUEUE_PARAM_WINDOW
		p.window = g.count(option+": Window", q.Window)
	}
	if q.Most != 0 {
		p.field_mask |= C.TMSG_QUEUE_PARAM_MOST_MS
		p.most_ms = C.uint32_t(g.time(option+": Most", q.Most))
	}
	return p
}

// A WorkerOption is one of those that begin with Worker.
type WorkerOption func(*workerOptions)

type workerOptions struct {
	given
	params C.tmsg_worker_params_t
	server C.tmsg_server_params_t

	refusals C.int
}

// WorkerQueueDepth says how many messages may wait to be received, for each
// channel of each endpoint, before the sender waits. 256 by default.
func WorkerQueueDepth(messages int) WorkerOption {
	return func(o *workerOptions) {
		o.params.field_mask |= C.TMSG_WORKER_PARAM_QUEUE_DEPTH
		o.params.queue_depth = o.count("WorkerQueueDepth", messages)
	}
}

// WorkerSendQueue says how much may wait to be sent on each endpoint, unless
// Endpoint.SetQueue says otherwise.
func WorkerSendQueue(q Queue) WorkerOption {
	return func(o *workerOptions) {
		o.params.field_mask |= C.TMSG_WORKER_PARAM_SEND_QUEUE
		o.params.send_queue = o.queue("WorkerSendQueue", q)
	}
}

// WorkerChannels says which channels each peer may use: 0 to channels less 1.
// 64 by default, 1024 at most.
func WorkerChannels(channels int) WorkerOption {
	return func(o *workerOptions) {
		o.params.field_mask |= C.TMSG_WORKER_PARAM_CHANNELS
		o.params.channels = o.count("WorkerChannels", channels)
	}
}

// WorkerRefusedEvents has RefusedEvent tell which messages could not be
// delivered. Who asks for that has to take them: the 4096 newest are kept.
func WorkerRefusedEvents() WorkerOption { return func(o *workerOptions) { o.refusals = 1 } }

// WorkerHostOnly has tensors come to the host's memory, if their sender allows
// it, whatever memory they were sent from.
func WorkerHostOnly() WorkerOption {
	return func(o *workerOptions) { o.params.flags |= C.TMSG_WORKER_HOST_ONLY }
}

// WorkerCalls says how many calls of peers may run at once, of all methods, and
// how many may wait beside them; further ones fail with ErrResourceExhausted.
// 1024 each by default.
func WorkerCalls(concurrency, queue int) WorkerOption {
	return func(o *workerOptions) {
		o.server.field_mask |= C.TMSG_SERVER_PARAM_CONCURRENCY | C.TMSG_SERVER_PARAM_QUEUE
		o.server.concurrency = o.count("WorkerCalls: concurrency", concurrency)
		o.server.queue = o.count("WorkerCalls: queue", queue)
	}
}

// WorkerNotReady has the server begin as NotServing, until SetHealth says
// Serving; before that, calls of methods that it does not have fail with
// ErrUnavailable.
func WorkerNotReady() WorkerOption {
	return func(o *workerOptions) {
		o.server.field_mask |= C.TMSG_SERVER_PARAM_FLAGS
		o.server.flags |= C.TMSG_SERVER_NOT_READY
	}
}

// WorkerHidden has the server neither list its methods nor say how it is.
func WorkerHidden() WorkerOption {
	return func(o *workerOptions) {
		o.server.field_mask |= C.TMSG_SERVER_PARAM_FLAGS
		o.server.flags |= C.TMSG_SERVER_NO_METHODS | C.TMSG_SERVER_NO_HEALTH
	}
}
