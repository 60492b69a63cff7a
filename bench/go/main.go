// SPDX-License-Identifier: BSD-3-Clause

// The sides of the rows of Go of `make bench`: Go's package and C, by turns, in
// the same two processes. bench/go_rows.py starts them, each bound to a core.
package main

/*
#cgo pkg-config: tensormsg
#include <stdlib.h>
#include "c_side.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"time"
	"unsafe"
)

const (
	rounds = 64 // of a block
	large  = 16 << 20
	pushes = 8 // of a block
	window = 4
)

var ctx = context.Background()

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func got[T any](value T, err error) T {
	must(err)
	return value
}

// One way to do the same: blocks of round trips, and of large messages.
type way struct {
	name         string
	ask, answer  func() // a block
	push, pull   func() // likewise; nil: not measured
	times, rates []float64
	allocations  uint64
}

func main() {
	log.SetFlags(0)
	asking, folder := os.Args[1] == "ask", os.Args[2]
	blocks, turns := got(strconv.Atoi(os.Args[4])), got(strconv.Atoi(os.Args[5]))
	ways := inC("unix://"+filepath.Join(folder, "c"), asking)
	for _, w := range inGo("unix://"+filepath.Join(folder, "go"), asking) {
		if w.name == os.Args[3] {
			ways = append(ways, w)
		}
	}

	all := len(ways)
	for i := 0; i < blocks; i++ {
		for j := range ways {
			w := ways[j]
			if i%2 == 1 {
				w = ways[all-1-j]
			}
			if !asking {
				w.answer()
				continue
			}
			var before, after runtime.MemStats
			if i == blocks-1 {
				runtime.ReadMemStats(&before)
			}
			begun := time.Now()
			w.ask()
			w.times = append(w.times, time.Since(begun).Seconds()*1e6/(2*rounds))
			if i == blocks-1 {
				runtime.ReadMemStats(&after)
				w.allocations = after.Mallocs - before.Mallocs
			}
		}
	}
	for i := 0; i < turns; i++ {
		for _, w := range ways {
			if w.push == nil {
				continue
			}
			if !asking {
				w.pull()
				continue
			}
			begun := time.Now()
			w.push()
			w.rates = append(w.rates, pushes*large/time.Since(begun).Seconds()/1e9)
		}
	}
	if asking {
		tell(ways)
	}
}

func tell(ways []*way) {
	said := map[string]float64{}
	for _, w := range ways {
		said[w.name+"_us"] = part(w.times, .5)
		said[w.name+"_best_us"] = part(w.times, .1)
		said[w.name+"_allocations"] = float64(w.allocations) / rounds
		if w.push != nil {
			said[w.name+"_gb_s"] = part(w.rates, .5)
			said[w.name+"_best_gb_s"] = part(w.rates, .9)
		}
	}
	fmt.Println(string(got(json.Marshal(said))))
}

func part(values []float64, share float64) float64 {
	sort.Float64s(values)
	if len(values) == 0 {
		return 0
	}
	return values[int(share*float64(len(values)-1))]
}

func openC(url string, asking bool, into, tensors int, bytes int64) *C.c_side_t {
	dialling := C.int(0)
	if asking {
		dialling = 1
	}
	text := C.CString(url)
	defer C.free(unsafe.Pointer(text))
	side := C.c_side_open(text, dialling, C.int(into))
	C.c_side_load(side, C.int(tensors), C.int64_t(bytes))
	return side
}

func inC(url string, asking bool) []*way {
	small, into, big := openC(url, asking, 0, 8, 64), openC(url+"-into", asking, 1, 8, 64), openC(url+"-large", asking, 0, 1, large)
	return []*way{{
		name:   "C",
		ask:    func() { C.c_side_ask(small, rounds) },
		answer: func() { C.c_side_answer(small, rounds) },
		push: func() {
			C.c_side_push(big, pushes, window)
			C.c_side_pull(big, 1)
		},
		pull: func() {
			C.c_side_pull(big, pushes)
			C.c_side_push(big, 1, 1)
		},
	}, {
		name:   "C_into",
		ask:    func() { C.c_side_ask(into, rounds) },
		answer: func() { C.c_side_answer(into, rounds) },
	}}
}
