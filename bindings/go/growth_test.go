// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
)

// All ways to send and to receive, again and again: nothing may be left. `make
// soak` says how many.
func TestManyMessagesLeaveNothing(t *testing.T) {
	messages, _ := strconv.Atoi(os.Getenv("TMSGGO_MESSAGES"))
	if messages == 0 {
		messages = 20000
	}
	a, b := pair(t)
	ctx := context.Background() // a long one has the test's own time
	out, err := Prepare(eight())
	must(t, err)
	defer out.Close()
	in, err := Prepare(eight())
	must(t, err)
	defer in.Close()
	large := make([]int32, 1<<16)
	once := func(i int) {
		switch i % 8 {
		case 0:
			must(t, a.Send(ctx, Map{"n" + strconv.Itoa(i%64): Of(large[:1+i%1000])}, WithMeta(Meta{"i": i})))
		case 1:
			said := a.SendOwned(ctx, Map{"large": Of(large)}, OnChannel(uint16(i%4)))
			m, err := b.Recv(ctx)
			must(t, err)
			m.Close()
			must(t, <-said)
			return
		case 2:
			must(t, a.SendPrepared(ctx, out))
			must(t, b.RecvInto(ctx, in))
			return
		default:
			must(t, a.Send(ctx, Map{"x": Of(large[:8]), "y": Scalar(i)}))
		}
		m, err := b.Recv(ctx)
		must(t, err)
		if i%1000 != 3 { // or the garbage collector closes it
			m.Close()
		}
	}
	measure := func() int {
		runtime.GC()
		runtime.GC()
		debug.FreeOSMemory()
		return fromStatus(t, "VmRSS")
	}
	i := 0
	for ; i < messages/4; i++ {
		once(i)
	}
	kib, goroutines := measure(), runtime.NumGoroutine()
	for ; i < messages; i++ {
		once(i)
	}
	if grown := measure() - kib; grown > 8192 && !raceDetector {
		t.Errorf("%d KiB grew by %d in %d messages", kib, grown, messages)
	}
	if now := runtime.NumGoroutine(); now > goroutines+10 {
		t.Errorf("%d goroutines, and then %d", goroutines, now)
	}
}
