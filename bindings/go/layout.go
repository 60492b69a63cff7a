// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"runtime"
	"slices"
	"unsafe"
)

// A map of the library's that is kept for the next one of the same names,
// dtypes and shapes. Tensors of a few bytes are copied into a block of its own,
// which takes a tenth of the time that it takes to pin them.
type layout struct {
	made    *C.tmsg_map_t
	tensors []C.tmsggo_tensor_t // data: 0
	dims    []int64
	bytes   []byte
	block   unsafe.Pointer // of C, blockBytes long
}

const (
	smallBytes = 1024  // a tensor that is copied, at most,
	blockBytes = 16384 // and all of them
	alignment  = 64
)

// Like build, but the map is that of f, until free(). What `stays` is lent where
// it lies.
func (f *flat) ready(m Map, meta Meta, stays bool) (*C.tmsg_map_t, error) {
	if len(meta) > 0 || stays || onDevice(m) {
		made, err := f.build(m, meta)
		f.once = made
		return made, err
	}
	if f.kept.block == nil {
		f.kept.block = C.malloc(blockBytes)
		runtime.SetFinalizer(f, (*flat).drop)
	}
	f.block = f.kept.block
	defer func() { f.block = nil }()
	if err := f.addAll(m); err != nil {
		return nil, err
	}
	if !f.kept.like(f) {
		C.tmsg_map_destroy(f.kept.made)
		f.kept.made = nil
		made, err := f.make()
		if err != nil {
			return nil, err
		}
		f.kept.keep(f, made)
	} else if f.pinned && C.tmsggo_point(f.kept.made, unsafe.SliceData(f.tensors), C.size_t(len(f.tensors))) != C.TMSG_OK {
		f.kept.tensors = nil // somebody holds it
		made, err := f.make()
		f.once = made
		return made, err
	}
	return f.kept.made, nil
}

func onDevice(m Map) bool {
	for _, t := range m {
		if t.there != nil {
			return true
		}
	}
	return false
}

func (t Tensor) bytes() int { return (t.Size()*int(t.DType.Bits)*int(t.DType.Lanes) + 7) / 8 }

// The place in the block for a tensor that is copied there; nil: it is pinned.
func (f *flat) place(t Tensor) []byte {
	if f.block == nil || t.Strides != nil {
		return nil
	}
	bytes := t.bytes()
	end := f.used + bytes
	if bytes > smallBytes || end > blockBytes {
		return nil
	}
	place := unsafe.Slice((*byte)(unsafe.Add(f.block, f.used)), bytes)
	f.used = (end + alignment - 1) &^ (alignment - 1)
	return place
}

func (k *layout) like(f *flat) bool {
	if k.made == nil || len(k.tensors) != len(f.tensors) || !slices.Equal(k.dims, f.dims) || string(k.bytes) != string(f.bytes) {
		return false
	}
	for i := range k.tensors {
		t := f.tensors[i]
		t.data = 0
		if t != k.tensors[i] {
			return false
		}
	}
	return true
}

func (k *layout) keep(f *flat, made *C.tmsg_map_t) {
	k.made = made
	k.tensors = append(k.tensors[:0], f.tensors...)
	for i := range k.tensors {
		k.tensors[i].data = 0
	}
	k.dims = append(k.dims[:0], f.dims...)
	k.bytes = append(k.bytes[:0], f.bytes...)
}

func (f *flat) drop() {
	C.tmsg_map_destroy(f.kept.made)
	C.free(f.kept.block)
}
