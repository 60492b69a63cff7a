// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
#include "waits.h"
*/
import "C"

import (
	"context"
	"errors"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// A Worker moves the messages of its listeners and endpoints.
type Worker struct {
	hub      *C.tmsggo_hub_t
	refusals unsafe.Pointer // nil: it was not asked for them

	// Held for reading around each call of C; for writing where something is
	// destroyed.
	life   sync.RWMutex
	closed chan struct{} // no more calls
	gone   chan struct{} // and nothing is left
	isShut bool
	ended  context.Context // with closed
	end    context.CancelFunc
	silent time.Duration

	seats    atomic.Int32  // for those within enter(), less those that wait
	standing chan struct{} // for a seat

	lead    chan struct{} // whose place in it drives
	parked  atomic.Bool
	keeping atomic.Bool   // keep() has the lead,
	yield   chan struct{} // and is asked for it
	idle    *time.Timer   // until it takes it again, if nobody does
	timed   atomic.Bool   // idle is set
	turns   atomic.Uint64 // how often somebody had the lead,
	seen    atomic.Uint64 // and had when idle ended
	over    *C.tmsggo_over_t
	file    *os.File
	raw     syscall.RawConn

	mu      sync.Mutex
	waiters []waiter // by the low bits of their identities
	free    []uint32 // places in it
	last    uint64

	sendsAgain atomic.Bool // what a peer with a session has not read

	methods []method
	offers  map[*Offer]struct{} // whose memory is lent. mu guards it
}

const spinUS = 50

// How many goroutines may be in C at once for a worker. They wait for one lock
// there, each on a thread of its own: further ones wait in Go, on none.
const seats = 16

// NewWorker makes a worker of a context; nil: of one of its own with all
// defaults. It opens no port yet. Fails as NewContext does.
func NewWorker(c *Context, options ...WorkerOption) (*Worker, error) {
	if c == nil {
		own, err := NewContext()
		if err != nil {
			return nil, err
		}
		defer own.Close()
		c = own
	}
	var o workerOptions
	defer o.free()
	o.params.field_mask |= C.TMSG_WORKER_PARAM_FLAGS
	o.params.flags = C.TMSG_WORKER_SHARED
	for _, option := range options {
		option(&o)
	}
	if o.err != nil {
		return nil, o.err
	}
	c.life.RLock()
	defer c.life.RUnlock()
	if c.c == nil {
		return nil, fail(ErrClosed, "the context is closed")
	}
	w := &Worker{
		closed:   make(chan struct{}),
		gone:     make(chan struct{}),
		standing: make(chan struct{}, places),
		lead:     make(chan struct{}, 1),
		yield:    make(chan struct{}, 1),
		over:     new(C.tmsggo_over_t),
		offers:   map[*Offer]struct{}{},
		silent:   c.silent,
	}
	w.seats.Store(seats)
	w.ended, w.end = context.WithCancel(context.Background())
	if err := errOf(C.tmsggo_hub_create(c.c, o.params, o.server, o.refusals, &w.hub)); err != nil {
		return nil, err
	}
	if err := w.openFile(); err != nil {
		C.tmsggo_hub_destroy(w.hub)
		return nil, fail(ErrIO, err.Error())
	}
	w.refusals = unsafe.Pointer(C.tmsggo_hub_refusals(w.hub))
	w.timed.Store(true)
	w.idle = time.AfterFunc(idleTime, w.keep)
	return w, nil
}

// How long nobody drives, at most twice, before a goroutine of the worker's
// does. One that calls again soon finds the lead free.
const idleTime = time.Millisecond

// Drives while nobody waits, so that peers can connect, acknowledgements come
// and go, and who is given up hears of it.
func (w *Worker) keep() {
	w.timed.Store(false)
	if turns := w.turns.Load(); w.seen.Swap(turns) != turns {
		w.setTimer() // others are at it
		return
	}
	select {
	case w.lead <- struct{}{}:
	default:
		return // whoever has the lead sets the timer when leaving
	}
	select {
	case <-w.yield:
	default:
	}
	w.keeping.Store(true)
	w.drive(w.ended, w.yield, w.turn)
	w.keeping.Store(false)
	w.release()
}

func (w *Worker) askForLead() {
	if w.keeping.Load() {
		select {
		case w.yield <- struct{}{}:
			w.kick()
		default:
		}
	}
}

func (w *Worker) release() {
	w.turns.Add(1)
	<-w.lead
	w.setTimer()
}

// Not again where it is set: that would take longer than a message.
func (w *Worker) setTimer() {
	if !w.timed.Load() && !w.timed.Swap(true) && !isClosed(w.closed) {
		w.idle.Reset(idleTime)
	}
}

// Go's poller takes descriptors that do not block.
func (w *Worker) openFile() error {
	fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(C.tmsggo_hub_fd(w.hub)), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return errno
	}
	if err := syscall.SetNonblock(int(fd), true); err != nil {
		syscall.Close(int(fd))
		return err
	}
	w.file = os.NewFile(fd, "tensormsg worker")
	var err error
	w.raw, err = w.file.SyscallConn()
	if err == nil {
		err = w.file.SetReadDeadline(time.Time{}) // fails where it is not polled
	}
	if err != nil {
		w.file.Close()
	}
	return err
}

