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
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// Waits until nothing is lent to a call or a task any more, or the worker is
// gone.
func (w *Worker) released(thing unsafe.Pointer) {
	if w.wait(context.Background(), C.TMSGGO_LENT, &thing) != nil {
		<-w.gone
	}
}

// Call calls a method of the peer's with a map, and gives its reply, which the
// caller closes. The server is told the deadline of ctx; when ctx has ended,
// so has the context of its handler. Slices of m may be changed when Call has
// returned. Fails with what the handler says (its Code is in *Error), and with
// ErrNotFound (no such method), ErrUnavailable (nobody serves),
// ErrResourceExhausted, ErrTimedOut, ErrCanceled, ErrPeerLost and ErrClosed.
func (ep *Endpoint) Call(ctx context.Context, method string, m Map, options ...SendOption) (*Message, error) {
	if ctx.Err() != nil {
		return nil, ctxError(ctx, "nothing was called")
	}
	if err := badName("the method's name", method); err != nil {
		return nil, err
	}
	var o sendOptions
	for _, option := range options {
		option(&o)
	}
	if o.flags != 0 || o.channel != 0 {
		return nil, fail(ErrInvalidParam, "a call takes WithMeta only")
	}
	f := flats.Get().(*flat)
	defer f.free()
	made, err := f.build(m, o.meta)
	if err != nil {
		return nil, err
	}
	text := C.CString(method)
	defer C.free(unsafe.Pointer(text))
	params := C.tmsg_call_params_t{field_mask: C.TMSG_CALL_PARAM_TIMEOUT, timeout_ms: C.int32_t(timeoutMS(ctx))}
	if !ep.enter() {
		C.tmsg_map_destroy(made)
		return nil, errClosed
	}
	var call *C.tmsggo_call_t
	err = errOf(C.tmsggo_call(ep.handle(), text, made, params, &call))
	C.tmsg_map_destroy(made)
	w := ep.w
	w.leave()
	if err != nil {
		return nil, err
	}
	w.kickParked()
	thing := unsafe.Pointer(call)
	if w.wait(ctx, C.TMSGGO_CALL, &thing) != nil && w.enter() {
		C.tmsggo_call_cancel(call)
		w.leave()
	}
	if isClosed(w.closed) {
		<-w.gone
	}
	w.released(thing)
	runtime.KeepAlive(m)

	var code C.int32_t
	var reply *C.tmsg_map_t
	err = errOf(C.tmsggo_call_end(call, &code, &reply))
	if err == nil {
		return newMap(reply, func() { C.tmsggo_call_destroy(call) }), nil
	}
	C.tmsggo_call_destroy(call)
	if ctx.Err() != nil && errors.Is(err, ErrCanceled) {
		return nil, ctxError(ctx, err.(*Error).Words)
	}
	err.(*Error).Code = int32(code)
	return nil, err
}

// A Handler answers a call. Its context ends with the caller's time, when the
// caller gives up or is lost, and when the worker closes. The message, and what
// Data gives of it, is valid until it returns, and in what it returns. An
// *Error goes to the caller as it is, with its Code; another error as
// ErrApplication, with its words.
type Handler func(ctx context.Context, in *Message) (Map, error)

// A MethodOption is one of those that begin with Method.
type MethodOption func(*methodOptions)

type methodOptions struct {
	params C.tmsg_method_params_t
	texts  []unsafe.Pointer
}

func (o *methodOptions) text(text string) *C.char {
	c := C.CString(text)
	o.texts = append(o.texts, unsafe.Pointer(c))
	return c
}

// MethodSignature says what a method takes and gives (docs/signatures.md):
// other maps do not reach the handler.
func MethodSignature(signature string) MethodOption {
	return func(o *methodOptions) {
		o.params.field_mask |= C.TMSG_METHOD_PARAM_SIGNATURE
		o.params.signature = o.text(signature)
	}
}

// MethodConcurrency says how many calls of the method may run at once.
func MethodConcurrency(calls int) MethodOption {
	return func(o *methodOptions) {
		o.params.field_mask |= C.TMSG_METHOD_PARAM_CONCURRENCY
		o.params.concurrency = C.uint32_t(calls)
	}
}

// Handle offers a method to the peers of the worker, whichever side dialled.
// Calls run, each in a goroutine, while Serve does. Fails with ErrInvalidParam,
// ErrAlreadyExists and ErrClosed.
func (w *Worker) Handle(method string, handler Handler, options ...MethodOption) error {
	if err := badName("the method's name", method); err != nil {
		return err
	}
	var o methodOptions
	for _, option := range options {
		option(&o)
	}
	o.texts = append(o.texts, unsafe.Pointer(C.CString(method)))
	defer func() {
		for _, text := range o.texts {
			C.free(text)
		}
	}()
	w.life.Lock() // no task comes before its handler is there
	defer w.life.Unlock()
	if w.isShut {
		return errClosed
	}
	if err := errOf(C.tmsggo_offer(w.hub, (*C.char)(o.texts[len(o.texts)-1]), C.uint32_t(len(w.handlers)), o.params)); err != nil {
		return err
	}
	w.handlers = append(w.handlers, handler)
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
		var handler Handler
		if task != nil {
			handler = w.handlers[C.tmsggo_task_index(task)]
		}
		w.leave()
		if task != nil {
			running.Add(1)
			go func() {
				defer running.Done()
				w.run(task, handler)
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

func (w *Worker) run(task *C.tmsggo_task_t, handler Handler) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if ms := C.tmsggo_task_remaining_ms(task); ms >= 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		defer end()
	}
	id := w.await(cancel)
	if w.enter() {
		if C.tmsggo_watch(w.hub, C.TMSGGO_TASK, unsafe.Pointer(task), C.uint64_t(id)) != 0 {
			cancel()
		}
		w.leave()
	}
	stop := context.AfterFunc(w.ended, cancel)
	in := newMap(C.tmsggo_task_map(task), func() {})
	out, err := handler(ctx, in)
	stop()
	w.forget(id)
	if w.enter() {
		C.tmsggo_unwatch(w.hub, C.uint64_t(id))
		w.leave()
	}
	w.answer(task, out, err)
	in.Close()
	C.tmsggo_task_destroy(task)
}

func (w *Worker) answer(task *C.tmsggo_task_t, out Map, err error) {
	f := flats.Get().(*flat)
	defer f.free()
	var made *C.tmsg_map_t
	if err == nil {
		if made, err = f.build(out, nil); err != nil {
			err = fail(ErrInternal, "the reply: "+err.Error())
		}
	}
	if !w.enter() {
		C.tmsg_map_destroy(made)
		return
	}
	if err == nil {
		// Where it fails the library has told the caller why, or nobody waits.
		errOf(C.tmsggo_reply(task, made))
	} else {
		said := &Error{Status: ErrApplication, Words: err.Error()}
		errors.As(err, &said)
		text := C.CString(said.Words)
		C.tmsggo_fail(task, C.tmsg_status_t(said.Status), C.int32_t(said.Code), text)
		C.free(unsafe.Pointer(text))
	}
	C.tmsg_map_destroy(made)
	w.leave()
	w.kickParked()
	w.released(unsafe.Pointer(task))
	runtime.KeepAlive(out)
}

// Errorf is a failure of a handler's own, with a number for the caller.
func Errorf(code int32, format string, values ...any) error {
	return &Error{Status: ErrApplication, Words: fmt.Sprintf(format, values...), Code: code}
}
