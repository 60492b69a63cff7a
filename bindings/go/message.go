// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

// #include <stdlib.h>
// #include "hub.h"
import "C"

import (
	"log/slog"
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
	*memory
	in      *C.tmsg_map_t
	from    *Endpoint
	channel uint16
	list    []named
	places  map[string]int // in list; nil: they are few
}

// What the tensors of a message lie in. The message and its tensors point to it.
type memory struct {
	*guard
	holds  atomic.Int32 // of the message, and of what sends its tensors
	closed atomic.Bool
}

// What frees the memory, also where nobody has closed the message: then the
// garbage collector finds it. It points to neither message nor memory, for in a
// cycle none would be freed. Guards are used again: to set a finalizer, and to
// take it back, takes as long as a small message.
type guard struct {
	free   func() // nil: it guards nothing
	lent   bool
	into   *Prepared // whose slices it is
	viewed atomic.Bool
	debug  debugged
}

var guards = sync.Pool{New: func() any {
	g := new(guard)
	runtime.SetFinalizer(g, (*guard).collected)
	return g
}}

type named struct {
	name   string
	tensor Tensor
}

func newMessage(r *C.tmsggo_received_t, from *Endpoint) *Message {
	c := r.message
	m := newMap(r._map, r.is_lent != 0, func() { C.tmsg_message_destroy(c) })
	m.from, m.channel = from, uint16(r.channel)
	return m
}

var shows = sync.Pool{New: func() any { return new(C.tmsggo_shown_t) }}

func newMap(in *C.tmsg_map_t, lent bool, free func()) *Message {
	m := &Message{memory: &memory{guard: guards.Get().(*guard)}, in: in}
	m.free, m.lent = free, lent
	m.holds.Store(1)
	m.born()
	shown := shows.Get().(*C.tmsggo_shown_t)
	C.tmsggo_show(in, 0, shown)
	count := int(shown.count)
	m.list = make([]named, 0, count)
	for {
		m.add(shown, min(count-len(m.list), C.TMSGGO_SHOWN))
		*shown = C.tmsggo_shown_t{} // cgo wants no pointer in it
		if len(m.list) == count {
			break
		}
		C.tmsggo_show(in, C.size_t(len(m.list)), shown)
	}
	shows.Put(shown)
	if count > C.TMSGGO_SHOWN {
		m.places = make(map[string]int, count)
		for i := range m.list {
			m.places[m.list[i].name] = i
		}
	}
	return m
}

// Adds tensors with two allocations: of their names and of their shapes.
func (m *Message) add(shown *C.tmsggo_shown_t, count int) {
	var room [256]byte
	bytes, dims := room[:0], 0
	for i := 0; i < count; i++ {
		bytes = append(bytes, unsafe.Slice((*byte)(unsafe.Pointer(shown.names[i])), shown.name_bytes[i])...)
		dims += int(shown.tensors[i].ndim)
		if shown.tensors[i].strides != nil {
			dims += int(shown.tensors[i].ndim)
		}
	}
	names, all := string(bytes), make([]int64, 0, dims)
	cut := func(from *C.int64_t, count C.int32_t) []int64 {
		first := len(all)
		all = append(all, unsafe.Slice((*int64)(from), count)...)
		return all[first:len(all):len(all)]
	}
	for i := 0; i < count; i++ {
		c := &shown.tensors[i]
		t := Tensor{
			DType: DType{uint8(c.dtype.code), uint8(c.dtype.bits), uint16(c.dtype.lanes)},
			owner: m.memory,
		}
		if c.ndim > 0 {
			t.Shape = cut(c.shape, c.ndim)
		}
		if c.strides != nil {
			t.Strides = cut(c.strides, c.ndim)
		}
		if c.device._type != C.TMSG_DEVICE_CPU {
			t.there = &place{device: deviceOf(c.device), address: uintptr(c.data)}
		}
		if t.Device().readable() {
			t.data = c.data
			t.data = m.kept(t)
		}
		m.list = append(m.list, named{names[:shown.name_bytes[i]], t})
		names = names[shown.name_bytes[i]:]
	}
}

