// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#cgo pkg-config: tensormsg
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"context"
	"unsafe"
)

// A Status is an outcome of the library. The values below are errors, which
// errors.Is finds in what the functions of this package return.
type Status int32

// What can fail. The values are those of the C library.
const (
	ErrInvalidParam      Status = C.TMSG_ERR_INVALID_PARAM      // an argument is out of its domain
	ErrNoMemory          Status = C.TMSG_ERR_NO_MEMORY          // an allocation failed
	ErrTimedOut          Status = C.TMSG_ERR_TIMED_OUT          // the deadline passed; also context.DeadlineExceeded
	ErrCanceled          Status = C.TMSG_ERR_CANCELED           // whoever began it gave it up; also context.Canceled
	ErrPeerLost          Status = C.TMSG_ERR_PEER_LOST          // the peer died or was cut off
	ErrRefused           Status = C.TMSG_ERR_REFUSED            // the peer, or its policy, said no
	ErrLimitExceeded     Status = C.TMSG_ERR_LIMIT_EXCEEDED     // beyond a limit of the receiver
	ErrMalformed         Status = C.TMSG_ERR_MALFORMED          // bytes that break their format
	ErrUnsupported       Status = C.TMSG_ERR_UNSUPPORTED        // well-formed, but not done here
	ErrInsecure          Status = C.TMSG_ERR_INSECURE           // would open a door to strangers
	ErrBusy              Status = C.TMSG_ERR_BUSY               // in use, or over its capacity now
	ErrNotFound          Status = C.TMSG_ERR_NOT_FOUND          // no such name, host or file
	ErrAlreadyExists     Status = C.TMSG_ERR_ALREADY_EXISTS     // that name, address or file is taken
	ErrUnreachable       Status = C.TMSG_ERR_UNREACHABLE        // nobody answers at that address
	ErrIncompatible      Status = C.TMSG_ERR_INCOMPATIBLE       // the peer's wire or UCX version
	ErrWouldBlock        Status = C.TMSG_ERR_WOULD_BLOCK        // it would have to wait, which was barred
	ErrClosed            Status = C.TMSG_ERR_CLOSED             // closed in order, by either side
	ErrIO                Status = C.TMSG_ERR_IO                 // a system call failed
	ErrInternal          Status = C.TMSG_ERR_INTERNAL           // UCX or the library broke a promise
	ErrCorrupt           Status = C.TMSG_ERR_CORRUPT            // data came that are not those sent
	ErrDropped           Status = C.TMSG_ERR_DROPPED            // a full queue's policy gave it up
	ErrResourceExhausted Status = C.TMSG_ERR_RESOURCE_EXHAUSTED // a server has all the calls it takes
	ErrUnavailable       Status = C.TMSG_ERR_UNAVAILABLE        // a server that is being shut down
	ErrApplication       Status = C.TMSG_ERR_APPLICATION        // a handler's own
)

// Error gives the status's name: "peer lost".
func (s Status) Error() string {
	return C.GoString(C.tmsg_status_name(C.tmsg_status_t(s)))
}

// An Error is a status and its words, which say what failed and why.
type Error struct {
	Status Status
	Words  string
	Code   int32 // of a handler's own failure (ErrApplication)

	MayHaveRun bool // of a call or a stream: false where no handler saw it, so that it can be made again whatever it does

	// Details are what a handler sends along with its failure. Where they were
	// received they are in Go's memory.
	Details Map
}

// Error gives the status's name and the words.
func (e *Error) Error() string {
	if e.Words == "" {
		return "tensormsg: " + e.Status.Error()
	}
	return "tensormsg: " + e.Status.Error() + ": " + e.Words
}

// Unwrap gives the status.
func (e *Error) Unwrap() error { return e.Status }

// Is says that ErrTimedOut is context.DeadlineExceeded and ErrCanceled is
// context.Canceled.
func (e *Error) Is(target error) bool {
	return e.Status == ErrTimedOut && target == context.DeadlineExceeded ||
		e.Status == ErrCanceled && target == context.Canceled
}

func fail(status Status, words string) error { return &Error{Status: status, Words: words} }

// Of a context that has ended.
func ctxError(ctx context.Context, words string) error {
	if ctx.Err() == context.DeadlineExceeded {
		return fail(ErrTimedOut, words)
	}
	return fail(ErrCanceled, words)
}

func errOf(r C.tmsggo_result_t) error {
	words := ""
	if r.words != nil {
		words = C.GoString(r.words)
		C.free(unsafe.Pointer(r.words))
	}
	if r.status >= 0 {
		return nil
	}
	return fail(Status(r.status), words)
}
