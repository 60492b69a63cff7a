// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Runs the test of this name once more, with a CUDA driver that is simulated.
// False: that was done, and this process has none.
func simulated(t *testing.T) bool {
	t.Helper()
	if os.Getenv("TMSGGO_SIMULATED") != "" {
		return true
	}
	folder := os.Getenv("TMSGGO_SIM")
	if folder == "" {
		t.Skip("TMSGGO_SIM does not name the folder of the simulated driver")
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), "TMSGGO_SIMULATED=1", "LD_LIBRARY_PATH="+folder, "SIM_CUDA_DELAY_US=100")
	if said, err := c.CombinedOutput(); err != nil || !strings.Contains(string(said), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, said)
	}
	return false
}

func TestTensorsOfADeviceGoBothWays(t *testing.T) {
	if !simulated(t) {
		return
	}
	ctx := generous(t)
	all, err := Devices()
	must(t, err)
	var gpu DeviceInfo
	for _, d := range all {
		if d.Kind == "cuda" && d.Device == CUDA(0) {
			gpu = d
		}
	}
	if all[0].Kind != "host" || !strings.HasPrefix(gpu.UUID, "GPU-") || gpu.BusID == "" {
		t.Fatalf("%+v", all)
	}
	c, err := NewContext(ContextDeviceTable(`{"version": 1, "devices": [{"index": 5, "kind": "cuda", "bus_id": "` + gpu.BusID + `"}]}`))
	must(t, err)
	if d, err := c.Device(5); d != CUDA(0) || err != nil {
		t.Errorf("5 is %v (%v)", d, err)
	}
	for _, index := range []int{4, -1} {
		if _, err := c.Device(index); !errors.Is(err, ErrNotFound) {
			t.Errorf("%d: %v", index, err)
		}
	}
	c.Close()
	if _, err := c.Device(5); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	must(t, gpu.Device.Use())
	const count = 1 << 16
	var there [2]*DeviceBuffer
	for i := range there {
		there[i], err = AllocOn(gpu.Device, 4*count)
		must(t, err)
		defer there[i].Close()
	}
	tensor := there[0].Tensor(Float32DType, 256, count/256)
	if tensor.Device() != CUDA(0) || tensor.Address() != there[0].Address() || tensor.String() != "float32[256 256]" {
		t.Errorf("%v on %v", tensor, tensor.Device())
	}

	a, b := pairAt(t, "unix://"+filepath.Join(t.TempDir(), "s"))
	sent := make([]float32, count)
	for i := range sent {
		sent[i] = float32(i)
	}
	in, err := Prepare(Map{"x": tensor.WithStream(1)})
	must(t, err)
	defer in.Close()
	must(t, a.Send(ctx, Map{"x": Of(sent, 256, 256)}))
	must(t, b.RecvInto(ctx, in)) // to the device

	must(t, in.Set("x", there[1].Tensor(Float32DType, 256, 256)))
	must(t, in.Set("x", tensor))
	must(t, b.SendPrepared(ctx, in)) // from there
	m, err := a.Recv(ctx)
	must(t, err)
	came := m.Get("x")
	if came.Device() != CUDA(0) || came.Address() == 0 {
		t.Errorf("it came to %v", came.Device())
	}
	if _, err := Data[float32](came); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "cuda:0") {
		t.Errorf("read by the CPU: %v", err)
	}
	o, err := a.w.Offer(m.Map(), OfferName("x", 1)) // as it lies
	must(t, err)
	back := make([]float32, count)
	out, err := Prepare(Map{"x": Of(back, 256, 256)})
	must(t, err)
	defer out.Close()
	fetched, err := b.Fetch(ctx, "x", FetchInto(out)) // to the host
	must(t, err)
	fetched.Close()
	if !reflect.DeepEqual(back, sent) {
		t.Errorf("%v... came back", back[:4])
	}
	must(t, o.Withdraw(ctx))
	must(t, m.Close())
}

func TestBadDevicesAreNamed(t *testing.T) {
	for words, err := range map[string]error{
		"abacus":                      func() error { _, err := ParseDevice("abacus:1"); return err }(),
		"cpu:0":                       func() error { _, err := AllocOn(Device{}, 8); return err }(),
		"the stream 0x0 of a tensor":  send(t, OnDevice(CUDA(0), Int8DType, 16, 1).WithStream(0)),
		"the stream 0x10 of a tensor": send(t, Of([]int8{1}).WithStream(16)),
		"the address on cuda:1 is 0":  send(t, OnDevice(CUDA(1), Int8DType, 0, 1)),
	} {
		if !errors.Is(err, ErrInvalidParam) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	if _, err := Devices(DevicesTable("{}"), DevicesNoDrivers()); !errors.Is(err, ErrInvalidParam) {
		t.Errorf("a bad table: %v", err)
	}
	if d, err := ParseDevice("cuda:3"); d != CUDA(3) || err != nil {
		t.Errorf("%v (%v)", d, err)
	}
	if all, err := Devices(DevicesNoDrivers()); err != nil || len(all) < 1 || all[0].Device != (Device{}) {
		t.Errorf("%v (%v)", all, err)
	}
}

func send(t *testing.T, x Tensor) error {
	_, err := Prepare(Map{"x": x})
	return err
}
