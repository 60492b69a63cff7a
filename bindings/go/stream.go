// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "publisher.h"
#include "stream.h"
*/
import "C"

import (
	"context"
	"errors"
	"io"
	"runtime"
	"unsafe"
)

// A Stream is a call of many messages (docs/reference/streams.md). Either side sends
// maps, in order, until it finishes; the server says how it ended. Both sides
// have one: its opener from Endpoint.Stream, its server in a StreamHandler.
type Stream struct {
	w      *Worker
	ep     *Endpoint       // nil at the server
	opened context.Context // Background at the server
	stop   func() bool     // of what opened does when it ends
	method string
	c      unsafe.Pointer // nil: given back. w.life guards it
	reads  chan struct{}  // whose place in it receives
	sends  chan struct{}  // a place for each message that is being sent
}

func (w *Worker) newStream(c *C.tmsggo_stream_t, method string) *Stream {
	return &Stream{
		w:      w,
		opened: context.Background(),
		method: method,
		c:      unsafe.Pointer(c),
		reads:  make(chan struct{}, 1),
		sends:  make(chan struct{}, C.TMSGGO_STREAM_QUEUE),
	}
}

func (s *Stream) handle() *C.tmsggo_stream_t { return (*C.tmsggo_stream_t)(s.c) }

// enter is the worker's, and fails where the stream was given back.
func (s *Stream) enter() bool {
	if !s.w.enter() {
		return false
	}
	if s.c == nil {
		s.w.leave()
		return false
	}
	return true
}

// Stream opens a stream to a method of the peer's, whose handler sees m (nil:
// an empty map). The option is WithMeta. The server is told the
// deadline of ctx, which is that of the whole stream; when ctx has ended the
// stream is given up, as by Close. Slices of m may be changed when Stream has
// returned. The caller closes the stream.
//
// What the peer says of it, as ErrNotFound (no such method, or no stream), comes
// from Recv, Send and Wait. Fails itself with ErrInvalidParam, ErrUnsupported
// (an older peer), ErrResourceExhausted (512 streams are open), ErrLimitExceeded,
// ErrTimedOut, ErrCanceled, ErrPeerLost and ErrClosed.
func (ep *Endpoint) Stream(ctx context.Context, method string, m Map, options ...MetaOption) (*Stream, error) {
	var o opening
	var meta Meta
	for _, option := range options {
		meta = option.meta
	}
	defer o.free()
	if err := o.build(ctx, method, m, meta); err != nil {
		return nil, err
	}
	if !ep.enter() {
		return nil, errClosed
	}
	var c *C.tmsggo_stream_t
	err := errOf(C.tmsggo_stream_open(ep.handle(), o.method, o.made, timeoutMS(ctx), &c))
	w := ep.w
	w.leave()
	if err != nil {
		return nil, err
	}
	w.kickParked()
	s := w.newStream(c, method)
	s.ep, s.opened = ep, ctx
	s.stop = context.AfterFunc(ctx, s.cancel)
	w.released(ctx, s, s.c)
	runtime.KeepAlive(m)
	if ctx.Err() != nil {
		s.Close()
		return nil, ctxError(ctx, "the stream was given up as it was opened")
	}
	return s, nil
}

func (s *Stream) cancel() {
	if s.enter() {
		C.tmsggo_stream_cancel(s.handle())
		s.w.leave()
		s.w.kickParked()
	}
}

func (s *Stream) breakOff(words string) {
	s.cancel()
	text := C.CString(words)
	defer C.free(unsafe.Pointer(text))
	if s.enter() {
		C.tmsggo_stream_abort(s.handle(), text)
		s.w.leave()
		s.w.kickParked()
	}
}

// Method is the name of the method.
func (s *Stream) Method() string { return s.method }

// String gives the method.
func (s *Stream) String() string { return "Stream(" + s.method + ")" }

// Send sends a map behind those that were sent before, and returns when the
// slices of m may be changed. Where the other side does not read, that is when
// it does: after some 256 messages (its WorkerQueueDepth). OnChannel is no
// option here. When ctx has ended that message is left out, and the stream goes
// on. Fails with what the stream failed with, with ErrClosed (this side has
// finished, or the stream is over), and as Endpoint.Send does; of these
// ErrInvalidParam (also where the map is not what the method's signature says)
// and ErrLimitExceeded leave the stream as it was.
//
// On a worker with sessions (DialReconnect, ListenResume) a message is kept
// until the other side has read it. Send copies it there, and does not wait for
// that, but where 64 are kept, with an option beside WithMeta, and with tensors
// of a device.
func (s *Stream) Send(ctx context.Context, m Map, options ...SendOption) error {
	if err := s.await(ctx, s.sends); err != nil {
		return err
	}
	one := &streamSend{Stream: s}
	defer one.done()
	return s.sent(ctx, s.w.send(ctx, one, m, options))
}

