// SPDX-License-Identifier: BSD-3-Clause

//go:build go1.23

package tensormsg

import (
	"context"
	"errors"
	"io"
	"iter"
)

// Messages gives what comes until the other side sends no more:
//
//	for msg, err := range s.Messages(ctx) {
//
// A message is closed when the loop goes on. An error, as of Recv, is the last
// of it. After a break the rest is there for Recv.
func (s *Stream) Messages(ctx context.Context) iter.Seq2[*Message, error] {
	return messages(ctx, s.Recv, io.EOF)
}

// Messages gives what comes until the peer, or this side, has closed in order:
//
//	for msg, err := range ep.Messages(ctx) {
//
// A message is closed when the loop goes on. An error, as of Recv, is the last
// of it. After a break the rest is there for Recv.
func (ep *Endpoint) Messages(ctx context.Context) iter.Seq2[*Message, error] {
	return messages(ctx, ep.Recv, ErrClosed)
}

func messages(ctx context.Context, recv func(context.Context) (*Message, error), end error) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		for {
			msg, err := recv(ctx)
			if errors.Is(err, end) {
				return
			}
			if !give(yield, msg, err) {
				return
			}
		}
	}
}

// Whether the loop goes on.
func give(yield func(*Message, error) bool, msg *Message, err error) bool {
	if err != nil {
		yield(nil, err)
		return false
	}
	defer msg.Close()
	return yield(msg, nil)
}
