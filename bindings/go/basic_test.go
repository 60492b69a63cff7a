// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A wait that ends a test which hangs, and no other.
func generous(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newWorker(t testing.TB, options ...ContextOption) *Worker {
	t.Helper()
	c, err := NewContext(options...)
	must(t, err)
	w, err := NewWorker(c)
	must(t, err)
	c.Close()
	t.Cleanup(func() { w.Close() })
	return w
}

// The interpreter that has the Python package, for a peer. Without one the test
// is skipped.
func python(t testing.TB) string {
	t.Helper()
	folder := os.Getenv("TMSG_PACKAGE") // as of the tests of the Python package
	if folder == "" {
		t.Skip("TMSG_PACKAGE does not name a folder with the Python package")
	}
	return filepath.Join(folder, "venv/bin/python")
}

// A handler: the sum of "x".
func sum(ctx context.Context, in *Message) (Map, error) {
	x, err := Data[float32](in.Get("x"))
	if err != nil {
		return nil, err
	}
	var sum float32
	for _, value := range x {
		sum += value
	}
	return Map{"sum": Scalar(sum), "x": in.Get("x")}, nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The two ends of a connection, each on a worker of its own.
func pair(t testing.TB, options ...ContextOption) (dialled, accepted *Endpoint) {
	t.Helper()
	return pairAt(t, "unix://"+filepath.Join(t.TempDir(), "s"), options...)
}

func pairAt(t testing.TB, url string, options ...ContextOption) (dialled, accepted *Endpoint) {
	t.Helper()
	l, err := newWorker(t, options...).Listen(url)
	must(t, err)
	ctx := generous(t)
	done := make(chan error, 1)
	go func() {
		var err error
		accepted, err = l.Accept(ctx)
		done <- err
	}()
	dialled, err = newWorker(t, options...).Dial(ctx, l.URL())
	must(t, err)
	must(t, <-done)
	return dialled, accepted
}

func TestAMapArrivesWithItsMetadata(t *testing.T) {
	for _, url := range []string{"unix://" + filepath.Join(t.TempDir(), "s"), "tcp://127.0.0.1:0"} {
		a, b := pairAt(t, url)
		ctx := generous(t)
		sent := Map{
			"image": Of([]float32{1, 2, 3, 4, 5, 6}, 2, 3),
			"ids":   Of([]int64{7, 8}),
		}
		meta := Meta{"frame": int64(3), "camera": "left", "live": true, "gain": 1.5, "blob": []byte{0, 1}}
		must(t, a.Send(ctx, sent, WithMeta(meta), OnChannel(2)))
		m, err := b.Recv(ctx)
		must(t, err)
		if got, want := m.String(), "Message{ids: int64[2], image: float32[2 3]}"; got != want {
			t.Errorf("%s, not %s", got, want)
		}
		image, err := Data[float32](m.Get("image"))
		must(t, err)
		if want := []float32{1, 2, 3, 4, 5, 6}; !reflect.DeepEqual(image, want) {
			t.Errorf("%v, not %v", image, want)
		}
		if !reflect.DeepEqual(m.Meta(), meta) || m.Channel() != 2 || m.Endpoint() != b {
			t.Errorf("%v on channel %d from %v", m.Meta(), m.Channel(), m.Endpoint())
		}
		must(t, b.Send(ctx, m.Map())) // a received one is sent on
		must(t, m.Close())
		m, err = a.Recv(ctx)
		must(t, err)
		ids, err := Clone[int64](m.Get("ids"))
		must(t, err)
		m.Close()
		if want := []int64{7, 8}; !reflect.DeepEqual(ids, want) {
			t.Errorf("%v, not %v", ids, want)
		}
	}
}

func TestWhatTheApplicationHasNotTakenIsNotAcked(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	acked := make(chan error, 1)
	go func() { acked <- a.Send(ctx, Map{"x": Of([]int8{1})}, Acked()) }()
	m, err := b.Recv(ctx)
	must(t, err)
	m.Close()
	ended := make(chan error, 1)
	go func() { _, err := b.Recv(ctx); ended <- err }() // drives b's worker
	must(t, <-acked)
	must(t, a.Close(ctx))
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("after the peer's Close: %v", err)
	}
}

func TestEachDTypeAndOddShapesArrive(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	e4m3, err := ParseDType("float8_e4m3fn")
	must(t, err)
	grid := Of([]int32{0, 1, 2, 3, 4, 5}, 2, 3)
	sent := Map{
		"bool": Of([]bool{true, false}), "i8": Of([]int8{-1}), "i16": Of([]int16{-2}), "i32": Of([]int32{-3}),
		"i64": Of([]int64{-4}), "int": Of([]int{-5}), "u8": Of([]uint8{1}), "u16": Of([]uint16{2}),
		"u32": Of([]uint32{3}), "u64": Of([]uint64{4}), "f16": Of([]Float16{0x3c00}), "bf16": Of([]BFloat16{0x3f80}),
		"f32": Of([]float32{.5}), "f64": Of([]float64{.25}), "c64": Of([]complex64{1 + 2i}), "c128": Of([]complex128{3i}),
		"f8": Raw(e4m3, []byte{0x38, 0x40}, 2), "0d": Scalar(7.5), "none": Of([]float32{}, 3, 0, 2),
		"turned": grid.WithStrides([]int{3, 2}, []int{1, 3}), "column": grid.WithStrides([]int{2}, []int{3}),
		"one": Of([]int32{9}).WithStrides([]int{2, 2}, []int{0, 0}),
	}
	must(t, a.Send(ctx, sent))
	m, err := b.Recv(ctx)
	must(t, err)
	defer m.Close()
	if got, want := m.Map().String(), sent.String(); got != want {
		t.Errorf("%s, not %s", got, want)
	}
	same := func(name string, got any, err error, want any) {
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v (%v), not %v", name, got, err, want)
		}
	}
	turned, err := Clone[int32](m.Get("turned"))
	same("turned", turned, err, []int32{0, 3, 1, 4, 2, 5})
	column, err := Clone[int32](m.Get("column"))
	same("column", column, err, []int32{0, 3})
	one, err := Clone[int32](m.Get("one"))
	same("one", one, err, []int32{9, 9, 9, 9})
	c128, err := Data[complex128](m.Get("c128"))
	same("c128", c128, err, []complex128{3i})
	scalar, err := Data[float64](m.Get("0d"))
	same("0d", scalar, err, []float64{7.5})
	half, err := Data[Float16](m.Get("f16"))
	same("f16", half, err, []Float16{0x3c00})
	ints, err := Data[int](m.Get("int"))
	same("int", ints, err, []int{-5})
	none, err := Data[float32](m.Get("none"))
	same("none", len(none), err, 0)
}

