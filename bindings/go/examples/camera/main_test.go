// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tensormsg"
)

func TestAViewerSeesFramesWhileTheCameraFilms(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	url := "unix://" + filepath.Join(t.TempDir(), "frames")
	filming, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(filming, url, false, 200) }()

	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()
	ep, err := w.Dial(ctx, url, tensormsg.DialLive(), tensormsg.DialWait())
	check(err)
	var seen bytes.Buffer
	check(view(ctx, ep, 3, &seen))
	lines := strings.Split(strings.TrimSpace(seen.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], ": uint8[480 640 3], mean ") {
		t.Errorf("the viewer saw %q", lines)
	}
	stop()
	check(<-ended)
}
