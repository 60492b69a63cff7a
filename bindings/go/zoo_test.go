// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// Each dtype that Go has a type for, and odd shapes; and one tensor that goes
// another way than small ones.
func zoo() Map {
	grid := Of([]int32{0, 1, 2, 3, 4, 5}, 2, 3)
	large := make([]float32, 1<<18)
	for i := range large {
		large[i] = float32(i)
	}
	return Map{
		"bool": Of([]bool{true, true}), "int8": Of([]int8{1, 2}), "int16": Of([]int16{1, 2}), "int32": Of([]int32{1, 2}),
		"int64": Of([]int64{1, 2}), "uint8": Of([]uint8{1, 2}), "uint16": Of([]uint16{1, 2}), "uint32": Of([]uint32{1, 2}),
		"uint64": Of([]uint64{1, 2}), "float16": Of([]Float16{0x3c00, 0x4000}), "float32": Of([]float32{1, 2}),
		"float64": Of([]float64{1, 2}), "complex64": Of([]complex64{1, 2}), "complex128": Of([]complex128{1, 2}),
		"0d": Scalar(7.5), "none": Of([]float32{}, 3, 0, 2),
		"turned": grid.WithStrides([]int{3, 2}, []int{1, 3}),
		"column": Of([]int32{0, 1, 2, 3, 4, 5}[1:], 5).WithStrides([]int{2}, []int{3}),
		"one":    Of([]int32{9}).WithStrides([]int{2, 2}, []int{0, 0}),
		"large":  Of(large),
	}
}

// And those that it has none for.
func wholeZoo(t *testing.T) Map {
	m := zoo()
	m["bfloat16"] = Of([]BFloat16{0x3f80, 0x4000})
	for _, name := range []string{"float8_e4m3fn", "float8_e5m2", "int4", "float32x4"} {
		if d, err := ParseDType(name); err == nil {
			m[name] = Raw(d, make([]byte, 2*max(1, int(d.Bits)*int(d.Lanes)/8)), 2)
		} else if name != "float32x4" {
			t.Errorf("%s: %v", name, err)
		}
	}
	return m
}

// The bytes of the elements in C order.
func inOrder(t Tensor) []byte {
	if t.Size() == 0 {
		return nil
	}
	if t.inOrder() {
		return unsafe.Slice((*byte)(t.data), t.bytes())
	}
	to := make([]int32, t.Size())
	gather(to, (*int32)(t.data), t.Shape, t.Strides)
	return unsafe.Slice((*byte)(unsafe.Pointer(&to[0])), 4*len(to))
}

func sameMap(t *testing.T, m *Message, want Map) {
	t.Helper()
	got := m.Map()
	if got.String() != want.String() {
		t.Errorf("%v, not %v", got, want)
	}
	for name, tensor := range want {
		if there := got[name]; there.Size() == tensor.Size() && !bytes.Equal(inOrder(there), inOrder(tensor)) {
			t.Errorf("%s: %v is another", name, tensor)
		}
	}
}

