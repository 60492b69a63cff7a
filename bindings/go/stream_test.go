// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// A server of some streams, and an endpoint that opens them. What ends a
// handler's context is told.
func streaming(t *testing.T, options ...WorkerOption) (*Worker, *Endpoint, chan error) {
	t.Helper()
	server, url, ended := streamServer(t, options...)
	ep, err := newWorker(t).Dial(generous(t), url)
	must(t, err)
	return server, ep, ended
}

func streamServer(t *testing.T, options ...WorkerOption) (*Worker, string, chan error) {
	t.Helper()
	w, err := NewWorker(nil, options...)
	must(t, err)
	t.Cleanup(func() { w.Close() })
	ended := make(chan error, 100)
	must(t, w.HandleStream("sums", sums))
	must(t, w.HandleStream("count", count))
	must(t, w.HandleStream("fail", func(ctx context.Context, in *Message, s *Stream) error {
		if err := s.Send(ctx, Map{"x": Scalar(float32(1))}); err != nil {
			return err
		}
		return Errorf(7, "no model %q", "resnet")
	}))
	must(t, w.HandleStream("deaf", func(ctx context.Context, in *Message, s *Stream) error {
		ended <- nil
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}))
	l, err := w.Listen("unix://"+filepath.Join(t.TempDir(), "s"), ListenKeep())
	must(t, err)
	rest, cancel := context.WithCancel(generous(t))
	served := make(chan struct{})
	go func() { w.Serve(rest); close(served) }()
	t.Cleanup(func() { cancel(); <-served })
	return w, l.URL(), ended
}

