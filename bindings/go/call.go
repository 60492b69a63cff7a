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
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// Waits until nothing is lent to a call, a task or a stream any more, or the
// worker is gone. When ctx has ended it insists.
func (w *Worker) released(ctx context.Context, on breakable, thing unsafe.Pointer) {
	if w.wait(ctx, C.TMSGGO_LENT, &thing) != nil && !isClosed(w.closed) {
		w.insist(on, C.TMSGGO_LENT, &thing)
	}
	if isClosed(w.closed) {
		<-w.gone
	}
}

// What a call or a stream begins with, in C. free() follows in any case.
type opening struct {
	flat   *flat
	method *C.char
	made   *C.tmsg_map_t
	params C.tmsg_call_params_t
}

func (o *opening) build(ctx context.Context, method string, m Map, meta Meta) error {
	o.flat = flats.Get().(*flat)
	if ctx.Err() != nil {
		return ctxError(ctx, "nothing was called")
	}
	if err := badName("the method's name", method); err != nil {
		return err
	}
	var err error
	o.made, err = o.flat.build(m, meta)
	o.method = C.CString(method)
	return err
}

func (o *opening) free() {
	C.tmsg_map_destroy(o.made)
	C.free(unsafe.Pointer(o.method))
	o.flat.free()
}

// Call calls a method of the peer's with a map, and gives its reply, which the
// caller closes. The server is told the deadline of ctx; when ctx has ended,
// so has the context of its handler. Slices of m may be changed when Call has
// returned. Fails with what the handler says (*Error has its Code, and tells
// whether a handler may have run), and with
// ErrNotFound (no such method), ErrUnavailable (nobody serves),
// ErrResourceExhausted, ErrTimedOut, ErrCanceled, ErrPeerLost and ErrClosed.
func (ep *Endpoint) Call(ctx context.Context, method string, m Map, options ...CallOption) (*Message, error) {
	var more callOptions
	for _, option := range options {
		option.toCall(&more)
	}
	if more.err != nil {
		return nil, more.err
	}
	var o opening
	defer o.free()
	if err := o.build(ctx, method, m, more.meta); err != nil {
		return nil, err
	}
	o.params = more.params
	o.params.field_mask |= C.TMSG_CALL_PARAM_TIMEOUT
	o.params.timeout_ms = C.int32_t(timeoutMS(ctx))
	var call *C.tmsggo_call_t
	err := more.into.lend(func(into *C.tmsg_map_t) error {
		if into != nil {
			o.params.field_mask |= C.TMSG_CALL_PARAM_REPLY_INTO
			o.params.reply_into = into
		}
		if !ep.enter() {
			return errClosed
		}
		defer ep.w.leave()
		return errOf(C.tmsggo_call(ep.w.hub, ep.handle(), o.method, o.made, o.params, &call))
	})
	if err != nil {
		return nil, err
	}
	defer runtime.KeepAlive(m)
	return ep.finishCall(ctx, call, more.into)
}

// Waits for a call or a fetch, and gives its reply. What was lent to it is free
// then. `into`: what the reply was received into, or nil.
func (ep *Endpoint) finishCall(ctx context.Context, call *C.tmsggo_call_t, into *Prepared) (*Message, error) {
	w := ep.w
	w.kickParked()
	thing := unsafe.Pointer(call)
	if w.wait(ctx, C.TMSGGO_CALL, &thing) != nil && w.enter() {
		C.tmsggo_call_cancel(call)
		w.leave()
		w.wait(context.Background(), C.TMSGGO_CALL, &thing)
	}
	w.released(ctx, ep, thing)

	var code, lent C.int
	var reply *C.tmsg_map_t
	err := errOf(C.tmsggo_call_end(call, (*C.int32_t)(&code), &reply, &lent))
	if err == nil {
		m := newMap(reply, lent != 0, func() { C.tmsggo_call_destroy(call) })
		m.into = into
		return m, nil
	}
	details := detailsOf(reply)
	mayHaveRun := C.tmsggo_call_may_have_run(call) != 0
	C.tmsggo_call_destroy(call)
	if ctx.Err() != nil && errors.Is(err, ErrCanceled) {
		err = ctxError(ctx, err.(*Error).Words)
	}
	said := err.(*Error)
	said.Code, said.Details, said.MayHaveRun = int32(code), details, mayHaveRun
	return nil, err
}

