// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// A Listener accepts connections at a URL.
type Listener struct {
	w   *Worker
	c   unsafe.Pointer // nil: closed. w.life guards it
	url string

	events unsafe.Pointer // of its peers; nil: it was not asked for them. It goes with c
}

// A ListenOption is one of those that begin with Listen.
type ListenOption func(*listenOptions)

type listenOptions struct {
	given
	proofs
	params C.tmsg_listener_params_t
	keep   C.int
	peers  C.int
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

// ListenPeerEvents has PeerEvent tell which peers come and go. Who asks for
// that has to take them: the 4096 newest are kept.
func ListenPeerEvents() ListenOption { return func(o *listenOptions) { o.peers = 1 } }

// ListenResume keeps the session of a peer whose connection broke, and that
// comes back by itself (DialReconnect), for that long; below 0: for ever. By
// default its endpoint ends at once.
func ListenResume(d time.Duration) ListenOption {
	return func(o *listenOptions) {
		o.params.field_mask |= C.TMSG_LISTENER_PARAM_RESUME
		o.params.resume_ms = o.limit("ListenResume", d)
	}
}

// ListenHandshakeTimeout bounds the time from accept to connected: 5 s by
// default.
func ListenHandshakeTimeout(d time.Duration) ListenOption {
	return func(o *listenOptions) {
		o.params.field_mask |= C.TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT
		o.params.handshake_timeout_ms = o.time("ListenHandshakeTimeout", d)
	}
}

// ListenMaxHandshakes bounds the connections that are in their handshake at
// once: 128 by default.
func ListenMaxHandshakes(connections int) ListenOption {
	return func(o *listenOptions) {
		o.params.field_mask |= C.TMSG_LISTENER_PARAM_MAX_HANDSHAKES
		o.params.max_handshakes = o.count("ListenMaxHandshakes", connections)
	}
}

// ListenMaxHandshakeBytes bounds a frame of a peer that has proved no key yet:
// 4096 by default, 1024 or more.
func ListenMaxHandshakeBytes(bytes int) ListenOption {
	return func(o *listenOptions) {
		o.params.field_mask |= C.TMSG_LISTENER_PARAM_MAX_HANDSHAKE_BYTES
		o.params.max_handshake_bytes = o.count("ListenMaxHandshakeBytes", bytes)
	}
}

// ListenAdvertise gives what URL says, "tcp://host:port" as peers reach it (a
// container, NAT); port 0 stands for the bound one.
func ListenAdvertise(url string) ListenOption {
	return func(o *listenOptions) {
		o.params.field_mask |= C.TMSG_LISTENER_PARAM_ADVERTISE
		o.params.advertise = o.text("ListenAdvertise", url)
	}
}

// ListenDevices names what UCX may use for its connections, "eth1" or
// "eth1,mlx5_0:1".
func ListenDevices(names string) ListenOption {
	return func(o *listenOptions) {
		o.params.field_mask |= C.TMSG_LISTENER_PARAM_DEVICES
		o.params.devices = o.text("ListenDevices", names)
	}
}

// ListenCarrier says what the messages go by.
func ListenCarrier(carrier Carrier) ListenOption {
	return func(o *listenOptions) {
		o.params.field_mask |= C.TMSG_LISTENER_PARAM_CARRIER
		o.params.carrier = C.int32_t(carrier)
	}
}

// Listen listens at "tcp://host:port" (port 0: a free one), "tls://host:port",
// "unix:///path", "blob://host" or "ucx://host:port". Fails with
// ErrInvalidParam (the URL, an option), ErrNotFound (the host),
// ErrAlreadyExists (the address is in use), ErrInsecure, ErrUnsupported (an
// option, at such a URL) and ErrIO.
func (w *Worker) Listen(url string, options ...ListenOption) (*Listener, error) {
	return w.listen(url, options, w.enter, func(o *listenOptions, url *C.char, door **C.tmsggo_door_t) C.tmsggo_result_t {
		return C.tmsggo_listen(w.hub, url, o.params, o.keep, o.peers, door)
	}, func(*Listener) {})
}

// Both functions are called within enter().
func (w *Worker) listen(url string, options []ListenOption, enter func() bool,
	open func(o *listenOptions, url *C.char, door **C.tmsggo_door_t) C.tmsggo_result_t, opened func(*Listener)) (*Listener, error) {
	var o listenOptions
	for _, option := range options {
		option(&o)
	}
	defer o.free()
	text := o.text("the URL", url)
	ring, tls := o.hold(&o.given)
	defer o.let()
	if o.err != nil {
		return nil, o.err
	}
	if ring != nil || o.noRing {
		o.params.field_mask |= C.TMSG_LISTENER_PARAM_KEYRING
		o.params.keyring = ring
	}
	if tls != nil {
		o.params.field_mask |= C.TMSG_LISTENER_PARAM_TLS
		o.params.tls = tls
	}
	if o.params.field_mask&C.TMSG_LISTENER_PARAM_RESUME != 0 {
		w.sendsAgain.Store(true)
	}
	if !enter() {
		return nil, errClosed
	}
	defer w.leave()
	var door *C.tmsggo_door_t
	if err := errOf(open(&o, text, &door)); err != nil {
		return nil, err
	}
	w.kickParked()
	l := &Listener{w: w, c: unsafe.Pointer(door), url: C.GoString(C.tmsggo_door_url(door)),
		events: unsafe.Pointer(C.tmsggo_door_events(door))}
	opened(l)
	return l, nil
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
	l.destroy()
	l.w.life.Unlock()
	l.w.kickParked()
	return nil
}

// With w.life for writing.
func (l *Listener) destroy() {
	if !l.w.isShut && l.c != nil {
		C.tmsggo_door_destroy((*C.tmsggo_door_t)(l.c))
	}
	l.c, l.events = nil, nil
}

func (l *Listener) ask(what func(*C.tmsggo_door_t) error) error {
	if !l.w.enter() {
		return errClosed
	}
	defer l.w.leave()
	if l.c == nil {
		return errClosed
	}
	return what((*C.tmsggo_door_t)(l.c))
}

// Describe gives its handshakes, and how many peers were accepted and refused,
// as JSON.
func (l *Listener) Describe() (text string, err error) {
	err = l.ask(func(door *C.tmsggo_door_t) (err error) {
		text, err = taken(C.tmsggo_describe_door(door))
		return err
	})
	return text, err
}

// Blob is what peers of a listener at "blob://host" dial (DialBlob), to be
// carried to them by a way of your own. With a keyring it is proved by the keys
// that this has now. Fails with ErrInvalidParam (another kind of listener) and
// ErrClosed.
func (l *Listener) Blob() (blob []byte, err error) {
	err = l.ask(func(door *C.tmsggo_door_t) error {
		var data unsafe.Pointer
		var size C.size_t
		err := errOf(C.tmsggo_door_blob(door, &data, &size))
		if err == nil {
			blob = C.GoBytes(data, C.int(size))
			C.free(data)
		}
		return err
	})
	return blob, err
}
