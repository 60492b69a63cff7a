// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"unsafe"
)

// A Tensor says where elements lie and what they are. It owns nothing: the
// elements are those of the slice that it was made of, or of the message that
// it came in.
type Tensor struct {
	DType   DType
	Shape   []int64
	Strides []int64 // in elements; nil: C order

	data  unsafe.Pointer
	elems int64 // that the slice has, from data on
	owner *memory
	there *place // nil: in the host's memory
	err   error
}

// A Map is what a message carries: tensors by name. They travel in the order
// of their names.
type Map map[string]Tensor

// Of describes the elements of data, in C order, with that shape; without one
// it is of one dimension. Nothing is copied: data may be changed when the call
// that sends it has returned. A shape of another size than len(data) is an
// error of that call.
func Of[T Element](data []T, shape ...int) Tensor {
	t := Tensor{DType: DTypeOf[T](), data: unsafe.Pointer(unsafe.SliceData(data)), elems: int64(len(data))}
	if len(shape) == 0 {
		t.Shape = []int64{t.elems}
	} else {
		t.setShape(shape)
	}
	return t
}

// Scalar is a tensor of no dimension, with a copy of value.
func Scalar[T Element](value T) Tensor {
	return Tensor{DType: DTypeOf[T](), data: unsafe.Pointer(&value), elems: 1}
}

// Raw describes elements of a dtype that Go has no type for, packed in C order
// in data.
func Raw(dtype DType, data []byte, shape ...int) Tensor {
	t := Tensor{DType: dtype, data: unsafe.Pointer(unsafe.SliceData(data))}
	t.elems = int64(len(data))
	if bits := int64(dtype.Bits) * int64(dtype.Lanes); bits > 0 {
		t.elems = 8 * t.elems / bits
	}
	t.setShape(shape)
	return t
}

func (t *Tensor) setShape(shape []int) {
	t.Shape = make([]int64, len(shape))
	size := int64(1)
	for i, extent := range shape {
		t.Shape[i] = int64(extent)
		if extent < 0 {
			t.err = fail(ErrInvalidParam, fmt.Sprintf("the extent %d is negative", extent))
			return
		}
		if extent > 0 && size > (1<<62)/int64(extent) {
			t.err = fail(ErrLimitExceeded, fmt.Sprintf("the shape %v has too many elements", shape))
			return
		}
		size *= int64(extent)
	}
	if t.elems < 0 { // as many as the shape says
		t.elems = size
	}
	if size != t.elems && !(t.DType.Bits < 8 && size < t.elems) {
		t.err = fail(ErrInvalidParam, fmt.Sprintf("the shape %v has %d elements, the slice %d", shape, size, t.elems))
	}
}

// WithStrides gives the same elements in another order: strides are in
// elements, from the first one on, and not negative. What would lie beyond the
// slice is an error of the call that sends it. The shape is then another one,
// too.
func (t Tensor) WithStrides(shape, strides []int) Tensor {
	if t.err != nil {
		return t
	}
	t.Shape, t.Strides = make([]int64, len(shape)), make([]int64, len(strides))
	if len(shape) != len(strides) {
		t.err = fail(ErrInvalidParam, fmt.Sprintf("%d extents, but %d strides", len(shape), len(strides)))
		return t
	}
	last, empty := int64(0), false
	for i, extent := range shape {
		t.Shape[i], t.Strides[i] = int64(extent), int64(strides[i])
		if extent < 0 || strides[i] < 0 {
			t.err = fail(ErrInvalidParam, fmt.Sprintf("the shape %v or the strides %v have a negative number", shape, strides))
			return t
		}
		if extent == 0 {
			empty = true
		} else if strides[i] > 0 && int64(extent-1) > (t.elems-1-last)/int64(strides[i]) {
			last = t.elems // beyond it
		} else {
			last += int64(extent-1) * int64(strides[i])
		}
	}
	if !empty && last >= t.elems {
		t.err = fail(ErrInvalidParam, fmt.Sprintf("the shape %v with the strides %v goes beyond the slice of %d elements",
			shape, strides, t.elems))
	}
	return t
}

// Size is the number of elements.
func (t Tensor) Size() int {
	size := 1
	for _, extent := range t.Shape {
		size *= int(extent)
	}
	return size
}

// String gives dtype and shape: "float32[3 480 640]".
func (t Tensor) String() string {
	return fmt.Sprintf("%v%v", t.DType, t.Shape)
}