func (m *memory) open(what string) {
	if m.closed.Load() {
		panic("tensormsg: " + what + " of a closed Message")
	}
}

// Get gives the tensor of that name; without one its Data fails with
// ErrNotFound.
func (m *Message) Get(name string) Tensor {
	m.open("Get")
	if i, found := m.places[name]; found {
		return m.list[i].tensor
	}
	for i := range m.list {
		if m.places == nil && m.list[i].name == name {
			return m.list[i].tensor
		}
	}
	return Tensor{err: fail(ErrNotFound, "the message "+m.all().String()+" has no tensor "+name)}
}

// Names gives the names of the tensors in the order in which they came.
func (m *Message) Names() []string {
	m.open("Names")
	names := make([]string, len(m.list))
	for i := range m.list {
		names[i] = m.list[i].name
	}
	return names
}

// Map gives all tensors, which can be sent on. If Close is called meanwhile, the
// memory is given back when the send has ended.
func (m *Message) Map() Map {
	m.open("Map")
	return m.all()
}

func (m *Message) all() Map {
	all := make(Map, len(m.list))
	for i := range m.list {
		all[m.list[i].name] = m.list[i].tensor
	}
	return all
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
		name := metaName(C.GoString(key))
		switch v._type {
		case C.TMSG_META_TYPE_BOOL:
			meta[name] = v.boolean != 0
		case C.TMSG_META_TYPE_I64:
			meta[name] = int64(v.i64)
		case C.TMSG_META_TYPE_F64:
			meta[name] = float64(v.f64)
		case C.TMSG_META_TYPE_STRING:
			meta[name] = string(unsafe.Slice((*byte)(unsafe.Pointer(v.data)), v.bytes))
		case C.TMSG_META_TYPE_BYTES:
			meta[name] = append([]byte{}, unsafe.Slice((*byte)(unsafe.Pointer(v.data)), v.bytes)...)
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
	return "Message" + m.all().String()
}

// Close gives the memory back. Once; again does nothing. The error is nil.
func (m *Message) Close() error {
	m.release()
	return nil
}

func (m *memory) release() {
	if m.closed.CompareAndSwap(false, true) {
		m.drop()
	}
}

// Keeps the memory of a tensor that is sent, whoever closes its message. nil: it
// is none of a message.
func (m *memory) hold() {
	if m == nil {
		return
	}
	m.open("its tensor")
	for {
		n := m.holds.Load()
		if n == 0 {
			m.open("its tensor")
		}
		if n > 0 && m.holds.CompareAndSwap(n, n+1) {
			return
		}
	}
}

func (m *memory) drop() {
	if m != nil && m.holds.Add(-1) == 0 {
		g := m.guard
		m.guard = nil // this one may live on, and its guard has another then
		g.bar()
		g.free()
		g.free, g.into, g.lent, g.debug = nil, nil, false, debugged{}
		g.viewed.Store(false)
		guards.Put(g)
	}
}

var dropped struct {
	freed, leaked atomic.Uint64
	once          sync.Once
}

// Dropped says how many messages of this process nobody closed: those that the
// garbage collector has freed, and those whose memory stays taken, for Data had
// given slices of them. The first of these is logged.
func Dropped() (freed, leaked uint64) { return dropped.freed.Load(), dropped.leaked.Load() }

func (g *guard) collected() {
	if g.free == nil {
		return
	}
	if !g.viewed.Load() {
		dropped.freed.Add(1)
		g.bar()
		g.free()
		return
	}
	dropped.leaked.Add(1)
	dropped.once.Do(func() {
		say(slog.LevelWarn, "a Message was not closed, and slices of it were given out: its memory stays taken (this is said once, and Dropped counts)"+g.origin())
	})
}
