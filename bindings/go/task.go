// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

// #include "hub.h"
import "C"

import (
	"context"
	"sync"
)

// A Task is a call, or a stream, of a peer's, as its handler sees it. It is
// over when the handler returns.
type Task struct {
	w      *Worker
	c      *C.tmsg_endpoint_t
	method string

	mu   sync.Mutex
	ep   *Endpoint // nil: nobody has asked for it
	over bool
	meta Meta
}

type taskKey struct{}

// TaskOf gives the task of a handler's context; nil of another context.
func TaskOf(ctx context.Context) *Task {
	t, _ := ctx.Value(taskKey{}).(*Task)
	return t
}

func (w *Worker) newTask(ctx context.Context, c *C.tmsg_endpoint_t, method string) (context.Context, *Task) {
	t := &Task{w: w, c: c, method: method}
	return context.WithValue(ctx, taskKey{}, t), t
}

// Method is the name by which it was called.
func (t *Task) Method() string { return t.method }

// Peer is who called, in words, as Endpoint.Peer.
func (t *Task) Peer() string { return t.Endpoint().peer }

// Principal is whose key, or certificate, the caller has proved; "" where none
// was asked for. MethodPrincipals refuses others before the handler.
func (t *Task) Principal() string { return t.Endpoint().principal }

// Endpoint is the connection to the caller, to send or to call back. It is
// another value than that of Accept or Dial, and ends when the handler returns;
// the connection does not, unless Close of this value is called.
func (t *Task) Endpoint() *Endpoint {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ep != nil {
		return t.ep
	}
	if t.over || !t.w.enter() {
		return &Endpoint{w: t.w}
	}
	defer t.w.leave()
	t.ep = t.w.newEndpoint(t.c)
	t.ep.borrowed, t.ep.events = true, nil
	return t.ep
}

// SetReplyMeta has values travel beside the tensors of a call's reply.
func (t *Task) SetReplyMeta(meta Meta) {
	t.mu.Lock()
	t.meta = meta
	t.mu.Unlock()
}

func (t *Task) replyMeta() Meta {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.meta
}

func (t *Task) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.ep != nil {
		t.ep.destroy()
	}
}
