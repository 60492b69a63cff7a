// SPDX-License-Identifier: BSD-3-Clause

// Exporter tells Prometheus what goes on in processes that use tensormsg, in
// whatever language: calls by method, and counters of messages and connections.
// It asks them when it is asked itself, by the method that every worker has
// (docs/reference/introspection.md):
//
//	exporter -listen localhost:9464 tcp://10.0.0.7:4000 unix:///run/frames
//	curl 'localhost:9464/metrics?target=unix:///run/frames'
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"tensormsg"
)

// A target is a worker that is asked. It is dialled when it is first asked, and
// comes back by itself.
type target struct {
	url string
	mu  sync.Mutex
	ep  *tensormsg.Endpoint
}

type exporter struct {
	worker  *tensormsg.Worker
	options []tensormsg.DialOption
	targets map[string]*target
}

func newExporter(urls []string, options ...tensormsg.DialOption) (*exporter, error) {
	w, err := tensormsg.NewWorker(nil)
	if err != nil {
		return nil, err
	}
	e := &exporter{w, append(options, tensormsg.DialReconnect(tensormsg.Reconnect{GiveUp: -1})), map[string]*target{}}
	for _, url := range urls {
		e.targets[url] = &target{url: url}
	}
	return e, nil
}

func (e *exporter) endpoint(ctx context.Context, t *target) (*tensormsg.Endpoint, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ep != nil && t.ep.Err() != nil { // it has ended for good
		t.ep.Close(ctx)
		t.ep = nil
	}
	var err error
	if t.ep == nil {
		t.ep, err = e.worker.Dial(ctx, t.url, e.options...)
	}
	return t.ep, err
}

// What a worker tells of itself, as text.
func (e *exporter) ask(ctx context.Context, t *target) (process, metrics string, err error) {
	ep, err := e.endpoint(ctx, t)
	if err != nil {
		return "", "", err
	}
	told, err := ep.Call(ctx, "tensormsg.describe", nil)
	if err != nil {
		return "", "", err
	}
	defer told.Close()
	for name, to := range map[string]*string{"process": &process, "metrics": &metrics} {
		text, err := tensormsg.Data[uint8](told.Get(name))
		if err != nil {
			return "", "", err
		}
		*to = string(text) // a copy: told is closed
	}
	return process, metrics, nil
}

func (e *exporter) ServeHTTP(out http.ResponseWriter, request *http.Request) {
	url := request.URL.Query().Get("target")
	t := e.targets[url]
	if t == nil { // only those that were named: others are nobody's business
		http.Error(out, fmt.Sprintf("target %q is not one of those that are exported", url), http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(request.Context(), 5*time.Second)
	defer cancel()
	out.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	process, metrics, err := e.ask(ctx, t)
	if err == nil {
		err = writeProcess(out, process)
	}
	if err != nil {
		log.Printf("%s: %v", url, err)
		fmt.Fprintln(out, "# TYPE tensormsg_up gauge\ntensormsg_up 0")
		return
	}
	fmt.Fprintln(out, "# TYPE tensormsg_up gauge\ntensormsg_up 1")
	io.WriteString(out, metrics)
}

// The numbers of the worker, and of each endpoint. What is a counter and what is
// a gauge is in docs/reference/introspection.md; here all are untyped.
func writeProcess(out io.Writer, text string) error {
	var process struct {
		Worker    map[string]any
		Endpoints []map[string]any
	}
	if err := json.Unmarshal([]byte(text), &process); err != nil {
		return err
	}
	for _, name := range numbers(process.Worker) {
		fmt.Fprintf(out, "tensormsg_worker_%s %v\n", name, process.Worker[name])
	}
	families := map[string][]string{}
	for _, ep := range process.Endpoints {
		for _, name := range numbers(ep) {
			families[name] = append(families[name], fmt.Sprintf("tensormsg_endpoint_%s{id=\"%v\",peer=\"%s\"} %v\n",
				name, ep["id"], escape.Replace(fmt.Sprint(ep["peer"])), ep[name]))
		}
	}
	for _, name := range sorted(families) { // Prometheus wants each family in one piece
		io.WriteString(out, strings.Join(families[name], ""))
	}
	return nil
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func numbers(object map[string]any) (names []string) {
	for _, name := range sorted(object) {
		if _, is := object[name].(float64); is && name != "id" {
			names = append(names, name)
		}
	}
	return names
}

func sorted[V any](m map[string]V) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func main() {
	listen := flag.String("listen", "localhost:9464", "where Prometheus asks, `host:port`")
	key := flag.String("key", "", "`file` of keys, for targets that ask for one")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: exporter [-listen host:port] [-key file] URL...")
		os.Exit(2)
	}
	var options []tensormsg.DialOption
	if *key != "" {
		keys, err := tensormsg.LoadKeyring(*key)
		if err != nil {
			log.Fatal(err)
		}
		options = append(options, tensormsg.DialKeyring(keys))
	}
	e, err := newExporter(flag.Args(), options...)
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/metrics", e)
	log.Printf("http://%s/metrics?target=%s", *listen, flag.Arg(0))
	log.Fatal(http.ListenAndServe(*listen, nil))
}
