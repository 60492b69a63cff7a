// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "publisher.h"
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// The details of a handler's failure, in Go's memory; nil: there are none.
func detailsOf(c *C.tmsg_map_t) Map {
	count := C.tmsg_map_size(c)
	if count == 0 {
		return nil
	}
	m := make(Map, count)
	for i := C.size_t(0); i < count; i++ {
		var name *C.char
		var tensor C.tmsg_tensor_t
		if C.tmsg_map_at(c, i, &name, &tensor) == C.TMSG_OK {
			m[C.GoString(name)] = copied(&tensor)
		}
	}
	return m
}

// A tensor's copy in C order, in memory of Go's.
func copied(c *C.tmsg_tensor_t) Tensor {
	t := Tensor{DType: DType{uint8(c.dtype.code), uint8(c.dtype.bits), uint16(c.dtype.lanes)}}
	t.Shape = append(t.Shape, unsafe.Slice((*int64)(c.shape), c.ndim)...)
	t.elems = int64(t.Size())
	var bytes C.uint64_t
	if t.err = errOf(C.tmsggo_tensor_bytes(c, &bytes)); t.err == nil && bytes > 0 {
		words := make([]uint64, (bytes+7)/8)
		t.data = unsafe.Pointer(unsafe.SliceData(words))
		t.err = errOf(C.tmsggo_tensor_pack(c, t.data))
	}
	return t
}

// What a peer is told of a handler's error, with its details in C, which are
// destroyed by the caller; nil: there are none.
func (m method) failure(err error) (said *Error, details *C.tmsg_map_t) {
	said = failure(err)
	if len(said.Details) == 0 {
		return said, nil
	}
	f := flats.Get().(*flat)
	defer f.free()
	made, err := m.build(f, said.Details, "the details")
	if err == nil {
		err = errOf(C.tmsggo_copy(made, &details))
		C.tmsg_map_destroy(made)
	}
	runtime.KeepAlive(said.Details)
	if err != nil {
		said = failure(err)
	}
	return said, details
}
