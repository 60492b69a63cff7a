// SPDX-License-Identifier: BSD-3-Clause

package tensormsg_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"tensormsg"
)

// double answers each map with one of twice its "x".
func double(ctx context.Context, in *tensormsg.Message, s *tensormsg.Stream) error {
	for {
		msg, err := s.Recv(ctx)
		if err == io.EOF {
			return nil // which ends the stream in order
		}
		if err != nil {
			return err
		}
		x, err := tensormsg.Clone[float32](msg.Get("x"))
		msg.Close()
		if err != nil {
			return err
		}
		for i := range x {
			x[i] *= 2
		}
		if err := s.Send(ctx, tensormsg.Map{"x": tensormsg.Of(x)}); err != nil {
			return err
		}
	}
}

// serving serves double for an example, and dials it.
func serving(ctx context.Context) (*tensormsg.Endpoint, func()) {
	folder, err := os.MkdirTemp("", "tensormsg")
	check(err)
	server, err := tensormsg.NewWorker(nil)
	check(err)
	check(server.HandleStream("double", double))
	l, err := server.Listen("unix://"+filepath.Join(folder, "s"), tensormsg.ListenKeep())
	check(err)
	go server.Serve(ctx)
	w, err := tensormsg.NewWorker(nil)
	check(err)
	ep, err := w.Dial(ctx, l.URL())
	check(err)
	return ep, func() { w.Close(); server.Close(); os.RemoveAll(folder) }
}

func ExampleEndpoint_Stream() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ep, end := serving(ctx)
	defer end()

	s, err := ep.Stream(ctx, "double", nil)
	check(err)
	defer s.Close()
	check(s.Send(ctx, tensormsg.Map{"x": tensormsg.Of([]float32{1, 2, 3.5})}))
	check(s.Finish()) // nothing more from this side
	for {
		msg, err := s.Recv(ctx)
		if err == io.EOF {
			break
		}
		check(err)
		x, err := tensormsg.Clone[float32](msg.Get("x"))
		msg.Close()
		fmt.Println(x, err)
	}
	check(s.Wait(ctx))
	// Output: [2 4 7] <nil>
}