func TestBadInputIsNamed(t *testing.T) {
	a, _ := pair(t)
	ctx := generous(t)
	slice := []float32{1, 2, 3}
	for _, c := range []struct {
		m      Map
		meta   Meta
		status Status
		words  string
	}{
		{Map{"image": Of(slice, 2, 2)}, nil, ErrInvalidParam, `tensormsg: invalid parameter: tensor "image": the shape [2 2] has 4 elements, the slice 3`},
		{Map{"x": Of(slice, -1)}, nil, ErrInvalidParam, `tensormsg: invalid parameter: tensor "x": the extent -1 is negative`},
		{Map{"x": Of(slice).WithStrides([]int{2}, []int{3})}, nil, ErrInvalidParam, `tensormsg: invalid parameter: tensor "x": the shape [2] with the strides [3] goes beyond the slice of 3 elements`},
		{Map{"": Of(slice)}, nil, ErrInvalidParam, `tensormsg: invalid parameter: the tensor's name "" is empty or has a NUL`},
		{Map{"a\x00b": Of(slice)}, nil, ErrInvalidParam, `tensormsg: invalid parameter: the tensor's name "a\x00b" is empty or has a NUL`},
		{nil, Meta{"k": 'x'}, ErrInvalidParam, `tensormsg: invalid parameter: the value of "k" is a int32: it can be a bool, an int, an int64, a float64, a string or a []byte`},
		{Map{"x": Raw(DType{99, 8, 1}, []byte{1}, 1)}, nil, ErrUnsupported, ""},
	} {
		err := a.Send(ctx, c.m, WithMeta(c.meta))
		if !errors.Is(err, c.status) || c.words != "" && err.Error() != c.words {
			t.Errorf("%v, not %s", err, c.words)
		}
	}
	if _, err := a.w.Dial(ctx, "smoke://signals"); !errors.Is(err, ErrInvalidParam) || err.(*Error).Words == "" {
		t.Errorf("a bad URL: %v", err)
	}
	if _, err := a.w.Dial(ctx, "unix:///nowhere/at/all"); !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrNotFound) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := Data[int32](Of(slice)); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("another dtype: %v", err)
	}
	if _, err := Data[float32](Of(slice).WithStrides([]int{2}, []int{2})); !errors.Is(err, ErrUnsupported) {
		t.Errorf("another order: %v", err)
	}
}

