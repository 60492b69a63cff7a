// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// A worker that serves "double" at a URL, and an endpoint that dialled it.
func doubling(t *testing.T, options ...MethodOption) (server *Worker, ep *Endpoint) {
	t.Helper()
	server = newWorker(t)
	must(t, server.Handle("double", func(ctx context.Context, in *Message) (Map, error) {
		x, err := Clone[float64](in.Get("x"))
		if err != nil {
			return nil, err
		}
		for i := range x {
			x[i] *= 2
		}
		return Map{"x": Of(x)}, nil
	}, options...))
	l, err := server.Listen("unix://"+filepath.Join(t.TempDir(), "s"), ListenKeep())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() { server.Serve(ctx); close(served) }()
	t.Cleanup(func() { cancel(); <-served })
	ep, err = newWorker(t).Dial(generous(t), l.URL())
	must(t, err)
	return server, ep
}

func TestCallsAreCounted(t *testing.T) {
	server, ep := doubling(t)
	ctx := generous(t)
	if text, err := server.MetricsText(); text != "" || err != nil {
		t.Errorf("before: %s (%v)", text, err)
	}
	must(t, server.StartMetrics())
	must(t, ep.w.StartMetrics())
	for i := 0; i < 3; i++ {
		reply, err := ep.Call(ctx, "double", Map{"x": Of([]float64{1, 2})})
		must(t, err)
		reply.Close()
	}
	if _, err := ep.Call(ctx, "double", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("without x: %v", err)
	}
	for _, side := range []struct {
		Side
		w              *Worker
		sent, received uint64
	}{{CallerSide, ep.w, 48, 48}, {ServerSide, server, 48, 48}} {
		m, err := side.w.Metrics(side.Side, "double")
		must(t, err)
		if m.Ended != 4 || m.InFlight != 0 || m.Failed[ErrNotFound] != 1 || m.SentBytes != side.sent || m.ReceivedBytes != side.received || m.Longest <= 0 || m.Longest > m.Latencies {
			t.Errorf("%+v", m)
		}
		median, err := side.w.Latency(side.Side, "double", .5)
		must(t, err)
		longest, err := side.w.Latency(side.Side, "double", 1)
		must(t, err)
		if median <= 0 || median > longest {
			t.Errorf("%v, and the longest %v", median, longest)
		}
		text, err := side.w.MetricsText()
		must(t, err)
		if !strings.Contains(text, `tensormsg_calls_total{side="`) || !strings.Contains(text, `status="not found"`) {
			t.Errorf("%s", text)
		}
		overview, err := side.w.Overview()
		must(t, err)
		var told struct {
			Endpoints []struct {
				State string
			}
		}
		must(t, json.Unmarshal([]byte(overview), &told))
		if len(told.Endpoints) != 1 || told.Endpoints[0].State != "connected" {
			t.Errorf("%s", overview)
		}
	}
	if _, err := server.Metrics(ServerSide, "nothing"); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing was counted: %v", err)
	}
	if _, err := server.Metrics(0, "double"); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("no side: %v", err)
	}
	if _, err := server.Latency(ServerSide, "double", 1.5); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("more than all: %v", err)
	}
}

func TestAServerTellsWhatItHasAndHowItIs(t *testing.T) {
	const signature = "(x: float64[n]) -> (x: float64[n])"
	server, ep := doubling(t, MethodSignature(signature), MethodDescription("twice as much"), MethodQueue(7),
		MethodConcurrency(3), MethodPrincipals("alice", "bob"), MethodIdempotent())
	ctx := generous(t)
	methods, err := ep.Methods(ctx)
	must(t, err)
	want := []Method{{Name: "double", Description: "twice as much", Signature: signature, Concurrency: 3, Queue: 7,
		Health: HealthServing, IsIdempotent: true, NeedsPrincipal: true}}
	if !reflect.DeepEqual(methods, want) {
		t.Errorf("%+v, not %+v", methods, want)
	}
	if _, err := ep.Call(ctx, "double", Map{"x": Of([]float64{1})}); !errors.Is(err, ErrRefused) {
		t.Errorf("it is for others: %v", err)
	}
	must(t, server.SetHealth("double", HealthNotServing))
	for method, want := range map[string]Health{"double": HealthNotServing, "": HealthServing, "halve": HealthNotFound} {
		if report, err := ep.Health(ctx, method); err != nil || report.Health != want {
			t.Errorf("%q: %v (%v), not %v", method, report.Health, err, want)
		}
	}
	if report, err := server.Health("double"); err != nil || report.Health != HealthNotServing {
		t.Errorf("itself: %+v (%v)", report, err)
	}
	if err := server.SetHealth("halve", HealthServing); !errors.Is(err, ErrNotFound) {
		t.Errorf("no such method: %v", err)
	}
	if err := server.SetHealth("", HealthStalled); !errors.Is(err, ErrInvalidParam) || !strings.Contains(err.Error(), "STALLED") {
		t.Errorf("not the application's: %v", err)
	}
	if err := server.Handle("halve", func(context.Context, *Message) (Map, error) { return nil, nil }, MethodPrincipals("a b")); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("a principal with a space: %v", err)
	}
}

