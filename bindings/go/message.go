// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

// #include <stdlib.h>
// #include "hub.h"
import "C"

import (
	"log"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A Message is a map that has arrived, whole. Its tensors lie in memory of the
// library's, until Close; the methods of a message that is closed, and Data of
// its tensors, panic. A slice that Data has given must not be used any more
// then: it is raw memory, which others get.
//
// A message that is not closed is freed by the garbage collector, unless Data
// has given a slice of it, which the collector does not see.
type Message struct {
	in      *C.tmsg_map_t
	free    func()
	from    *Endpoint
	channel uint16
	tensors Map
	closed  atomic.Bool
	viewed  atomic.Bool
}

func newMessage(c *C.tmsg_message_t, from *Endpoint) *Message {
	m := newMap(C.tmsg_message_map(c), func() { C.tmsg_message_destroy(c) })
	m.from, m.channel = from, uint16(C.tmsg_message_channel(c))
	return m
}

func newMap(in *C.tmsg_map_t, free func()) *Message {
	m := &Message{in: in, free: free}
	count := int(C.tmsg_map_size(in))
	m.tensors = make(Map, count)
	if count > 0 {
		tensors := make([]C.tmsg_tensor_t, count)
		names := make([]*C.char, count)
		C.tmsggo_tensors(in, &tensors[0], &names[0])
		for i, t := range tensors {
			m.tensors[C.GoString(names[i])] = m.tensor(t)
		}
	}
	runtime.SetFinalizer(m, (*Message).collected)
	return m
}

func (m *Message) tensor(c C.tmsg_tensor_t) Tensor {
	t := Tensor{
		DType: DType{uint8(c.dtype.code), uint8(c.dtype.bits), uint16(c.dtype.lanes)},
		data:  c.data,
		owner: m,
	}
	t.Shape = append(t.Shape, unsafe.Slice((*int64)(c.shape), c.ndim)...)
	if c.strides != nil {
		t.Strides = append(t.Strides, unsafe.Slice((*int64)(c.strides), c.ndim)...)
	}
	if c.device._type != C.TMSG_DEVICE_CPU {
		t.err = fail(ErrUnsupported, "the tensor is in a device's memory")
	}
	return t
}

func (m *Message) open(what string) {
	if m.closed.Load() {
		panic("tensormsg: " + what + " of a closed Message")
	}
}

// Get gives the tensor of that name; without one its Data fails with
// ErrNotFound.
func (m *Message) Get(name string) Tensor {
	m.open("Get")
	t, found := m.tensors[name]
	if !found {
		t.err = fail(ErrNotFound, "the message "+m.tensors.String()+" has no tensor "+name)
	}
	return t
}

// Map gives all tensors, which can be sent on before Close.
func (m *Message) Map() Map {
	m.open("Map")
	return m.tensors
}

// Meta gives what came beside the tensors; nil where nothing did.
func (m *Message) Meta() Meta {
	m.open("Meta")
	var meta Meta
	for i := C.size_t(0); i < C.tmsg_map_meta_size(m.in); i++ {
		var key *C.char
		var v C.tmsg_meta_t
		if C.tmsg_map_meta_at(m.in, i, &key, &v) != C.TMSG_OK {
			break
		}
		if meta == nil {
			meta = Meta{}
		}
		switch v._type {
		case C.TMSG_META_TYPE_BOOL:
			meta[C.GoString(key)] = v.boolean != 0
		case C.TMSG_META_TYPE_I64:
			meta[C.GoString(key)] = int64(v.i64)
		case C.TMSG_META_TYPE_F64:
			meta[C.GoString(key)] = float64(v.f64)
		case C.TMSG_META_TYPE_STRING:
			meta[C.GoString(key)] = string(unsafe.Slice((*byte)(unsafe.Pointer(v.data)), v.bytes))
		case C.TMSG_META_TYPE_BYTES:
			meta[C.GoString(key)] = append([]byte{}, unsafe.Slice((*byte)(unsafe.Pointer(v.data)), v.bytes)...)
		}
	}
	runtime.KeepAlive(m)
	return meta
}

// Endpoint is the one that it came over, to answer the sender; nil of a call's
// map or reply.
func (m *Message) Endpoint() *Endpoint { return m.from }

// Channel is the one that it came on.
func (m *Message) Channel() uint16 { return m.channel }

// String gives names, dtypes and shapes.
func (m *Message) String() string {
	if m.closed.Load() {
		return "Message(closed)"
	}
	return "Message" + m.tensors.String()
}

// Close gives the memory back. Once; again does nothing. The error is nil.
func (m *Message) Close() error {
	if m.closed.CompareAndSwap(false, true) {
		runtime.SetFinalizer(m, nil)
		m.free()
	}
	return nil
}

var leaked sync.Once

func (m *Message) collected() {
	if !m.viewed.Load() {
		m.Close()
		return
	}
	leaked.Do(func() {
		log.Print("tensormsg: a Message was not closed, and slices of it were given out: its memory stays taken (this is said once)")
	})
}