func TestAnEndedContextEndsAWaitAndLosesNothing(t *testing.T) {
	a, b := pair(t)
	brief, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := b.Recv(brief); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrTimedOut) {
		t.Errorf("a deadline: %v", err)
	}
	canceled, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { _, err := b.Recv(canceled); ended <- err }()
	for !b.w.parked.Load() {
		runtime.Gosched()
	}
	cancel() // it sleeps in Go's poller
	if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cancel: %v", err)
	}
	ctx := generous(t)
	must(t, a.Send(ctx, Map{"x": Of([]int8{1})}))
	m, err := b.Recv(ctx)
	must(t, err)
	m.Close()
}

// A pair whose accepting side nobody drives, until its lead is released, while
// UCX reads what the other side sends.
func stalled(t *testing.T, timeout time.Duration) (dialled, accepted *Endpoint) {
	t.Setenv("TENSORMSG_THRESHOLDS", "shm.bulk_bytes=never,shm.fragment_bytes=never")
	a, b := pair(t, ContextPeerTimeout(timeout))
	b.w.askForLead()
	b.w.lead <- struct{}{}
	return a, b
}

func TestAGivenUpSendReturnsWhenItsSliceIsFree(t *testing.T) {
	a, _ := stalled(t, 300*time.Millisecond)
	big := make([]byte, 8<<20)
	brief, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := a.Send(brief, Map{"x": Of(big)})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	for i := 0; i < len(big); i += 4096 { // the race detector sees no reader
		big[i] = 1
	}
}

func TestCloseEndsAllWaits(t *testing.T) {
	_, b := pair(t)
	l, err := b.w.Listen("unix://" + filepath.Join(t.TempDir(), "l"))
	must(t, err)
	ctx := generous(t)
	ended := make(chan error)
	go func() { _, err := b.Recv(ctx); ended <- err }()
	go func() { _, err := l.Accept(ctx); ended <- err }()
	for len(b.w.lead) == 0 {
		runtime.Gosched()
	}
	l.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("the listener's: %v", err)
	}
	b.w.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("the worker's: %v", err)
	}
	if err := b.Send(ctx, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestAPeerThatGoesIsLost(t *testing.T) {
	a, b := pair(t)
	a.w.Close()
	if _, err := b.Recv(generous(t)); !errors.Is(err, ErrPeerLost) {
		t.Errorf("%v", err)
	}
}

func TestAnAbortTellsThePeerWhy(t *testing.T) {
	for _, abort := range []struct {
		why  error
		said Status
	}{
		{fmt.Errorf("the disk is full: %w", ErrResourceExhausted), ErrResourceExhausted},
		{errors.New("the disk is full"), ErrCanceled},
		{ErrClosed, ErrCanceled}, // which is no failure,
		{nil, ErrCanceled},       // nor is this
	} {
		a, b := pair(t)
		a.Abort(abort.why)
		_, err := b.Recv(generous(t))
		if !errors.Is(err, abort.said) || abort.why != nil && !strings.Contains(err.Error(), abort.why.Error()) {
			t.Errorf("Abort(%v): the peer hears %v", abort.why, err)
		}
	}
}

func TestAMethodOfAClosedMessagePanicsByName(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	must(t, a.Send(ctx, Map{"x": Of([]int8{1})}))
	m, err := b.Recv(ctx)
	must(t, err)
	x := m.Get("x")
	m.Close()
	m.Close()
	for name, f := range map[string]func(){
		"Get":        func() { m.Get("x") },
		"Meta":       func() { m.Meta() },
		"Names":      func() { m.Names() },
		"its tensor": func() { Data[int8](x) },
	} {
		func() {
			defer func() {
				if said := recover(); said != "tensormsg: "+name+" of a closed Message" {
					t.Errorf("%s: %v", name, said)
				}
			}()
			f()
		}()
	}
}

func TestManyGoroutinesShareAWorker(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	const each, many = 50, 20
	rest, cancel := context.WithCancel(ctx)
	var senders, receivers sync.WaitGroup
	var received atomic.Int64
	for s := 0; s < many; s++ {
		senders.Add(1)
		go func(s int) {
			defer senders.Done()
			for i := 0; i < each; i++ {
				if err := a.Send(ctx, Map{"x": Of([]int{s, i})}, Acked()); err != nil {
					t.Error(err)
					return
				}
			}
		}(s)
		receivers.Add(1)
		go func() {
			defer receivers.Done()
			for {
				m, err := b.Recv(rest)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				received.Add(1)
				m.Close()
			}
		}()
	}
	senders.Wait()
	cancel()
	receivers.Wait()
	if got := received.Load(); got != each*many {
		t.Errorf("%d of %d messages came", got, each*many)
	}
}