func TestFilesOfMaps(t *testing.T) {
	folder := t.TempDir()
	sent := Map{"image": Of([]float32{1, 2, 3, 4, 5, 6}, 2, 3), "ids": Of([]int64{7})}
	for _, name := range []string{"a.safetensors", "a.npz", "plain"} {
		path := filepath.Join(folder, name)
		var as []FileOption
		if name == "plain" {
			as = []FileOption{FileIs(FormatSafetensors)}
		}
		must(t, Save(path, sent, append(as, FileMeta(Meta{"by": "me"}))...))
		m, err := Load(path, as...)
		must(t, err)
		if got, want := m.Map().String(), sent.String(); got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
		image, err := Data[float32](m.Get("image"))
		if err != nil || !reflect.DeepEqual(image, []float32{1, 2, 3, 4, 5, 6}) {
			t.Errorf("%s: %v (%v)", name, image, err)
		}
		if by := m.Meta()["by"]; by != "me" && name != "a.npz" {
			t.Errorf("%s: %v", name, m.Meta())
		}
		must(t, m.Close())
		if err := Save(path, sent, as...); !errors.Is(err, ErrAlreadyExists) {
			t.Errorf("%s is there: %v", name, err)
		}
		must(t, Save(path, Map{"x": Of([]int8{1})}, append(as, FileOverwrite())...))
	}
	a, b := pair(t)
	must(t, Save(filepath.Join(folder, "big.npz"), sent))
	m, err := Load(filepath.Join(folder, "big.npz"))
	must(t, err)
	must(t, a.Send(generous(t), m.Map())) // out of the page cache
	m.Close()
	got, err := b.Recv(generous(t))
	must(t, err)
	if got.Map().String() != sent.String() {
		t.Errorf("%v", got)
	}
	got.Close()
	for _, c := range []struct {
		err    error
		status Status
		words  string
	}{
		{Save(filepath.Join(folder, "a.txt"), sent), ErrUnsupported, "a.txt"},
		{Save(filepath.Join(folder, "b.npy"), sent), ErrUnsupported, "b.npy"},
		{Save(filepath.Join(folder, "no/b.npz"), sent), ErrNotFound, "no/b.npz"},
		{Save("a\x00.npz", sent), ErrInvalidParam, "NUL"},
		{Save(filepath.Join(folder, "b.npz"), Map{"x": Of([]int8{1}, 2)}), ErrInvalidParam, `"x"`},
		{Save(filepath.Join(folder, "b.npz"), sent, FileLimits(Limits{Tensors: 1})), ErrLimitExceeded, "tensors"},
		{load(filepath.Join(folder, "none.npz")), ErrNotFound, "none.npz"},
		{load(filepath.Join(folder, "a.npz"), FileIs(FormatSafetensors)), ErrLimitExceeded, "a.npz"},
		{load(filepath.Join(folder, "a.npz"), FileOverwrite()), ErrInvalidParam, "Save"},
		{load(filepath.Join(folder, "a.npz"), FileIs(77)), ErrInvalidParam, ""},
	} {
		if !errors.Is(c.err, c.status) || !strings.Contains(c.err.Error(), c.words) {
			t.Errorf("%v, not %v with %s", c.err, c.status, c.words)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 4 {
		t.Errorf("what failed has left files: %v (%v)", entries, err)
	}
}

func load(path string, options ...FileOption) error {
	_, err := Load(path, options...)
	return err
}

type lockedBuffer struct {
	sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) text() string {
	b.Lock()
	defer b.Unlock()
	return b.String()
}

func TestTheLogGoesToSlog(t *testing.T) {
	var written lockedBuffer
	must(t, LogTo(slog.New(slog.NewTextHandler(&written, &slog.HandlerOptions{Level: slog.LevelDebug})), slog.LevelInfo))
	defer LogTo(nil, slog.LevelError)
	a, _ := pair(t)
	must(t, a.Close(generous(t)))
	for end := time.Now().Add(time.Minute); !strings.Contains(written.text(), "level=INFO"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no line has come: %s", written.text())
		}
	}
	if text := written.text(); !strings.Contains(text, "from=tensormsg") || strings.Contains(text, "level=DEBUG") {
		t.Errorf("%s", text)
	}
}

func TestLimitsHoldForWhatPeersSend(t *testing.T) {
	a, _ := pair(t, ContextLimits(Limits{Tensors: 1, MessageBytes: 100}))
	ctx := generous(t)
	if err := a.Send(ctx, Map{"x": Of([]int8{1}), "y": Of([]int8{1})}); !errors.Is(err, ErrLimitExceeded) {
		t.Errorf("two tensors: %v", err)
	}
	if err := a.Send(ctx, Map{"x": Of(make([]int8, 101))}); !errors.Is(err, ErrLimitExceeded) {
		t.Errorf("101 bytes: %v", err)
	}
	must(t, a.Send(ctx, Map{"x": Of(make([]int8, 100))}))
}

func TestAWorkerTellsWhatItHasRefused(t *testing.T) {
	ctx := generous(t)
	c, err := NewContext(ContextLimits(Limits{HeldBytes: 1 << 16}))
	must(t, err)
	defer c.Close()
	w, err := NewWorker(c, WorkerRefusedEvents())
	must(t, err)
	defer w.Close()
	l, err := w.Listen("unix://" + filepath.Join(t.TempDir(), "s"))
	must(t, err)
	a, err := newWorker(t).Dial(ctx, l.URL())
	must(t, err)
	b, err := l.Accept(ctx)
	must(t, err)
	said := a.SendOwned(ctx, Map{"x": Of(make([]byte, 1<<20))}, OnChannel(3))
	e, err := w.RefusedEvent(ctx)
	if err != nil || !errors.Is(e.Err, ErrLimitExceeded) || e.Channel != 3 || e.Sequence != 0 || e.Peer != b.Peer() {
		t.Errorf("%+v (%v)", e, err)
	}
	if err := <-said; !errors.Is(err, ErrLimitExceeded) {
		t.Errorf("its sender: %v", err)
	}
	for i := 0; i < 2; i++ {
		a.SendOwned(ctx, Map{"x": Of(make([]byte, 40000)), "a": Of([]int8{1})})
	}
	m, err := b.Recv(ctx)
	must(t, err)
	if !reflect.DeepEqual(m.Names(), []string{"a", "x"}) {
		t.Errorf("%v", m.Names())
	}
	for end := time.Now().Add(time.Minute); !w.Starves(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the second does not wait")
		}
	}
	m.Close()
	m, err = b.Recv(ctx)
	must(t, err)
	m.Close()
	if w.Starves() {
		t.Error("it has come")
	}
	if _, err := a.w.RefusedEvent(ctx); !errors.Is(err, ErrUnsupported) {
		t.Errorf("nobody asked: %v", err)
	}
}

func TestAQueueDropsWhatIsOld(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	must(t, a.SetQueue(Queue{Policy: QueueNewest}))
	var said []<-chan error
	for i := 0; i < 5; i++ {
		said = append(said, a.SendOwned(ctx, Map{"x": Of([]int{i})}))
	}
	var got []int
	for len(got) == 0 || got[len(got)-1] != 4 {
		m, err := b.Recv(ctx)
		must(t, err)
		x, err := Clone[int](m.Get("x"))
		must(t, err)
		got = append(got, x[0])
		m.Close()
	}
	dropped := 0
	go b.Recv(ctx) // drives b's worker
	for _, outcome := range said {
		if err := <-outcome; errors.Is(err, ErrDropped) {
			dropped++
		} else {
			must(t, err)
		}
	}
	if dropped+len(got) != 5 || dropped == 0 {
		t.Errorf("%v came, %d were dropped", got, dropped)
	}
	if b.Waiting() != 0 {
		t.Errorf("%d wait", b.Waiting())
	}
	must(t, b.Discard())
	text, err := a.w.Describe()
	if err != nil || !strings.Contains(text, "held_bytes") {
		t.Errorf("%s (%v)", text, err)
	}
}
