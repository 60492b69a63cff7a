// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"context"
	"errors"
	"runtime"
	"unsafe"
)

// An Endpoint is a connection to one peer.
type Endpoint struct {
	w         *Worker
	c         unsafe.Pointer // nil: closed. w.life guards it
	events    unsafe.Pointer // of its session; nil: it keeps none. It goes with c
	peer      string
	principal string
	borrowed  bool // c is another's
}

func (ep *Endpoint) handle() *C.tmsg_endpoint_t { return (*C.tmsg_endpoint_t)(ep.c) }

// enter is the worker's, and fails where the endpoint is closed.
func (ep *Endpoint) enter() bool {
	if !ep.w.enter() {
		return false
	}
	if ep.c == nil {
		ep.w.leave()
		return false
	}
	return true
}

// Within enter(), or alone with it.
func (w *Worker) newEndpoint(c *C.tmsg_endpoint_t) *Endpoint {
	ep := &Endpoint{w: w, c: unsafe.Pointer(c), events: C.tmsg_endpoint_user(c)}
	ep.peer, ep.principal = textOf(C.tmsggo_peer(c)), C.GoString(C.tmsg_endpoint_principal(c))
	return ep
}

// A SendOption says more about one message.
type SendOption interface{ toSend(*sendOptions) }

type sendOption func(*sendOptions)

func (o sendOption) toSend(all *sendOptions) { o(all) }

type sendOptions struct {
	flags   C.uint32_t
	channel uint16
	meta    Meta
}

func sendFlag(flag C.uint32_t) SendOption {
	return sendOption(func(o *sendOptions) { o.flags |= flag })
}

// A MetaOption is what WithMeta gives, which sends, calls and streams take.
type MetaOption struct{ meta Meta }

func (o MetaOption) toSend(all *sendOptions) { all.meta = o.meta }
func (o MetaOption) toCall(all *callOptions) { all.meta = o.meta }

// Acked has Send wait until the peer's application has taken the message.
func Acked() SendOption { return sendFlag(C.TMSG_SEND_ACKED) }

// Verified is Acked, with a checksum of each tensor: ErrCorrupt where data came
// that are not those sent.
func Verified() SendOption { return sendFlag(C.TMSG_SEND_VERIFY) }

// OnChannel sends on another channel than 0: each has an order of its own.
func OnChannel(channel uint16) SendOption {
	return sendOption(func(o *sendOptions) { o.channel = channel })
}

// WithMeta sends values beside the tensors.
func WithMeta(meta Meta) MetaOption { return MetaOption{meta} }

// Unordered has a message delivered as soon as it is whole, whatever is before
// it on its channel.
func Unordered() SendOption { return sendFlag(C.TMSG_SEND_UNORDERED) }

// Try has Send fail with ErrWouldBlock, and send nothing, unless the message can
// go at once.
func Try() SendOption { return sendFlag(C.TMSG_SEND_TRY) }

// NoPack has Send fail with ErrUnsupported, and send nothing, if a tensor has
// strides for which it would have to be packed; it is named.
func NoPack() SendOption { return sendFlag(C.TMSG_SEND_NO_PACK) }

// KeepStrides has a tensor travel with all that lies between its elements, and
// arrive with its strides, where it would have to be packed otherwise. The peer
// gets what lies there, too.
func KeepStrides() SendOption { return sendFlag(C.TMSG_SEND_KEEP_STRIDES) }

// Send sends a map. It returns when the slices of m may be changed; with Acked
// when the peer's application has the message. The deadline of ctx is that of
// the whole operation. When ctx has ended the send is given up, and Send
// returns when the slices are free: after at most the peer's timeout, at which
// the endpoint is broken. What it says does not tell whether the peer has got
// the message. Fails with ErrInvalidParam (a tensor, which is named),
// ErrLimitExceeded, ErrBusy (a full queue), ErrPeerLost, ErrRefused,
// ErrCorrupt, ErrTimedOut, ErrCanceled and ErrClosed.
func (ep *Endpoint) Send(ctx context.Context, m Map, options ...SendOption) error {
	return ep.w.send(ctx, ep, m, options)
}

// What maps are sent to: an endpoint or a stream.
type sender interface {
	breakable
	post(ctx context.Context, c *C.tmsg_map_t, o *sendOptions) (*C.tmsg_request_t, error)
}

func (w *Worker) send(ctx context.Context, to sender, m Map, options []SendOption) error {
	f, request, err := post(ctx, to, m, options)
	if request != nil {
		err = w.finish(ctx, to, request)
	}
	f.free()
	runtime.KeepAlive(m)
	return err
}

// SendOwned is Send for slices that nobody changes any more: it returns at
// once, and what Send would have said comes by the channel, which nobody has
// to read.
func (ep *Endpoint) SendOwned(ctx context.Context, m Map, options ...SendOption) <-chan error {
	said := make(chan error, 1)
	f, request, err := post(ctx, ep, m, options)
	if request == nil {
		f.free()
		said <- err
		return said
	}
	go func() {
		said <- ep.w.finish(ctx, ep, request)
		f.free()
		runtime.KeepAlive(m)
	}()
	return said
}

