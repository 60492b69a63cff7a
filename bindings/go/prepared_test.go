// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"
)

func eight() Map {
	m := Map{}
	for i := 0; i < 8; i++ {
		m[fmt.Sprint("t", i)] = Of(make([]float32, 16))
	}
	return m
}

func TestAPreparedMapIsSentAndReceivedIntoWithoutAnAllocation(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	frame := []float32{1, 2, 3, 4}
	out, err := Prepare(Map{"x": Of(frame, 2, 2), "none": Of([]int8{})}, WithMeta(Meta{"k": 1}))
	must(t, err)
	defer out.Close()
	got := make([]float32, 4)
	in, err := Prepare(Map{"x": Of(got, 2, 2)})
	must(t, err)
	defer in.Close()
	once := func() {
		if err := a.SendPrepared(ctx, out); err != nil {
			t.Fatal(err)
		}
		if err := b.RecvInto(ctx, in); err != nil {
			t.Fatal(err)
		}
	}
	once()
	next := []float32{5, 6, 7, 8}
	must(t, out.Set("x", Of(next, 2, 2)))
	frame[0] = 9 // free since
	once()
	if !reflect.DeepEqual(got, next) {
		t.Errorf("%v, not %v", got, next)
	}
	if n := testing.AllocsPerRun(200, once); n >= 1 {
		t.Errorf("%v allocations a message", n)
	}
	if err := out.Set("y", Of(next)); !errors.Is(err, ErrNotFound) {
		t.Errorf("no such tensor: %v", err)
	}
	if err := out.Set("x", Of(next)); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("another shape: %v", err)
	}
	must(t, a.Send(ctx, Map{"x": Of([]int8{1})}))
	if err := b.RecvInto(ctx, in); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("another dtype: %v", err)
	}
	m, err := b.Recv(ctx) // it stayed
	must(t, err)
	m.Close()
	brief, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := b.RecvInto(brief, in); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing came: %v", err)
	}
	out.Close()
	if err := a.SendPrepared(ctx, out); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestADroppedPreparedMapLetsGoOfItsPins(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	for i := 0; i < 20; i++ { // a Pinner that is collected with its pins panics
		p, err := Prepare(eight())
		must(t, err)
		must(t, a.SendPrepared(ctx, p))
		m, err := b.Recv(ctx)
		must(t, err)
		if i%2 == 0 {
			m.Close()
		}
		p, m = nil, nil
		runtime.GC()
	}
}

func TestAnOwnedSliceIsSentWhileNobodyWaits(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	var said []<-chan error
	for i := 0; i < 10; i++ {
		big := make([]int32, 1<<20)
		big[0] = int32(i)
		said = append(said, a.SendOwned(ctx, Map{"x": Of(big)}, Acked()))
		runtime.GC()
	}
	for i := range said {
		m, err := b.Recv(ctx)
		must(t, err)
		if x, err := Data[int32](m.Get("x")); err != nil || x[0] != int32(i) {
			t.Errorf("message %d: %v (%v)", i, x[0], err)
		}
		m.Close()
	}
	for _, outcome := range said {
		must(t, <-outcome)
	}
	if err := <-a.SendOwned(ctx, Map{"": Of([]int8{1})}); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("bad input: %v", err)
	}
}

func BenchmarkPrepared8x64(bench *testing.B) {
	a, b := pair(bench)
	ctx := context.Background()
	out, _ := Prepare(eight())
	in, _ := Prepare(eight())
	defer out.Close()
	defer in.Close()
	bench.ReportAllocs()
	bench.ResetTimer()
	for i := 0; i < bench.N; i++ {
		if err := a.SendPrepared(ctx, out); err != nil {
			bench.Fatal(err)
		}
		if err := b.RecvInto(ctx, in); err != nil {
			bench.Fatal(err)
		}
	}
}

func BenchmarkMap8x64(bench *testing.B) {
	a, b := pair(bench)
	ctx := context.Background()
	m := eight()
	bench.ReportAllocs()
	bench.ResetTimer()
	for i := 0; i < bench.N; i++ {
		if err := a.Send(ctx, m); err != nil {
			bench.Fatal(err)
		}
		got, err := b.Recv(ctx)
		if err != nil {
			bench.Fatal(err)
		}
		got.Close()
	}
}

// Waits until a goroutine that waits in a method drives the worker, and sleeps.
func awaitSleeper(ctx context.Context, w *Worker) {
	for ctx.Err() == nil && (w.keeping.Load() || !w.parked.Load() || w.keeping.Load()) {
		runtime.Gosched()
	}
}

func TestAMapThatIsClosedStaysPinnedWhileAMessageComesIntoIt(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	waiting := func() int {
		freeLate()
		late.Lock()
		defer late.Unlock()
		return len(late.all)
	}
	sent := make([]byte, 32<<20)
	sent[0] = 1
	pinned := false
	for try := 0; !pinned && try < 50; try++ {
		got := make([]byte, len(sent))
		in, err := Prepare(Map{"x": Of(got)})
		must(t, err)
		brief, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- b.RecvInto(brief, in) }()
		awaitSleeper(ctx, b.w)
		acked := a.SendOwned(ctx, Map{"x": Of(sent)})
		for got[0] == 0 && len(ended) == 0 && ctx.Err() == nil {
			runtime.Gosched()
		}
		cancel() // in the middle of it
		err = <-ended
		in.Close()
		pinned = waiting() > 0
		in, got = nil, nil
		runtime.GC()
		if err != nil {
			m, err := b.Recv(ctx)
			must(t, err)
			must(t, m.Close())
		}
		must(t, <-acked)
	}
	if n := waiting(); !pinned || n != 0 {
		t.Errorf("a map was pinned: %v; %d are pinned still", pinned, n)
	}
}
