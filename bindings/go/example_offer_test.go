// SPDX-License-Identifier: BSD-3-Clause

package tensormsg_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tensormsg"
)

func ExampleWorker_Offer() {
	folder, err := os.MkdirTemp("", "tensormsg")
	check(err)
	defer os.RemoveAll(folder)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	owner, err := tensormsg.NewWorker(nil)
	check(err)
	defer owner.Close()
	l, err := owner.Listen("unix://"+filepath.Join(folder, "weights"), tensormsg.ListenKeep())
	check(err)
	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()
	ep, err := w.Dial(ctx, l.URL())
	check(err)

	weights := []float32{1, 2, 3, 4, 5, 6}
	offer, err := owner.Offer(tensormsg.Map{"w": tensormsg.Of(weights, 2, 3)}, tensormsg.OfferName("weights", 1))
	check(err)
	defer offer.Close()

	msg, err := ep.Fetch(ctx, "weights")
	check(err)
	seen := msg.OfferVersion()
	fmt.Println(msg, seen.Number)
	msg.Close()

	row, err := ep.Fetch(ctx, "weights", tensormsg.FetchSlices(
		tensormsg.Slice{Name: "w", Start: []int{1}, Count: []int{1}}))
	check(err)
	defer row.Close()
	fmt.Println(row)

	next := make(chan *tensormsg.Message)
	go func() {
		msg, err := ep.Fetch(ctx, "weights", tensormsg.FetchAfter(seen), tensormsg.FetchWait(0))
		check(err)
		next <- msg
	}()
	check(offer.Withdraw(ctx))
	weights[0] = 7 // nobody reads it any more
	offer, err = owner.Offer(tensormsg.Map{"w": tensormsg.Of(weights, 2, 3)}, tensormsg.OfferName("weights", 2))
	check(err)
	msg = <-next
	defer msg.Close()
	fmt.Println(msg.OfferVersion().Number)
	// Output:
	// Message{w: float32[2 3]} 1
	// Message{w: float32[1 3]}
	// 2
}

func ExampleAlloc() {
	folder, err := os.MkdirTemp("", "tensormsg")
	check(err)
	defer os.RemoveAll(folder)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	owner, err := tensormsg.NewWorker(nil)
	check(err)
	defer owner.Close()
	l, err := owner.Listen("unix://" + filepath.Join(folder, "frames"))
	check(err)

	w, err := tensormsg.NewWorker(nil, tensormsg.WorkerBorrow())
	check(err)
	defer w.Close()
	viewer, err := w.Dial(ctx, l.URL())
	check(err)
	camera, err := l.Accept(ctx)
	check(err)

	frame, err := tensormsg.Alloc[uint8](2160 * 3840)
	check(err)
	defer frame.Close()
	frame.Slice()[0] = 7
	check(camera.Send(ctx, tensormsg.Map{"image": frame.Tensor(2160, 3840)}, tensormsg.Lend()))

	msg, err := viewer.Recv(ctx)
	check(err)
	pixels, err := tensormsg.Data[uint8](msg.Get("image")) // the camera's memory: read it only
	check(err)
	fmt.Println(msg.Lent(), frame.Lent(), pixels[0])
	check(msg.Close()) // gives it back
	// Output: true true 7
}