// Of each map the running sum of its "x" goes back, as of examples/stream_server.c.
func sums(ctx context.Context, in *Message, s *Stream) error {
	sum := float32(0)
	for {
		m, err := s.Recv(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		x, err := Clone[float32](m.Get("x"))
		m.Close()
		if err != nil {
			return err
		}
		sum += x[0]
		if err := s.Send(ctx, Map{"x": Scalar(sum)}, WithMeta(Meta{"of": s.Method()})); err != nil {
			return err
		}
	}
}

// Sends n maps, and finishes.
func count(ctx context.Context, in *Message, s *Stream) error {
	n, err := Data[int64](in.Get("n"))
	if err != nil {
		return err
	}
	out, err := Prepare(Map{"i": Of([]int64{0})})
	if err != nil {
		return err
	}
	defer out.Close()
	for i := int64(0); i < n[0]; i++ {
		if err := out.Set("i", Of([]int64{i})); err != nil {
			return err
		}
		if err := s.SendPrepared(ctx, out); err != nil {
			return err
		}
	}
	return s.Finish()
}

func number(t *testing.T, m *Message, name string) float32 {
	t.Helper()
	defer m.Close()
	x, err := Clone[float32](m.Get(name))
	must(t, err)
	return x[0]
}

func TestBothSidesOfAStreamSend(t *testing.T) {
	_, ep, _ := streaming(t)
	ctx := generous(t)
	s, err := ep.Stream(ctx, "sums", nil)
	must(t, err)
	defer s.Close()
	want := float32(0)
	for _, x := range []float32{1, 2, 3.5} {
		want += x
		must(t, s.Send(ctx, Map{"x": Scalar(x)}))
		m, err := s.Recv(ctx)
		must(t, err)
		if of := m.Meta()["of"]; of != "sums" || m.Endpoint() != ep {
			t.Errorf("from %v, of %v", m.Endpoint(), of)
		}
		if sum := number(t, m, "x"); sum != want {
			t.Errorf("%v, not %v", sum, want)
		}
	}
	if err := s.Send(ctx, nil, OnChannel(3)); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("a channel: %v", err)
	}
	must(t, s.Finish())
	if err := s.Finish(); !errors.Is(err, ErrClosed) {
		t.Errorf("it has finished: %v", err)
	}
	if err := s.Send(ctx, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("it has finished, and sends: %v", err)
	}
	if m, err := s.Recv(ctx); err != io.EOF {
		t.Errorf("at the end: %v, %v", m, err)
	}
	must(t, s.Wait(ctx))
	must(t, s.Close())
	must(t, s.Close())
	for what, err := range map[string]error{
		"Send": s.Send(ctx, nil), "Finish": s.Finish(), "Wait": s.Wait(ctx),
		"Recv": func() error { _, err := s.Recv(ctx); return err }(),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	out, err := ep.Stream(ctx, "count", Map{"n": Of([]int64{3})}, WithMeta(Meta{"k": 1}))
	must(t, err)
	defer out.Close()
	for i := int64(0); i < 3; i++ {
		m, err := out.Recv(ctx)
		must(t, err)
		if n, err := Clone[int64](m.Get("i")); err != nil || n[0] != i {
			t.Errorf("%v, not %d (%v)", n, i, err)
		}
		m.Close()
	}
	if _, err := out.Recv(ctx); err != io.EOF {
		t.Errorf("the server has finished: %v", err)
	}
	must(t, out.Wait(ctx))
}

func TestAStreamFailsAsItsHandlerSays(t *testing.T) {
	w, ep, _ := streaming(t)
	ctx := generous(t)
	must(t, w.HandleStream("typed", sums, MethodSignature("(x: float32[]) -> (x: float32[])")))
	s, err := ep.Stream(ctx, "fail", nil)
	must(t, err)
	defer s.Close()
	m, err := s.Recv(ctx) // it comes behind what was sent
	must(t, err)
	m.Close()
	var said *Error
	if _, err := s.Recv(ctx); !errors.As(err, &said) || said.Status != ErrApplication || said.Code != 7 ||
		!strings.Contains(said.Words, `no model "resnet"`) {
		t.Errorf("received: %v", err)
	}
	if err := s.Wait(ctx); !errors.As(err, &said) || said.Code != 7 {
		t.Errorf("waited: %v", err)
	}
	if err := s.Send(ctx, nil); !errors.As(err, &said) || said.Code != 7 {
		t.Errorf("sent: %v", err)
	}
	for method, want := range map[string]Status{"none": ErrNotFound, "typed": ErrInvalidParam} {
		s, err := ep.Stream(ctx, method, nil)
		must(t, err)
		if method == "typed" {
			must(t, s.Send(ctx, Map{"x": Of([]int8{1})}))
		}
		if _, err := s.Recv(ctx); !errors.Is(err, want) || err.(*Error).Words == "" || err.(*Error).MayHaveRun != (method == "typed") {
			t.Errorf("%s: %v, not %v", method, err, want)
		}
		s.Close()
	}
	for _, bad := range []func() error{
		func() error { _, err := ep.Stream(ctx, "", nil); return err },
		func() error { _, err := ep.Stream(ctx, "sums", Map{"": Scalar(1)}); return err },
		func() error { return w.HandleStream("nil", nil) },
		func() error { return w.HandleStream("", sums) },
	} {
		if err := bad(); !errors.Is(err, ErrInvalidParam) {
			t.Errorf("bad input: %v", err)
		}
	}
	if err := w.HandleStream("sums", sums); !errors.Is(err, ErrAlreadyExists) {
		t.Errorf("twice: %v", err)
	}
	if _, err := ep.Call(ctx, "sums", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("called: %v", err)
	}
}

func TestAReaderThatDoesNotReadHoldsItsWriterUp(t *testing.T) {
	_, ep, ended := streaming(t, WorkerQueueDepth(4))
	ctx := generous(t)
	s, err := ep.Stream(ctx, "deaf", nil)
	must(t, err)
	defer s.Close()
	brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	sent := 0
	for ; sent < 1000 && err == nil; sent++ {
		err = s.Send(brief, Map{"x": Scalar(float32(1))})
	}
	if !errors.Is(err, context.DeadlineExceeded) || sent > 100 {
		t.Errorf("%d sent: %v", sent, err)
	}
	var all sync.WaitGroup
	rest, give := context.WithCancel(ctx)
	for i := 0; i < 3*cap(s.sends); i++ { // more than the stream's queue takes
		all.Add(1)
		go func() {
			defer all.Done()
			if err := s.Send(rest, Map{"x": Of(make([]float32, 1000))}); !errors.Is(err, context.Canceled) {
				t.Errorf("a send that waits: %v", err)
			}
		}()
	}
	for len(s.sends) < cap(s.sends) {
		runtime.Gosched()
	}
	other, err := ep.Stream(ctx, "sums", nil) // nobody else waits
	must(t, err)
	must(t, other.Send(ctx, Map{"x": Scalar(float32(2))}))
	m, err := other.Recv(ctx)
	must(t, err)
	if sum := number(t, m, "x"); sum != 2 {
		t.Errorf("%v", sum)
	}
	other.Close()
	give()
	all.Wait()
	s.Close()
	<-ended
	if err := <-ended; err != context.Canceled {
		t.Errorf("the handler's context: %v", err)
	}
}

func TestAStreamEndsWithItsContext(t *testing.T) {
	w, ep, ended := streaming(t)
	ctx := generous(t)
	brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	s, err := ep.Stream(brief, "deaf", nil)
	must(t, err)
	defer s.Close()
	if _, err := s.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline: %v", err)
	}
	<-ended
	if err := <-ended; err == nil {
		t.Error("the handler's context has no error")
	}

	canceled, cancel := context.WithCancel(ctx)
	s, err = ep.Stream(canceled, "deaf", nil)
	must(t, err)
	defer s.Close()
	<-ended
	time.AfterFunc(time.Millisecond, cancel)
	if err := s.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancel: %v", err)
	}
	if err := <-ended; err != context.Canceled {
		t.Errorf("the handler's context: %v", err)
	}

	s, err = ep.Stream(ctx, "sums", nil)
	must(t, err)
	defer s.Close()
	moment, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := s.Recv(moment); !errors.Is(err, ErrTimedOut) {
		t.Errorf("one receive's deadline: %v", err)
	}
	if err := s.Wait(moment); !errors.Is(err, ErrTimedOut) {
		t.Errorf("one wait's deadline: %v", err)
	}
	must(t, s.Send(ctx, Map{"x": Scalar(float32(1))})) // it goes on
	m, err := s.Recv(ctx)
	must(t, err)
	m.Close()

	deaf, err := ep.Stream(ctx, "deaf", nil)
	must(t, err)
	defer deaf.Close()
	<-ended
	w.Close()
	if err := <-ended; err != context.Canceled {
		t.Errorf("the handler's context, as its worker closes: %v", err)
	}
	if _, err := deaf.Recv(ctx); !errors.Is(err, ErrPeerLost) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrCanceled) {
		t.Errorf("the server's end: %v", err)
	}
}

