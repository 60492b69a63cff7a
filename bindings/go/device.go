// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "memory.h"
*/
import "C"

import (
	"fmt"
	"math"
	"unsafe"
)

// A DeviceType says what kind of device holds memory, with DLPack's values.
type DeviceType int32

// The kinds of memory that can be sent and received where a driver is
// (docs/reference/domains.md).
const (
	CPUDevice      DeviceType = C.TMSG_DEVICE_CPU
	CUDADevice     DeviceType = C.TMSG_DEVICE_CUDA
	CUDAHostDevice DeviceType = C.TMSG_DEVICE_CUDA_HOST // pinned memory, which the CPU reads
	ROCmDevice     DeviceType = C.TMSG_DEVICE_ROCM
)

// A Device says where memory lies: a kind, and the ordinal within it. The zero
// value is the CPU.
type Device struct {
	Type DeviceType
	ID   int
}

// CUDA is the CUDA device of that ordinal, as this process counts them.
func CUDA(ordinal int) Device { return Device{CUDADevice, ordinal} }

// ParseDevice reads a name: "cpu", "cuda:1". Fails with ErrInvalidParam.
func ParseDevice(name string) (Device, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var c C.tmsg_device_t
	if err := errOf(C.tmsggo_device_parse(text, &c)); err != nil {
		return Device{}, err
	}
	return deviceOf(c), nil
}

func deviceOf(c C.tmsg_device_t) Device {
	if c._type == C.TMSG_DEVICE_CPU {
		return Device{}
	}
	return Device{DeviceType(c._type), int(c.id)}
}

func (d Device) c() C.tmsg_device_t {
	if d.Type == 0 {
		d.Type = CPUDevice
	}
	return C.tmsg_device_t{_type: C.int32_t(d.Type), id: C.int32_t(d.ID)}
}

// String gives the name: "cuda:1".
func (d Device) String() string {
	var name [C.TMSG_DEVICE_NAME_MAX]C.char
	return C.GoString(C.tmsg_device_format(d.c(), &name[0], C.TMSG_DEVICE_NAME_MAX))
}

// Whether the CPU reads it.
func (d Device) readable() bool {
	return d.Type == 0 || d.Type == CPUDevice || d.Type == CUDAHostDevice
}

// Use tells that this program uses the device. The library touches no CUDA device
// before whose primary context nobody has made active, as CUDA packages do when
// they first allocate. Fails with ErrNotFound (no such device) and
// ErrUnsupported (no working driver, and what was met).
func (d Device) Use() error { return errOf(C.tmsggo_use(d.c())) }

// Where a tensor of a device lies.
type place struct {
	device  Device
	address uintptr
	stream  C.tmsg_stream_t
}

// OnDevice describes memory of a device, packed in C order from that address on.
// It stays the caller's, who keeps it valid as long as a slice that is sent. It
// must be whole when the call begins, or when the work is done that its stream
// holds (WithStream).
func OnDevice(device Device, dtype DType, address uintptr, shape ...int) Tensor {
	t := Tensor{DType: dtype, there: &place{device: device, address: address}, elems: -1}
	if device.readable() {
		t.data = *(*unsafe.Pointer)(unsafe.Pointer(&address))
	}
	t.setShape(shape)
	if t.err == nil && address == 0 && t.Size() > 0 {
		t.err = fail(ErrInvalidParam, fmt.Sprintf("the address on %v is 0", device))
	}
	return t
}

// Address is where the elements of a tensor begin in the memory of its device;
// those of a received one are valid until its message is closed.
func (t Tensor) Address() uintptr {
	if t.owner != nil {
		t.owner.open("its tensor")
		t.owner.viewed.Store(true)
	}
	return uintptr(t.at())
}

// Device says where the elements of a tensor lie.
func (t Tensor) Device() Device {
	if t.there == nil {
		return Device{}
	}
	return t.there.device
}

// WithStream says on which CUstream or cudaStream_t the elements of a tensor of
// a CUDA device are made: they are read, or written, after all that it holds
// when the call begins. The stream lives until the call ends. 1 is the legacy
// default stream.
func (t Tensor) WithStream(handle uintptr) Tensor {
	if t.Device().Type != CUDADevice || handle == 0 {
		if t.err == nil {
			t.err = fail(ErrInvalidParam, fmt.Sprintf("the stream %#x of a tensor on %v: only CUDA devices have streams, and 0 is not a stream", handle, t.Device()))
		}
		return t
	}
	there := *t.there
	there.stream = C.tmsg_stream_t{kind: C.TMSG_STREAM_CUDA, handle: C.uint64_t(handle)}
	t.there = &there
	return t
}

