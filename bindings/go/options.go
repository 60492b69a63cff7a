// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

// What options give to one call of C: texts and structures in C memory, which
// free() takes back, and the first mistake.
type given struct {
	memory []unsafe.Pointer
	err    error
}

func (g *given) free() {
	for _, memory := range g.memory {
		C.free(memory)
	}
}

func (g *given) wrong(option, words string, values ...any) {
	if g.err == nil {
		g.err = fail(ErrInvalidParam, option+": "+fmt.Sprintf(words, values...))
	}
}

func (g *given) text(option, text string) *C.char {
	if strings.IndexByte(text, 0) >= 0 {
		g.wrong(option, "it has a NUL")
	}
	c := C.CString(text)
	g.memory = append(g.memory, unsafe.Pointer(c))
	return c
}

func (g *given) principals(option string, names []string) *C.char {
	for _, name := range names {
		if name == "" || strings.Contains(name, " ") {
			g.wrong(option, "%q is empty or has a space", name)
		}
	}
	return g.text(option, strings.Join(names, " "))
}

func (g *given) count(option string, n int) C.uint32_t {
	if n < 0 || int64(n) > math.MaxUint32 {
		g.wrong(option, "%d is not a number from 0 to %d", n, uint32(math.MaxUint32))
	}
	return C.uint32_t(n)
}

// Milliseconds: what is not 0 does not become it.
func (g *given) time(option string, d time.Duration) C.int32_t {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	if d < 0 || ms > math.MaxInt32 {
		g.wrong(option, "%v is not a time from 0 to 24 days", d)
	}
	return C.int32_t(ms)
}

// Times of which one below 0 stands for no limit.
func (g *given) limit(option string, d time.Duration) C.int32_t {
	if d < 0 {
		return -1
	}
	return g.time(option, d)
}

// How both sides of a connection prove who they are.
type proofs struct {
	ring   *Keyring
	noRing bool
	tls    *TLS
}

func (p *proofs) keyring(k *Keyring) { p.ring, p.noRing = k, k == nil }

// hold gives what C takes, which is there until let() is called.
func (p *proofs) hold(g *given) (ring *C.tmsg_keyring_t, tls *C.tmsg_tls_t) {
	if p.ring != nil {
		p.ring.life.RLock()
		if ring = p.ring.c; ring == nil && g.err == nil {
			g.err = fail(ErrClosed, "the keyring is closed")
		}
	}
	if p.tls != nil {
		p.tls.life.RLock()
		if tls = p.tls.c; tls == nil && g.err == nil {
			g.err = fail(ErrClosed, "the TLS is closed")
		}
	}
	return ring, tls
}

func (p *proofs) let() {
	if p.ring != nil {
		p.ring.life.RUnlock()
	}
	if p.tls != nil {
		p.tls.life.RUnlock()
	}
	runtime.KeepAlive(p)
}