func TestWaitsOfAStreamEndWithClose(t *testing.T) {
	_, ep, _ := streaming(t)
	ctx := generous(t)
	ended := make(chan error, 3)
	for _, last := range []func(*Stream){func(s *Stream) { s.Close() }, func(s *Stream) { ep.w.Close() }} {
		s, err := ep.Stream(ctx, "deaf", nil)
		must(t, err)
		go func() { _, err := s.Recv(ctx); ended <- err }()
		go func() { _, err := s.Recv(ctx); ended <- err }()
		go func() { ended <- s.Wait(ctx) }()
		for len(s.reads) == 0 {
			runtime.Gosched()
		}
		last(s)
		for i := 0; i < 3; i++ {
			if err := <-ended; !errors.Is(err, ErrClosed) && !errors.Is(err, ErrCanceled) {
				t.Errorf("%v", err)
			}
		}
		s.Close()
	}
}

func TestAHandlerThatReturnsEndsItsStreamForBothSides(t *testing.T) {
	w, ep, _ := streaming(t, WorkerQueueDepth(2))
	ctx := generous(t)
	leave := make(chan error)
	theirs := make(chan *Stream, 1)
	must(t, w.HandleStream("leaves", func(ctx context.Context, in *Message, s *Stream) error {
		s.Close() // does nothing here
		theirs <- s
		return <-leave
	}))
	for _, c := range []struct{ said, sent, received error }{
		{nil, ErrClosed, io.EOF},
		{Errorf(7, "enough"), ErrApplication, ErrApplication},
	} {
		s, err := ep.Stream(ctx, "leaves", nil)
		must(t, err)
		ended := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				err = s.Send(ctx, Map{"x": Of([]int8{1})})
			}
			ended <- err
		}()
		there := <-theirs
		for len(s.sends) == 0 { // it sends, or waits for the reader
			runtime.Gosched()
		}
		leave <- c.said
		if err := <-ended; !errors.Is(err, c.sent) {
			t.Errorf("a send to a handler that has left with %v: %v", c.said, err)
		}
		if _, err := s.Recv(ctx); !errors.Is(err, c.received) {
			t.Errorf("the end by a handler that has left with %v: %v", c.said, err)
		}
		if err := s.Wait(ctx); c.said == nil && err != nil || c.said != nil && !errors.Is(err, c.received) {
			t.Errorf("the outcome of a handler that has left with %v: %v", c.said, err)
		}
		for there.enter() { // until the handler's side is gone, too
			w.leave()
			time.Sleep(time.Millisecond)
		}
		if err := there.Send(ctx, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("a send after the handler's return: %v", err)
		}
		s.Close()
	}
}

