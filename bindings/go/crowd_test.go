// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func fromStatus(t *testing.T, key string) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, rest, _ := strings.Cut(string(status), "\n"+key+":")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	must(t, err)
	return n
}

// Waits until so many goroutines wait on a worker.
func crowd(t *testing.T, w *Worker, waiting int) {
	t.Helper()
	for ctx := generous(t); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		now := len(w.waiters) - len(w.free)
		w.mu.Unlock()
		if now >= waiting {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%d goroutines wait, not %d", now, waiting)
		}
	}
}

// A server of "sum", and of "wait", of whose handlers so many run.
func callee(t *testing.T) (url string, waiting *atomic.Int64) {
	t.Helper()
	w := newWorker(t)
	l, err := w.Listen("unix://"+filepath.Join(t.TempDir(), "s"), ListenKeep())
	must(t, err)
	must(t, w.Handle("sum", sum))
	waiting = new(atomic.Int64)
	must(t, w.Handle("wait", func(ctx context.Context, in *Message) (Map, error) {
		waiting.Add(1)
		defer waiting.Add(-1)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	go w.Serve(generous(t))
	return l.URL(), waiting
}

func TestThousandsThatWaitCostNoThreadsAndNoQuestions(t *testing.T) {
	const many, calling = 2000, 900
	url, _ := callee(t)
	ep, err := newWorker(t).Dial(generous(t), url)
	must(t, err)
	rest, cancel := context.WithCancel(generous(t))
	before := fromStatus(t, "Threads")
	var all sync.WaitGroup
	wait := func(f func() error) {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := f(); !errors.Is(err, context.Canceled) {
				t.Errorf("a wait that was given up: %v", err)
			}
		}()
	}
	for i := 0; i < many; i++ {
		if i < calling {
			wait(func() error { _, err := ep.Call(rest, "wait", nil); return err })
		}
		wait(func() error { _, err := ep.Recv(rest); return err })
	}
	crowd(t, ep.w, many+calling)
	asked := ep.w.asked()
	const calls = 50
	for i := 0; i < calls; i++ {
		reply, err := ep.Call(generous(t), "sum", Map{"x": Of([]float32{1})})
		must(t, err)
		reply.Close()
	}
	if asked = ep.w.asked() - asked; asked > 100*calls {
		t.Errorf("%d questions for %d calls, while %d others wait", asked, calls, many+calling)
	}
	if after := fromStatus(t, "Threads"); after > before+40 {
		t.Errorf("%d threads, and %d while %d goroutines wait", before, after, many+calling)
	}
	cancel()
	all.Wait()
}

func TestOneOfManyReceiversGetsEachMessage(t *testing.T) {
	const many, messages = 200, 300
	a, b := pair(t)
	ctx := generous(t)
	rest, cancel := context.WithCancel(ctx)
	got := make(chan int, messages)
	var all sync.WaitGroup
	for i := 0; i < many; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			mine := rest
			if i%2 == 1 { // those that leave take no message along
				brief, cancel := context.WithTimeout(rest, time.Duration(i)*time.Millisecond/10)
				defer cancel()
				mine = brief
			}
			for {
				m, err := b.Recv(mine)
				if err != nil {
					return
				}
				x, err := Data[int](m.Get("x"))
				if err != nil {
					t.Error(err)
				}
				got <- x[0]
				m.Close()
			}
		}(i)
	}
	for i := 0; i < messages; i++ {
		must(t, a.Send(ctx, Map{"x": Of([]int{i})}))
	}
	seen := map[int]bool{}
	for len(seen) < messages {
		select {
		case i := <-got:
			seen[i] = true
		case <-ctx.Done():
			t.Fatalf("%d of %d messages came", len(seen), messages)
		}
	}
	cancel()
	all.Wait()
}

// A process that calls, and never ends.
func callsUntilKilled(url string) {
	w, err := NewWorker(nil)
	fatal(err)
	ep, err := w.Dial(context.Background(), url)
	fatal(err)
	for i := 0; i < 50; i++ {
		go ep.Call(context.Background(), "wait", nil)
	}
	reply, err := ep.Call(context.Background(), "sum", Map{"x": Of(make([]float32, 1<<16))})
	fatal(err)
	fmt.Println(reply)
	select {}
}

func TestAThousandGoroutinesCallAServerWhilePeersAreKilled(t *testing.T) {
	const many, kills = 1000, 3
	ctx := generous(t)
	url, waiting := callee(t)
	ep, err := newWorker(t).Dial(ctx, url)
	must(t, err)
	before := fromStatus(t, "Threads")

	stop := make(chan struct{})
	var callers sync.WaitGroup
	for i := 0; i < many; i++ {
		callers.Add(1)
		go func(i int) {
			defer callers.Done()
			for first := true; first || !isClosed(stop); first = false {
				reply, err := ep.Call(ctx, "sum", Map{"x": Of([]float32{float32(i), 1})})
				if err != nil {
					t.Error(err)
					return
				}
				if sum, err := Data[float32](reply.Get("sum")); err != nil || sum[0] != float32(i+1) {
					t.Errorf("call %d: %v (%v)", i, sum, err)
				}
				reply.Close()
			}
		}(i)
	}
	for i := 0; i < kills; i++ {
		peer := exec.Command(os.Args[0])
		peer.Env = append(os.Environ(), "TMSGGO_CALLS="+url)
		out, err := peer.StdoutPipe()
		must(t, err)
		must(t, peer.Start())
		said, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || !strings.HasPrefix(said, "Message") {
			t.Errorf("a peer: %s (%v)", said, err)
		}
		must(t, peer.Process.Kill())
		peer.Wait()
	}
	close(stop)
	callers.Wait()
	for waiting.Load() > 0 {
		if ctx.Err() != nil {
			t.Fatalf("%d handlers of killed peers have not ended", waiting.Load())
		}
		time.Sleep(time.Millisecond)
	}
	runtime.GC()
	if after := fromStatus(t, "Threads"); after > before+60 {
		t.Errorf("%d threads, and %d after %d goroutines", before, after, many)
	}
}
