// SPDX-License-Identifier: BSD-3-Clause

package tensormsg_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tensormsg"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// show receives one map of whoever connects.
func show(ctx context.Context, l *tensormsg.Listener) error {
	ep, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	defer ep.Close(ctx)
	msg, err := ep.Recv(ctx)
	if err != nil {
		return err
	}
	defer msg.Close() // its memory is the library's until then
	pixels, err := tensormsg.Data[float32](msg.Get("image"))
	if err != nil {
		return err
	}
	fmt.Println(msg, msg.Meta()["frame"], len(pixels))
	return nil
}

// send dials and sends one map.
func send(ctx context.Context, url string) error {
	w, err := tensormsg.NewWorker(nil)
	if err != nil {
		return err
	}
	defer w.Close()
	ep, err := w.Dial(ctx, url)
	if err != nil {
		return err
	}
	pixels := make([]float32, 3*480*640)
	err = ep.Send(ctx, tensormsg.Map{
		"image": tensormsg.Of(pixels, 3, 480, 640),
		"ids":   tensormsg.Of([]int64{1, 2}),
	}, tensormsg.WithMeta(tensormsg.Meta{"frame": 7}))
	if err != nil {
		return err
	}
	return ep.Close(ctx) // returns when the viewer's library has it
}

func Example() {
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
	defer l.Close()
	sent := make(chan error, 1)
	go func() { sent <- send(ctx, l.URL()) }()
	check(show(ctx, l))
	check(<-sent)
	// Output: Message{ids: int64[2], image: float32[3 480 640]} 7 921600
}

func ExampleEndpoint_Call() {
	folder, err := os.MkdirTemp("", "tensormsg")
	check(err)
	defer os.RemoveAll(folder)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := tensormsg.NewWorker(nil)
	check(err)
	defer server.Close()

	check(server.Handle("sum", func(ctx context.Context, in *tensormsg.Message) (tensormsg.Map, error) {
		x, err := tensormsg.Data[float32](in.Get("x"))
		if err != nil {
			return nil, err
		}
		var sum float32
		for _, value := range x {
			sum += value
		}
		return tensormsg.Map{"sum": tensormsg.Scalar(sum)}, nil
	}))
	l, err := server.Listen("unix://"+filepath.Join(folder, "sums"), tensormsg.ListenKeep())
	check(err)
	go server.Serve(ctx)

	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()
	ep, err := w.Dial(ctx, l.URL())
	check(err)
	reply, err := ep.Call(ctx, "sum", tensormsg.Map{"x": tensormsg.Of([]float32{1, 2, 3.5})})
	check(err)
	defer reply.Close()
	sum, err := tensormsg.Data[float32](reply.Get("sum"))
	fmt.Println(sum, err)
	// Output: [6.5] <nil>
}

func show2(ctx context.Context, l *tensormsg.Listener) {
	ep, err := l.Accept(ctx)
	check(err)
	pixels := make([]uint8, 640*480)
	in, err := tensormsg.Prepare(tensormsg.Map{"image": tensormsg.Of(pixels)})
	check(err)
	defer in.Close()
	check(ep.RecvInto(ctx, in))
	check(ep.RecvInto(ctx, in))
	fmt.Println(pixels[0])
}

func ExamplePrepare() {
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
	shown := make(chan struct{})
	go func() { show2(ctx, l); close(shown) }()
	ep, err := w.Dial(ctx, l.URL())
	check(err)

	frames := [][]uint8{make([]uint8, 640*480), make([]uint8, 640*480)}
	frames[1][0] = 7
	out, err := tensormsg.Prepare(tensormsg.Map{"image": tensormsg.Of(frames[0])})
	check(err)
	defer out.Close()
	for _, frame := range frames {
		check(out.Set("image", tensormsg.Of(frame)))
		check(ep.SendPrepared(ctx, out))
	}
	<-shown
	// Output: 7
}

func ExampleEndpoint_Send() {
	explain := func(err error) string {
		switch {
		case err == nil:
			return "sent"
		case errors.Is(err, tensormsg.ErrPeerLost):
			return "the viewer is gone: dial again"
		case errors.Is(err, context.DeadlineExceeded):
			return "too late for this frame"
		default:
			return err.Error() // what, which and why, in one line
		}
	}
	fmt.Println(explain(nil))
	// Output: sent
}

func ExampleTensor_WithStrides() {
	grid := tensormsg.Of([]int32{0, 1, 2, 3, 4, 5}, 2, 3)
	turned := grid.WithStrides([]int{3, 2}, []int{1, 3})
	columns, err := tensormsg.Clone[int32](turned)
	fmt.Println(grid, turned, columns, err)
	// Output: int32[2 3] int32[3 2] [0 3 1 4 2 5] <nil>
}

func readAll(patterns ...string) string {
	var all strings.Builder
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		check(err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			check(err)
			all.Write(text)
		}
	}
	return all.String()
}

// The code of the pages is what runs here.
func TestTheTutorialIsTheseExamples(t *testing.T) {
	page := readAll("../../README.md", "../../docs/*/*.md")
	source := readAll("example*_test.go", "examples/*/main.go")
	flat := func(text string) string {
		lines := strings.Split(text, "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		return strings.Join(lines, "\n")
	}
	blocks := strings.Split(page, "```go\n")[1:]
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(flat(source), flat(code)) {
			t.Errorf("the documents have code that is in no example:\n%s", code)
		}
	}
	if len(blocks) < 4 {
		t.Errorf("the documents have %d blocks of Go", len(blocks))
	}
}
