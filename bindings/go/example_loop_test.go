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

// messages closes the channel when ep has ended; ep.Err() then says why.
func messages(ctx context.Context, ep *tensormsg.Endpoint) <-chan *tensormsg.Message {
	incoming := make(chan *tensormsg.Message)
	go func() {
		defer close(incoming)
		for {
			msg, err := ep.Recv(ctx)
			if err != nil {
				return
			}
			select {
			case incoming <- msg:
			case <-ctx.Done():
				msg.Close()
				return
			}
		}
	}()
	return incoming
}

func ExampleEndpoint_Recv_select() {
	folder, err := os.MkdirTemp("", "tensormsg")
	check(err)
	defer os.RemoveAll(folder)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()
	l, err := w.Listen("unix://" + filepath.Join(folder, "frames"))
	check(err)
	sent := make(chan error, 1)
	go func() { sent <- send(ctx, l.URL()) }()
	ep, err := l.Accept(ctx)
	check(err)

	ticks := time.NewTicker(time.Minute)
	defer ticks.Stop()
	incoming := messages(ctx, ep)
	for open := true; open; {
		select {
		case msg, more := <-incoming:
			if open = more; open {
				fmt.Println(msg)
				msg.Close()
			}
		case <-ticks.C:
			fmt.Println("a minute is over")
		}
	}
	check(<-sent)
	// Output: Message{ids: int64[2], image: float32[3 480 640]}
}
