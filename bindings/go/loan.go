// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

// #include "hub.h"
import "C"

// Lend lets a peer that borrows (WorkerBorrow) read the tensors in this
// process's memory, over unix:// and if they are large; else it sends them as
// ever. The slice of a Buffer is lent as it lies: when Send has returned it must
// not be changed while Lent says so. Others are copied once, and are free when
// Send has returned.
func Lend() SendOption { return sendFlag(C.TMSG_SEND_LEND) }

// WorkerBorrow takes messages that their sender lends as views of its memory
// (docs/reference/loans.md). Message.Lent says which are: a program that writes to their
// slices is ended by a signal.
func WorkerBorrow() WorkerOption {
	return func(o *workerOptions) { o.params.flags |= C.TMSG_WORKER_BORROW }
}

// CallBorrow takes the reply to a Call as a loan, where the handler lends it.
func CallBorrow() CallOption { return callFlag(C.TMSG_CALL_BORROW) }

// Lent says whether the tensors lie in memory that the peer lends: they must not
// be written to, stay as they are even if the peer dies, and are given back by
// Close, before which the peer cannot use its memory again.
func (m *Message) Lent() bool {
	m.open("Lent")
	for i := range m.list { // the library says it of messages and replies alone
		if !m.lent && C.tmsg_shareable_is_borrowed(m.list[i].tensor.data) != 0 {
			return true
		}
	}
	return m.lent
}