// A Handler answers a call. Its context ends with the caller's time, when the
// caller gives up or is lost, and when the worker closes. The message, and what
// Data gives of it, is valid until it returns; its tensors also in what it
// returns, and in what it has begun to send. An *Error goes to the caller as it
// is, with Code and Details; an error of a context as ErrTimedOut or
// ErrCanceled, another one as ErrApplication, with its words. A panic fails the
// call with ErrInternal, and is logged with its stack; the worker serves on.
type Handler func(ctx context.Context, in *Message) (Map, error)

// A MethodOption is one of those that begin with Method.
type MethodOption func(*methodOptions)

type methodOptions struct {
	given
	params C.tmsg_method_params_t
}

// MethodSignature says what a method takes and gives, as
// "(image: uint8[h,w,3]) -> (scores: float32[1000])" (docs/reference/signatures.md): other
// maps do not reach the handler.
func MethodSignature(signature string) MethodOption {
	return func(o *methodOptions) {
		o.params.field_mask |= C.TMSG_METHOD_PARAM_SIGNATURE
		o.params.signature = o.text("MethodSignature", signature)
	}
}

// MethodConcurrency says how many calls of the method may run at once.
func MethodConcurrency(calls int) MethodOption {
	return func(o *methodOptions) {
		o.params.field_mask |= C.TMSG_METHOD_PARAM_CONCURRENCY
		o.params.concurrency = o.count("MethodConcurrency", calls)
	}
}

// Handle offers a method to the peers of the worker, whichever side dialled.
// Calls run, each in a goroutine, while Serve does. Fails with ErrInvalidParam,
// ErrAlreadyExists and ErrClosed.
func (w *Worker) Handle(method string, handler Handler, options ...MethodOption) error {
	return w.register(method, handler, nil, options)
}

// What is offered: a call's handler or a stream's.
type method struct {
	name   string
	call   Handler
	stream StreamHandler
	meta   Meta // of the reply
}

func (w *Worker) register(name string, call Handler, stream StreamHandler, options []MethodOption) error {
	if err := badName("the method's name", name); err != nil {
		return err
	}
	if call == nil && stream == nil {
		return fail(ErrInvalidParam, fmt.Sprintf("the handler of %q is nil", name))
	}
	var o methodOptions
	for _, option := range options {
		option(&o)
	}
	text := o.text("the method's name", name)
	defer o.free()
	if o.err != nil {
		return o.err
	}
	streams := C.int(0)
	if stream != nil {
		streams = 1
	}
	w.life.Lock() // no task comes before its handler is there
	defer w.life.Unlock()
	if w.isShut {
		return errClosed
	}
	if err := errOf(C.tmsggo_register(w.hub, text, streams, C.uint32_t(len(w.methods)), o.params)); err != nil {
		return err
	}
	w.methods = append(w.methods, method{name: name, call: call, stream: stream})
	return nil
}

