// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"context"
	"math"
	"time"
	"unsafe"
)

// A Carrier is what messages of a connection go by. A side without a wish takes
// the other's; where one wants UCX and one a stream they do not connect.
type Carrier int32

const (
	CarrierAuto   Carrier = C.TMSG_CARRIER_AUTO   // no wish
	CarrierUCX    Carrier = C.TMSG_CARRIER_UCX    // RDMA, shared memory, or UCX's TCP
	CarrierStream Carrier = C.TMSG_CARRIER_STREAM // connections of this library to the listener's port alone
)

// A DialOption is one of those that begin with Dial.
type DialOption func(*dialOptions)

type dialOptions struct {
	given
	proofs
	params C.tmsg_endpoint_params_t
}

func (o *dialOptions) flag(flag C.uint32_t) {
	o.params.field_mask |= C.TMSG_ENDPOINT_PARAM_FLAGS
	o.params.flags |= flag
}

// DialWait waits until somebody listens there, as long as the context allows.
func DialWait() DialOption {
	return func(o *dialOptions) { o.flag(C.TMSG_ENDPOINT_WAIT) }
}

// A Reconnect says how an endpoint comes back by itself after its connection
// broke. 0 stands for the default.
type Reconnect struct {
	FirstBackoff time.Duration // until the first attempt; each further one waits twice as long: 100 ms
	MostBackoff  time.Duration // but no longer than this: 5 s
	GiveUp       time.Duration // from the break on; below 0: never. 60 s
}

// DialReconnect has the endpoint come back by itself after its connection
// broke: the same session goes on where the listener has kept it
// (ListenResume); else, as after a restart of the peer, a new session begins.
// Meanwhile sends wait. SessionEvent tells of it.
func DialReconnect(r Reconnect) DialOption {
	return func(o *dialOptions) {
		o.params.field_mask |= C.TMSG_ENDPOINT_PARAM_RECONNECT
		o.params.reconnect.first_backoff_ms = o.time("DialReconnect: FirstBackoff", r.FirstBackoff)
		o.params.reconnect.most_backoff_ms = o.time("DialReconnect: MostBackoff", r.MostBackoff)
		o.params.reconnect.give_up_ms = o.limit("DialReconnect: GiveUp", r.GiveUp)
	}
}

// DialSameProcess has an endpoint with DialReconnect end with ErrPeerLost when
// the process is gone that it was connected to.
func DialSameProcess() DialOption {
	return func(o *dialOptions) { o.flag(C.TMSG_ENDPOINT_SAME_PROCESS) }
}

// DialLive asks a peer that publishes for the newest map alone, whenever this
// side took the one before.
func DialLive() DialOption {
	return func(o *dialOptions) {
		o.params.field_mask |= C.TMSG_ENDPOINT_PARAM_SUBSCRIBE
		o.params.subscribe |= C.TMSG_SUBSCRIBE_NEWEST
	}
}

// DialDevices names what UCX may use for the connection, "eth1" or
// "eth1,mlx5_0:1".
func DialDevices(names string) DialOption {
	return func(o *dialOptions) {
		o.params.field_mask |= C.TMSG_ENDPOINT_PARAM_DEVICES
		o.params.devices = o.text("DialDevices", names)
	}
}

// DialCarrier says what the messages go by.
func DialCarrier(carrier Carrier) DialOption {
	return func(o *dialOptions) {
		o.params.field_mask |= C.TMSG_ENDPOINT_PARAM_CARRIER
		o.params.carrier = C.int32_t(carrier)
	}
}

// Dial connects to a listener: "tcp://host:port", "tls://host:port",
// "unix:///path". It returns when the connection stands, or ctx has ended;
// without a deadline it tries for 10 s, or with DialWait for ever. Fails with
// ErrInvalidParam (the URL, an option), ErrNotFound (the host), ErrUnreachable,
// ErrTimedOut and ErrCanceled (ctx has ended), ErrRefused (also for want of a
// key), ErrInsecure (the listener has not proved who it is), ErrIncompatible and
// ErrPeerLost.
func (w *Worker) Dial(ctx context.Context, url string, options ...DialOption) (*Endpoint, error) {
	return w.dial(ctx, url, nil, options)
}

// DialBlob connects to a listener at "blob://host", whose Blob was carried here
// by a way of your own. Fails as Dial does, and with ErrMalformed.
func (w *Worker) DialBlob(ctx context.Context, blob []byte, options ...DialOption) (*Endpoint, error) {
	if len(blob) == 0 {
		return nil, fail(ErrMalformed, "the blob is empty")
	}
	return w.dial(ctx, "a blob", blob, options)
}

// Milliseconds by which the library would give up after the context, whose end
// is the error then.
const afterContext = 500