// String gives names, dtypes and shapes: "{ids: int64[2], image: uint8[480 640]}".
func (m Map) String() string {
	words := make([]string, 0, len(m))
	for _, name := range sorted(m) {
		words = append(words, name+": "+m[name].String())
	}
	return "{" + strings.Join(words, ", ") + "}"
}

// Another order would be another layout, which the peer has to learn anew.
func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Data gives the elements of a tensor in C order, as they lie: no copy. Of a
// received tensor they are valid until its message is closed; Clone keeps them
// longer. Fails with ErrInvalidParam (T is not its dtype) and with
// ErrUnsupported (its order is another one, for which there is Clone).
func Data[T Element](t Tensor) ([]T, error) {
	if err := readable[T](t); err != nil {
		return nil, err
	}
	if !t.inOrder() {
		return nil, fail(ErrUnsupported, fmt.Sprintf("the elements of %v have the strides %v: Clone puts them in order", t, t.Strides))
	}
	if t.owner != nil {
		t.owner.viewed.Store(true)
	}
	return unsafe.Slice((*T)(t.data), t.Size()), nil
}

// Clone copies the elements of a tensor in C order, whatever their strides.
// Fails with ErrInvalidParam (T is not its dtype).
func Clone[T Element](t Tensor) ([]T, error) {
	if err := readable[T](t); err != nil {
		return nil, err
	}
	to := make([]T, t.Size())
	if len(to) == 0 {
		return to, nil
	}
	if t.inOrder() {
		copy(to, unsafe.Slice((*T)(t.data), len(to)))
	} else {
		gather(to, (*T)(t.data), t.Shape, t.Strides)
	}
	runtime.KeepAlive(t.owner)
	return to, nil
}

func gather[T any](to []T, from *T, shape, strides []int64) {
	if len(shape) == 0 {
		to[0] = *from
		return
	}
	part := int64(len(to)) / shape[0]
	for i := int64(0); i < shape[0]; i++ {
		at := (*T)(unsafe.Add(unsafe.Pointer(from), i*strides[0]*int64(unsafe.Sizeof(*from))))
		gather(to[i*part:(i+1)*part], at, shape[1:], strides[1:])
	}
}

func readable[T Element](t Tensor) error {
	if t.owner != nil {
		t.owner.open("its tensor")
	}
	if t.err != nil {
		return t.err
	}
	if !t.Device().readable() {
		return fail(ErrUnsupported, fmt.Sprintf("the tensor is in the memory of %v, which the CPU does not read", t.Device()))
	}
	if want := DTypeOf[T](); want != t.DType {
		return fail(ErrInvalidParam, fmt.Sprintf("the tensor is %v, not %v", t.DType, want))
	}
	return nil
}

func (t Tensor) inOrder() bool {
	if t.Strides == nil {
		return true
	}
	step := int64(1)
	for i := len(t.Shape) - 1; i >= 0; i-- {
		if t.Shape[i] == 0 {
			return true
		}
		if t.Shape[i] != 1 && t.Strides[i] != step {
			return false
		}
		step *= t.Shape[i]
	}
	return true
}

// A Meta is what travels beside the tensors: values of bool, int64 (or int),
// float64, string and []byte. Some keys have a meaning: MetaFrame and others.
type Meta map[string]any

// A map as C takes it: no pointer of Go's in it. What the tensors point to is
// pinned until free().
type flat struct {
	tensors []C.tmsggo_tensor_t
	dims    []int64
	metas   []C.tmsggo_meta_t
	bytes   []byte
	names   []string
	pins    runtime.Pinner
	owners  []*memory      // that are held
	pinned  bool           // something is
	block   unsafe.Pointer // where small tensors are copied to, if it is not nil
	used    int            // bytes of it
	once    *C.tmsg_map_t  // that free() destroys
	kept    layout
}

var flats = sync.Pool{New: func() any { return new(flat) }}

func (f *flat) text(text string) C.uint64_t {
	at := len(f.bytes)
	f.bytes = append(append(f.bytes, text...), 0)
	return C.uint64_t(at)
}

func badName(kind, name string) error {
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		return fail(ErrInvalidParam, fmt.Sprintf("%s %q is empty or has a NUL", kind, name))
	}
	return nil
}

