// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"context"
	"errors"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A context that ends by itself, soon.
func brief(ctx context.Context) (context.Context, context.CancelFunc) {
	within := time.Duration(rand.Intn(20000)) * time.Microsecond
	if rand.Intn(2) == 0 {
		return context.WithTimeout(ctx, within)
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(within, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// What may be said where everything may be closed at any time.
func allowed(err error) bool {
	var e *Error
	if err == nil || err == io.EOF {
		return true
	}
	return errors.As(err, &e) && e.Status != ErrInternal && e.Status != ErrMalformed && e.Status != ErrCorrupt
}

// One side, with something of everything.
type server struct {
	*Worker
	publisher            *Publisher
	calls, pipes, frames *Listener
	offer                *Offer
}

func newServer(t *testing.T, folder string) *server {
	w, err := NewWorker(nil, WorkerRefusedEvents(), WorkerBorrow())
	must(t, err)
	s := &server{Worker: w}
	must(t, w.Handle("sum", func(ctx context.Context, in *Message) (Map, error) {
		if rand.Intn(4) == 0 {
			in.Close()
			return nil, Errorf(1, "no")
		}
		if rand.Intn(4) == 0 {
			within, cancel := brief(ctx)
			defer cancel()
			<-within.Done()
		}
		return in.Map(), nil
	}))
	must(t, w.Handle("back", func(ctx context.Context, in *Message) (Map, error) {
		within, cancel := brief(ctx)
		defer cancel()
		ep := TaskOf(ctx).Endpoint()
		if err := ep.Send(within, in.Map()); !allowed(err) {
			t.Error(err)
		}
		go ep.Recv(within)
		return Map{}, nil
	}))
	must(t, w.HandleStream("echo", func(ctx context.Context, in *Message, s *Stream) error {
		for rand.Intn(30) > 0 {
			msg, err := s.Recv(ctx)
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			err = s.Send(ctx, msg.Map())
			msg.Close()
			if err != nil {
				return err
			}
		}
		return Errorf(2, "enough")
	}))
	options := [][]PublisherOption{{PublisherKeep(2)}, {PublisherAll(), PublisherQueue(2)}, {PublisherLive()}}
	s.publisher, err = w.NewPublisher(options[rand.Intn(len(options))]...)
	must(t, err)
	s.frames, err = s.publisher.Listen("unix://" + filepath.Join(folder, "f"))
	must(t, err)
	s.calls, err = w.Listen("unix://"+filepath.Join(folder, "c"), ListenKeep(), ListenPeerEvents())
	must(t, err)
	s.pipes, err = w.Listen("tcp://127.0.0.1:0", ListenResume(time.Second), ListenPeerEvents())
	must(t, err)
	s.offer, err = w.Offer(Map{"w": Of(make([]float32, 1<<rand.Intn(18)))}, OfferName("w", 1))
	must(t, err)
	return s
}

// Does this and that to an endpoint.
func (s *stress) use(ep *Endpoint) {
	small, large := Map{"x": Of([]float32{1, 2})}, Map{"x": Of(make([]float32, 1<<17)), "y": Of(make([]byte, 3000))}
	p, err := Prepare(Map{"x": Of(make([]float32, 2))})
	s.say(err)
	defer p.Close()
	for i, first := 0, rand.Intn(20); i < 40; i++ {
		ctx, cancel := brief(s.ctx)
		m := small
		if rand.Intn(3) == 0 {
			m = large
		}
		switch (first + rand.Intn(20)) % 20 {
		case 0, 1:
			s.say(ep.Send(ctx, m))
		case 2:
			s.say(ep.Send(ctx, m, Acked()))
		case 3:
			said := ep.SendOwned(ctx, m)
			if rand.Intn(2) == 0 {
				s.say(<-said)
			}
		case 4, 5:
			msg, err := ep.Recv(ctx)
			s.close(msg, err)
		case 6:
			s.say(ep.RecvInto(ctx, p))
		case 7:
			s.say(ep.SendPrepared(ctx, p))
			s.say(p.Set("x", Of(make([]float32, 2))))
		case 8, 9:
			msg, err := ep.Call(ctx, "sum", m)
			s.close(msg, err)
		case 10:
			msg, err := ep.Call(ctx, "sum", small, CallInto(p))
			s.close(msg, err)
		case 11:
			msg, err := ep.Call(ctx, "back", m)
			s.close(msg, err)
		case 12, 13:
			s.stream(ctx, ep, m)
		case 14:
			msg, err := ep.Fetch(ctx, "w", FetchWait(0))
			s.close(msg, err)
		case 15:
			_, _, err := ep.Offers(ctx)
			s.say(err)
		case 16:
			_, err := ep.Ping(ctx)
			s.say(err)
			s.say(ep.Ready(ctx))
		case 17:
			_, err := ep.SessionEvent(ctx)
			s.say(err)
			ep.Describe()
			ep.Peer()
		case 18:
			_, err := ep.Methods(ctx)
			s.say(err)
		case 19:
			if rand.Intn(8) == 0 {
				ep.Abort(ErrRefused)
			}
			ep.Waiting()
			s.say(ep.Err())
		}
		cancel()
	}
}

func (s *stress) stream(ctx context.Context, ep *Endpoint, m Map) {
	st, err := ep.Stream(ctx, "echo", m)
	s.say(err)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	both.Add(1)
	go func() {
		defer both.Done()
		for i := 0; i < 10; i++ {
			within, cancel := brief(s.ctx)
			err := st.Send(within, m)
			cancel()
			s.say(err)
		}
		s.say(st.Finish())
	}()
	for i := 0; i < 10; i++ {
		within, cancel := brief(s.ctx)
		msg, err := st.Recv(within)
		cancel()
		s.close(msg, err)
	}
	if rand.Intn(2) == 0 {
		within, cancel := brief(s.ctx)
		s.say(st.Wait(within))
		cancel()
	}
	if rand.Intn(2) == 0 {
		st.Close()
	}
	both.Wait()
	st.Close()
}

type stress struct {
	t   *testing.T // nil: in a process that will be killed
	ctx context.Context
	all sync.WaitGroup
}

func (s *stress) say(err error) {
	if !allowed(err) {
		if s.t == nil {
			fatal(err)
		}
		s.t.Error(err)
	}
}

func (s *stress) close(msg *Message, err error) {
	s.say(err)
	if err == nil && rand.Intn(8) > 0 {
		msg.Close()
	}
}

func (s *stress) begin(f func()) {
	s.all.Add(1)
	go func() {
		defer s.all.Done()
		f()
	}()
}

// Two sides, and a third one that is killed, talk while all is closed in some
// order.
func (s *stress) round(folder string, kill bool) {
	var end context.CancelFunc
	s.ctx, end = context.WithCancel(context.Background())
	defer end()
	server := newServer(s.t, folder)
	client, err := NewWorker(nil, WorkerBorrow())
	must(s.t, err)
	s.begin(func() { s.say(server.Serve(s.ctx)) })
	var peer *exec.Cmd
	if kill {
		peer = exec.Command(os.Args[0])
		peer.Env = append(os.Environ(), "TMSGGO_STRESSES="+folder)
		peer.Stderr = os.Stderr
		must(s.t, peer.Start())
	}
	var mu sync.Mutex
	var eps []*Endpoint
	keep := func(ep *Endpoint, err error) {
		s.say(err)
		if err != nil {
			return
		}
		mu.Lock()
		eps = append(eps, ep)
		mu.Unlock()
		for i := 0; i < 3; i++ {
			s.begin(func() { s.use(ep) })
		}
	}
	s.begin(func() {
		for i := 0; i < 3; i++ {
			keep(server.pipes.Accept(s.ctx))
		}
	})
	s.begin(func() { keep(client.Dial(s.ctx, server.pipes.URL(), DialReconnect(Reconnect{}))) })
	s.begin(func() { keep(client.Dial(s.ctx, server.pipes.URL())) })
	s.begin(func() { keep(client.Dial(s.ctx, server.calls.URL())) })
	s.begin(func() { keep(client.Dial(s.ctx, server.calls.URL(), DialReconnect(Reconnect{}))) })
	s.begin(func() { keep(client.Dial(s.ctx, server.frames.URL())) })
	s.begin(func() { keep(client.Dial(s.ctx, server.frames.URL(), DialLive())) })
	for i := 0; i < 2; i++ {
		s.begin(func() {
			for j := 0; j < 30; j++ {
				ctx, cancel := brief(s.ctx)
				switch rand.Intn(6) {
				case 0:
					s.say(server.publisher.WaitFor(ctx, rand.Intn(5)))
				case 1:
					server.publisher.PublishOwned(ctx, Map{"x": Of(make([]byte, 1000))})
				case 2:
					_, err := server.publisher.Stats()
					s.say(err)
				case 3:
					_, err := server.pipes.PeerEvent(ctx)
					s.say(err)
				case 4:
					_, err := server.RefusedEvent(ctx)
					s.say(err)
				default:
					s.say(server.publisher.Publish(ctx, Map{"x": Of(make([]byte, 100000))}))
				}
				cancel()
			}
		})
	}
	closers := []func(){
		func() { server.calls.Close() },
		func() { server.pipes.Close() },
		func() { server.frames.Close() },
		func() {
			ctx, cancel := brief(s.ctx)
			defer cancel()
			s.say(server.publisher.Close(ctx))
		},
		func() {
			l, err := server.publisher.Listen("unix://" + filepath.Join(folder, "g"))
			s.say(err)
			if err == nil {
				keep(client.Dial(s.ctx, l.URL()))
			}
		},
		func() {
			ctx, cancel := brief(s.ctx)
			defer cancel()
			s.say(server.offer.Withdraw(ctx))
		},
		func() { server.offer.Close() },
		func() { server.Close() },
		func() { client.Close() },
		func() {
			mu.Lock()
			some := append([]*Endpoint(nil), eps...)
			mu.Unlock()
			for _, ep := range some {
				ctx, cancel := brief(s.ctx)
				s.say(ep.Close(ctx))
				cancel()
			}
		},
		func() { end() },
		func() { runtime.GC() },
	}
	time.Sleep(time.Duration(rand.Intn(50)) * time.Millisecond)
	rand.Shuffle(len(closers), func(i, j int) { closers[i], closers[j] = closers[j], closers[i] })
	for _, f := range closers {
		f := f
		s.begin(f)
		if rand.Intn(2) == 0 {
			time.Sleep(time.Duration(rand.Intn(10)) * time.Millisecond)
		}
	}
	if kill {
		time.Sleep(time.Duration(rand.Intn(300)) * time.Millisecond)
		peer.Process.Kill()
		peer.Wait()
	}
	s.all.Wait()
	server.Close()
	client.Close()
}

func stressUntilKilled(folder string) {
	s := &stress{ctx: context.Background()}
	for {
		w, err := NewWorker(nil)
		fatal(err)
		for _, name := range []string{"c", "f"} {
			within, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
			if ep, err := w.Dial(within, "unix://"+filepath.Join(folder, name)); err == nil {
				for i := 0; i < 4; i++ {
					s.begin(func() { s.use(ep) })
				}
			}
			cancel()
		}
		s.all.Wait()
		w.Close()
	}
}

func stuck(how string) {
	debug.SetTraceback("all")
	panic(how)
}

// `make soak` says for how long. Nothing may hang, nor may a goroutine stay.
func TestEverythingIsClosedInTheMiddleOfEverything(t *testing.T) {
	seconds, _ := strconv.ParseFloat(os.Getenv("TMSGGO_STRESS"), 64)
	until := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	before := runtime.NumGoroutine()
	rounds := 0
	for ; rounds < 2 || time.Now().Before(until); rounds++ {
		s := &stress{t: t}
		hung := time.AfterFunc(2*time.Minute, func() { stuck("a round hangs") })
		s.round(t.TempDir(), rounds%4 == 1)
		hung.Stop()
		for ctx := generous(t); runtime.NumGoroutine() > before+2; time.Sleep(time.Millisecond) {
			if ctx.Err() != nil {
				stuck("goroutines stay")
			}
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d rounds", rounds)
}