// SendPrepared is Send of a prepared map.
func (s *Stream) SendPrepared(ctx context.Context, p *Prepared) error {
	if err := s.await(ctx, s.sends); err != nil {
		return err
	}
	one := &streamSend{Stream: s}
	defer one.done()
	return s.sent(ctx, s.w.sendPrepared(ctx, one, p))
}

// One send, and its place among those of the stream.
type streamSend struct {
	*Stream
	goesOn bool // with its place
}

func (one *streamSend) done() {
	if !one.goesOn {
		<-one.sends
	}
}

func (one *streamSend) post(ctx context.Context, c *C.tmsg_map_t, o *sendOptions) (*C.tmsg_request_t, error) {
	s := one.Stream
	var copied *C.tmsg_map_t
	if !s.w.sendsAgain.Load() || o.flags != 0 || errOf(C.tmsggo_copy(c, &copied)) != nil {
		return s.post(ctx, c, o)
	}
	defer C.tmsg_map_destroy(copied)
	request, err := s.post(context.Background(), copied, o)
	if request != nil {
		one.goesOn = true
		go func() {
			s.w.finish(context.Background(), s, request)
			<-s.sends
		}()
	}
	return nil, err
}

func (s *Stream) await(ctx context.Context, place chan<- struct{}) error {
	select {
	case place <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctxError(ctx, "other goroutines are at the "+s.String())
	case <-s.w.closed:
		return errClosed
	}
}

func (s *Stream) post(ctx context.Context, c *C.tmsg_map_t, o *sendOptions) (*C.tmsg_request_t, error) {
	if o.channel != 0 {
		return nil, fail(ErrInvalidParam, "a stream has a channel of its own")
	}
	if !s.enter() {
		return nil, errClosed
	}
	sent := C.tmsggo_stream_send(s.handle(), c, o.flags, timeoutMS(ctx))
	s.w.leave()
	s.w.kickParked()
	return sent.request, errOf(sent.result)
}

// Finish says that this side sends no more: the other one reads to the end. It
// does not wait. Fails with ErrClosed (that was said before, or the stream is
// over) and with what the stream failed with.
func (s *Stream) Finish() error {
	if !s.enter() {
		return errClosed
	}
	err := errOf(C.tmsggo_stream_finish(s.handle()))
	s.w.leave()
	s.w.kickParked()
	return s.outcome(err)
}