func (f *flat) add(name string, t Tensor) error {
	if err := badName("the tensor's name", name); err != nil {
		return err
	}
	t.owner.hold()
	if t.owner != nil {
		f.owners = append(f.owners, t.owner)
	}
	if t.err != nil {
		e := t.err.(*Error)
		return fail(e.Status, fmt.Sprintf("tensor %q: %s", name, e.Words))
	}
	c := C.tmsggo_tensor_t{
		device: t.Device().c(),
		stream: t.stream(),
		dtype:  t.DType.c(),
		ndim:   C.int32_t(len(t.Shape)),
		name:   f.text(name),
		dims:   C.uint64_t(len(f.dims)),
	}
	f.dims = append(f.dims, t.Shape...)
	if t.Strides != nil {
		c.strided = 1
		f.dims = append(f.dims, t.Strides...)
	}
	if place := f.place(t); len(place) > 0 {
		copy(place, unsafe.Slice((*byte)(t.data), len(place)))
		c.data = C.uintptr_t(uintptr(unsafe.Pointer(&place[0])))
	} else if t.Size() > 0 {
		c.data = t.pinned(&f.pins)
		f.pinned = true
	}
	f.tensors = append(f.tensors, c)
	return nil
}

// Where a tensor with elements lies, which does not move any more.
func (t Tensor) pinned(pins *runtime.Pinner) C.uintptr_t {
	if t.data != nil {
		pin(pins, t.data)
	}
	return t.at()
}

func (t Tensor) at() C.uintptr_t {
	if t.data == nil && t.there != nil {
		return C.uintptr_t(t.there.address)
	}
	return C.uintptr_t(uintptr(t.data))
}

func (f *flat) addMeta(key string, value any) error {
	if err := badName("the key", key); err != nil {
		return err
	}
	c := C.tmsggo_meta_t{key: f.text(key)}
	switch v := value.(type) {
	case bool:
		c._type = C.TMSG_META_TYPE_BOOL
		if v {
			c.boolean = 1
		}
	case int:
		c._type, c.i64 = C.TMSG_META_TYPE_I64, C.int64_t(v)
	case int64:
		c._type, c.i64 = C.TMSG_META_TYPE_I64, C.int64_t(v)
	case float64:
		c._type, c.f64 = C.TMSG_META_TYPE_F64, C.double(v)
	case string:
		c._type, c.data, c.data_bytes = C.TMSG_META_TYPE_STRING, f.text(v), C.uint64_t(len(v))
	case []byte:
		c._type, c.data, c.data_bytes = C.TMSG_META_TYPE_BYTES, f.text(string(v)), C.uint64_t(len(v))
	default:
		return fail(ErrInvalidParam, fmt.Sprintf("the value of %q is a %T: it can be a bool, an int, an int64, a float64, a string or a []byte", key, value))
	}
	f.metas = append(f.metas, c)
	return nil
}

// Pins what m points to, and builds the library's map of it. free() follows.
func (f *flat) build(m Map, meta Meta) (*C.tmsg_map_t, error) {
	if err := f.addAll(m); err != nil {
		return nil, err
	}
	for _, key := range sorted(meta) {
		if err := f.addMeta(metaKey(key), meta[key]); err != nil {
			return nil, err
		}
	}
	return f.make()
}

func (f *flat) addAll(m Map) error {
	added := false
	defer func() {
		if !added { // a tensor of a closed message panics, and Pinners may not be lost
			f.unpin()
		}
	}()
	f.names = f.names[:0]
	for name := range m {
		f.names = append(f.names, name)
	}
	slices.Sort(f.names)
	for _, name := range f.names {
		if err := f.add(name, m[name]); err != nil {
			return err
		}
	}
	added = true
	return nil
}

func (f *flat) make() (*C.tmsg_map_t, error) {
	var made *C.tmsg_map_t
	err := errOf(C.tmsggo_map(unsafe.SliceData(f.tensors), C.size_t(len(f.tensors)),
		(*C.int64_t)(unsafe.SliceData(f.dims)), unsafe.SliceData(f.metas), C.size_t(len(f.metas)),
		(*C.char)(unsafe.Pointer(unsafe.SliceData(f.bytes))), &made))
	return made, err
}

func (f *flat) unpin() {
	if f.pinned {
		f.pins.Unpin()
		f.pinned = false
	}
	for i, owner := range f.owners {
		owner.drop()
		f.owners[i] = nil
	}
	f.owners = f.owners[:0]
}

func (f *flat) free() {
	f.unpin()
	if f.once != nil {
		C.tmsg_map_destroy(f.once)
	}
	f.tensors, f.dims, f.metas, f.bytes = f.tensors[:0], f.dims[:0], f.metas[:0], f.bytes[:0]
	f.used, f.once = 0, nil
	flats.Put(f)
}
