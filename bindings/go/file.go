// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import "runtime"

// A FileFormat is how a map lies in a file.
type FileFormat int32

const (
	FormatAuto        FileFormat = C.TMSG_FILE_AUTO // by the name's extension
	FormatSafetensors FileFormat = C.TMSG_FILE_SAFETENSORS
	FormatNPZ         FileFormat = C.TMSG_FILE_NPZ
	FormatNPY         FileFormat = C.TMSG_FILE_NPY // one tensor, called "array" when loaded
)

// A FileOption is one of those that begin with File.
type FileOption func(*fileOptions)

type fileOptions struct {
	given
	format    FileFormat
	limits    *C.tmsg_limits_t
	overwrite bool
	meta      Meta
}

// FileIs says the format, whatever the file's name.
func FileIs(format FileFormat) FileOption {
	return func(o *fileOptions) { o.format = format }
}

// FileLimits bounds what a file may hold: Tensors, NDim, NameBytes,
// MetadataBytes and MetadataKeys; and, when it is loaded, HeldBytes for what is
// not mapped.
func FileLimits(limits Limits) FileOption {
	return func(o *fileOptions) { o.limits = o.given.limits(limits) }
}

// FileOverwrite has Save replace a file that is there.
func FileOverwrite() FileOption { return func(o *fileOptions) { o.overwrite = true } }

// FileMeta saves values beside the tensors; a .safetensors holds strings.
func FileMeta(meta Meta) FileOption { return func(o *fileOptions) { o.meta = meta } }

// Load loads a .safetensors, .npz or .npy file (docs/reference/files.md), as a message
// that came from nowhere, which the caller closes. The file is mapped: it must
// not change until then. Fails with ErrNotFound, ErrMalformed, ErrUnsupported (a
// dtype; a name without a known extension), ErrLimitExceeded, ErrInvalidParam
// and ErrIO.
func Load(path string, options ...FileOption) (*Message, error) {
	var o fileOptions
	for _, option := range options {
		option(&o)
	}
	defer o.free()
	if o.overwrite || o.meta != nil {
		o.wrong("Load", "FileOverwrite and FileMeta are for Save")
	}
	name := o.text("the file", path)
	if o.err != nil {
		return nil, o.err
	}
	var c *C.tmsg_map_t
	err := errOf(C.tmsggo_load(name, C.tmsg_file_load_params_t{
		field_mask: C.TMSG_FILE_LOAD_PARAM_FORMAT | C.TMSG_FILE_LOAD_PARAM_LIMITS,
		format:     C.int32_t(o.format), limits: o.limits,
	}, &c))
	if err != nil {
		return nil, err
	}
	return newMap(c, false, func() { C.tmsg_map_destroy(c) }), nil
}

// Save writes a map to a .safetensors, .npz or .npy file, which appears under
// its name when it is whole. Fails with ErrAlreadyExists (see FileOverwrite),
// ErrUnsupported (a dtype that the format cannot hold; a name without a known
// extension), ErrNotFound (the folder), ErrInvalidParam, ErrLimitExceeded and
// ErrIO.
func Save(path string, m Map, options ...FileOption) error {
	var o fileOptions
	for _, option := range options {
		option(&o)
	}
	defer o.free()
	name := o.text("the file", path)
	if o.err != nil {
		return o.err
	}
	f := flats.Get().(*flat)
	defer f.free()
	made, err := f.build(m, o.meta)
	if err != nil {
		return err
	}
	defer C.tmsg_map_destroy(made)
	params := C.tmsg_file_save_params_t{
		field_mask: C.TMSG_FILE_SAVE_PARAM_FORMAT | C.TMSG_FILE_SAVE_PARAM_FLAGS | C.TMSG_FILE_SAVE_PARAM_LIMITS,
		format:     C.int32_t(o.format), limits: o.limits,
	}
	if o.overwrite {
		params.flags = C.TMSG_SAVE_OVERWRITE
	}
	err = errOf(C.tmsggo_save(made, name, params))
	runtime.KeepAlive(m)
	return err
}
