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
)

// A Prepared is a map for a loop, which sends it or receives into it again and
// again: its slices stay pinned, and a send allocates nothing. By one goroutine
// at a time. One that is dropped without Close is freed by the garbage
// collector.
type Prepared struct {
	mu      sync.Mutex
	c       *C.tmsg_map_t // nil: closed
	options sendOptions
	index   map[string]int
	tensors []Tensor
	pins    []runtime.Pinner
	pending bool // a receive may still write into it
}

// Prepare makes one of a map, to be sent with these options. Fails as Send does
// with what is wrong in the map.
func Prepare(m Map, options ...SendOption) (*Prepared, error) {
	p := &Prepared{index: map[string]int{}, pins: make([]runtime.Pinner, len(m))}
	for _, option := range options {
		option(&p.options)
	}
	f := flats.Get().(*flat)
	defer f.free()
	var err error
	if p.c, err = f.build(m, p.options.meta); err != nil {
		return nil, err
	}
	for i, name := range sorted(m) {
		p.index[name] = i
		p.tensors = append(p.tensors, m[name])
		if m[name].Size() > 0 {
			pin(&p.pins[i], m[name].data)
		}
	}
	// It runs before the Pinners', which panic where something is pinned.
	runtime.SetFinalizer(p, (*Prepared).Close)
	return p, nil
}

// Set puts another slice in the place of a tensor, of the same dtype, shape and
// strides: the next frame. The slice before it is free then. Fails with
// ErrNotFound (no tensor of that name), ErrInvalidParam, ErrBusy (it is being
// sent or received into) and ErrClosed.
func (p *Prepared) Set(name string, t Tensor) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c == nil {
		return errClosed
	}
	i, found := p.index[name]
	if !found {
		return fail(ErrNotFound, fmt.Sprintf("no tensor %q was prepared", name))
	}
	if t.owner != nil {
		t.owner.open("its tensor")
	}
	if t.err != nil {
		return t.err
	}
	if was := p.tensors[i]; !same(was.Shape, t.Shape) || !same(was.Strides, t.Strides) || was.DType != t.DType {
		return fail(ErrInvalidParam, fmt.Sprintf("tensor %q was prepared as %v with the strides %v, not as %v with %v",
			name, was, was.Strides, t, t.Strides))
	}
	if t.Size() == 0 {
		return nil
	}
	var pins runtime.Pinner
	pin(&pins, t.data)
	if err := errOf(C.tmsggo_set(p.c, C.size_t(i), C.uintptr_t(uintptr(t.data)))); err != nil {
		pins.Unpin()
		return err
	}
	p.pins[i].Unpin()
	p.pins[i], p.tensors[i] = pins, t
	return nil
}

func same(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// String gives names, dtypes and shapes.
func (p *Prepared) String() string {
	m := Map{}
	for name, i := range p.index {
		m[name] = p.tensors[i]
	}
	return "Prepared" + m.String()
}

// Close gives the map back: its slices are free, where no call uses it. Again
// does nothing. The error is nil.
func (p *Prepared) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c == nil {
		return nil
	}
	runtime.SetFinalizer(p, nil)
	C.tmsg_map_destroy(p.c)
	p.c = nil
	if p.pending {
		keepForEver(p)
		return nil
	}
	for i := range p.pins {
		p.pins[i].Unpin()
	}
	return nil
}

var kept struct {
	sync.Mutex
	all []*Prepared
}

// What UCX may still write to is never given back: it is little, and rare.
func keepForEver(p *Prepared) {
	kept.Lock()
	kept.all = append(kept.all, p)
	kept.Unlock()
}

// SendPrepared is Send of a prepared map.
func (ep *Endpoint) SendPrepared(ctx context.Context, p *Prepared) error {
	return ep.w.sendPrepared(ctx, ep, p)
}

func (w *Worker) sendPrepared(ctx context.Context, to sender, p *Prepared) error {
	if ctx.Err() != nil {
		return ctxError(ctx, "nothing was sent")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c == nil {
		return errClosed
	}
	request, err := to.post(ctx, p.c, &p.options)
	if request != nil {
		err = w.finish(ctx, to, request)
	}
	return err
}

// RecvInto receives the next message into the slices of a prepared map. Tensors
// that are only in one of them are left out. Fails as Recv does, and with
// ErrInvalidParam where a tensor has another dtype or shape, which is named;
// then the message stays, and the next receive gets it. A receive that was
// given up may have written into the slices, and may do so until the next one.
func (ep *Endpoint) RecvInto(ctx context.Context, p *Prepared) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c == nil {
		return errClosed
	}
	w := ep.w
	for {
		if ctx.Err() != nil {
			return ctxError(ctx, "nothing has come from "+ep.peer)
		}
		pending := false
		err := ep.w.lookFor(ep, func(spin C.uint32_t, over *C.tmsggo_over_t) error {
			r := C.tmsggo_recv_into(w.hub, ep.handle(), p.c, spin, over)
			pending = r.status == C.TMSG_CANCEL_PENDING
			return errOf(r)
		})
		p.pending = pending
		if !pending && (err == nil || !errors.Is(err, ErrTimedOut)) {
			return err
		}
		w.kickParked()
		if err := w.wait(ctx, C.TMSGGO_RECV, &ep.c); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
