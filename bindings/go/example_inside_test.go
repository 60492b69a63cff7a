// SPDX-License-Identifier: BSD-3-Clause

package tensormsg_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"tensormsg"
)

func ExampleLoad() {
	folder, err := os.MkdirTemp("", "tensormsg")
	check(err)
	defer os.RemoveAll(folder)
	weights := make([]float32, 6)
	file := filepath.Join(folder, "weights.safetensors")

	check(tensormsg.Save(file, tensormsg.Map{"layer1": tensormsg.Of(weights, 2, 3)},
		tensormsg.FileMeta(tensormsg.Meta{"step": "1000"})))
	loaded, err := tensormsg.Load(file)
	check(err)
	defer loaded.Close()
	fmt.Println(loaded, loaded.Meta()["step"])
	// Output: Message{layer1: float32[2 3]} 1000
}

func ExampleWorker_MetricsText() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	folder, err := os.MkdirTemp("", "tensormsg")
	check(err)
	defer os.RemoveAll(folder)
	server, err := tensormsg.NewWorker(nil)
	check(err)
	defer server.Close()
	check(server.Handle("infer", func(ctx context.Context, in *tensormsg.Message) (tensormsg.Map, error) {
		return in.Map(), nil
	}, tensormsg.MethodDescription("labels of an image")))
	l, err := server.Listen("unix://"+filepath.Join(folder, "s"), tensormsg.ListenKeep())
	check(err)
	go server.Serve(ctx)
	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()
	ep, err := w.Dial(ctx, l.URL())
	check(err)

	check(server.StartMetrics())
	reply, err := ep.Call(ctx, "infer", nil)
	check(err)
	reply.Close()
	counted, err := server.Metrics(tensormsg.ServerSide, "infer")
	check(err)
	p99, err := server.Latency(tensormsg.ServerSide, "infer", 0.99)
	check(err)
	fmt.Println(counted.Ended, p99 > 0)

	methods, err := ep.Methods(ctx)
	check(err)
	health, err := ep.Health(ctx, "infer")
	check(err)
	fmt.Println(methods[0].Name, methods[0].Description, health.Health)
	// Output:
	// 1 true
	// infer labels of an image SERVING
}

// As go.opentelemetry.io/otel/propagation has it.
type traceContext struct{}

func (traceContext) Inject(_ context.Context, carrier interface{ Set(key, value string) }) {
	carrier.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
}

func ExampleTraceCarrier() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()
	check(w.Handle("infer", func(ctx context.Context, in *tensormsg.Message) (tensormsg.Map, error) {
		fmt.Println(tensormsg.TraceCarrier(in.Meta()).Get("traceparent"))
		return nil, nil
	}))
	l, err := w.Listen("tcp://127.0.0.1:0", tensormsg.ListenKeep())
	check(err)
	go w.Serve(ctx)
	ep, err := w.Dial(ctx, l.URL())
	check(err)
	var propagator traceContext

	meta := tensormsg.Meta{}
	propagator.Inject(ctx, tensormsg.TraceCarrier(meta))
	reply, err := ep.Call(ctx, "infer", nil, tensormsg.WithMeta(meta))
	check(err)
	reply.Close()
	// Output: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
}

func ExampleLogTo() {
	check(tensormsg.LogTo(slog.Default(), slog.LevelWarn))
	check(tensormsg.LogTo(nil, slog.LevelError)) // to standard error
	// Output:
}
