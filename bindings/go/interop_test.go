// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The command of the same build, which is C.
func command(t *testing.T, words ...string) *exec.Cmd {
	t.Helper()
	name := os.Getenv("TENSORMSG")
	if name == "" {
		t.Skip("TENSORMSG does not name the command")
	}
	c := exec.Command(name, words...)
	c.Stderr = os.Stderr
	return c
}

func TestTheCommandReceivesFromGoAndSendsToGo(t *testing.T) {
	folder := t.TempDir()
	ctx := generous(t)
	recv := command(t, "recv", "--listen", "unix://"+filepath.Join(folder, "s"), "--count", "1", "--out", folder)
	out, err := recv.StdoutPipe()
	must(t, err)
	must(t, recv.Start())
	defer recv.Process.Kill()
	url, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	w := newWorker(t)
	ep, err := w.Dial(ctx, strings.TrimSpace(url))
	must(t, err)
	sent := []float32{1, 2, 3, 4, 5, 6}
	must(t, ep.Send(ctx, Map{"image": Of(sent, 2, 3), "flags": Of([]bool{true, false}), "none": Of([]int16{}, 0)},
		WithMeta(Meta{MetaFileName: "a.safetensors", MetaFileFormat: "safetensors"}), Acked()))
	must(t, ep.Close(ctx))
	must(t, recv.Wait())

	l, err := w.Listen("tcp://127.0.0.1:0")
	must(t, err)
	send := command(t, "send", l.URL(), filepath.Join(folder, "a.safetensors"))
	must(t, send.Start())
	defer send.Process.Kill()
	ep, err = l.Accept(ctx)
	must(t, err)
	reply := func(state string) { // docs/wire/transfer.md
		must(t, ep.Send(ctx, nil, WithMeta(Meta{"transfer.reply": 1, "transfer.state": state, "transfer.file": ""})))
	}
	offer, err := ep.Recv(ctx)
	must(t, err)
	if name := offer.Meta()[MetaFileName]; name != "a.safetensors" {
		t.Errorf("%v was offered", name)
	}
	offer.Close()
	reply("go")
	m, err := ep.Recv(ctx)
	must(t, err)
	if got, want := m.String(), "Message{flags: bool[2], image: float32[2 3], none: int16[0]}"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	image, err := Clone[float32](m.Get("image"))
	if err != nil || !reflect.DeepEqual(image, sent) {
		t.Errorf("%v (%v), not %v", image, err, sent)
	}
	m.Close()
	reply("done")
	if _, err := ep.Recv(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("after the last file: %v", err)
	}
	ep.Close(ctx)
	must(t, send.Wait())
}