func (w *Worker) dial(ctx context.Context, url string, blob []byte, options []DialOption) (*Endpoint, error) {
	if ctx.Err() != nil {
		return nil, ctxError(ctx, "dialling "+url)
	}
	var o dialOptions
	for _, option := range options {
		option(&o)
	}
	if ms := timeoutMS(ctx); ms > 0 || o.params.flags&C.TMSG_ENDPOINT_WAIT != 0 {
		o.params.field_mask |= C.TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT
		o.params.connect_timeout_ms = C.int32_t(ms)
		if 0 < ms && ms < math.MaxInt32-afterContext {
			o.params.connect_timeout_ms += afterContext
		}
	}
	text := o.text("the URL", url)
	ring, tls := o.hold(&o.given)
	if ring != nil || o.noRing {
		o.params.field_mask |= C.TMSG_ENDPOINT_PARAM_KEYRING
		o.params.keyring = ring
	}
	if tls != nil {
		o.params.field_mask |= C.TMSG_ENDPOINT_PARAM_TLS
		o.params.tls = tls
	}
	if o.params.field_mask&C.TMSG_ENDPOINT_PARAM_RECONNECT != 0 {
		w.sendsAgain.Store(true)
	}
	ep := &Endpoint{w: w}
	ready, err := ep.begin(text, blob, &o)
	o.let()
	o.free()
	if err != nil {
		return nil, err
	}
	w.kickParked()
	if err := w.finish(ctx, ep, ready); err != nil {
		if ctx.Err() != nil && ep.enter() {
			err = ctxError(ctx, textOf(C.tmsggo_endpoint_status(ep.handle()).words))
			w.leave()
		}
		ep.destroy()
		return nil, err
	}
	if !ep.enter() {
		return nil, errClosed
	}
	defer w.leave()
	return w.newEndpoint(ep.handle()), nil
}

func (ep *Endpoint) begin(url *C.char, blob []byte, o *dialOptions) (*C.tmsg_request_t, error) {
	if o.err != nil {
		return nil, o.err
	}
	if !ep.w.enter() {
		return nil, errClosed
	}
	defer ep.w.leave()
	var c *C.tmsg_endpoint_t
	var ready *C.tmsg_request_t
	err := errOf(C.tmsggo_dial(ep.w.hub, url, unsafe.Pointer(unsafe.SliceData(blob)), C.size_t(len(blob)), o.params, &c, &ready))
	ep.c = unsafe.Pointer(c)
	return ready, err
}

// Peer is the peer in words: "tcp://10.0.0.7:4000 (pid 4711 on node7)". Of an
// endpoint that reconnects it may change.
func (ep *Endpoint) Peer() string {
	if !ep.enter() {
		return ep.peer
	}
	defer ep.w.leave()
	return textOf(C.tmsggo_peer(ep.handle()))
}

// String is Peer, with "Endpoint()" around it.
func (ep *Endpoint) String() string { return "Endpoint(" + ep.Peer() + ")" }

// Describe gives the connection's transports and counters as JSON
// (docs/reference/introspection.md).
func (ep *Endpoint) Describe() (string, error) {
	if !ep.enter() {
		return "", errClosed
	}
	defer ep.w.leave()
	return taken(C.tmsggo_describe_endpoint(ep.handle()))
}

// Err is nil while the endpoint is connected, or is to come back; then it is
// what Recv ends with: ErrClosed after the orderly end, ErrPeerLost, or another
// error.
func (ep *Endpoint) Err() error {
	if !ep.enter() {
		return errClosed
	}
	defer ep.w.leave()
	return errOf(C.tmsggo_endpoint_status(ep.handle()))
}

// Ready waits until the endpoint is connected again (DialReconnect). Fails with
// what it has ended with, ErrTimedOut and ErrCanceled.
func (ep *Endpoint) Ready(ctx context.Context) error {
	return ep.ask(ctx, func(request **C.tmsg_request_t) C.tmsggo_result_t {
		return C.tmsggo_ready(ep.handle(), request)
	})
}

// Ping measures the way to the peer's library and back, past its application.
// The time that it gives is that which this goroutine has waited; Describe has
// the library's own in "round_trip_ns". Fails with ErrBusy (it is not connected
// now), ErrUnsupported (an older peer, or ucx://), with what the endpoint has
// ended with, ErrTimedOut and ErrCanceled.
func (ep *Endpoint) Ping(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	err := ep.ask(ctx, func(request **C.tmsg_request_t) C.tmsggo_result_t {
		return C.tmsggo_ping(ep.handle(), request)
	})
	return time.Since(begun), err
}

// Waits for a request that nothing is lent to.
func (ep *Endpoint) ask(ctx context.Context, begin func(**C.tmsg_request_t) C.tmsggo_result_t) error {
	if ctx.Err() != nil {
		return ctxError(ctx, "nothing was asked")
	}
	if !ep.enter() {
		return errClosed
	}
	var request *C.tmsg_request_t
	err := errOf(begin(&request))
	ep.w.leave()
	if err != nil {
		return err
	}
	ep.w.kickParked()
	return ep.w.finish(ctx, ep, request)
}

// SetQueue says how much may wait to be sent, from the next send on. Fails with
// ErrInvalidParam and ErrClosed.
func (ep *Endpoint) SetQueue(q Queue) error {
	var g given
	params := g.queue("SetQueue", q)
	if g.err != nil {
		return g.err
	}
	if !ep.enter() {
		return errClosed
	}
	defer ep.w.leave()
	return errOf(C.tmsggo_set_queue(ep.handle(), params))
}

// Discard takes no more messages from the peer, whose sends with Acked fail with
// ErrRefused: for a receiver that leaves, before Close. Fails with ErrClosed.
func (ep *Endpoint) Discard() error {
	if !ep.enter() {
		return errClosed
	}
	defer ep.w.leave()
	return errOf(C.tmsggo_discard(ep.handle()))
}

// Waiting is how many of its messages wait for Recv.
func (ep *Endpoint) Waiting() int {
	if !ep.enter() {
		return 0
	}
	defer ep.w.leave()
	return int(C.tmsg_endpoint_waiting(ep.handle()))
}
