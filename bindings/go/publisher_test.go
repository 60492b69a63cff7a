// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A publisher, and where its subscribers dial.
func publishing(t *testing.T, options ...PublisherOption) (*Publisher, string) {
	t.Helper()
	p, err := newWorker(t).NewPublisher(options...)
	must(t, err)
	l, err := p.Listen("unix://" + filepath.Join(t.TempDir(), "s"))
	must(t, err)
	return p, l.URL()
}

func subscribe(t *testing.T, url string, options ...DialOption) *Endpoint {
	t.Helper()
	ep, err := newWorker(t).Dial(generous(t), url, options...)
	must(t, err)
	return ep
}

// The number of the next frame.
func frame(t *testing.T, ep *Endpoint) int {
	t.Helper()
	m, err := ep.Recv(generous(t))
	must(t, err)
	defer m.Close()
	x, err := Data[int](m.Get("x"))
	must(t, err)
	return x[0]
}

func TestAPublishedMapComesToAll(t *testing.T) {
	p, url := publishing(t, PublisherKeep(1))
	ctx := generous(t)
	viewers := []*Endpoint{subscribe(t, url), subscribe(t, url)}
	must(t, p.WaitFor(ctx, 2))
	grid, large := []int32{0, 1, 2, 3, 4, 5}, make([]int64, 1<<18)
	sent := Map{"turned": Of(grid, 2, 3).WithStrides([]int{3, 2}, []int{1, 3}), "x": Of([]int{7}), "none": Of([]int8{}, 0, 3), "large": Of(large)}
	must(t, p.Publish(ctx, sent, WithMeta(Meta{"frame": int64(3)}), OnChannel(2), Verified(), Acked()))
	for i := range grid {
		grid[i], large[i] = 99, 99 // they were copied
	}
	viewers = append(viewers, subscribe(t, url)) // a newcomer is sent what is kept
	for _, viewer := range viewers {
		m, err := viewer.Recv(ctx)
		must(t, err)
		turned, err := Clone[int32](m.Get("turned"))
		if want := []int32{0, 3, 1, 4, 2, 5}; err != nil || !reflect.DeepEqual(turned, want) {
			t.Errorf("%v, not %v (%v)", turned, want, err)
		}
		if got, err := Data[int64](m.Get("large")); err != nil || got[0] != 0 {
			t.Errorf("a large one: %d (%v)", got[0], err)
		}
		if m.Meta()["frame"] != int64(3) || m.Channel() != 2 || m.Get("none").String() != "int8[0 3]" {
			t.Errorf("%v with %v on channel %d", m, m.Meta(), m.Channel())
		}
		m.Close()
	}
	big := make([]int32, 1<<20)
	big[9] = 9
	owned := p.PublishOwned(ctx, Map{"big": Of(big)})
	must(t, p.Publish(ctx, Map{"x": Of([]int{8})})) // and the one before is kept no longer
	for _, viewer := range viewers {
		m, err := viewer.Recv(ctx)
		must(t, err)
		if got, err := Data[int32](m.Get("big")); err != nil || got[9] != 9 {
			t.Errorf("what is owned: %v", err)
		}
		m.Close()
		if x := frame(t, viewer); x != 8 {
			t.Errorf("%d, not 8", x)
		}
		go viewer.Recv(ctx) // drives it
	}
	must(t, <-owned)
	for {
		stats, err := p.Stats()
		must(t, err)
		if stats.Delivered == 9 {
			if p.Subscribers() != 3 || len(stats.Subscribers) != 3 || stats.Published != 3 || stats.Kept != 1 || stats.Dropped+stats.Failed != 0 {
				t.Errorf("%+v", stats)
			}
			break
		}
		time.Sleep(time.Millisecond)
	}
	for what, err := range map[string]error{
		"a tensor": p.Publish(ctx, Map{"x": Of([]int{1}, 2)}),
		"owned":    <-p.PublishOwned(ctx, Map{"": Of([]int{1})}),
		"a bound":  func() error { _, err := p.w.NewPublisher(PublisherWindow(0)); return err }(),
	} {
		if !errors.Is(err, ErrInvalidParam) || err.(*Error).Words == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for name, option := range map[string]PublisherOption{
		"PublisherQueue": PublisherQueue(-1), "PublisherQueueBytes": PublisherQueueBytes(-1), "PublisherKeep": PublisherKeep(-1),
		"PublisherQueueTime": PublisherQueueTime(-time.Second), "PublisherWindow": PublisherWindow(1 << 40),
	} {
		if _, err := p.w.NewPublisher(option); !errors.Is(err, ErrInvalidParam) || !strings.Contains(err.Error(), name+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.Add(viewers[0], PublisherWindow(-1)); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("Add: %v", err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := p.Publish(over, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
}

func TestALiveSubscriberGetsTheNewest(t *testing.T) {
	for _, c := range []struct {
		publisher []PublisherOption
		viewer    []DialOption
	}{{[]PublisherOption{PublisherLive()}, nil}, {[]PublisherOption{PublisherAll()}, []DialOption{DialLive()}}} {
		p, url := publishing(t, c.publisher...)
		ctx := generous(t)
		viewer := subscribe(t, url, c.viewer...)
		must(t, p.WaitFor(ctx, 1))
		const frames = 50
		for i := 0; i < frames; i++ { // it waits for nobody
			must(t, p.Publish(ctx, Map{"x": Of([]int{i})}))
		}
		first, last := frame(t, viewer), frame(t, viewer)
		if first != 0 || last != frames-1 {
			t.Errorf("%d and %d came", first, last)
		}
		stats, err := p.Stats()
		must(t, err)
		one := stats.Subscribers[0]
		if one.Mode != "live" || one.Dropped != frames-2 || one.DroppedFor["messages"] != frames-2 || one.Peer == "" {
			t.Errorf("what it missed: %+v", one)
		}
	}
}

func TestAPublisherOfAllWaitsForTheSlowest(t *testing.T) {
	p, url := publishing(t, PublisherAll(), PublisherWindow(1), PublisherQueue(2))
	ctx := generous(t)
	viewer := subscribe(t, url)
	must(t, p.WaitFor(ctx, 1))
	publish := func(ctx context.Context, i int) error { return p.Publish(ctx, Map{"x": Of([]int{i})}) }
	for i := 0; i < 3; i++ {
		must(t, publish(ctx, i))
	}
	brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := publish(brief, 99); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "unix://") {
		t.Errorf("without room: %v", err)
	}
	const frames = 50
	done := make(chan error, 1)
	go func() {
		for i := 3; i < frames; i++ {
			if err := publish(ctx, i); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := 0; i < frames; i++ {
		if x := frame(t, viewer); x != i {
			t.Fatalf("%d, not %d", x, i)
		}
	}
	must(t, <-done)
}

func TestWhoIsTooSlowIsDisconnected(t *testing.T) {
	p, url := publishing(t)
	ctx := generous(t)
	good := subscribe(t, url)
	a, b := pairOn(t, p.w)
	must(t, p.Add(a, PublisherSlow(SlowDisconnect), PublisherQueue(1), PublisherWindow(1)))
	must(t, p.WaitFor(ctx, 2))
	for i := 0; i < 3; i++ {
		must(t, p.Publish(ctx, Map{"x": Of([]int{i})}))
	}
	for i := 0; i < 3; i++ {
		if x := frame(t, good); x != i {
			t.Errorf("%d, not %d", x, i)
		}
	}
	var err error
	for err == nil {
		var m *Message
		if m, err = b.Recv(ctx); err == nil {
			m.Close()
		}
	}
	if !errors.Is(err, ErrLimitExceeded) {
		t.Errorf("the slow one's end: %v", err)
	}
	if n := p.Subscribers(); n != 1 {
		t.Errorf("%d subscribers", n)
	}
}

// A connection whose dialling side is on w.
func pairOn(t *testing.T, w *Worker) (dialled, accepted *Endpoint) {
	t.Helper()
	l, err := newWorker(t).Listen("unix://" + filepath.Join(t.TempDir(), "l"))
	must(t, err)
	ctx := generous(t)
	dialled, err = w.Dial(ctx, l.URL())
	must(t, err)
	accepted, err = l.Accept(ctx)
	must(t, err)
	return dialled, accepted
}

func TestAnEndpointIsAddedAndTakenOut(t *testing.T) {
	p, _ := publishing(t)
	ctx := generous(t)
	a, b := pairOn(t, p.w)
	must(t, p.Add(a))
	must(t, p.Publish(ctx, Map{"x": Of([]int{1})}))
	must(t, a.Send(ctx, Map{"x": Of([]int{2})})) // it is an endpoint as before
	if x, y := frame(t, b), frame(t, b); x+y != 3 {
		t.Errorf("%d and %d came", x, y)
	}
	for _, c := range []struct {
		err    error
		status Status
	}{
		{p.Add(a), ErrAlreadyExists}, {p.Add(b), ErrInvalidParam}, {p.Add(a, PublisherKeep(2)), ErrInvalidParam},
		{p.Remove(a), 0}, {p.Remove(a), ErrNotFound}, {p.Publish(ctx, Map{"x": Of([]int{3})}), 0},
		{a.Send(ctx, Map{"x": Of([]int{4})}), 0}, {a.Close(ctx), 0}, {p.Add(a), ErrClosed},
	} {
		if c.status == 0 {
			must(t, c.err)
		} else if !errors.Is(c.err, c.status) {
			t.Errorf("%v, not %v", c.err, c.status)
		}
	}
	if x := frame(t, b); x != 4 {
		t.Errorf("%d, not 4", x)
	}
}

func TestAPublisherClosesInOrder(t *testing.T) {
	p, url := publishing(t)
	ctx := generous(t)
	viewer := subscribe(t, url)
	must(t, p.WaitFor(ctx, 1))
	for i := 0; i < 10; i++ {
		must(t, p.Publish(ctx, Map{"x": Of([]int{i})}))
	}
	waits := make(chan error, 1)
	go func() { waits <- p.WaitFor(ctx, 2) }()
	for {
		p.mu.Lock()
		n := len(p.crowds)
		p.mu.Unlock()
		if n == 1 {
			break
		}
		runtime.Gosched()
	}
	closed := make(chan error, 1)
	go func() { closed <- p.Close(ctx) }()
	for i := 0; i < 10; i++ {
		if x := frame(t, viewer); x != i {
			t.Errorf("%d, not %d", x, i)
		}
	}
	if _, err := viewer.Recv(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("after the last: %v", err)
	}
	must(t, <-closed)
	must(t, p.Close(ctx))
	a, _ := pairOn(t, p.w)
	_, listens := p.Listen("unix://" + filepath.Join(t.TempDir(), "t"))
	_, stats := p.Stats()
	for what, err := range map[string]error{
		"the wait": <-waits, "Publish": p.Publish(ctx, nil), "PublishOwned": <-p.PublishOwned(ctx, nil),
		"Listen": listens, "Stats": stats, "WaitFor": p.WaitFor(ctx, 0), "Add": p.Add(a),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := p.Subscribers(); n != 0 {
		t.Errorf("%d subscribers", n)
	}

	stuck, url := publishing(t, PublisherAll())
	viewer = subscribe(t, url)
	must(t, stuck.WaitFor(ctx, 1))
	must(t, stuck.Publish(ctx, Map{"x": Of([]int{1})}))
	lost := stuck.PublishOwned(ctx, Map{"x": Of([]int{2})})
	brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := stuck.Close(brief); !errors.Is(err, context.DeadlineExceeded) { // nobody receives there
		t.Errorf("a close without patience: %v", err)
	}
	<-lost
	if _, err := stuck.w.NewPublisher(); err != nil {
		t.Error(err)
	}
	stuck.w.Close()
	if _, err := stuck.w.NewPublisher(); !errors.Is(err, ErrClosed) {
		t.Errorf("on a closed worker: %v", err)
	}
}

// A listener that outlived its publisher would hand peers to what was freed.
func TestAPublisherThatClosesLeavesNoListener(t *testing.T) {
	w, folder := newWorker(t), t.TempDir()
	for i := 0; i < 30; i++ {
		p, err := w.NewPublisher()
		must(t, err)
		closed := make(chan error, 1)
		go func() { closed <- p.Close(generous(t)) }()
		l, err := p.Listen("unix://" + filepath.Join(folder, "l"))
		must(t, <-closed)
		if err != nil {
			continue // the other one was first
		}
		if _, err := l.Describe(); !errors.Is(err, ErrClosed) {
			t.Fatalf("round %d: a publisher is closed, and its listener listens (%v)", i, err)
		}
	}
}

func TestAKilledSubscriberHoldsNobodyUp(t *testing.T) {
	p, url := publishing(t, PublisherAll(), PublisherWindow(1), PublisherQueue(1))
	ctx := generous(t)
	good := subscribe(t, url)
	peer := exec.Command(os.Args[0])
	peer.Env = append(os.Environ(), "TMSGGO_KILLED="+url)
	peer.Stderr = os.Stderr
	must(t, peer.Start())
	defer peer.Process.Kill()
	must(t, p.WaitFor(ctx, 2))
	done := make(chan error, 1)
	const frames = 10
	go func() {
		for i := 0; i < frames; i++ { // the other one receives nothing
			if err := p.Publish(ctx, Map{"x": Of([]int{i})}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	if x := frame(t, good); x != 0 {
		t.Errorf("%d, not 0", x)
	}
	must(t, peer.Process.Kill())
	peer.Wait()
	for i := 1; i < frames; i++ {
		if x := frame(t, good); x != i {
			t.Errorf("%d, not %d", x, i)
		}
	}
	must(t, <-done)
	if n := p.Subscribers(); n != 1 {
		t.Errorf("%d subscribers", n)
	}
}

func TestStreamsAndFramesGoToPythonAndComeFromIt(t *testing.T) {
	interpreter := python(t)
	ctx := generous(t)
	_, streams, _ := streamServer(t)
	p, frames := publishing(t)
	folder := t.TempDir()
	peer := exec.CommandContext(ctx, interpreter, "-B", "testdata/peer.py", streams, frames, folder)
	peer.Stderr = os.Stderr
	in, err := peer.StdinPipe()
	must(t, err)
	out, err := peer.StdoutPipe()
	must(t, err)
	must(t, peer.Start())
	defer peer.Process.Kill()
	must(t, p.WaitFor(ctx, 1))
	for i := 0; i < 2; i++ {
		must(t, p.Publish(ctx, Map{"x": Of([]int{i, 5})}, WithMeta(Meta{"frame": i})))
	}
	must(t, p.Close(ctx))
	said := ""
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		said += lines.Text() + "\n"
	}
	if want := "1.0\n3.0\n6.5\nNone\n7 True\n0 [0, 5]\n1 [1, 5]\n"; said != want {
		t.Errorf("Python says %q, not %q", said, want)
	}
	camera := subscribe(t, "unix://"+filepath.Join(folder, "f"))
	for i := 0; i < 3; i++ {
		m, err := camera.Recv(ctx)
		must(t, err)
		if x, err := Data[int](m.Get("x")); err != nil || len(x) != i || m.Meta()["number"] != int64(i) {
			t.Errorf("frame %d: %v with %v (%v)", i, x, m.Meta(), err)
		}
		m.Close()
	}
	ep := subscribe(t, "unix://"+filepath.Join(folder, "s"))
	s, err := ep.Stream(ctx, "twice", nil)
	must(t, err)
	defer s.Close()
	for i := 1; i <= 3; i++ {
		must(t, s.Send(ctx, Map{"x": Of([]float32{float32(i)})}))
		m, err := s.Recv(ctx)
		must(t, err)
		if y := number(t, m, "y"); y != float32(2*i) {
			t.Errorf("%v, not %d", y, 2*i)
		}
	}
	must(t, s.Finish())
	if _, err := s.Recv(ctx); err != io.EOF {
		t.Errorf("the end: %v", err)
	}
	must(t, s.Wait(ctx))
	fails, err := ep.Stream(ctx, "twice", nil)
	must(t, err)
	defer fails.Close()
	must(t, fails.Send(ctx, Map{"x": Of([]float32{})}))
	var why *Error
	if _, err := fails.Recv(ctx); !errors.As(err, &why) || why.Code != 9 || !strings.Contains(why.Words, "nothing to double") {
		t.Errorf("a failure in Python: %v", err)
	}
	if at, err := Data[int](why.Details["at"]); err != nil || len(at) != 2 || at[0] != 4 {
		t.Errorf("its details: %v (%v)", at, err)
	}
	in.Close()
	must(t, peer.Wait())
}