func TestEverythingGoesThereAndBackByEachLink(t *testing.T) {
	certified := certificates(t, "farm", "camera")
	read := func(name string) *TLS {
		made, err := NewTLS(filesOf(certified, name))
		if errors.Is(err, ErrUnsupported) {
			return nil
		}
		must(t, err)
		t.Cleanup(func() { made.Close() })
		return made
	}
	farm, camera := read("farm"), read("camera")
	want := wholeZoo(t)
	path := func(name string) string { return "unix://" + filepath.Join(t.TempDir(), name) }
	for _, link := range []struct {
		name, url, keys string
		listen          []ListenOption
		dial            []DialOption
	}{
		{name: "shared memory", url: path("shm")},
		{name: "shared memory without CMA", url: path("posix"), keys: "TLS=posix,self"},
		{name: "a Unix socket alone", url: path("stream"), listen: []ListenOption{ListenCarrier(CarrierStream)}},
		{name: "tcp", url: "tcp://127.0.0.1:0"},
		{name: "UCX's tcp", url: "tcp://127.0.0.1:0", keys: "TLS=tcp,self"},
		{name: "the stream carrier", url: "tcp://127.0.0.1:0", dial: []DialOption{DialCarrier(CarrierStream)}},
		{name: "a blob", url: "blob://127.0.0.1"},
		{name: "tls", url: "tls://127.0.0.1:0", listen: []ListenOption{ListenTLS(farm)}, dial: []DialOption{DialTLS(camera)}},
	} {
		if link.name == "tls" && farm == nil {
			continue // a library that was built without
		}
		t.Run(link.name, func(t *testing.T) {
			var options []ContextOption
			if link.keys != "" {
				options = append(options, ContextUCXConfig(link.keys))
			}
			ctx := generous(t)
			l, err := newWorker(t, options...).Listen(link.url, link.listen...)
			must(t, err)
			echoed := make(chan error, 1)
			go func() {
				echoed <- func() error {
					ep, err := l.Accept(ctx)
					if err != nil {
						return err
					}
					m, err := ep.Recv(ctx)
					if err != nil {
						return err
					}
					defer m.Close()
					return ep.Send(ctx, m.Map(), Acked())
				}()
			}()
			w := newWorker(t, options...)
			dial := func() (*Endpoint, error) { return w.Dial(ctx, l.URL(), link.dial...) }
			if strings.HasPrefix(link.url, "blob:") {
				blob, err := l.Blob()
				must(t, err)
				dial = func() (*Endpoint, error) { return w.DialBlob(ctx, blob, link.dial...) }
			}
			ep, err := dial()
			must(t, err)
			must(t, ep.Send(ctx, want))
			m, err := ep.Recv(ctx)
			must(t, err)
			sameMap(t, m, want)
			m.Close()
			must(t, <-echoed)
		})
	}
}

func TestEverythingGoesToCAndBack(t *testing.T) {
	ctx := generous(t)
	url := "unix://" + filepath.Join(t.TempDir(), "s")
	server := command(t, "serve", "--listen", url, "--echo")
	must(t, server.Start())
	defer server.Process.Kill()
	ep, err := newWorker(t).Dial(ctx, url, DialWait())
	must(t, err)
	want := wholeZoo(t)
	reply, err := ep.Call(ctx, "echo", want)
	must(t, err)
	defer reply.Close()
	sameMap(t, reply, want)
}

func TestEverythingGoesToPythonAndComesFromIt(t *testing.T) {
	interpreter := python(t)
	ctx := generous(t)
	for _, url := range []string{"unix://" + filepath.Join(t.TempDir(), "s"), "tcp://127.0.0.1:0"} {
		l, err := newWorker(t).Listen(url)
		must(t, err)
		peer := exec.CommandContext(ctx, interpreter, "-B", "testdata/zoo.py", l.URL())
		peer.Stderr = os.Stderr
		var said bytes.Buffer
		peer.Stdout = &said
		must(t, peer.Start())
		ep, err := l.Accept(ctx)
		must(t, err)
		want := zoo()
		must(t, ep.Send(ctx, want))
		for range []string{"what was sent", "what Python has made"} {
			m, err := ep.Recv(ctx)
			must(t, err)
			sameMap(t, m, want)
			m.Close()
		}
		_, err = ep.Recv(ctx)
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after the last: %v", err)
		}
		ep.Close(ctx)
		must(t, peer.Wait())
		for _, line := range []string{"0d float64 []", "none float32 [3, 0, 2]", "turned int32 [3, 2]", "complex128 complex128 [2]", "bool bool [2]"} {
			if !strings.Contains("\n"+said.String(), "\n"+line+"\n") {
				t.Errorf("Python does not say %q in\n%s", line, said.String())
			}
		}
	}
}
