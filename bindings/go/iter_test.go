// SPDX-License-Identifier: BSD-3-Clause

//go:build go1.23

package tensormsg

import (
	"context"
	"errors"
	"testing"
)

func TestALoopGetsTheMessagesUntilTheEnd(t *testing.T) {
	_, ep, _ := streaming(t)
	ctx := generous(t)
	s, err := ep.Stream(ctx, "count", Map{"n": Of([]int64{5})})
	must(t, err)
	defer s.Close()
	var kept *Message
	seen := 0
	for m, err := range s.Messages(ctx) {
		must(t, err)
		kept = m
		if seen++; seen == 2 {
			break
		}
	}
	if kept.String() != "Message(closed)" {
		t.Errorf("the loop has left %v", kept)
	}
	for m, err := range s.Messages(ctx) { // the rest
		must(t, err)
		if x, err := Data[int64](m.Get("i")); err != nil || x[0] != int64(seen) {
			t.Errorf("%v, not %d (%v)", x, seen, err)
		}
		seen++
	}
	if seen != 5 {
		t.Errorf("%d messages", seen)
	}

	fails, err := ep.Stream(ctx, "fail", nil)
	must(t, err)
	defer fails.Close()
	var last error
	seen = 0
	for _, err := range fails.Messages(ctx) {
		seen++
		last = err
	}
	if seen != 2 || !errors.Is(last, ErrApplication) {
		t.Errorf("%d turns, the last with %v", seen, last)
	}
}

func TestALoopGetsAnEndpointsMessages(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	go func() {
		for i := 0; i < 3; i++ {
			a.Send(ctx, Map{"x": Scalar(int64(i))})
		}
		a.Close(ctx)
	}()
	seen := int64(0)
	for m, err := range b.Messages(ctx) {
		must(t, err)
		if x, err := Data[int64](m.Get("x")); err != nil || x[0] != seen {
			t.Errorf("%v, not %d (%v)", x, seen, err)
		}
		seen++
	}
	if seen != 3 {
		t.Errorf("%d messages", seen)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range b.Messages(over) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
}