// Begins a send. Without a request it has ended. What it pins is free with f.
func post(ctx context.Context, to sender, m Map, options []SendOption) (*flat, *C.tmsg_request_t, error) {
	f := flats.Get().(*flat)
	if ctx.Err() != nil {
		return f, nil, ctxError(ctx, "nothing was sent")
	}
	var o sendOptions
	for _, option := range options {
		option.toSend(&o)
	}
	made, err := f.ready(m, o.meta, o.flags&C.TMSG_SEND_LEND != 0)
	if err != nil {
		return f, nil, err
	}
	request, err := to.post(ctx, made, &o)
	return f, request, err
}

func (ep *Endpoint) post(ctx context.Context, c *C.tmsg_map_t, o *sendOptions) (*C.tmsg_request_t, error) {
	if !ep.enter() {
		return nil, errClosed
	}
	sent := C.tmsggo_send(ep.w.hub, ep.handle(), c, o.flags, C.uint16_t(o.channel), timeoutMS(ctx))
	ep.w.leave()
	ep.w.kickParked()
	return sent.request, errOf(sent.result)
}

// Recv gives the next message, which the caller closes. When ctx has ended,
// with ErrTimedOut or ErrCanceled, nothing is lost. When all was received that
// came it fails with ErrClosed, where the peer has closed in order, or with
// what the endpoint ended with, as ErrPeerLost.
func (ep *Endpoint) Recv(ctx context.Context) (*Message, error) {
	for {
		if ctx.Err() != nil {
			ep.w.passOn()
			return nil, ctxError(ctx, "nothing has come from "+ep.peer)
		}
		var r C.tmsggo_received_t
		err := ep.w.lookFor(ep, func(spin C.uint32_t, over *C.tmsggo_over_t) error {
			r = C.tmsggo_recv(ep.w.hub, ep.handle(), spin, over)
			return errOf(r.result)
		})
		if err == nil {
			return newMessage(&r, ep), nil
		}
		if !errors.Is(err, ErrTimedOut) {
			return nil, err
		}
		ep.w.kickParked()
		if err := ep.w.wait(ctx, C.TMSGGO_RECV, &ep.c); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
}

// Has C look for what has come, or, if nobody has the lead, drive for a moment.
func (w *Worker) lookFor(in interface{ enter() bool }, look func(spin C.uint32_t, over *C.tmsggo_over_t) error) error {
	w.askForLead()
	leads := false
	select {
	case w.lead <- struct{}{}:
		leads = true
		defer w.release()
	default:
	}
	if !in.enter() {
		return errClosed
	}
	if !leads {
		err := look(0, nil)
		w.leave()
		w.kickParked() // it may have received for others
		return err
	}
	w.over.count = 0
	err := look(spinUS, w.over)
	w.leave()
	w.deliver(w.over)
	return err
}

// Close closes in order, and waits until the peer has all that was sent; its
// Recv then ends with ErrClosed. The endpoint is freed in any case: when ctx
// has ended it is closed at once. Again does nothing. Fails with ErrPeerLost,
// what else the endpoint ended with, ErrTimedOut and ErrCanceled.
func (ep *Endpoint) Close(ctx context.Context) error {
	if !ep.enter() {
		return nil
	}
	var request *C.tmsg_request_t
	err := errOf(C.tmsggo_close(ep.handle(), &request))
	ep.w.leave()
	if err == nil {
		ep.w.kickParked()
		err = ep.w.finish(ctx, ep, request)
	}
	ep.destroy()
	return err
}

// Abort closes at once: operations of this side end with ErrCanceled, those of
// the peer's with the status of why, and its words; with ErrCanceled where why
// has no status, is nil, ErrClosed or ErrDropped. The endpoint is to be closed
// nonetheless.
func (ep *Endpoint) Abort(why error) {
	status, words := ErrCanceled, ""
	if why != nil {
		errors.As(why, &status)
		words = why.Error()
	}
	text := C.CString(words)
	defer C.free(unsafe.Pointer(text))
	if ep.enter() {
		if C.tmsg_endpoint_abort(ep.handle(), C.tmsg_status_t(status), text) == C.TMSG_ERR_INVALID_PARAM {
			C.tmsg_endpoint_abort(ep.handle(), C.TMSG_ERR_CANCELED, text)
		}
		ep.w.leave()
		ep.w.kickParked()
	}
}

func (ep *Endpoint) breakOff(words string) { ep.Abort(fail(ErrTimedOut, words)) }

func (ep *Endpoint) destroy() {
	w := ep.w
	w.life.Lock()
	switch {
	case w.isShut || ep.c == nil: // it has gone
	case ep.borrowed:
		C.tmsggo_forget(w.hub, ep.c)
	default:
		C.tmsggo_endpoint_destroy(w.hub, ep.handle())
	}
	ep.c, ep.events = nil, nil
	w.life.Unlock()
	w.kickParked()
}