var errClosed = fail(ErrClosed, "the worker, or the object used, is closed")

// Around each call of C on the worker or on what is on it.
func (w *Worker) enter() bool {
	if w.seats.Add(-1) < 0 {
		<-w.standing
	}
	w.life.RLock()
	if w.isShut {
		w.leave()
		return false
	}
	return true
}

func (w *Worker) leave() {
	w.life.RUnlock()
	if w.seats.Add(1) <= 0 {
		w.standing <- struct{}{}
	}
}

// Close ends the worker with all of its listeners and endpoints: at once, so
// that close endpoints first whose messages are to arrive. Calls that wait end
// with ErrClosed. Messages stay valid. The error is nil.
func (w *Worker) Close() error {
	w.mu.Lock()
	first := !isClosed(w.closed)
	if first {
		close(w.closed)
		w.end()
	}
	w.mu.Unlock()
	if first {
		w.kick()
		w.idle.Stop()
		w.life.Lock()
		w.isShut = true
		C.tmsggo_hub_destroy(w.hub)
		w.life.Unlock()
		w.file.Close()
		w.endOffers()
		close(w.gone)
	}
	<-w.gone
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

var longAgo = time.Unix(1, 0)

// Wakes the goroutine that sleeps for all.
func (w *Worker) kick() { w.file.SetReadDeadline(longAgo) }

func (w *Worker) kickParked() {
	if w.parked.Load() {
		w.kick()
	}
}

// One that waits, and what is called when its wait is over, with mu held.
type waiter struct {
	id   uint64
	over func()
}

const places = 1 << C.TMSGGO_PLACE_BITS

func (w *Worker) await(over func()) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	place := uint32(len(w.waiters))
	if last := len(w.free) - 1; last >= 0 {
		place, w.free = w.free[last], w.free[:last]
	} else if place == places {
		panic("tensormsg: 16777216 goroutines wait on one Worker")
	} else {
		w.waiters = append(w.waiters, waiter{})
	}
	w.last += places
	w.waiters[place] = waiter{w.last + uint64(place), over}
	return w.last + uint64(place)
}

func (w *Worker) forget(id uint64) {
	w.mu.Lock()
	w.forgetLocked(id)
	w.mu.Unlock()
}

func (w *Worker) forgetLocked(id uint64) {
	if place := uint32(id % places); w.waiters[place].id == id {
		w.waiters[place] = waiter{}
		w.free = append(w.free, place)
	}
}

// Waits for *thing, which is looked at when nothing can be destroyed: where it
// is nil then, or becomes so, there is nothing to wait for, and whoever waits
// sees why.
func (w *Worker) wait(ctx context.Context, kind C.int, thing *unsafe.Pointer) error {
	return w.waitBy(ctx, kind, thing, w.turn)
}

// One turn of who drives: true ends the wait.
func (w *Worker) turn(over *C.tmsggo_over_t) bool {
	C.tmsggo_drive(w.hub, spinUS, over)
	return false
}

func (w *Worker) waitBy(ctx context.Context, kind C.int, thing *unsafe.Pointer, turn func(*C.tmsggo_over_t) bool) error {
	ready := make(chan struct{}, 1)
	id := w.await(func() { ready <- struct{}{} })
	defer w.forget(id)

	if !w.enter() {
		return errClosed
	}
	over := *thing == nil || C.tmsggo_watch(w.hub, kind, *thing, C.uint64_t(id)) != 0
	w.leave()
	if over {
		return nil
	}
	w.askForLead()
	for {
		select {
		case <-ready:
			return nil
		case <-w.closed:
			return errClosed
		case <-ctx.Done():
			w.unwatch(id)
			return ctxError(ctx, "")
		case w.lead <- struct{}{}:
			done := w.drive(ctx, ready, turn)
			w.release()
			if done {
				w.unwatch(id)
				return nil
			}
		}
	}
}

