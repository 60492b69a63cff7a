// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"bufio"
	"context"
	"errors"
	"io"

	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestAHandlerKnowsWhoCallsAndCallsBack(t *testing.T) {
	ctx := generous(t)
	keys := newKeyring(t)
	must(t, keys.Add("alice", newKey(t)))
	server, client := newWorker(t), newWorker(t)
	var kept *Task
	must(t, server.Handle("who", func(ctx context.Context, in *Message) (Map, error) {
		task := TaskOf(ctx)
		kept = task
		task.SetReplyMeta(Meta{"method": task.Method(), "principal": task.Principal(), "peer": task.Peer(), "asked": in.Meta()["q"]})
		back, err := task.Endpoint().Call(ctx, "name", nil)
		if err != nil {
			return nil, err
		}
		defer back.Close()
		name, err := Clone[uint8](back.Get("name"))
		return Map{"name": Of(name)}, err
	}, MethodPrincipals("alice")))
	must(t, server.HandleStream("stream", func(ctx context.Context, in *Message, s *Stream) error {
		return s.Send(ctx, nil, WithMeta(Meta{"principal": TaskOf(ctx).Principal()}))
	}))
	must(t, client.Handle("name", func(context.Context, *Message) (Map, error) {
		return Map{"name": Of([]uint8("camera"))}, nil
	}))
	l, err := server.Listen("tcp://127.0.0.1:0", ListenKeep(), ListenKeyring(keys))
	must(t, err)
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 2)
	go func() { served <- server.Serve(serving) }()
	go func() { served <- client.Serve(serving) }()
	ep, err := client.Dial(ctx, l.URL(), DialKeyring(keys))
	must(t, err)
	for i := 0; i < 3; i++ {
		reply, err := ep.Call(ctx, "who", nil, WithMeta(Meta{"q": 7}))
		must(t, err)
		name, err := Data[uint8](reply.Get("name"))
		if err != nil || string(name) != "camera" {
			t.Errorf("%q (%v)", name, err)
		}
		meta := reply.Meta()
		if peer, is := meta["peer"].(string); !is || peer == "" {
			t.Errorf("%v", meta)
		}
		delete(meta, "peer")
		if want := (Meta{"method": "who", "principal": "alice", "asked": int64(7)}); !reflect.DeepEqual(meta, want) {
			t.Errorf("%v, not %v", meta, want)
		}
		reply.Close()
		if err := kept.Endpoint().Send(ctx, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("the task is over: %v", err)
		}
	}
	s, err := ep.Stream(ctx, "stream", nil)
	must(t, err)
	m, err := s.Recv(ctx)
	must(t, err)
	if m.Meta()["principal"] != "alice" {
		t.Errorf("%v", m.Meta())
	}
	m.Close()
	if _, err := s.Recv(ctx); err != io.EOF {
		t.Errorf("%v", err)
	}
	s.Close()
	must(t, ep.Err()) // the connection goes on
	if TaskOf(ctx) != nil {
		t.Error("a task outside of a handler")
	}
	stop()
	<-served
	<-served
}

