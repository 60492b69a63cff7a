// SPDX-License-Identifier: BSD-3-Clause

// Hello receives one image at 127.0.0.1:13337; given the URL of a receiver, it
// sends one:
//
//	hello
//	hello tcp://127.0.0.1:13337
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"tensormsg"
)

func send(ctx context.Context, w *tensormsg.Worker, url string) error {
	ep, err := w.Dial(ctx, url)
	if err != nil {
		return err
	}
	image := tensormsg.Of([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	meta := tensormsg.WithMeta(tensormsg.Meta{"frame": 7})
	if err := ep.Send(ctx, tensormsg.Map{"image": image}, meta); err != nil {
		return err
	}
	return ep.Close(ctx) // the receiver has the image
}

func receive(ctx context.Context, l *tensormsg.Listener) error {
	ep, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	msg, err := ep.Recv(ctx)
	if err != nil {
		return err
	}
	defer msg.Close() // frees the memory of its tensors
	pixels, err := tensormsg.Data[float32](msg.Get("image"))
	if err != nil {
		return err
	}
	fmt.Println(msg.Meta()["frame"], msg.Get("image"), pixels)
	return ep.Close(ctx)
}

func run(ctx context.Context, urls []string) error {
	w, err := tensormsg.NewWorker(nil)
	if err != nil {
		return err
	}
	defer w.Close()
	if len(urls) > 0 {
		return send(ctx, w, urls[0])
	}
	l, err := w.Listen("tcp://:13337")
	if err != nil {
		return err
	}
	return receive(ctx, l)
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
