// SPDX-License-Identifier: BSD-3-Clause

package tensormsg_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"tensormsg"
)

func ExampleListenKeyring() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()
	folder, err := os.MkdirTemp("", "tensormsg")
	check(err)
	defer os.RemoveAll(folder)

	key, err := tensormsg.GenerateKey()
	check(err)
	file := filepath.Join(folder, "secret.key")
	check(tensormsg.SaveKey(file, "camera", key)) // as `tensormsg key --out`
	keys, err := tensormsg.LoadKeyring(file)
	check(err)
	defer keys.Close()
	l, err := w.Listen("tls://127.0.0.1:0", tensormsg.ListenKeyring(keys))
	check(err)

	ep, err := w.Dial(ctx, l.URL(), tensormsg.DialKeyring(keys))
	check(err)
	defer ep.Close(ctx)
	theirs, err := l.Accept(ctx)
	check(err)
	fmt.Println(theirs.Principal())
	_, err = w.Dial(ctx, l.URL(), tensormsg.DialKeyring(nil))
	fmt.Println(err != nil)
	// Output:
	// camera
	// true
}

// camera sends a frame each second, whatever becomes of its viewer.
func camera(ctx context.Context, w *tensormsg.Worker, url string) error {
	ep, err := w.Dial(ctx, url, tensormsg.DialWait(), tensormsg.DialReconnect(tensormsg.Reconnect{GiveUp: -1}))
	if err != nil {
		return err
	}
	go func() {
		for {
			event, err := ep.SessionEvent(ctx)
			if err != nil {
				return // the endpoint has ended, or ctx has
			}
			log.Print(ep.Peer(), " ", event) // "new: ...": the viewer was restarted
		}
	}()
	for {
		err := ep.Send(ctx, tensormsg.Map{"image": tensormsg.Of(make([]uint8, 640*480))})
		if err != nil && !errors.Is(err, tensormsg.ErrPeerLost) {
			return err // a frame may be lost with the viewer; the next one waits for it
		}
		time.Sleep(time.Second)
	}
}

func ExampleDialReconnect() {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()
	fmt.Println(errors.Is(camera(ctx, w, "unix:///nowhere"), context.DeadlineExceeded))
	// Output: true
}

func withCertificates(w *tensormsg.Worker) error {
	certificate, err := tensormsg.NewTLS(tensormsg.TLSFiles{CA: "site/ca.pem", Cert: "site/farm.pem", Key: "site/farm.key"})
	if err != nil {
		return err
	}
	l, err := w.Listen("tls://0.0.0.0:4000", tensormsg.ListenTLS(certificate))
	if err != nil {
		return err
	}
	return l.Close()
}

func ExampleNewTLS() {
	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()
	fmt.Println(errors.Is(withCertificates(w), tensormsg.ErrNotFound))
	// Output: true
}

func ExampleTaskOf() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := tensormsg.NewWorker(nil)
	check(err)
	defer server.Close()
	keys, err := tensormsg.NewKeyring()
	check(err)
	defer keys.Close()
	key, err := tensormsg.GenerateKey()
	check(err)
	check(keys.Add("camera", key))

	hello := func(ctx context.Context, in *tensormsg.Message) (tensormsg.Map, error) {
		task := tensormsg.TaskOf(ctx)
		task.SetReplyMeta(tensormsg.Meta{"to": task.Principal()})
		return nil, nil
	}
	check(server.Handle("hello", hello, tensormsg.MethodPrincipals("camera", "viewer")))
	l, err := server.Listen("tls://127.0.0.1:0", tensormsg.ListenKeep(), tensormsg.ListenKeyring(keys))
	check(err)
	go server.Serve(ctx)
	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()
	ep, err := w.Dial(ctx, l.URL(), tensormsg.DialKeyring(keys))
	check(err)
	reply, err := ep.Call(ctx, "hello", nil, tensormsg.CallWait(),
		tensormsg.CallRetry(tensormsg.Retry{Attempts: 5}))
	check(err)
	defer reply.Close()
	fmt.Println(reply.Meta()["to"])
	// Output: camera
}
