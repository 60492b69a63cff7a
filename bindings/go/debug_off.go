// SPDX-License-Identifier: BSD-3-Clause

//go:build !tmsgdebug

package tensormsg

import "unsafe"

// What -tags tmsgdebug keeps of a message: nothing.
const debugging = false

type debugged struct{}

func (g *guard) born() {}

func (g *guard) kept(t Tensor) unsafe.Pointer { return t.data }

func (g *guard) bar() {}

func (g *guard) origin() string { return "" }
