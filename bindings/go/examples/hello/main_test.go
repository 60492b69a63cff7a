// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"time"

	"tensormsg"
)

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := tensormsg.NewWorker(nil)
	if err != nil {
		panic(err)
	}
	defer w.Close()
	l, err := w.Listen("tcp://127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	sent := make(chan error, 1)
	go func() { sent <- run(ctx, []string{l.URL()}) }()
	if err := receive(ctx, l); err != nil {
		panic(err)
	}
	if err := <-sent; err != nil {
		panic(err)
	}
	// Output: 7 float32[2 3] [1 2 3 4 5 6]
}