func TestManyGoroutinesReceiveByAStream(t *testing.T) {
	_, ep, _ := streaming(t)
	ctx := generous(t)
	const messages = 2000
	s, err := ep.Stream(ctx, "count", Map{"n": Of([]int64{messages})})
	must(t, err)
	defer s.Close()
	counts := make(chan int)
	for i := 0; i < 8; i++ {
		go func() {
			n := 0
			for {
				m, err := s.Recv(ctx)
				if err != nil {
					if err != io.EOF {
						t.Error(err)
					}
					counts <- n
					return
				}
				n++
				m.Close()
			}
		}()
	}
	all := 0
	for i := 0; i < 8; i++ {
		all += <-counts
	}
	if all != messages {
		t.Errorf("%d of %d messages came", all, messages)
	}
}

func TestAHandlersContextErrorIsItsCallers(t *testing.T) {
	w, ep, _ := streaming(t)
	ctx := generous(t)
	for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
		want := want
		name := want.Error()
		must(t, w.Handle(name, func(context.Context, *Message) (Map, error) { return nil, fmt.Errorf("a model: %w", want) }))
		must(t, w.HandleStream(name+"-s", func(context.Context, *Message, *Stream) error { return want }))
		if _, err := ep.Call(ctx, name, nil); !errors.Is(err, want) || !strings.Contains(err.Error(), "a model") {
			t.Errorf("a call: %v, not %v", err, want)
		}
		s, err := ep.Stream(ctx, name+"-s", nil)
		must(t, err)
		if _, err := s.Recv(ctx); !errors.Is(err, want) {
			t.Errorf("a stream: %v, not %v", err, want)
		}
		s.Close()
	}
}

func TestAFailureHasDetails(t *testing.T) {
	w, ep, _ := streaming(t)
	ctx := generous(t)
	grid := []int32{0, 1, 2, 3, 4, 5}
	for name, details := range map[string]Map{
		"some": {"turned": Of(grid, 2, 3).WithStrides([]int{3, 2}, []int{1, 3}), "at": Scalar(2.5), "none": Of([]bool{}, 0, 2)},
		"bad":  {"x": Of(grid, 7)},
		"none": nil,
	} {
		failure := &Error{Status: ErrBusy, Words: "enough", Code: 5, Details: details}
		must(t, w.Handle(name, func(context.Context, *Message) (Map, error) { return nil, failure }))
		must(t, w.HandleStream(name+"-s", func(context.Context, *Message, *Stream) error { return failure }))
		_, err := ep.Call(ctx, name, nil)
		s, opens := ep.Stream(ctx, name+"-s", nil)
		must(t, opens)
		_, received := s.Recv(ctx)
		waited := s.Wait(ctx)
		s.Close()
		for what, err := range map[string]error{"the call": err, "Recv": received, "Wait": waited} {
			said := err.(*Error)
			switch name {
			case "bad":
				if said.Status != ErrInternal || !strings.Contains(said.Words, `the details: tensormsg: invalid parameter: tensor "x"`) {
					t.Errorf("%s: %v", what, err)
				}
				continue
			case "none":
				if said.Details != nil {
					t.Errorf("%s: %v", what, said.Details)
				}
				continue
			}
			turned, err := Data[int32](said.Details["turned"])
			if want := []int32{0, 3, 1, 4, 2, 5}; err != nil || !reflect.DeepEqual(turned, want) {
				t.Errorf("%s: %v, not %v (%v)", what, turned, want, err)
			}
			at, err := Data[float64](said.Details["at"])
			if err != nil || at[0] != 2.5 || said.Code != 5 || said.Status != ErrBusy || said.Details.String() != "{at: float64[], none: bool[0 2], turned: int32[3 2]}" {
				t.Errorf("%s: %v with %v (%v)", what, said, said.Details, err)
			}
		}
	}
}

