// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Two ends of a connection whose dialling side's worker has these options.
func pairOf(t testing.TB, url string, options ...WorkerOption) (dialled, accepted *Endpoint) {
	t.Helper()
	l, err := newWorker(t).Listen(url)
	must(t, err)
	ctx := generous(t)
	w, err := NewWorker(nil, options...)
	must(t, err)
	t.Cleanup(func() { w.Close() })
	dialled, err = w.Dial(ctx, l.URL())
	must(t, err)
	accepted, err = l.Accept(ctx)
	must(t, err)
	return dialled, accepted
}

func gone[T any](t *testing.T, c <-chan T, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		t.Fatal(what)
	}
}

func TestAnOfferIsFetchedByNameByKeyAndInParts(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	weights := make([]float32, 12)
	for i := range weights {
		weights[i] = float32(i)
	}
	o, err := b.w.Offer(Map{"w": Of(weights, 3, 4), "b": Of([]int64{7})}, OfferName("weights", 3), OfferMeta(Meta{"step": 9}))
	must(t, err)
	defer o.Close()
	m, err := a.Fetch(ctx, "weights")
	must(t, err)
	if got, want := m.String(), "Message{b: int64[1], w: float32[3 4]}"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	v := m.OfferVersion()
	if v.Number != 3 || v.Epoch == 0 || m.Meta()["step"] != int64(9) || m.Lent() {
		t.Errorf("%v %v", v, m.Meta())
	}
	m.Close()
	m, err = a.FetchKey(ctx, o.Key(), FetchSlices(Slice{Name: "w", As: "box", Start: []int{1, 2}, Count: []int{2, -1}}, Slice{Name: "b"}))
	must(t, err)
	box, err := Clone[float32](m.Get("box"))
	if want := []float32{6, 7, 10, 11}; err != nil || !reflect.DeepEqual(box, want) {
		t.Errorf("%v (%v), not %v", box, err, want)
	}
	m.Close()
	offers, more, err := a.Offers(ctx)
	if want := (map[string]Offered{"weights": {3, 2, 56, 1}}); err != nil || more || !reflect.DeepEqual(offers, want) {
		t.Errorf("%v (%v), not %v", offers, err, want)
	}
	for what, fetch := range map[string]func() (*Message, error){
		`"wrong"`: func() (*Message, error) { return a.Fetch(ctx, "weights", FetchSlices(Slice{Name: "wrong"})) },
		`1 starts`: func() (*Message, error) {
			return a.Fetch(ctx, "weights", FetchSlices(Slice{Name: "w", Start: []int{1}}))
		},
		"no slice": func() (*Message, error) { return a.Fetch(ctx, "weights", FetchSlices()) },
		"'w'": func() (*Message, error) {
			return a.Fetch(ctx, "weights", FetchSlices(Slice{Name: "w", Start: []int{2}, Count: []int{2}}))
		},
		"a key is of":   func() (*Message, error) { return a.FetchKey(ctx, o.Key(), FetchAtLeast(1)) },
		"the offer's n": func() (*Message, error) { return a.Fetch(ctx, "") },
	} {
		if _, err := fetch(); !errors.Is(err, ErrInvalidParam) || !strings.Contains(strings.ReplaceAll(err.Error(), "'wrong'", `"wrong"`), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := b.w.Offer(nil, OfferName("weights", 3)); !errors.Is(err, ErrAlreadyExists) {
		t.Errorf("twice: %v", err)
	}
	for words, option := range map[string]OfferOption{
		"OfferTTL: 0": OfferTTL(0), "OfferTTL: -1s": OfferTTL(-time.Second), "OfferName": OfferName("", 1), "NUL": OfferPrincipals("a\x00b"), "OfferPrincipals: \"a b\"": OfferPrincipals("a b"),
	} {
		if _, err := b.w.Offer(nil, option); !errors.Is(err, ErrInvalidParam) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	must(t, o.Withdraw(ctx))
	weights[0] = 1 // free since
	if s := o.Stats(); s.Fetches != 2 || s.UnderWay != 0 || o.Live() {
		t.Errorf("%+v, live: %v", s, o.Live())
	}
	if _, err := a.FetchKey(ctx, o.Key()); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "withdrawn") {
		t.Errorf("afterwards: %v", err)
	}
	if _, err := b.w.Offer(Map{"x": Of([]int8{1}, 2)}); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("a bad tensor: %v", err)
	}
}

func TestAFetchWaitsForTheNextVersion(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	first, err := b.w.Offer(Map{"x": Of([]int32{1})}, OfferName("x", 1), OfferFetches(1))
	must(t, err)
	m, err := a.Fetch(ctx, "x", FetchAfter(OfferVersion{}))
	must(t, err)
	seen := m.OfferVersion()
	m.Close()
	gone(t, first.Released(), "an offer that was fetched as often as it may be is not released")
	if first.Live() {
		t.Error("it is live")
	}
	if _, err := a.Fetch(ctx, "x", FetchAfter(seen)); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing new: %v", err)
	}
	brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := a.Fetch(brief, "x", FetchAfter(seen), FetchWait(0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing new in time: %v", err)
	}
	came := make(chan error, 1)
	go func() {
		m, err := a.Fetch(ctx, "x", FetchAfter(seen), FetchWait(time.Minute))
		if err == nil {
			if x, _ := Data[int32](m.Get("x")); x[0] != 2 || m.OfferVersion().Number != 2 {
				err = fail(ErrInternal, m.String())
			}
			m.Close()
		}
		came <- err
	}()
	second, err := b.w.Offer(Map{"x": Of([]int32{2})}, OfferName("x", 2), OfferTTL(time.Hour))
	must(t, err)
	must(t, <-came)
	b.w.Close() // with the offer
	gone(t, second.Released(), "an offer whose worker is closed is not released")
	must(t, second.Close())
	must(t, second.Close())
}

func TestAFetchIntoFillsASliceWithoutAnother(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	big := make([]float32, 1<<20)
	big[5] = 3
	o, err := b.w.Offer(Map{"w": Of(big), "b": Of([]int8{4})}, OfferName("w", 1))
	must(t, err)
	defer o.Close()
	got := make([]float32, len(big))
	in, err := Prepare(Map{"w": Of(got)})
	must(t, err)
	defer in.Close()
	for i := 0; i < 2; i++ {
		got[5] = 0
		m, err := a.Fetch(ctx, "w", FetchInto(in))
		must(t, err)
		view, err := Data[float32](m.Get("w"))
		must(t, err)
		if got[5] != 3 || !debugging && &view[0] != &got[0] {
			t.Errorf("%v came, elsewhere", got[5])
		}
		if err := in.Set("w", Of(make([]float32, len(big)))); !errors.Is(err, ErrBusy) {
			t.Errorf("in use: %v", err)
		}
		m.Close()
	}
	must(t, in.Set("w", Of(make([]float32, len(big)))))
	must(t, b.w.Handle("get", func(context.Context, *Message) (Map, error) { return Map{"w": Of(big)}, nil }))
	go b.w.Serve(ctx)
	must(t, in.Set("w", Of(got)))
	got[5] = 0
	m, err := a.Call(ctx, "get", nil, CallInto(in))
	must(t, err)
	if got[5] != 3 {
		t.Errorf("%v is the reply, elsewhere", got[5])
	}
	m.Close()
	other, err := Prepare(Map{"w": Of(make([]float32, 3))})
	must(t, err)
	defer other.Close()
	if _, err := a.Fetch(ctx, "w", FetchInto(other)); !errors.Is(err, ErrInvalidParam) || !strings.Contains(err.Error(), "'w'") {
		t.Errorf("another shape: %v", err)
	}
	in.Close()
	if _, err := a.Fetch(ctx, "w", FetchInto(in)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestABufferIsLentAndGivenBack(t *testing.T) {
	a, b := pairOf(t, "unix://"+filepath.Join(t.TempDir(), "s"), WorkerBorrow())
	ctx := generous(t)
	buffer, err := Alloc[float32](1 << 16)
	must(t, err)
	x := buffer.Slice()
	x[7] = 5
	must(t, b.Send(ctx, Map{"x": buffer.Tensor(256, 256)}, Lend()))
	m, err := a.Recv(ctx)
	must(t, err)
	view, err := Data[float32](m.Get("x"))
	must(t, err)
	if !m.Lent() || !buffer.Lent() || view[7] != 5 {
		t.Errorf("lent: %v, %v; %v", m.Lent(), buffer.Lent(), view[7])
	}
	m.Close()
	for end := time.Now().Add(30 * time.Second); buffer.Lent(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("it does not come back")
		}
	}
	o, err := b.w.Offer(Map{"x": buffer.Tensor()}, OfferLend())
	must(t, err)
	m, err = a.FetchKey(ctx, o.Key(), FetchBorrow())
	must(t, err)
	if !m.Lent() {
		t.Error("no loan")
	}
	brief, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := o.Withdraw(brief); !errors.Is(err, ErrTimedOut) || !buffer.Lent() {
		t.Errorf("with a loan: %v", err)
	}
	must(t, o.Close())
	must(t, m.Close())
	gone(t, o.Released(), "the loan came back, and the offer is not released")
	must(t, buffer.Close())
	must(t, buffer.Close())
	func() {
		defer func() {
			if said := recover(); said != "tensormsg: Slice of a closed Buffer" {
				t.Errorf("%v", said)
			}
		}()
		buffer.Slice()
	}()
	if _, err := Alloc[int8](0); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("nothing: %v", err)
	}
}

func TestLargeMessagesAreReceivedIntoWithoutACopy(t *testing.T) {
	few := filepath.Join(t.TempDir(), "c.json")
	must(t, os.WriteFile(few, []byte(`{"version": 1, "limits": {"held_bytes": 65536}}`), 0o600))
	for _, url := range []string{"tcp://127.0.0.1:0", "unix://" + filepath.Join(t.TempDir(), "s")} {
		b, a := pairAt(t, url, ContextConfigFile(few))
		ctx := generous(t)
		got := make([]float32, 1<<20)
		in, err := Prepare(Map{"x": Of(got)})
		must(t, err)
		defer in.Close()
		sent := make([]float32, len(got))
		for i := 1; i <= 3; i++ {
			sent[len(sent)-1] = float32(i)
			done := make(chan error, 1)
			go func() { done <- b.RecvInto(ctx, in) }()
			awaitSleeper(ctx, b.w)
			must(t, a.Send(ctx, Map{"x": Of(sent)}))
			must(t, <-done) // there is no memory for it elsewhere
			if got[len(got)-1] != float32(i) {
				t.Errorf("%v, not %v", got[len(got)-1], i)
			}
		}
	}
}

func TestWhatIsDroppedKeepsNoPins(t *testing.T) {
	ctx := generous(t)
	a, b := pair(t)
	w, err := NewWorker(nil)
	must(t, err)
	held := make([]float32, 1<<12)
	o, err := w.Offer(Map{"x": Of(held)})
	must(t, err)
	released := o.Released()
	_, err = b.w.Offer(Map{"x": Of(held)}, OfferName("kept", 1)) // nobody holds it
	must(t, err)
	func() {
		in, err := Prepare(Map{"x": Of(held)})
		must(t, err)
		brief, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		if err := b.RecvInto(brief, in); !errors.Is(err, ErrTimedOut) {
			t.Errorf("nothing came: %v", err)
		}
		defer func() { recover() }()
		a.Send(ctx, Map{"a": Of(held), "b": closed(t, a, b)}) // panics
	}()
	w, o = nil, nil
	for i := 0; i < 3; i++ { // a Pinner that is collected with its pins panics
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	m, err := a.Fetch(ctx, "kept")
	must(t, err)
	m.Close()
	select {
	case <-released:
		t.Error("the offer of a worker that is not closed has ended")
	default:
	}
}

func TestAClosedMessageIsGivenBackWhenItsTensorsWereSent(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	freed := func(m *Message) bool { return m.holds.Load() == 0 }
	receive := func() *Message {
		must(t, a.Send(ctx, Map{"x": Of([]int32{5})}))
		m, err := b.Recv(ctx)
		must(t, err)
		return m
	}
	first, second := receive(), receive()
	o, err := b.w.Offer(first.Map(), OfferName("x", 1))
	must(t, err)
	p, err := Prepare(first.Map())
	must(t, err)
	first.Close()
	must(t, p.Set("x", second.Get("x")))
	must(t, p.Set("x", second.Get("x")))
	second.Close()
	m, err := a.Fetch(ctx, "x")
	must(t, err)
	if x, err := Data[int32](m.Get("x")); err != nil || x[0] != 5 {
		t.Errorf("%v (%v)", x, err)
	}
	m.Close()
	must(t, b.SendPrepared(ctx, p))
	m, err = a.Recv(ctx)
	must(t, err)
	if x, err := Data[int32](m.Get("x")); err != nil || x[0] != 5 {
		t.Errorf("%v (%v)", x, err)
	}
	m.Close()
	if freed(first) || freed(second) {
		t.Errorf("freed: %v, %v", freed(first), freed(second))
	}
	p.Close()
	must(t, o.Withdraw(ctx))
	if !freed(first) || !freed(second) || !freed(m) {
		t.Errorf("freed: %v, %v, %v", freed(first), freed(second), freed(m))
	}
}

func TestAHandlersMessageIsGivenBackWhenItsTensorsAreOfferedNoMore(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	came := make(chan *Message, 1)
	must(t, b.w.Handle("keep", func(_ context.Context, in *Message) (Map, error) {
		came <- in
		_, err := b.w.Offer(in.Map(), OfferName("kept", 1), OfferFetches(1))
		return nil, err
	}))
	go b.w.Serve(ctx)
	reply, err := a.Call(ctx, "keep", Map{"x": Of([]int32{5, 6})})
	must(t, err)
	reply.Close()
	in := <-came
	for !in.closed.Load() && ctx.Err() == nil { // the handler has returned
		runtime.Gosched()
	}
	if in.holds.Load() == 0 {
		t.Error("it was given back")
	}
	m, err := a.Fetch(ctx, "kept")
	must(t, err)
	if x, err := Data[int32](m.Get("x")); err != nil || x[1] != 6 {
		t.Errorf("%v (%v)", x, err)
	}
	m.Close()
	for in.holds.Load() != 0 {
		must(t, ctx.Err())
		runtime.Gosched()
	}
}

// A tensor of a message that is closed.
func closed(t *testing.T, a, b *Endpoint) Tensor {
	must(t, a.Send(generous(t), Map{"x": Of([]int8{1})}))
	m, err := b.Recv(generous(t))
	must(t, err)
	defer m.Close()
	return m.Get("x")
}

func TestAMessageThatNobodyClosesIsCounted(t *testing.T) {
	a, b := pair(t)
	ctx := generous(t)
	freed, leaked := Dropped()
	for i := 0; i < 2; i++ {
		must(t, a.Send(ctx, Map{"x": Of([]int8{1})}))
		m, err := b.Recv(ctx)
		must(t, err)
		if i == 1 {
			_, err := Data[int8](m.Get("x"))
			must(t, err)
		}
	}
	for end := time.Now().Add(30 * time.Second); ; runtime.GC() {
		f, l := Dropped()
		if f > freed && l > leaked {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d were freed and %d leaked", f-freed, l-leaked)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAPeerThatMayBeSilentForEverIsNotBroken(t *testing.T) {
	a, b := stalled(t, 0)
	big := make([]byte, 8<<20)
	brief, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.Send(brief, Map{"x": Of(big)}) }()
	<-brief.Done()
	time.Sleep(300 * time.Millisecond) // it was broken after 200 ms
	b.w.release()
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	ctx := generous(t)
	must(t, a.Send(ctx, Map{"x": Of([]int8{1})}))
	m, err := b.Recv(ctx)
	must(t, err)
	m.Close()
}

func TestOffersGoToCAndComeFromIt(t *testing.T) {
	w := newWorker(t)
	l, err := w.Listen("unix://"+filepath.Join(t.TempDir(), "s"), ListenKeep())
	must(t, err)
	weights := make([]float32, 6*4)
	for i := range weights {
		weights[i] = float32(i)
	}
	o, err := w.Offer(Map{"w": Of(weights, 6, 4)}, OfferName("weights", 5))
	must(t, err)
	defer o.Close()
	out, err := example(t, "fetch", l.URL()).Output()
	if want := "version 5: 6 x 4, the first is 0\nversion 5: 2 x 3, the first is 4\n"; err != nil || string(out) != want {
		t.Errorf("a fetcher in C printed %q (%v)", out, err)
	}
	out, err = command(t, "call", l.URL(), "tensormsg.fetch", "--meta", "name=weights").Output()
	if err != nil || !strings.Contains(string(out), "w  float32  [6,4]") {
		t.Errorf("the command printed %q (%v)", out, err)
	}

	there := "unix://" + filepath.Join(t.TempDir(), "c")
	owner := example(t, "offer", there)
	must(t, owner.Start())
	defer owner.Wait()
	defer owner.Process.Kill()
	ctx := generous(t)
	ep, err := newWorker(t).Dial(ctx, there, DialWait())
	must(t, err)
	m, err := ep.Fetch(ctx, "weights", FetchAtLeast(3), FetchWait(0))
	must(t, err)
	if w, err := Data[float32](m.Get("w")); err != nil || int(w[0]) != int(m.OfferVersion().Number) {
		t.Errorf("version %d is %v (%v)", m.OfferVersion().Number, w[0], err)
	}
	m.Close()
	ended := make(chan error, 1)
	go func() { _, err := ep.Fetch(ctx, "never", FetchWait(0)); ended <- err }()
	owner.Process.Kill()
	if err := <-ended; !errors.Is(err, ErrPeerLost) {
		t.Errorf("the owner was killed: %v", err)
	}
}

func TestOffersAndLoansGoToPythonAndComeFromIt(t *testing.T) {
	interpreter := python(t)
	ctx := generous(t)
	w, err := NewWorker(nil, WorkerBorrow())
	must(t, err)
	defer w.Close()
	must(t, w.Handle("look", func(_ context.Context, in *Message) (Map, error) {
		x, err := Data[int64](in.Get("frame"))
		return Map{"seen": Of([]bool{in.Lent(), err == nil && x[777] == 777})}, err
	}))
	go w.Serve(ctx)
	l, err := w.Listen("unix://"+filepath.Join(t.TempDir(), "s"), ListenKeep())
	must(t, err)
	buffer, err := Alloc[float32](4 << 14)
	must(t, err)
	defer buffer.Close()
	for i := range buffer.Slice() {
		buffer.Slice()[i] = float32(i)
	}
	o, err := w.Offer(Map{"w": buffer.Tensor(1<<14, 4)}, OfferName("weights", 3), OfferLend())
	must(t, err)
	held, err := Alloc[float32](1 << 16)
	must(t, err)
	defer held.Close()
	kept, err := w.Offer(Map{"w": held.Tensor()}, OfferName("kept", 1), OfferLend())
	must(t, err)
	there := "unix://" + filepath.Join(t.TempDir(), "p")
	peer := exec.CommandContext(ctx, interpreter, "-B", "testdata/offers.py", l.URL(), there)
	peer.Stderr = os.Stderr
	in, err := peer.StdinPipe()
	must(t, err)
	out, err := peer.StdoutPipe()
	must(t, err)
	must(t, peer.Start())
	defer peer.Process.Kill()
	said := ""
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		said += lines.Text() + "\n"
	}
	if want := `{'version': 3, 'tensors': 1, 'bytes': 262144, 'offers': 1}
3 [20.0, 21.0, 22.0, 23.0]
[[6.0, 7.0], [10.0, 11.0]]
[20.0, 21.0, 22.0, 23.0]
False [20.0, 21.0, 22.0, 23.0]
[True, True]
`; said != want {
		t.Errorf("Python says %q, not %q", said, want)
	}
	must(t, o.Withdraw(ctx)) // its loan came back
	if s := o.Stats(); s.Fetches != 4 || s.UnderWay != 0 || buffer.Lent() {
		t.Errorf("%+v, lent: %v", s, buffer.Lent())
	}
	ep, err := newWorker(t).Dial(ctx, there, DialWait())
	must(t, err)
	m, err := ep.Fetch(ctx, "frame", FetchAtLeast(7), FetchBorrow())
	must(t, err)
	x, err := Data[int64](m.Get("frame"))
	if err != nil || !m.Lent() || m.OfferVersion().Number != 7 || len(x) != 1<<16 || x[777] != 777 {
		t.Errorf("%v of version %v, lent: %v (%v)", m, m.OfferVersion(), m.Lent(), err)
	}
	kept.Close()
	select {
	case <-kept.Released():
		t.Error("the peer keeps a loan of it")
	default:
	}
	must(t, peer.Process.Kill())
	in.Close()
	peer.Wait()
	gone(t, kept.Released(), "a loan of a process that was killed did not come back")
	if x[1<<16-1] != 1<<16-1 { // a loan outlives its owner
		t.Error("the loan has changed")
	}
	m.Close()
}
