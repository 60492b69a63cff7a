// SPDX-License-Identifier: BSD-3-Clause

package tensormsg_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tensormsg"
)

// view shows what is published at a URL until the publisher closes.
func view(ctx context.Context, url string) error {
	w, err := tensormsg.NewWorker(nil)
	if err != nil {
		return err
	}
	defer w.Close()
	ep, err := w.Dial(ctx, url) // or with tensormsg.DialLive()
	if err != nil {
		return err
	}
	defer ep.Close(ctx)
	for {
		msg, err := ep.Recv(ctx)
		if errors.Is(err, tensormsg.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Println(msg, msg.Meta()["frame"])
		msg.Close()
	}
}

func ExampleWorker_NewPublisher() {
	folder, err := os.MkdirTemp("", "tensormsg")
	check(err)
	defer os.RemoveAll(folder)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()

	camera, err := w.NewPublisher(tensormsg.PublisherKeep(1))
	check(err)
	l, err := camera.Listen("unix://" + filepath.Join(folder, "frames"))
	check(err)
	viewer := make(chan error, 1)
	go func() { viewer <- view(ctx, l.URL()) }()
	check(camera.WaitFor(ctx, 1))
	pixels := make([]uint8, 480*640)
	for i := 0; i < 3; i++ {
		pixels[0] = uint8(i) // Publish has copied the frame before
		check(camera.Publish(ctx, tensormsg.Map{"image": tensormsg.Of(pixels, 480, 640)},
			tensormsg.WithMeta(tensormsg.Meta{"frame": i})))
	}
	check(camera.Close(ctx)) // sends what waits
	check(<-viewer)
	// Output:
	// Message{image: uint8[480 640]} 0
	// Message{image: uint8[480 640]} 1
	// Message{image: uint8[480 640]} 2
}

func ExamplePublisher_Stats() {
	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()
	camera, err := w.NewPublisher(tensormsg.PublisherLive())
	check(err)
	check(camera.Publish(context.Background(), tensormsg.Map{"x": tensormsg.Scalar(1.5)}))

	stats, err := camera.Stats()
	check(err)
	for _, one := range stats.Subscribers {
		fmt.Println(one.Peer, "missed", one.Dropped+one.Failed, "maps", one.DroppedFor)
	}
	fmt.Println(stats.Published, "published")
	// Output: 1 published
}
