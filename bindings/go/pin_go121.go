// SPDX-License-Identifier: BSD-3-Clause

//go:build !go1.22

package tensormsg

import (
	"runtime"
	"unsafe"
)

// The Pinner panics of memory that is not Go's, which stays where it is.
func pin(pins *runtime.Pinner, data unsafe.Pointer) {
	defer func() { recover() }()
	pins.Pin(data)
}