func (w *Worker) unwatch(id uint64) {
	if w.enter() {
		C.tmsggo_unwatch(w.hub, C.uint64_t(id))
		w.leave()
	}
}

// How often the things that are waited for were asked.
func (w *Worker) asked() uint64 {
	if !w.enter() {
		return 0
	}
	defer w.leave()
	return uint64(C.tmsggo_asked(w.hub))
}

// Has others hear of what this goroutine may have been told of, and leaves.
func (w *Worker) passOn() {
	if w.enter() {
		C.tmsggo_pass_on(w.hub)
		w.leave()
		w.kickParked()
	}
}

// Drives the worker for all that wait, until this one is ready, or its context
// has ended; true: or until its turn says so.
func (w *Worker) drive(ctx context.Context, ready <-chan struct{}, turn func(*C.tmsggo_over_t) bool) bool {
	over := w.over // of whoever has the lead
	var stop func() bool
	for len(ready) == 0 && ctx.Err() == nil && w.enter() {
		over.count = 0
		done := turn(over)
		w.leave()
		w.deliver(over)
		if done {
			return true
		}
		if over.count > 0 {
			continue
		}
		if stop == nil {
			stop = context.AfterFunc(ctx, w.kick)
			defer stop()
		}
		w.park(ctx, ready, over)
		w.deliver(over)
	}
	return false
}

func (w *Worker) park(ctx context.Context, ready <-chan struct{}, over *C.tmsggo_over_t) {
	w.parked.Store(true)
	defer w.parked.Store(false)
	if len(ready) > 0 || ctx.Err() != nil || isClosed(w.closed) {
		return
	}
	armed := false
	err := w.raw.Read(func(fd uintptr) bool {
		if armed || !w.enter() {
			return true
		}
		armed = C.tmsggo_arm(w.hub, C.int(fd), over) != 0
		w.leave()
		return !armed
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.file.SetReadDeadline(time.Time{})
	}
}

// Tells those whose wait is over.
func (w *Worker) deliver(over *C.tmsggo_over_t) {
	if over.count == 0 {
		return
	}
	w.mu.Lock()
	for _, id := range over.ids[:over.count] {
		if waits := w.waiters[id%places]; waits.id == uint64(id) {
			waits.over()
		}
	}
	w.mu.Unlock()
}

// How long an operation may take, for the library; -1: no limit.
func timeoutMS(ctx context.Context) C.int {
	deadline, limited := ctx.Deadline()
	if !limited {
		return -1
	}
	ms := (time.Until(deadline) + time.Millisecond - 1) / time.Millisecond
	return C.int(max(1, min(ms, math.MaxInt32)))
}

// An endpoint, or a stream with its endpoint.
type breakable interface{ breakOff(words string) }

// Waits until what was given up no longer uses what was lent to it. Where its
// peer does not answer the endpoint is broken for that; but a peer that may be
// silent for ever is waited for.
func (w *Worker) insist(on breakable, kind C.int, thing *unsafe.Pointer) {
	if w.silent > 0 {
		patience, cancel := context.WithTimeout(context.Background(), w.silent)
		defer cancel()
		if w.wait(patience, kind, thing) == nil {
			return
		}
		on.breakOff("the canceled operation did not end")
	}
	w.wait(context.Background(), kind, thing)
}

// Waits for a request, which is destroyed with it. When ctx has ended it is
// given up; but what was lent to it is free when this returns.
func (w *Worker) finish(ctx context.Context, on breakable, request *C.tmsg_request_t) error {
	thing := unsafe.Pointer(request)
	err := w.wait(ctx, C.TMSGGO_REQUEST, &thing)
	if err != nil && !isClosed(w.closed) {
		if w.enter() {
			C.tmsg_request_cancel(request)
			w.leave()
		}
		w.insist(on, C.TMSGGO_REQUEST, &thing)
	}
	if isClosed(w.closed) {
		<-w.gone
	}
	end := errOf(C.tmsggo_request_end(request))
	if end != nil && err != nil && ctx.Err() != nil {
		return ctxError(ctx, end.(*Error).Words)
	}
	return end
}

// Describe gives the worker's state and counters as JSON.
func (w *Worker) Describe() (string, error) {
	if !w.enter() {
		return "", errClosed
	}
	defer w.leave()
	return taken(C.tmsggo_describe_worker(w.hub))
}

func taken(text *C.char) (string, error) {
	if text == nil {
		return "", fail(ErrNoMemory, "")
	}
	defer C.free(unsafe.Pointer(text))
	return C.GoString(text), nil
}