// Recv gives the next message, which the caller closes. It fails with io.EOF
// when the other side sends no more and all was received; with what the stream
// failed with; and with ErrTimedOut or ErrCanceled when ctx has ended: then
// nothing is lost, and the stream goes on.
func (s *Stream) Recv(ctx context.Context) (*Message, error) {
	if err := s.await(ctx, s.reads); err != nil {
		return nil, err
	}
	defer func() { <-s.reads }()
	for {
		if ctx.Err() != nil {
			return nil, ctxError(ctx, "nothing has come by the "+s.String())
		}
		var r C.tmsggo_received_t
		err := s.w.lookFor(s, func(spin C.uint32_t, over *C.tmsggo_over_t) error {
			r = C.tmsggo_stream_recv(s.w.hub, s.handle(), spin, over)
			return errOf(r.result)
		})
		switch {
		case err != nil:
			return nil, s.outcome(err)
		case r.message != nil:
			return newMessage(&r, s.ep), nil
		case r.result.status == C.TMSG_OK:
			return nil, io.EOF
		}
		s.w.kickParked()
		if err := s.w.wait(ctx, C.TMSGGO_READ, &s.c); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
}

// Wait waits at the opener until the server has ended the stream, and gives how
// it failed, or nil. Read to the end before: what was not read may hold the end
// up. Fails with ErrTimedOut and ErrCanceled, too, when ctx has ended, and the
// stream goes on.
func (s *Stream) Wait(ctx context.Context) error {
	if err := s.w.wait(ctx, C.TMSGGO_STREAM, &s.c); err != nil {
		return err
	}
	if !s.enter() {
		return errClosed
	}
	var code C.int32_t
	var details *C.tmsg_map_t
	err := errOf(C.tmsggo_stream_outcome(s.handle(), &code, &details))
	s.w.leave()
	return s.outcome(err)
}

// An error of a call of C, as the end of the stream explains it.
func (s *Stream) outcome(err error) error {
	var said *Error
	if !errors.As(err, &said) {
		return err
	}
	canceled := said.Status == ErrCanceled
	if canceled && s.opened.Err() != nil {
		return ctxError(s.opened, said.Words)
	}
	if !s.enter() {
		return err
	}
	var code C.int32_t
	var details *C.tmsg_map_t
	r := C.tmsggo_stream_outcome(s.handle(), &code, &details)
	failed, over := errOf(r).(*Error)
	if over {
		failed.Code, failed.Details = int32(code), detailsOf(details)
		failed.MayHaveRun = C.tmsggo_stream_may_have_run(s.handle()) != 0
	}
	s.w.leave()
	switch {
	case over && !canceled:
		failed.Status, failed.Words = said.Status, said.Words
		return failed
	case over: // the stream's end took it along
		return failed
	case canceled && r.status == C.TMSG_OK:
		return fail(ErrClosed, said.Words)
	}
	return err
}

// The same of a send with this context.
func (s *Stream) sent(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return s.outcome(err)
}

// Close gives a stream back at its opener: one that goes on is given up, on both
// sides, and what was not received is dropped. Again does nothing. At the server
// it does nothing, for what the handler returns ends the stream. The error is
// nil.
func (s *Stream) Close() error {
	if s.stop != nil {
		s.stop()
		if c := s.leave(); c != nil {
			C.tmsggo_stream_destroy(c)
		}
		s.w.kickParked()
	}
	return nil
}

// Ends the use of a stream, and gives what is still to be destroyed.
func (s *Stream) leave() *C.tmsggo_stream_t {
	w := s.w
	w.life.Lock()
	defer w.life.Unlock()
	c := s.handle()
	if c != nil && !w.isShut {
		C.tmsggo_stream_leave(w.hub, c)
	}
	s.c = nil
	return c
}

// A StreamHandler serves a stream; in is the map that it was opened with, valid
// until the handler returns, as s is. Its context ends with the opener's time,
// when the opener gives up or is lost, and when the worker closes. A handler
// that returns nil ends the stream in order, behind what it has sent. An *Error
// goes to the opener as it is, with Code and Details; an error of a context as
// ErrTimedOut or ErrCanceled, another one as ErrApplication, with its words. A
// panic fails the stream with ErrInternal, and is logged with its stack; the
// worker serves on.
type StreamHandler func(ctx context.Context, in *Message, s *Stream) error

// HandleStream offers a method that is a stream to the peers of the worker, as
// Handle does one that is a call. A signature holds for each message.
func (w *Worker) HandleStream(method string, handler StreamHandler, options ...MethodOption) error {
	return w.register(method, nil, handler, options)
}

func (w *Worker) runStream(c *C.tmsggo_stream_t, called method) {
	ctx, end := w.contextOf(C.TMSGGO_STREAM, unsafe.Pointer(c), C.tmsggo_stream_remaining_ms(c))
	ctx, details := w.newTask(ctx, C.tmsggo_stream_endpoint(c), called.name)
	in := newMap(C.tmsggo_stream_map(c), false, func() { C.tmsggo_stream_destroy(c) })
	in.hold() // until here, also where the handler closes it
	s := w.newStream(c, called.name)
	var err error
	returned := false
	defer func() {
		if !returned {
			err = called.left(recover())
		}
		end()
		details.end()
		s.end(called, err)
		s.leave()
		in.Close()
		in.drop() // what still sends its tensors keeps them
		w.kickParked()
	}()
	err = called.stream(ctx, in, s)
	returned = true
}

func (s *Stream) end(called method, err error) {
	said := &Error{Status: C.TMSG_OK}
	var details *C.tmsg_map_t
	if err != nil {
		said, details = called.failure(err)
	}
	defer C.tmsg_map_destroy(details)
	words := C.CString(said.Words)
	defer C.free(unsafe.Pointer(words))
	if s.enter() {
		C.tmsggo_stream_end(s.handle(), C.tmsg_status_t(said.Status), C.int32_t(said.Code), words, details)
		s.w.leave()
		s.w.kickParked()
	}
}
