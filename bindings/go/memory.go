// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include "memory.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

// A block of the library's memory, which the garbage collector does not know.
type block struct {
	mu sync.RWMutex
	at C.uintptr_t // 0: closed
}

func newBlock(bytes uint64, device Device) (*block, error) {
	params := C.tmsg_shareable_params_t{}
	if device != (Device{}) {
		params.field_mask = C.TMSG_SHAREABLE_PARAM_DEVICE
		params.device = device.c()
	}
	b := &block{}
	if err := errOf(C.tmsggo_alloc(C.uint64_t(bytes), params, &b.at)); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *block) address(what string) uintptr {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.at == 0 {
		panic("tensormsg: " + what + " of a closed Buffer")
	}
	return uintptr(b.at)
}

func (b *block) lent() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.at != 0 && C.tmsggo_is_lent(b.at) != 0
}

func (b *block) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at == 0 {
		return nil
	}
	at := b.at
	b.at = 0
	return errOf(C.tmsggo_free(at))
}

// A Buffer is memory of C's, all zeros at first: it never moves, Go gives none
// of it back to the system, and it can be lent to peers (Lend, OfferLend). It
// takes whole pages and a descriptor, so that few large ones do better than
// many small ones. It is the caller's until Close: one that is dropped stays.
type Buffer[T Element] struct {
	block *block
	slice []T
}

// Alloc allocates a Buffer of count elements. Fails with ErrInvalidParam (0
// elements), ErrNoMemory, ErrLimitExceeded (of descriptors or of a file's size)
// and ErrUnsupported (the process may not make such memory).
func Alloc[T Element](count int) (*Buffer[T], error) {
	var element T
	size := uint64(unsafe.Sizeof(element))
	if count < 1 || uint64(count) > (1<<62)/size {
		return nil, fail(ErrInvalidParam, fmt.Sprintf("a Buffer of %d elements", count))
	}
	b, err := newBlock(uint64(count)*size, Device{})
	if err != nil {
		return nil, err
	}
	at := uintptr(b.at)
	return &Buffer[T]{b, unsafe.Slice(*(**T)(unsafe.Pointer(&at)), count)}, nil
}

// Slice gives the elements. They must not be used any more after Close: it
// panics then, and a slice that it gave before faults.
func (b *Buffer[T]) Slice() []T {
	b.block.address("Slice")
	return b.slice
}

// Tensor is Of(b.Slice(), shape...).
func (b *Buffer[T]) Tensor(shape ...int) Tensor { return Of(b.Slice(), shape...) }

// Lent says whether a peer may read the memory, which must not be changed then.
// Without a send or an offer of it that goes on it stays free.
func (b *Buffer[T]) Lent() bool { return b.block.lent() }

// Close gives the memory back. Sends, offers and receives of it have ended
// before. Peers that were lent it keep their views. Again does nothing.
func (b *Buffer[T]) Close() error { return b.block.close() }

// A DeviceBuffer is memory of a device, which a process on the same machine and
// GPU can read without a copy at the sender. It is the caller's until Close.
type DeviceBuffer struct {
	block  *block
	device Device
	bytes  uint64
}

// AllocOn allocates a DeviceBuffer of that many bytes. Fails with ErrNotFound
// (no such device), ErrUnsupported (it has no such memory, or no driver works)
// and ErrNoMemory.
func AllocOn(device Device, bytes int) (*DeviceBuffer, error) {
	if device.readable() || bytes < 1 {
		return nil, fail(ErrInvalidParam, fmt.Sprintf("a DeviceBuffer of %d bytes on %v", bytes, device))
	}
	b, err := newBlock(uint64(bytes), device)
	if err != nil {
		return nil, err
	}
	return &DeviceBuffer{b, device, uint64(bytes)}, nil
}

// Tensor describes its memory from the begin on. A tensor that does not fit in
// is an error of the call that sends it.
func (b *DeviceBuffer) Tensor(dtype DType, shape ...int) Tensor {
	t := OnDevice(b.device, dtype, b.block.address("Tensor"), shape...)
	if need := uint64(t.bytes()); t.err == nil && need > b.bytes {
		t.err = fail(ErrInvalidParam, fmt.Sprintf("%v takes %d bytes, the DeviceBuffer has %d", t, need, b.bytes))
	}
	return t
}

// Address is where the memory begins on its device.
func (b *DeviceBuffer) Address() uintptr { return b.block.address("Address") }

// Close gives the memory back. Sends and receives of it have ended before. Again
// does nothing.
func (b *DeviceBuffer) Close() error { return b.block.close() }
