// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"time"
)

// A Side is one end of calls and streams.
type Side int32

const (
	CallerSide Side = C.TMSG_SIDE_CALLER // what this worker calls
	ServerSide Side = C.TMSG_SIDE_SERVER // what its handlers are asked for
)

// CallMetrics are what was counted of a method.
type CallMetrics struct {
	Ended         uint64 // calls that have ended
	InFlight      uint64 // that have not
	Rejected      uint64 // of a server: refused as they began to come
	Retried       uint64 // of a caller: attempts beyond the first
	SentBytes     uint64 // of tensors
	ReceivedBytes uint64
	Latencies     time.Duration // of those that ended, together
	Longest       time.Duration
	Failed        map[Status]uint64 // those of Ended that did, by status
	Running       uint64            // of a server, now: handlers that run,
	Waiting       uint64            // and calls whose handlers have not begun
	Stalls        uint64            // how often calls have waited for a second, and none began
}

// StartMetrics counts calls and streams from now on (docs/reference/calls.md, "Metrics").
// Again: nothing changes. Fails with ErrClosed and ErrNoMemory.
func (w *Worker) StartMetrics() error {
	if !w.enter() {
		return errClosed
	}
	defer w.leave()
	return errOf(C.tmsggo_metrics_start(w.hub))
}

// MetricsText gives all that was counted as Prometheus reads it (text format
// 0.0.4); "" where nothing was. Fails with ErrClosed and ErrNoMemory.
func (w *Worker) MetricsText() (string, error) {
	if !w.enter() {
		return "", errClosed
	}
	defer w.leave()
	var text *C.char
	if err := errOf(C.tmsggo_metrics_text(w.hub, &text)); err != nil {
		return "", err
	}
	defer C.tmsg_string_free(text)
	return C.GoString(text), nil
}

// Metrics gives what was counted of a method. Fails with ErrNotFound (nothing
// was), ErrInvalidParam and ErrClosed.
func (w *Worker) Metrics(side Side, method string) (CallMetrics, error) {
	var c C.tmsg_call_metrics_t
	err := w.measure(method, func(name *C.char) C.tmsggo_result_t {
		return C.tmsggo_metrics_read(w.hub, C.tmsg_side_t(side), name, &c)
	})
	if err != nil {
		return CallMetrics{}, err
	}
	m := CallMetrics{
		Ended: uint64(c.ended), InFlight: uint64(c.in_flight),
		Rejected: uint64(c.rejected), Retried: uint64(c.retried),
		SentBytes: uint64(c.sent_bytes), ReceivedBytes: uint64(c.received_bytes),
		Latencies: time.Duration(c.latency_sum_ns), Longest: time.Duration(c.latency_most_ns),
		Running: uint64(c.running), Waiting: uint64(c.waiting), Stalls: uint64(c.stalls),
	}
	for i, count := range c.by_status {
		if i > 0 && count > 0 {
			if m.Failed == nil {
				m.Failed = map[Status]uint64{}
			}
			m.Failed[Status(-i)] = uint64(count)
		}
	}
	return m, nil
}

// Latency gives the time that so large a part of the calls that ended did not
// exceed: 0.5 is the median, 1 the longest. 0 where none has ended. Fails as
// Metrics does.
func (w *Worker) Latency(side Side, method string, part float64) (time.Duration, error) {
	if !(part >= 0 && part <= 1) {
		return 0, fail(ErrInvalidParam, "the part of the calls is from 0 to 1")
	}
	var ns C.uint64_t
	err := w.measure(method, func(name *C.char) C.tmsggo_result_t {
		return C.tmsggo_metrics_latency(w.hub, C.tmsg_side_t(side), name, C.uint32_t(part*1e6+.5), &ns)
	})
	return time.Duration(ns), err
}

func (w *Worker) measure(method string, read func(name *C.char) C.tmsggo_result_t) error {
	var g given
	defer g.free()
	name := g.text("the method's name", method)
	if g.err != nil {
		return g.err
	}
	if !w.enter() {
		return errClosed
	}
	defer w.leave()
	return errOf(read(name))
}

// Starves says whether a message waits for memory that others hold, which were
// not closed yet (Limits.HeldBytes): until they are nothing more comes.
func (w *Worker) Starves() bool {
	if !w.enter() {
		return false
	}
	defer w.leave()
	return C.tmsg_worker_starves(C.tmsggo_worker(w.hub)) != 0
}

// Overview gives what is on the worker as JSON: its counters, each endpoint and
// each publisher (docs/reference/introspection.md).
func (w *Worker) Overview() (string, error) {
	if !w.enter() {
		return "", errClosed
	}
	defer w.leave()
	return taken(C.tmsggo_overview(w.hub))
}