func TestAHandlerSendsOnWhatItWasGivenAndReturns(t *testing.T) {
	w, ep, _ := streaming(t)
	ctx := generous(t)
	l, err := newWorker(t).Listen("unix://" + filepath.Join(t.TempDir(), "o"))
	must(t, err)
	on, err := w.Dial(ctx, l.URL())
	must(t, err)
	far, err := l.Accept(ctx)
	must(t, err)
	var sent []<-chan error
	must(t, w.Handle("on", func(ctx context.Context, in *Message) (Map, error) {
		sent = append(sent, on.SendOwned(generous(t), in.Map()))
		return nil, in.Close()
	}))
	must(t, w.HandleStream("on-s", func(ctx context.Context, in *Message, s *Stream) error {
		sent = append(sent, on.SendOwned(generous(t), in.Map()))
		return nil
	}))
	for i := 0; i < 2; i++ { // memory that was given back is used again
		x := make([]int, 1<<20)
		x[len(x)-1] = i
		reply, err := ep.Call(ctx, "on", Map{"x": Of(x)})
		must(t, err)
		reply.Close()
		x[len(x)-1] = i + 10
		s, err := ep.Stream(ctx, "on-s", Map{"x": Of(x)})
		must(t, err)
		must(t, s.Wait(ctx))
		s.Close()
	}
	for _, want := range []int{0, 10, 1, 11} {
		m, err := far.Recv(ctx)
		must(t, err)
		if x, err := Data[int](m.Get("x")); err != nil || x[len(x)-1] != want {
			t.Errorf("%d, not %d (%v)", x[len(x)-1], want, err)
		}
		m.Close()
	}
	for _, said := range sent {
		must(t, <-said)
	}
}

func TestBothSidesOfAStreamSendBeforeTheyReadByASession(t *testing.T) {
	w, _, _ := streaming(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := w.Listen("unix://"+filepath.Join(t.TempDir(), "r"), ListenKeep(), ListenResume(time.Minute))
	must(t, err)
	ep, err := newWorker(t).Dial(ctx, l.URL(), DialReconnect(Reconnect{GiveUp: -1}))
	must(t, err)
	s, err := ep.Stream(ctx, "sums", nil)
	must(t, err)
	defer s.Close()
	x := []float32{0}
	for x[0] = 1; x[0] <= 30; x[0]++ { // which is changed at once
		brief, done := context.WithTimeout(ctx, time.Minute)
		must(t, s.Send(brief, Map{"x": Of(x), "large": Of(make([]int8, 1<<16))}))
		done()
	}
	must(t, s.Finish())
	for i := 1; i <= 30; i++ {
		m, err := s.Recv(ctx)
		must(t, err)
		if sum := number(t, m, "x"); sum != float32(i*(i+1)/2) {
			t.Errorf("%v, not %d", sum, i*(i+1)/2)
		}
	}
	if _, err := s.Recv(ctx); err != io.EOF {
		t.Errorf("the end: %v", err)
	}
	must(t, s.Wait(ctx))
}

func TestManyStreamsShareAConnection(t *testing.T) {
	_, ep, ended := streaming(t)
	ctx := generous(t)
	var open []*Stream
	for i := 0; ; i++ {
		s, err := ep.Stream(ctx, "sums", nil)
		if err != nil {
			if i != 512 || !errors.Is(err, ErrResourceExhausted) {
				t.Errorf("stream %d: %v", i, err)
			}
			break
		}
		open = append(open, s)
	}
	for _, s := range open { // which gives the places back, soon
		s.Close()
	}
	var all sync.WaitGroup
	for i := 0; i < 100; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			method := "sums"
			if i%4 == 0 {
				method = "deaf"
			}
			s, err := ep.Stream(ctx, method, nil)
			for errors.Is(err, ErrResourceExhausted) { // the server has not heard of those ends yet
				time.Sleep(time.Millisecond)
				s, err = ep.Stream(ctx, method, nil)
			}
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for j := 1; j <= 5 && method == "sums"; j++ {
				if err := s.Send(ctx, Map{"x": Scalar(float32(i))}); err != nil {
					t.Error(err)
					return
				}
				m, err := s.Recv(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if x, err := Data[float32](m.Get("x")); err != nil || x[0] != float32(i*j) {
					t.Errorf("stream %d: %v, not %d (%v)", i, x, i*j, err)
				}
				m.Close()
			}
		}(i)
	}
	all.Wait()
	for i := 0; i < 25; i++ {
		<-ended
	}
}

