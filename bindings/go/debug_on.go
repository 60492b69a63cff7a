// SPDX-License-Identifier: BSD-3-Clause

//go:build tmsgdebug

package tensormsg

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

const debugging = true

// With this tag the tensors of a message lie in pages of their own, which Close
// takes away: a slice that is used afterwards faults at once. The pages of a
// loan cannot be written to.
type debugged struct {
	pages [][]byte
	from  []uintptr // who received it
}

func (g *guard) born() {
	g.debug.from = make([]uintptr, 16)
	g.debug.from = g.debug.from[:runtime.Callers(3, g.debug.from)]
}

func (g *guard) kept(t Tensor) unsafe.Pointer {
	low, bytes := t.span()
	if bytes == 0 {
		return t.data
	}
	pages, err := syscall.Mmap(-1, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		panic("tensormsg: -tags tmsgdebug: no pages for a message: " + err.Error())
	}
	copy(pages, unsafe.Slice((*byte)(unsafe.Add(t.data, -low)), bytes))
	if g.lent {
		syscall.Mprotect(pages, syscall.PROT_READ)
	}
	g.debug.pages = append(g.debug.pages, pages)
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(pages)), low)
}

// How many bytes lie before the first element, and in all.
func (t Tensor) span() (low, bytes int64) {
	bits := int64(t.DType.Bits) * int64(t.DType.Lanes)
	if t.Strides == nil || t.Size() == 0 {
		return 0, (int64(t.Size())*bits + 7) / 8
	}
	high := int64(0)
	for i, extent := range t.Shape {
		if reach := (extent - 1) * t.Strides[i]; reach < 0 {
			low -= reach
		} else {
			high += reach
		}
	}
	return low * bits / 8, ((low+high+1)*bits + 7) / 8
}

// Addresses that were barred are not given out again for some time.
var barred struct {
	sync.Mutex
	pages [][]byte
}

const mostBarred = 4096

func (g *guard) bar() {
	barred.Lock()
	defer barred.Unlock()
	for _, pages := range g.debug.pages {
		syscall.Mprotect(pages, syscall.PROT_NONE)
		syscall.Madvise(pages, syscall.MADV_DONTNEED)
	}
	barred.pages = append(barred.pages, g.debug.pages...)
	for len(barred.pages) > mostBarred {
		syscall.Munmap(barred.pages[0])
		barred.pages = barred.pages[1:]
	}
}

func (g *guard) origin() string {
	var said strings.Builder
	frames := runtime.CallersFrames(g.debug.from)
	for {
		frame, more := frames.Next()
		fmt.Fprintf(&said, "\n\t%s\n\t\t%s:%d", frame.Function, frame.File, frame.Line)
		if !more {
			return "; it was received in" + said.String()
		}
	}
}
