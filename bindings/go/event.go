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

// A SessionKind is what became of the session of an endpoint.
type SessionKind int32

const (
	SessionAway SessionKind = C.TMSG_SESSION_AWAY // the connection broke; the endpoint tries to come back
	SessionBack SessionKind = C.TMSG_SESSION_BACK // the same session goes on: nothing is lost
	SessionNew  SessionKind = C.TMSG_SESSION_NEW  // a new session has begun, with another process perhaps: what was under way has ended
)

// String gives "away", "back" or "new".
func (k SessionKind) String() string {
	switch k {
	case SessionAway:
		return "away"
	case SessionBack:
		return "back"
	case SessionNew:
		return "new"
	}
	return "unknown"
}

// A SessionEvent is one such step, with the reason in words.
type SessionEvent struct {
	Kind  SessionKind
	Words string
}

// String gives kind and words.
func (e SessionEvent) String() string { return e.Kind.String() + ": " + e.Words }

// SessionEvent waits for the next step of the endpoint's session, of one with
// DialReconnect or from a listener with ListenResume. The 64 newest are kept.
// Fails with what the endpoint has ended with, ErrClosed where this side closed
// it, ErrTimedOut and ErrCanceled (ctx has ended), and with ErrUnsupported where
// no session is kept.
func (ep *Endpoint) SessionEvent(ctx context.Context) (SessionEvent, error) {
	if ep.enter() {
		events := ep.events
		ep.w.leave()
		if events == nil {
			return SessionEvent{}, fail(ErrUnsupported, "the endpoint keeps no session: DialReconnect or ListenResume has it keep one")
		}
	}
	e, err := ep.w.nextEvent(ctx, &ep.events)
	if err != nil {
		return SessionEvent{}, err
	}
	if e.kind < 0 {
		return SessionEvent{}, fail(Status(e.status), e.words)
	}
	return SessionEvent{SessionKind(e.kind), e.words}, nil
}

// A PeerEvent tells that a peer has come to a listener or, with Gone, has gone.
type PeerEvent struct {
	Peer      string // in words, as Endpoint.Peer
	Principal string // as Endpoint.Principal
	Gone      bool
	Err       error // of one that has gone: ErrClosed after the orderly end, ErrCanceled if this side ended it, ErrPeerLost or another
}

// PeerEvent waits for the next peer that comes or goes, of a listener with
// ListenPeerEvents, whoever has its endpoint. A peer whose connection broke and
// that comes back (ListenResume) has not gone. Fails with ErrTimedOut and
// ErrCanceled (ctx has ended), ErrClosed, and with ErrUnsupported without
// ListenPeerEvents.
func (l *Listener) PeerEvent(ctx context.Context) (PeerEvent, error) {
	if l.w.enter() {
		asked := l.c == nil || l.events != nil
		l.w.leave()
		if !asked {
			return PeerEvent{}, fail(ErrUnsupported, "the listener was made without ListenPeerEvents")
		}
	}
	e, err := l.w.nextEvent(ctx, &l.events)
	if err != nil {
		return PeerEvent{}, err
	}
	p := PeerEvent{Peer: e.peer, Principal: e.principal, Gone: e.kind < 0}
	if p.Gone {
		p.Err = fail(Status(e.status), e.words)
	}
	return p, nil
}

// A RefusedEvent tells of a message of a peer's that could not be delivered.
type RefusedEvent struct {
	Peer      string // in words, as Endpoint.Peer
	Principal string // as Endpoint.Principal
	Channel   uint16
	Sequence  uint32 // its number among those of the channel, from 0
	Err       error  // why: ErrLimitExceeded, ErrMalformed, ErrCorrupt, ErrNoMemory, ErrCanceled (by its sender), ...
}

// RefusedEvent waits for the next message that could not be delivered, on a
// worker with WorkerRefusedEvents. Its sender hears the same, if it still waits.
// Fails with ErrTimedOut and ErrCanceled (ctx has ended), ErrClosed, and with
// ErrUnsupported without WorkerRefusedEvents.
func (w *Worker) RefusedEvent(ctx context.Context) (RefusedEvent, error) {
	events := w.refusals
	if events == nil {
		return RefusedEvent{}, fail(ErrUnsupported, "the worker was made without WorkerRefusedEvents")
	}
	e, err := w.nextEvent(ctx, &events)
	if err != nil {
		return RefusedEvent{}, err
	}
	return RefusedEvent{e.peer, e.principal, uint16(e.channel), e.sequence, fail(Status(e.status), e.words)}, nil
}

type event struct {
	kind, status           int32
	channel, sequence      uint32
	peer, principal, words string
}

// Waits for an event of *events, which is nil where there will be none.
func (w *Worker) nextEvent(ctx context.Context, events *unsafe.Pointer) (event, error) {
	for {
		if ctx.Err() != nil {
			return event{}, ctxError(ctx, "nothing has happened")
		}
		if !w.enter() {
			return event{}, errClosed
		}
		if *events == nil {
			w.leave()
			return event{}, errClosed
		}
		var c C.tmsggo_event_t
		came := C.tmsggo_events_take((*C.tmsggo_events_t)(*events), &c) != 0
		w.leave()
		if came {
			return event{int32(c.kind), int32(c.status), uint32(c.channel), uint32(c.sequence),
				textOf(c.peer), textOf(c.principal), textOf(c.words)}, nil
		}
		if err := w.wait(ctx, C.TMSGGO_LENT, events); err != nil && ctx.Err() == nil {
			return event{}, err
		}
	}
}

// A text that C has allocated; "" of none.
func textOf(c *C.char) string {
	defer C.free(unsafe.Pointer(c))
	return C.GoString(c)
}