func TestAHandlersPanicFailsItsCallAlone(t *testing.T) {
	w, ep, _ := streaming(t)
	ctx := generous(t)
	var told bytes.Buffer
	log.SetOutput(&told)
	defer log.SetOutput(os.Stderr)
	bad := map[string]func(in *Message){
		"panics": func(*Message) { panic("no \xff such\nthing") },
		"index":  func(*Message) { _ = []int{}[len(nothing())] },
		"closed": func(in *Message) { in.Close(); in.Get("x") },
		"exits":  func(*Message) { runtime.Goexit() },
	}
	for name, do := range bad {
		do := do
		must(t, w.Handle(name, func(ctx context.Context, in *Message) (Map, error) { do(in); return nil, nil }))
		must(t, w.HandleStream(name+"-s", func(ctx context.Context, in *Message, s *Stream) error {
			if err := s.Send(ctx, nil); err != nil {
				return err
			}
			do(in)
			return nil
		}))
	}
	must(t, w.Handle("returns", func(ctx context.Context, in *Message) (Map, error) {
		x := Map{"a": Of(make([]int8, 1<<16)), "x": in.Get("x")} // which is pinned
		in.Close()
		return x, nil
	}))
	must(t, w.HandleStream("sends", func(ctx context.Context, in *Message, s *Stream) error {
		x := Map{"a": Of(make([]int8, 1<<16)), "x": in.Get("x")} // which is pinned
		in.Close()
		return s.Send(ctx, x)
	}))
	must(t, w.Handle("none", func(context.Context, *Message) (Map, error) { return nil, &Error{Words: "no status"} }))
	for name := range bad {
		how := fmt.Sprintf("the handler of %q panicked: ", name)
		if name == "exits" {
			how = `the handler of "exits" has left`
		}
		if _, err := ep.Call(ctx, name, Map{"x": Of([]int8{1})}); !errors.Is(err, ErrInternal) || !strings.Contains(err.Error(), how) {
			t.Errorf("%s: %v", name, err)
		}
		s, err := ep.Stream(ctx, name+"-s", nil)
		must(t, err)
		m, err := s.Recv(ctx)
		must(t, err)
		m.Close()
		how = strings.Replace(how, name, name+"-s", 1)
		if _, err := s.Recv(ctx); !errors.Is(err, ErrInternal) || !strings.Contains(err.Error(), how) {
			t.Errorf("%s, a stream: %v", name, err)
		}
		s.Close()
	}
	if _, err := ep.Call(ctx, "returns", Map{"x": Of([]int8{1})}); !errors.Is(err, ErrInternal) {
		t.Errorf("a tensor of a closed message: %v", err)
	}
	sends, err := ep.Stream(ctx, "sends", Map{"x": Of([]int8{1})})
	must(t, err)
	if _, err := sends.Recv(ctx); !errors.Is(err, ErrInternal) || !strings.Contains(err.Error(), "its tensor of a closed Message") {
		t.Errorf("a sent tensor of a closed message: %v", err)
	}
	sends.Close()
	if _, err := ep.Call(ctx, "none", nil); !errors.Is(err, ErrApplication) || !strings.Contains(err.Error(), "no status") {
		t.Errorf("an error without a status: %v", err)
	}
	for i := 0; i < 3; i++ {
		runtime.GC() // a Pinner that is collected with its pins panics
		time.Sleep(time.Millisecond)
	}
	s, err := ep.Stream(ctx, "count", Map{"n": Of([]int64{0})}) // it serves on
	must(t, err)
	must(t, s.Wait(ctx))
	s.Close()
	if words := told.String(); !strings.Contains(words, `the handler of "panics" panicked: no`) || !strings.Contains(words, "stream_test.go") {
		t.Errorf("the log says %q", words)
	}
	var logged lockedBuffer
	must(t, LogTo(slog.New(slog.NewTextHandler(&logged, nil)), slog.LevelError))
	defer LogTo(nil, slog.LevelError)
	if _, err := ep.Call(ctx, "panics", nil); !errors.Is(err, ErrInternal) {
		t.Errorf("a panic: %v", err)
	}
	for _, part := range []string{"level=ERROR", `the handler of \"panics\" panicked: no`, "stack=", "stream_test.go", "from=tensormsg"} {
		if !strings.Contains(logged.text(), part) {
			t.Errorf("the logger has no %s: %s", part, logged.text())
		}
	}
}

func nothing() []int { return nil }