func TestACallIsMadeAgainUntilItsServerIsReady(t *testing.T) {
	ctx := generous(t)
	server, err := NewWorker(nil, WorkerNotReady(), WorkerCalls(8, 0))
	must(t, err)
	defer server.Close()
	must(t, server.SetHealth("", HealthNotServing)) // it serves, but not yet
	l, err := server.Listen("unix://"+filepath.Join(t.TempDir(), "s"), ListenKeep())
	must(t, err)
	ep, err := newWorker(t).Dial(ctx, l.URL())
	must(t, err)
	if _, err := ep.Call(ctx, "count", nil); !errors.Is(err, ErrUnavailable) || err.(*Error).MayHaveRun {
		t.Errorf("not ready: %+v", err)
	}
	done := make(chan error, 1)
	go func() {
		reply, err := ep.Call(ctx, "count", nil, CallWait())
		if err == nil {
			reply.Close()
		}
		done <- err
	}()
	var ran atomic.Int32
	must(t, server.Handle("count", func(context.Context, *Message) (Map, error) { ran.Add(1); return nil, nil }))
	must(t, server.Handle("busy", func(context.Context, *Message) (Map, error) {
		if ran.Add(1) < 4 {
			return nil, fail(ErrUnavailable, "later")
		}
		return nil, nil
	}))
	must(t, server.SetHealth("", HealthServing))
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving) }()
	must(t, <-done)
	again := CallRetry(Retry{Attempts: 5, FirstBackoff: time.Millisecond})
	if _, err := ep.Call(ctx, "busy", nil, again); !errors.Is(err, ErrUnavailable) || !err.(*Error).MayHaveRun || ran.Load() != 2 {
		t.Errorf("it ran, and is not idempotent: %v after %d", err, ran.Load())
	}
	must(t, ep.SetRetryBudget(0, 0))
	reply, err := ep.Call(ctx, "busy", nil, again, CallIdempotent())
	must(t, err)
	reply.Close()
	if ran.Load() != 4 {
		t.Errorf("it ran %d times", ran.Load())
	}
	if _, err := ep.Call(ctx, "busy", nil, CallRetry(Retry{Attempts: -1})); !errors.Is(err, ErrInvalidParam) || !strings.Contains(err.Error(), "CallRetry: Attempts") {
		t.Errorf("-1 attempts: %v", err)
	}
	grid := Of([]int32{0, 1, 2, 3, 4, 5}, 2, 3)
	if err := ep.Send(ctx, Map{"column": grid.WithStrides([]int{2}, []int{3})}, NoPack()); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "column") {
		t.Errorf("it would have to be packed: %v", err)
	}
	stop()
	<-served
}

func TestTheCommandIsRestartedUnderAnEndpoint(t *testing.T) {
	ctx := generous(t)
	url := "unix://" + filepath.Join(t.TempDir(), "s")
	file := filepath.Join(t.TempDir(), "secret.key")
	must(t, SaveKey(file, "site", newKey(t)))
	k, err := LoadKeyring(file)
	must(t, err)
	defer k.Close()
	serve := func() *exec.Cmd {
		c := command(t, "serve", "--echo", "--listen", url, "--key", file)
		out, err := c.StdoutPipe()
		must(t, err)
		must(t, c.Start())
		t.Cleanup(func() { c.Process.Kill() })
		_, err = bufio.NewReader(out).ReadString('\n') // it listens
		must(t, err)
		return c
	}
	first := serve()
	ep, err := newWorker(t).Dial(ctx, url, DialKeyring(k), DialReconnect(Reconnect{FirstBackoff: 10 * time.Millisecond}))
	must(t, err)
	peer := ep.Peer()
	must(t, first.Process.Kill())
	first.Wait()
	expect(t, ep, SessionAway)
	serve()
	meta := Meta{}
	TraceCarrier(meta).Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	TraceCarrier(meta).Set("baggage", "x=1")
	reply, err := ep.Call(ctx, "echo", Map{"x": Of([]int8{1})}, WithMeta(meta), CallRetry(Retry{Attempts: 10}), CallIdempotent())
	must(t, err)
	defer reply.Close()
	expect(t, ep, SessionNew)
	if ep.Peer() == peer || ep.Principal() != "site" {
		t.Errorf("%s, after %s, or %q", ep.Peer(), peer, ep.Principal())
	}
	back := TraceCarrier(reply.Meta())
	if back.Get("traceparent") != meta[MetaTraceParent] || !reflect.DeepEqual(back.Keys(), []string{"traceparent"}) || len(back) != 1 {
		t.Errorf("%v", back)
	}
}

// The compiler refuses an option that does not fit.
func TestOptionsFitWhatTheyAreFor(t *testing.T) {
	var _ SendOption = WithMeta(nil)
	var _ CallOption = WithMeta(nil)
	for i, option := range []any{Acked(), Verified(), OnChannel(1), Unordered(), Try(), NoPack(), KeepStrides(), Lend()} {
		if _, fits := option.(CallOption); fits {
			t.Errorf("a call takes option %d of a send", i)
		}
	}
	for i, option := range []any{CallRetry(Retry{}), CallIdempotent(), CallWait(), CallBorrow(), CallInto(nil)} {
		if _, fits := option.(SendOption); fits {
			t.Errorf("a send takes option %d of a call", i)
		}
	}
}
