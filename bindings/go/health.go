// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"context"
	"fmt"
)

// A Health is how a server, or one of its methods, is.
type Health int32

const (
	HealthUnknown    Health = C.TMSG_HEALTH_UNKNOWN     // a word that this library does not know
	HealthServing    Health = C.TMSG_HEALTH_SERVING     // it takes calls
	HealthNotServing Health = C.TMSG_HEALTH_NOT_SERVING // says the application
	HealthDraining   Health = C.TMSG_HEALTH_DRAINING    // it takes no further calls
	HealthNotFound   Health = C.TMSG_HEALTH_NOT_FOUND   // there is no such method
	HealthStalled    Health = C.TMSG_HEALTH_STALLED     // calls have waited for a second, and none of their method has begun
)

// String gives the name: "SERVING".
func (h Health) String() string {
	return C.GoString(C.tmsg_health_name(C.tmsg_health_t(h)))
}

// A HealthReport is a health with what goes on at the moment.
type HealthReport struct {
	Health  Health
	Running uint64 // calls whose handlers run
	Waiting uint64 // calls whose handlers have not begun
	Stalls  uint64 // how often it was HealthStalled so far
	Why     string // of HealthStalled
}

// A Method is what a peer says of one of its methods.
type Method struct {
	Name           string
	Description    string
	Signature      string // docs/reference/signatures.md; "": any map
	Concurrency    int    // calls that may run at once; 0: not said
	Queue          int    // and that may wait beside them
	Health         Health
	IsStream       bool // it is opened, not called
	IsIdempotent   bool // to run it twice is as once
	NeedsPrincipal bool // who has proved no key may not call it
}

// Methods asks the peer which methods it has. Fails as Call does, and with
// ErrMalformed.
func (ep *Endpoint) Methods(ctx context.Context) ([]Method, error) {
	reply, err := ep.Call(ctx, C.TMSG_METHOD_METHODS, nil)
	if err != nil {
		return nil, err
	}
	defer reply.Close()
	var list *C.tmsg_methods_t
	if err := errOf(C.tmsggo_methods_read(reply.in, &list)); err != nil {
		return nil, err
	}
	defer C.tmsg_methods_destroy(list)
	methods := make([]Method, C.tmsg_methods_size(list))
	for i := range methods {
		var c C.tmsg_method_info_t
		C.tmsg_methods_at(list, C.size_t(i), &c) // it is in range
		methods[i] = Method{
			Name: C.GoString(c.name), Description: C.GoString(c.description), Signature: C.GoString(c.signature),
			Concurrency: int(c.concurrency), Queue: int(c.queue), Health: Health(c.health),
			IsStream: c.is_stream != 0, IsIdempotent: c.is_idempotent != 0, NeedsPrincipal: c.needs_principal != 0,
		}
	}
	return methods, nil
}

// Health asks the peer how one of its methods is; "": how the whole server is.
// That there is no such method is HealthNotFound, and no error. Fails as Call
// does, and with ErrMalformed.
func (ep *Endpoint) Health(ctx context.Context, method string) (HealthReport, error) {
	var of []CallOption
	if method != "" {
		of = append(of, WithMeta(Meta{"method": method}))
	}
	reply, err := ep.Call(ctx, C.TMSG_METHOD_HEALTH, nil, of...)
	if err != nil {
		return HealthReport{}, err
	}
	defer reply.Close()
	var c C.tmsg_health_report_t
	if err := errOf(C.tmsggo_health_read(reply.in, &c)); err != nil {
		return HealthReport{}, err
	}
	return reportOf(&c), nil
}

// Health says how the worker's own server is, or one of its methods, as a peer
// would be told; "": the whole server. Fails with ErrInvalidParam and ErrClosed.
func (w *Worker) Health(method string) (HealthReport, error) {
	var c C.tmsg_health_report_t
	err := w.ofServer(method, func(name *C.char) C.tmsggo_result_t { return C.tmsggo_report(w.hub, name, &c) })
	if err != nil {
		return HealthReport{}, err
	}
	return reportOf(&c), nil
}

func reportOf(c *C.tmsg_health_report_t) HealthReport {
	return HealthReport{Health(c.health), uint64(c.running), uint64(c.waiting), uint64(c.stalls), C.GoString(&c.why[0])}
}

// SetHealth says how a method (""; the whole server) is from now on:
// HealthServing, which it is at first, HealthNotServing or HealthDraining. Peers
// that ask are told so; no call is refused for it. Fails with ErrInvalidParam
// (another health), ErrNotFound (no such method) and ErrClosed.
func (w *Worker) SetHealth(method string, health Health) error {
	if health != HealthServing && health != HealthNotServing && health != HealthDraining {
		return fail(ErrInvalidParam, fmt.Sprintf("%v is not for the application to say", health))
	}
	return w.ofServer(method, func(name *C.char) C.tmsggo_result_t {
		return C.tmsggo_set_health(w.hub, name, C.tmsg_health_t(health))
	})
}

// Asks the server, or has one, which there is from then on.
func (w *Worker) ofServer(method string, ask func(name *C.char) C.tmsggo_result_t) error {
	var g given
	defer g.free()
	var name *C.char
	if method != "" {
		name = g.text("the method's name", method)
	}
	if g.err != nil {
		return g.err
	}
	w.life.Lock() // as Handle, which makes the server, too
	defer w.life.Unlock()
	if w.isShut {
		return errClosed
	}
	return errOf(ask(name))
}

// MethodQueue says how many calls of the method may wait for their turn;
// further ones fail with ErrResourceExhausted.
func MethodQueue(calls int) MethodOption {
	return func(o *methodOptions) {
		o.params.field_mask |= C.TMSG_METHOD_PARAM_QUEUE
		o.params.queue = o.count("MethodQueue", calls)
	}
}

// MethodDescription is one line for people, which peers that ask are told.
func MethodDescription(words string) MethodOption {
	return func(o *methodOptions) {
		o.params.field_mask |= C.TMSG_METHOD_PARAM_DESCRIPTION
		o.params.description = o.text("MethodDescription", words)
	}
}

// MethodPrincipals says who may call the method, as Endpoint.Principal names
// them; "*" is whoever has proved a key. Calls of others fail with ErrRefused.
func MethodPrincipals(names ...string) MethodOption {
	return func(o *methodOptions) {
		o.params.field_mask |= C.TMSG_METHOD_PARAM_PRINCIPALS
		o.params.principals = o.principals("MethodPrincipals", names)
	}
}

// MethodIdempotent says that to run the method twice is as once: callers that
// retry may do so whatever failed.
func MethodIdempotent() MethodOption {
	return func(o *methodOptions) {
		o.params.field_mask |= C.TMSG_METHOD_PARAM_FLAGS
		o.params.flags |= C.TMSG_METHOD_IDEMPOTENT
	}
}