func (t Tensor) stream() C.tmsg_stream_t {
	if t.there == nil {
		return C.tmsg_stream_t{}
	}
	return t.there.stream
}

// A DeviceInfo tells one device of the machine from another. A text that is not
// known is "".
type DeviceInfo struct {
	Device   Device // its ID is -1 where no driver has told the ordinal
	Kind     string // "host", "cuda", "rocm" or "gaudi"
	Title    string // "NVIDIA H100 80GB HBM3"
	UUID     string // "GPU-8f2c...", which NVML's DeviceGetHandleByUUID takes
	BusID    string // "0000:33:00.0"
	NIC      string // the nearest, "mlx5_0" or "eth0"
	NUMANode int    // -1: not known
	Index    int    // by which the device table calls it; -1: not in it
	ModuleID int    // in Gaudi's table; else -1
}

// A DevicesOption is one of those that begin with Devices.
type DevicesOption func(*devicesOptions)

type devicesOptions struct {
	given
	params C.tmsg_devices_params_t
}

// DevicesTable names a device table, or gives its JSON (docs/reference/devices.md). By
// default that is what TENSORMSG_DEVICE_TABLE says.
func DevicesTable(table string) DevicesOption {
	return func(o *devicesOptions) {
		o.params.field_mask |= C.TMSG_DEVICES_PARAM_TABLE
		o.params.table = o.text("DevicesTable", table)
	}
}

// DevicesNoDrivers asks no driver: nothing of a vendor's is loaded, and neither
// ordinals nor UUIDs are known.
func DevicesNoDrivers() DevicesOption {
	return func(o *devicesOptions) {
		o.params.field_mask |= C.TMSG_DEVICES_PARAM_FLAGS
		o.params.flags |= C.TMSG_DEVICES_NO_DRIVERS
	}
}

// Devices lists the devices of this machine, the host first, then by bus id.
// Fails with ErrInvalidParam (a table, and what is wrong in it), ErrNotFound and
// ErrIO.
func Devices(options ...DevicesOption) ([]DeviceInfo, error) {
	var o devicesOptions
	for _, option := range options {
		option(&o)
	}
	defer o.free()
	if o.err != nil {
		return nil, o.err
	}
	var c *C.tmsg_devices_t
	if err := errOf(C.tmsggo_devices(o.params, &c)); err != nil {
		return nil, err
	}
	defer C.tmsg_devices_destroy(c)
	var all []DeviceInfo
	for i := C.size_t(0); i < C.tmsg_devices_size(c); i++ {
		var info C.tmsg_device_info_t
		if C.tmsg_devices_at(c, i, &info) != C.TMSG_OK {
			break
		}
		all = append(all, DeviceInfo{
			Device:   deviceOf(info.device),
			Kind:     C.GoString(C.tmsg_device_kind_name(info.kind)),
			Title:    C.GoString(&info.title[0]),
			UUID:     C.GoString(&info.uuid[0]),
			BusID:    C.GoString(&info.bus_id[0]),
			NIC:      C.GoString(&info.nic[0]),
			NUMANode: int(info.numa_node),
			Index:    int(info.index),
			ModuleID: int(info.module_id),
		})
	}
	return all, nil
}

// ContextDeviceTable names a device table, or gives its JSON (docs/reference/devices.md).
// By default that is what TENSORMSG_DEVICE_TABLE says.
func ContextDeviceTable(table string) ContextOption {
	return func(o *contextOptions) {
		o.params.field_mask |= C.TMSG_CONTEXT_PARAM_DEVICE_TABLE
		o.params.device_table = o.text("ContextDeviceTable", table)
	}
}

// Device is the one that the context's device table calls by index. Fails with
// ErrNotFound (no such entry, or no table), ErrUnsupported (no driver shows it)
// and ErrClosed.
func (c *Context) Device(index int) (Device, error) {
	if index < 0 || int64(index) > math.MaxUint32 {
		return Device{}, fail(ErrNotFound, fmt.Sprintf("no table has the index %d", index))
	}
	c.life.RLock()
	defer c.life.RUnlock()
	if c.c == nil {
		return Device{}, fail(ErrClosed, "the context is closed")
	}
	var d C.tmsg_device_t
	if err := errOf(C.tmsggo_device_of(c.c, C.uint32_t(index), &d)); err != nil {
		return Device{}, err
	}
	return deviceOf(d), nil
}
