// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tensormsg"
)

func TestWhatAServerTellsIsExported(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := tensormsg.NewWorker(nil)
	check(err)
	defer server.Close()
	check(server.Handle("echo", func(ctx context.Context, in *tensormsg.Message) (tensormsg.Map, error) { return in.Map(), nil }))
	url1, nobody := "unix://"+filepath.Join(t.TempDir(), "s"), "unix://"+filepath.Join(t.TempDir(), "nobody")
	l, err := server.Listen(url1, tensormsg.ListenKeep())
	check(err)
	defer l.Close()
	go server.Serve(ctx)

	e, err := newExporter([]string{url1, nobody})
	check(err)
	defer e.worker.Close()
	web := httptest.NewServer(e)
	defer web.Close()
	scrape := func(target string) (int, string) {
		reply, err := http.Get(web.URL + "/metrics?target=" + url.QueryEscape(target))
		check(err)
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		check(err)
		return reply.StatusCode, string(text)
	}
	scrape(url1) // calls are counted from the first time on
	client, err := tensormsg.NewWorker(nil)
	check(err)
	defer client.Close()
	ep, err := client.Dial(ctx, url1)
	check(err)
	reply, err := ep.Call(ctx, "echo", tensormsg.Map{"x": tensormsg.Of([]float32{1})})
	check(err)
	reply.Close()
	status, text := scrape(url1)
	for _, line := range []string{
		"tensormsg_up 1\n",
		`tensormsg_calls_total{side="server",method="echo",status="ok"} 1`,
		"tensormsg_worker_held_bytes ",
		"tensormsg_endpoint_ready_messages{id=\"",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%s is missing in:\n%s", line, text)
		}
	}
	if status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	if _, text := scrape(nobody); text != "# TYPE tensormsg_up gauge\ntensormsg_up 0\n" {
		t.Errorf("of nobody:\n%s", text)
	}
	if status, _ := scrape("tcp://10.0.0.1:22"); status != http.StatusNotFound {
		t.Errorf("a target that nobody named: %d", status)
	}
}
