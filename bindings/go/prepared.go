// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "offers.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"
)

// A Prepared is a map for a loop, which sends it or receives into it again and
// again: its slices stay pinned, and a send allocates nothing. By one goroutine
// at a time. One that is dropped without Close is freed by the garbage
// collector.
type Prepared struct {
	mu      sync.Mutex
	c       *C.tmsg_map_t    // nil: closed
	into    *C.tmsggo_into_t // the same tensors, to be received into. nil: not yet
	intoMap *C.tmsg_map_t    // its map
	options sendOptions
	index   map[string]int
	names   []string // as tensors
	tensors []Tensor
	pins    []runtime.Pinner
	posts   C.int // into: it is large enough to do without a copy
}

const postBytes = 65536

// Prepare makes one of a map, to be sent with these options. Fails as Send does
// with what is wrong in the map.
func Prepare(m Map, options ...SendOption) (*Prepared, error) {
	p := &Prepared{index: map[string]int{}, pins: make([]runtime.Pinner, len(m))}
	for _, option := range options {
		option.toSend(&p.options)
	}
	f := flats.Get().(*flat)
	defer f.free()
	var err error
	if p.c, err = f.build(m, p.options.meta); err != nil {
		return nil, err
	}
	// It runs before the Pinners', which panic where something is pinned.
	runtime.SetFinalizer(p, (*Prepared).Close)
	freeLate()
	p.names = sorted(m)
	for i, name := range p.names {
		m[name].owner.hold()
		p.index[name] = i
		p.tensors = append(p.tensors, m[name])
		if m[name].Size() > 0 {
			m[name].pinned(&p.pins[i])
		}
	}
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
	t.owner.hold()
	unused := t.owner
	defer func() { unused.drop() }()
	if t.err != nil {
		return t.err
	}
	was := p.tensors[i]
	if !slices.Equal(was.Shape, t.Shape) || !slices.Equal(was.Strides, t.Strides) || was.DType != t.DType || was.Device().c() != t.Device().c() {
		return fail(ErrInvalidParam, fmt.Sprintf("tensor %q was prepared as %v on %v with the strides %v, not as %v on %v with %v",
			name, was, was.Device(), was.Strides, t, t.Device(), t.Strides))
	}
	if t.Size() == 0 {
		return nil
	}
	var pins runtime.Pinner
	t.pinned(&pins)
	if err := p.point(i, t); err != nil {
		p.point(i, p.tensors[i])
		pins.Unpin()
		return err
	}
	p.pins[i].Unpin()
	p.pins[i], p.tensors[i], unused = pins, t, was.owner
	return nil
}

func (p *Prepared) point(i int, t Tensor) error {
	data := t.at()
	if p.into != nil {
		if err := errOf(C.tmsggo_into_set(p.into, C.size_t(i), data, t.stream())); err != nil {
			return err
		}
	}
	return errOf(C.tmsggo_set(p.c, C.size_t(i), data, t.stream()))
}

// With mu: the map to receive into.
func (p *Prepared) receiver() (*C.tmsg_map_t, error) {
	if p.c == nil {
		return nil, errClosed
	}
	if p.into == nil {
		f := flats.Get().(*flat)
		defer f.free()
		bytes := 0
		for i, name := range p.names {
			if err := f.add(name, p.tensors[i]); err != nil {
				return nil, err
			}
			bytes += p.tensors[i].bytes()
		}
		if bytes >= postBytes {
			p.posts = 1
		}
		err := errOf(C.tmsggo_into_create(unsafe.SliceData(f.tensors), C.size_t(len(f.tensors)),
			(*C.int64_t)(unsafe.SliceData(f.dims)), (*C.char)(unsafe.Pointer(unsafe.SliceData(f.bytes))), &p.into))
		if err != nil {
			return nil, err
		}
		p.intoMap = C.tmsggo_into_map(p.into)
	}
	return p.intoMap, nil
}

// Begins what receives into the map; nil: into none.
func (p *Prepared) lend(begin func(into *C.tmsg_map_t) error) error {
	if p == nil {
		return begin(nil)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	into, err := p.receiver()
	if err != nil {
		return err
	}
	return begin(into)
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
	if p.into != nil {
		C.tmsggo_into_leave(p.into)
		if C.tmsggo_into_is_lent(p.into) != 0 {
			late.Lock()
			late.all = append(late.all, p)
			late.Unlock()
			return nil
		}
	}
	p.unpin()
	return nil
}

// With mu. Nothing writes to the slices any more.
func (p *Prepared) unpin() {
	if p.into != nil {
		C.tmsggo_into_free(p.into)
		p.into = nil
	}
	for i := range p.pins {
		p.pins[i].Unpin()
	}
	for _, t := range p.tensors {
		t.owner.drop()
	}
}

// Those that were closed while a message was on its way into them.
var late struct {
	sync.Mutex
	all []*Prepared
}

func freeLate() {
	late.Lock()
	defer late.Unlock()
	still := late.all[:0]
	for _, p := range late.all {
		if C.tmsggo_into_is_lent(p.into) != 0 {
			still = append(still, p)
		} else {
			p.unpin()
		}
	}
	clear(late.all[len(still):])
	late.all = still
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

// RecvInto receives the next message into the slices of a prepared map, without
// a copy if it arrives while this waits and is large. Tensors that are only in
// one of them are left out. Fails as Recv does, and with ErrInvalidParam where a
// tensor has another dtype or shape, which is named; then the message stays, and
// the next receive gets it. A receive that was given up may have written into
// the slices, and may do so until the next one.
func (ep *Endpoint) RecvInto(ctx context.Context, p *Prepared) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	into, err := p.receiver()
	if err != nil {
		return err
	}
	w := ep.w
	defer func() {
		if err != nil {
			w.passOn()
		}
	}()
	here := false
	look := func(spin C.uint32_t, over *C.tmsggo_over_t) error {
		r := C.tmsggo_recv_into(w.hub, ep.handle(), into, p.posts, spin, over)
		here = r.status != C.TMSG_CANCEL_PENDING && r.status != C.TMSG_ERR_TIMED_OUT
		return errOf(r)
	}
	for {
		if ctx.Err() != nil {
			return ctxError(ctx, "nothing has come from "+ep.peer)
		}
		if err := w.lookFor(ep, look); here || errors.Is(err, ErrClosed) {
			return err
		}
		w.kickParked()
		var said error
		err := w.waitBy(ctx, C.TMSGGO_RECV, &ep.c, func(over *C.tmsggo_over_t) bool {
			if ep.c != nil {
				said = look(spinUS, over)
			}
			return here
		})
		if here {
			return said
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}
