// SPDX-License-Identifier: BSD-3-Clause

//go:build go1.22

package tensormsg

import (
	"runtime"
	"unsafe"
)

// Memory that is not Go's stays where it is.
func pin(pins *runtime.Pinner, data unsafe.Pointer) { pins.Pin(data) }