// Serve runs the handlers until ctx has ended or the worker is closed. Then no
// further calls are taken, for good, and it returns when the handlers have. By
// one goroutine. The error is that of ctx, or ErrClosed.
func (w *Worker) Serve(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	hub := unsafe.Pointer(w.hub)
	for {
		if !w.enter() {
			return errClosed
		}
		task := C.tmsggo_take(w.hub)
		if task == nil && ctx.Err() != nil {
			C.tmsggo_drain(w.hub)
		}
		var called method
		if task != nil {
			called = w.methods[C.tmsggo_task_index(task)]
		}
		w.leave()
		if task != nil {
			running.Add(1)
			go func() {
				defer running.Done()
				if called.stream != nil {
					w.runStream(C.tmsggo_task_stream(task), called)
				} else {
					w.run(task, called)
				}
			}()
			continue
		}
		if ctx.Err() != nil {
			return ctxError(ctx, "it served until then")
		}
		if err := w.wait(ctx, C.TMSGGO_TASKS, &hub); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// A context that ends with a call or a stream of a peer's, with its time, where
// it has some, and with the worker. end() follows.
func (w *Worker) contextOf(kind C.int, thing unsafe.Pointer, ms C.int) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	if ms >= 0 {
		timed, expire := context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		both := cancel
		ctx, cancel = timed, func() { expire(); both() }
	}
	id := w.await(cancel)
	if w.enter() {
		if C.tmsggo_watch(w.hub, kind, thing, C.uint64_t(id)) != 0 {
			cancel()
		}
		w.leave()
	}
	stop := context.AfterFunc(w.ended, cancel)
	return ctx, func() {
		stop()
		w.forget(id)
		if w.enter() {
			C.tmsggo_unwatch(w.hub, C.uint64_t(id))
			w.leave()
		}
		cancel()
	}
}

// What a caller hears of a handler that has left by runtime.Goexit, or, with
// what recover() said, by a panic.
func (m method) left(said any) error {
	if said == nil {
		return fail(ErrInternal, fmt.Sprintf("the handler of %q has left without an answer", m.name))
	}
	words := fmt.Sprintf("the handler of %q panicked: %v", m.name, said)
	say(slog.LevelError, words, "stack", string(debug.Stack()))
	return fail(ErrInternal, words)
}

func (w *Worker) run(task *C.tmsggo_task_t, called method) {
	ctx, end := w.contextOf(C.TMSGGO_TASK, unsafe.Pointer(task), C.tmsggo_task_remaining_ms(task))
	ctx, details := w.newTask(ctx, C.tmsggo_task_endpoint(task), called.name)
	in := newMap(C.tmsggo_task_map(task), false, func() { C.tmsggo_task_destroy(task) })
	in.hold() // the handler may close it
	var out Map
	var err error
	returned := false
	defer func() {
		if !returned {
			out, err = nil, called.left(recover())
		}
		end()
		details.end()
		called.meta = details.replyMeta()
		w.answer(task, called, out, err)
		in.Close()
		in.drop()
	}()
	out, err = called.call(ctx, in)
	returned = true
}

// What a handler has returned, of which a tensor may be one of a closed message,
// which panics.
func (m method) build(f *flat, out Map, what string) (made *C.tmsg_map_t, err error) {
	defer func() {
		if said := recover(); said != nil {
			err = m.left(said)
		}
	}()
	made, err = f.build(out, m.meta)
	if err != nil {
		err = fail(ErrInternal, what+": "+err.Error())
	}
	return made, err
}

func (w *Worker) answer(task *C.tmsggo_task_t, called method, out Map, err error) {
	f := flats.Get().(*flat)
	defer f.free()
	var made *C.tmsg_map_t
	if err == nil {
		made, err = called.build(f, out, "the reply")
	}
	defer C.tmsg_map_destroy(made)
	if !w.enter() {
		return
	}
	if err == nil {
		// Where it fails the library has told the caller why, or nobody waits.
		errOf(C.tmsggo_reply(task, made))
	} else {
		said, details := called.failure(err)
		text := C.CString(said.Words)
		C.tmsggo_fail(task, C.tmsg_status_t(said.Status), C.int32_t(said.Code), text, details)
		C.free(unsafe.Pointer(text))
		C.tmsg_map_destroy(details)
	}
	w.leave()
	w.kickParked()
	w.released(context.Background(), nil, unsafe.Pointer(task))
	runtime.KeepAlive(out)
}

// What a peer is told of a handler's error.
func failure(err error) *Error {
	status := ErrApplication
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		status = ErrTimedOut
	case errors.Is(err, context.Canceled):
		status = ErrCanceled
	}
	said := &Error{Status: status, Words: err.Error()}
	errors.As(err, &said)
	told := *said
	if told.Status >= 0 {
		told.Status = ErrApplication
	}
	told.Words = strings.ToValidUTF8(told.Words, "?")
	return &told
}

// Errorf is a failure of a handler's own, with a number for the caller.
func Errorf(code int32, format string, values ...any) error {
	return &Error{Status: ErrApplication, Words: fmt.Sprintf(format, values...), Code: code}
}
