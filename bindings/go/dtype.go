// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"reflect"
	"unsafe"
)

// A DType is the type of one element, as DLPack has it: a code, the bits of a
// lane, and the lanes.
type DType struct {
	Code  uint8
	Bits  uint8
	Lanes uint16
}

// The dtypes that a Go type stands for.
var (
	Int8DType       = DType{C.TMSG_DTYPE_INT, 8, 1}
	Int16DType      = DType{C.TMSG_DTYPE_INT, 16, 1}
	Int32DType      = DType{C.TMSG_DTYPE_INT, 32, 1}
	Int64DType      = DType{C.TMSG_DTYPE_INT, 64, 1}
	Uint8DType      = DType{C.TMSG_DTYPE_UINT, 8, 1}
	Uint16DType     = DType{C.TMSG_DTYPE_UINT, 16, 1}
	Uint32DType     = DType{C.TMSG_DTYPE_UINT, 32, 1}
	Uint64DType     = DType{C.TMSG_DTYPE_UINT, 64, 1}
	Float16DType    = DType{C.TMSG_DTYPE_FLOAT, 16, 1}
	BFloat16DType   = DType{C.TMSG_DTYPE_BFLOAT, 16, 1}
	Float32DType    = DType{C.TMSG_DTYPE_FLOAT, 32, 1}
	Float64DType    = DType{C.TMSG_DTYPE_FLOAT, 64, 1}
	Complex64DType  = DType{C.TMSG_DTYPE_COMPLEX, 64, 1}
	Complex128DType = DType{C.TMSG_DTYPE_COMPLEX, 128, 1}
	BoolDType       = DType{C.TMSG_DTYPE_BOOL, 8, 1}
)

// Float16 and BFloat16 hold the bits of an element: Go has no such numbers.
type (
	Float16  uint16
	BFloat16 uint16
)

// An Element is what a slice that is sent or received is made of.
type Element interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64 | ~complex128 | ~bool
}

// DTypeOf gives the dtype of T. int and uint are of 64 bits.
func DTypeOf[T Element]() DType {
	switch any((*T)(nil)).(type) { // the usual ones, without reflection
	case *float32:
		return Float32DType
	case *uint8:
		return Uint8DType
	case *int64:
		return Int64DType
	case *int32:
		return Int32DType
	case *float64:
		return Float64DType
	}
	t := reflect.TypeOf((*T)(nil)).Elem()
	switch t {
	case reflect.TypeOf(Float16(0)):
		return Float16DType
	case reflect.TypeOf(BFloat16(0)):
		return BFloat16DType
	}
	bits := uint8(8 * t.Size())
	switch t.Kind() {
	case reflect.Bool:
		return BoolDType
	case reflect.Float32, reflect.Float64:
		return DType{C.TMSG_DTYPE_FLOAT, bits, 1}
	case reflect.Complex64, reflect.Complex128:
		return DType{C.TMSG_DTYPE_COMPLEX, bits, 1}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return DType{C.TMSG_DTYPE_INT, bits, 1}
	}
	return DType{C.TMSG_DTYPE_UINT, bits, 1}
}

// ParseDType reads a name, numpy's where numpy has one: "float32", "bfloat16",
// "float8_e4m3fn". Fails with ErrInvalidParam.
func ParseDType(name string) (DType, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var d C.tmsg_dtype_t
	if err := errOf(C.tmsggo_dtype_parse(text, &d)); err != nil {
		return DType{}, err
	}
	return DType{uint8(d.code), uint8(d.bits), uint16(d.lanes)}, nil
}

func (d DType) c() C.tmsg_dtype_t {
	return C.tmsg_dtype_t{code: C.uint8_t(d.Code), bits: C.uint8_t(d.Bits), lanes: C.uint16_t(d.Lanes)}
}

// String gives the name.
func (d DType) String() string {
	var name [C.TMSG_DTYPE_NAME_MAX]C.char
	return C.GoString(C.tmsg_dtype_format(d.c(), &name[0], C.TMSG_DTYPE_NAME_MAX))
}