// Processes that dial, and are killed: tests run them.
func TestMain(m *testing.M) {
	if url := os.Getenv("TMSGGO_KILLED"); url != "" {
		killed(url)
	}
	if url := os.Getenv("TMSGGO_CALLS"); url != "" {
		callsUntilKilled(url)
	}
	if folder := os.Getenv("TMSGGO_STRESSES"); folder != "" {
		stressUntilKilled(folder)
	}
	os.Exit(m.Run())
}

func killed(url string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := NewWorker(nil)
	fatal(err)
	fatal(w.HandleStream("sums", sums))
	go w.Serve(ctx)
	ep, err := w.Dial(ctx, url) // and receives nothing
	fatal(err)
	s, err := ep.Stream(ctx, "deaf", nil)
	fatal(err)
	s.Recv(ctx)
	<-ctx.Done()
}

func fatal(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func TestAKilledPeerEndsTheStreamsOfBothSides(t *testing.T) {
	w := newWorker(t)
	ctx := generous(t)
	ended := make(chan error, 2)
	must(t, w.HandleStream("deaf", func(ctx context.Context, in *Message, s *Stream) error {
		ended <- nil
		_, err := s.Recv(ctx)
		ended <- err
		return err
	}))
	served := make(chan struct{})
	rest, cancel := context.WithCancel(ctx)
	go func() { w.Serve(rest); close(served) }()
	l, err := w.Listen("unix://" + filepath.Join(t.TempDir(), "s"))
	must(t, err)
	peer := exec.Command(os.Args[0])
	peer.Env = append(os.Environ(), "TMSGGO_KILLED="+l.URL())
	peer.Stderr = os.Stderr
	must(t, peer.Start())
	defer peer.Process.Kill()
	ep, err := l.Accept(ctx)
	must(t, err)
	must(t, <-ended)
	s, err := ep.Stream(ctx, "sums", nil) // the side that was dialled opens one, too
	must(t, err)
	defer s.Close()
	must(t, s.Send(ctx, Map{"x": Scalar(float32(1))}))
	m, err := s.Recv(ctx)
	must(t, err)
	m.Close()
	must(t, peer.Process.Kill())
	peer.Wait()
	if err := <-ended; !errors.Is(err, ErrPeerLost) && !errors.Is(err, ErrCanceled) {
		t.Errorf("the handler's: %v", err)
	}
	if _, err := s.Recv(ctx); !errors.Is(err, ErrPeerLost) {
		t.Errorf("the opener's: %v", err)
	}
	if err := s.Send(ctx, nil); !errors.Is(err, ErrPeerLost) {
		t.Errorf("a send: %v", err)
	}
	if err := s.Wait(ctx); !errors.Is(err, ErrPeerLost) {
		t.Errorf("the wait: %v", err)
	}
	cancel()
	<-served
}

// The folder of the library's examples in C.
func example(t *testing.T, name string, words ...string) *exec.Cmd {
	t.Helper()
	c := command(t, words...)
	c.Path = filepath.Join(os.Getenv("TENSORMSG_EXAMPLES"), name)
	c.Args[0] = c.Path
	return c
}

func TestStreamsGoToCAndComeFromIt(t *testing.T) {
	_, url, _ := streamServer(t)
	client := example(t, "stream_client", url)
	out, err := client.Output()
	if err != nil || string(out) != "1\n3\n6\n10\n" {
		t.Errorf("a client in C printed %q (%v)", out, err)
	}
	there := "unix://" + filepath.Join(t.TempDir(), "c")
	server := example(t, "stream_server", there)
	must(t, server.Start())
	defer server.Wait()
	defer server.Process.Kill()
	ctx := generous(t)
	ep, err := newWorker(t).Dial(ctx, there, DialWait())
	must(t, err)
	s, err := ep.Stream(ctx, "sums", nil)
	must(t, err)
	defer s.Close()
	for i := 1; i <= 3; i++ {
		must(t, s.Send(ctx, Map{"x": Scalar(float32(i))}))
		m, err := s.Recv(ctx)
		must(t, err)
		if got, want := fmt.Sprint(number(t, m, "x")), fmt.Sprint(i*(i+1)/2); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	must(t, s.Finish())
	if _, err := s.Recv(ctx); err != io.EOF {
		t.Errorf("the end of a server in C: %v", err)
	}
	must(t, s.Wait(ctx))
}
