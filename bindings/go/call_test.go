// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A server of some methods, and an endpoint that calls them.
func serving(t *testing.T, options ...MethodOption) (*Worker, *Endpoint, chan error) {
	t.Helper()
	w := newWorker(t)
	l, err := w.Listen("unix://"+filepath.Join(t.TempDir(), "s"), ListenKeep())
	must(t, err)
	must(t, w.Handle("sum", sum, options...))
	must(t, w.Handle("fail", func(context.Context, *Message) (Map, error) {
		return nil, Errorf(7, "no model %q", "resnet")
	}))
	gaveUp := make(chan error, 1000)
	must(t, w.Handle("wait", func(ctx context.Context, in *Message) (Map, error) {
		gaveUp <- nil
		<-ctx.Done()
		gaveUp <- ctx.Err()
		return nil, ctx.Err()
	}))
	ctx := generous(t)
	ended := make(chan struct{})
	rest, cancel := context.WithCancel(ctx)
	go func() { w.Serve(rest); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	ep, err := newWorker(t).Dial(ctx, l.URL())
	must(t, err)
	return w, ep, gaveUp
}

func TestACallIsAnswered(t *testing.T) {
	_, ep, _ := serving(t, MethodSignature("(x: float32[n]) -> (sum: float32[], x: float32[n])"))
	ctx := generous(t)
	big := make([]float32, 1<<20)
	big[5] = 3
	for _, x := range [][]float32{{1, 2, 3.5}, {}, big} {
		reply, err := ep.Call(ctx, "sum", Map{"x": Of(x)})
		must(t, err)
		sum, err := Data[float32](reply.Get("sum"))
		must(t, err)
		var want float32
		for _, value := range x {
			want += value
		}
		if same, err := Data[float32](reply.Get("x")); sum[0] != want || err != nil || len(same) != len(x) {
			t.Errorf("%v, not %v; %d of %d elements (%v)", sum, want, len(same), len(x), err)
		}
		reply.Close()
	}
	var said *Error
	if _, err := ep.Call(ctx, "fail", nil); !errors.As(err, &said) || !errors.Is(err, ErrApplication) || said.Code != 7 ||
		!strings.Contains(said.Words, `no model "resnet"`) {
		t.Errorf("a failure: %v", err)
	}
	if _, err := ep.Call(ctx, "product", nil); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "product") {
		t.Errorf("no such method: %v", err)
	}
	if _, err := ep.Call(ctx, "sum", Map{"x": Of([]int8{1})}); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("another map than the signature's: %v", err)
	}
	if _, err := ep.Call(ctx, "", nil); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("no name: %v", err)
	}
}

func TestAHandlersContextEndsWithItsCaller(t *testing.T) {
	w, ep, gaveUp := serving(t)
	brief, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := ep.Call(brief, "wait", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline: %v", err)
	}
	<-gaveUp
	if err := <-gaveUp; err == nil {
		t.Error("the handler's context has no error")
	}
	canceled, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { _, err := ep.Call(canceled, "wait", nil); ended <- err }()
	<-gaveUp
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancel: %v", err)
	}
	if err := <-gaveUp; err != context.Canceled {
		t.Errorf("the handler's context: %v", err)
	}
	go func() { _, err := ep.Call(generous(t), "wait", nil); ended <- err }()
	<-gaveUp
	w.Close()
	if err := <-gaveUp; err != context.Canceled {
		t.Errorf("the handler's context, as its worker closes: %v", err)
	}
	if err := <-ended; !errors.Is(err, ErrPeerLost) && !errors.Is(err, ErrUnavailable) {
		t.Errorf("the server's end: %v", err)
	}
}

func TestManyGoroutinesCallAServerWhilePeersGo(t *testing.T) {
	_, ep, _ := serving(t)
	url := strings.Fields(strings.TrimPrefix(ep.Peer(), "Endpoint("))[0]
	ctx := generous(t)
	var all sync.WaitGroup
	for i := 0; i < 300; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			reply, err := ep.Call(ctx, "sum", Map{"x": Of([]float32{float32(i), 1})})
			if err != nil {
				t.Error(err)
				return
			}
			defer reply.Close()
			if sum, err := Data[float32](reply.Get("sum")); err != nil || sum[0] != float32(i+1) {
				t.Errorf("call %d: %v (%v)", i, sum, err)
			}
		}(i)
	}
	for i := 0; i < 3; i++ { // others come, call, and are cut off
		other := newWorker(t)
		cut, err := other.Dial(ctx, url)
		must(t, err)
		var lost sync.WaitGroup
		for j := 0; j < 20; j++ {
			lost.Add(1)
			go func() {
				defer lost.Done()
				if _, err := cut.Call(ctx, "wait", nil); err == nil {
					t.Error("a call that nobody answers was answered")
				}
			}()
		}
		reply, err := cut.Call(ctx, "sum", Map{"x": Of([]float32{1})})
		must(t, err)
		reply.Close()
		other.Close()
		lost.Wait()
	}
	all.Wait()
}

func TestACallThatIsGivenUpReturnsThoughItsPeerDoesNotAnswer(t *testing.T) {
	a, _ := stalled(t, 300*time.Millisecond)
	big := make([]byte, 8<<20)
	brief, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.Call(brief, "any", Map{"x": Of(big)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	big[0] = 1 // free
	if err := a.Send(generous(t), nil); err == nil {
		t.Error("the endpoint is not broken")
	}
}
