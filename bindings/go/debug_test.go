// SPDX-License-Identifier: BSD-3-Clause

//go:build tmsgdebug

package tensormsg

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// What f faults with; nil: it does not.
func fault(f func()) (said any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { said = recover() }()
	f()
	return nil
}

func TestASliceOfAClosedMessageFaults(t *testing.T) {
	a, b := pairOf(t, "unix://"+filepath.Join(t.TempDir(), "s"), WorkerBorrow())
	ctx := generous(t)
	grid := Of([]int32{0, 1, 2, 3, 4, 5}, 2, 3)
	lent, err := Alloc[int32](1 << 15)
	must(t, err)
	must(t, b.Send(ctx, Map{"small": Of([]int8{7}), "turned": grid.WithStrides([]int{3, 2}, []int{1, 3})}))
	must(t, b.Send(ctx, Map{"large": lent.Tensor()}, Lend()))
	small, err := a.Recv(ctx)
	must(t, err)
	large, err := a.Recv(ctx)
	must(t, err)
	x, err := Data[int8](small.Get("small"))
	must(t, err)
	y, err := Data[int32](large.Get("large"))
	must(t, err)
	x[0]++
	if turned, err := Clone[int32](small.Get("turned")); err != nil || fmt.Sprint(x, turned, y[0]) != "[8] [0 3 1 4 2 5] 0" {
		t.Errorf("%v %v %v (%v)", x, turned, y[0], err)
	}
	if said := fault(func() { y[0] = 1 }); said == nil {
		t.Error("a loan can be written to")
	}
	received := debugged{from: large.debug.from}
	small.Close()
	large.Close()
	for what, use := range map[string]func(){"small": func() { x[0]++ }, "large": func() { x[0] = int8(y[0]) }} {
		if said := fault(use); said == nil || !strings.Contains(fmt.Sprint(said), "address") {
			t.Errorf("a slice of a closed message, %s: %v", what, said)
		}
	}
	if from := (&guard{debug: received}).origin(); !strings.Contains(from, "TestASliceOfAClosedMessageFaults") {
		t.Errorf("it was received in %s", from)
	}
}

func TestAHandlersMessageFaultsWhenTheHandlerHasReturned(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	kept := make(chan []int8, 1)
	must(t, b.w.Handle("keep", func(_ context.Context, in *Message) (Map, error) {
		x, err := Data[int8](in.Get("x"))
		kept <- x
		return Map{"x": in.Get("x")}, err
	}))
	go b.w.Serve(ctx)
	reply, err := a.Call(ctx, "keep", Map{"x": Of([]int8{3})})
	must(t, err)
	if x, err := Data[int8](reply.Get("x")); err != nil || x[0] != 3 {
		t.Errorf("%v (%v)", x, err)
	}
	reply.Close()
	x := <-kept
	for fault(func() { x[0]++ }) == nil { // Serve closes it, soon
		if ctx.Err() != nil {
			t.Fatal("what a handler kept can be used")
		}
	}
}
