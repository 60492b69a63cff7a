// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"context"
	"unsafe"
)

// A Listener accepts connections at a URL.
type Listener struct {
	w   *Worker
	c   unsafe.Pointer // nil: closed. w.life guards it
	url string
}

// A ListenOption is one of those that begin with Listen.
type ListenOption func(*listenOptions)

type listenOptions struct {
	params C.tmsg_listener_params_t
	keep   C.int
}

// ListenUnauthenticated lets strangers connect who can reach an address that
// is not loopback.
func ListenUnauthenticated() ListenOption {
	return func(o *listenOptions) {
		o.params.field_mask |= C.TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED
		o.params.allow_unauthenticated = 1
	}
}

// ListenKeep has the listener keep its endpoints, and free those that end:
// their peers call methods (Worker.Handle). Accept gives none of them.
func ListenKeep() ListenOption { return func(o *listenOptions) { o.keep = 1 } }

// ListenLive asks peers that publish for the newest map alone, whenever this
// side took the one before.
func ListenLive() ListenOption {
	return func(o *listenOptions) {
		o.params.field_mask |= C.TMSG_LISTENER_PARAM_SUBSCRIBE
		o.params.subscribe |= C.TMSG_SUBSCRIBE_NEWEST
	}
}

// Listen listens at "tcp://host:port" (port 0: a free one) or "unix:///path".
// Fails with ErrInvalidParam (the URL), ErrNotFound (the host),
// ErrAlreadyExists (the address is in use), ErrInsecure and ErrIO.
func (w *Worker) Listen(url string, options ...ListenOption) (*Listener, error) {
	var o listenOptions
	for _, option := range options {
		option(&o)
	}
	text := C.CString(url)
	defer C.free(unsafe.Pointer(text))
	if !w.enter() {
		return nil, errClosed
	}
	defer w.leave()
	var door *C.tmsggo_door_t
	if err := errOf(C.tmsggo_listen(w.hub, text, o.params, o.keep, &door)); err != nil {
		return nil, err
	}
	w.kickParked()
	return &Listener{w: w, c: unsafe.Pointer(door), url: C.GoString(C.tmsggo_door_url(door))}, nil
}

// URL is where it listens, with the port that was picked.
func (l *Listener) URL() string { return l.url }

// Accept gives the next peer that has connected. Fails with ErrTimedOut and
// ErrCanceled (ctx has ended) and with ErrClosed.
func (l *Listener) Accept(ctx context.Context) (*Endpoint, error) {
	for {
		if ctx.Err() != nil {
			return nil, ctxError(ctx, "nobody has connected to "+l.url)
		}
		if !l.w.enter() {
			return nil, errClosed
		}
		if l.c == nil {
			l.w.leave()
			return nil, errClosed
		}
		var ep *Endpoint
		if c := C.tmsggo_door_take((*C.tmsggo_door_t)(l.c)); c != nil {
			ep = l.w.newEndpoint(c)
		}
		l.w.leave()
		if ep != nil {
			return ep, nil
		}
		if err := l.w.wait(ctx, C.TMSGGO_ACCEPT, &l.c); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
}

// Close stops listening. Endpoints that were accepted live on. The error is
// nil.
func (l *Listener) Close() error {
	l.w.life.Lock()
	if !l.w.isShut && l.c != nil {
		C.tmsggo_door_destroy((*C.tmsggo_door_t)(l.c))
	}
	l.c = nil
	l.w.life.Unlock()
	l.w.kickParked()
	return nil
}
