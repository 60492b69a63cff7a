// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"tensormsg"
)

func TestCallsAreAnswered(t *testing.T) {
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
	l, err := serve(ctx, server, "unix://"+filepath.Join(t.TempDir(), "s"))
	check(err)
	w, err := tensormsg.NewWorker(nil)
	check(err)
	defer w.Close()
	ep, err := w.Dial(ctx, l.URL())
	check(err)

	images := make([]float32, 2*channels*side*side)
	images[side*side] = 1 // the second channel of the first image
	images[5*side*side] = 1
	for { // the processor may be taken away for a second
		best, err := infer(ctx, ep, images)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			continue
		}
		check(err)
		if want := []int{1, 2}; !reflect.DeepEqual(best, want) {
			t.Errorf("the classes %v, not %v", best, want)
		}
		break
	}
	answered, failed := askMany(ctx, ep, 20, 4)
	if late := failed["too late"]; answered+late != 20 {
		t.Errorf("%d calls were answered, others not: %v", answered, failed)
	}
	server.Close()
	if answered, failed = askMany(ctx, ep, 2, 1); answered != 0 || failed["the server has ended"] == 0 {
		t.Errorf("%d calls were answered by nobody: %v", answered, failed)
	}
}
