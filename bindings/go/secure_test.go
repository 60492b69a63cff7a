// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A listener's endpoint and the one that dials it, or what the dial fails with.
func meet(t *testing.T, url string, listen []ListenOption, dial []DialOption) (dialled, accepted *Endpoint, err error) {
	t.Helper()
	ctx := generous(t)
	l, err := newWorker(t).Listen(url, listen...)
	must(t, err)
	done := make(chan error, 1)
	accepting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		var err error
		accepted, err = l.Accept(accepting)
		done <- err
	}()
	dialled, err = newWorker(t).Dial(ctx, l.URL(), dial...)
	if err != nil {
		stop()
		<-done
		return nil, nil, err
	}
	must(t, <-done)
	return dialled, accepted, nil
}

func newKeyring(t *testing.T) *Keyring {
	t.Helper()
	k, err := NewKeyring()
	must(t, err)
	t.Cleanup(func() { k.Close() })
	return k
}

func newKey(t *testing.T) Key {
	t.Helper()
	key, err := GenerateKey()
	must(t, err)
	return key
}

func TestPeersProveTheirKeys(t *testing.T) {
	alice, farm := newKey(t), newKey(t)
	servers, clients := newKeyring(t), newKeyring(t)
	must(t, servers.Replace(map[string][]Key{"alice": {alice}, "other": {newKey(t), newKey(t)}}))
	must(t, clients.Add("farm", alice))
	for _, url := range []string{"tcp://127.0.0.1:0", "tls://127.0.0.1:0"} {
		a, b, err := meet(t, url, []ListenOption{ListenKeyring(servers)}, []DialOption{DialKeyring(clients)})
		must(t, err)
		if a.Principal() != "farm" || b.Principal() != "alice" {
			t.Errorf("%s: %q and %q have met", url, a.Principal(), b.Principal())
		}
		must(t, a.Send(generous(t), Map{"x": Of([]int8{1})}))
		m, err := b.Recv(generous(t))
		must(t, err)
		m.Close()
	}
	must(t, clients.Replace(map[string][]Key{"farm": {farm}}))
	if _, _, err := meet(t, "tcp://127.0.0.1:0", []ListenOption{ListenKeyring(servers)}, []DialOption{DialKeyring(clients)}); !errors.Is(err, ErrRefused) && !errors.Is(err, ErrInsecure) {
		t.Errorf("another key: %v", err)
	}
	if _, _, err := meet(t, "tcp://127.0.0.1:0", []ListenOption{ListenKeyring(servers)}, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("no key: %v", err)
	}
	must(t, servers.Remove("other"))
	must(t, servers.Remove("alice"))
	must(t, servers.Add("farm", farm))
	c, err := NewContext(ContextKeyring(clients))
	must(t, err)
	w, err := NewWorker(c)
	must(t, err)
	defer w.Close()
	must(t, c.Close())
	l, err := newWorker(t).Listen("tcp://127.0.0.1:0", ListenKeyring(servers), ListenKeep())
	must(t, err)
	ep, err := w.Dial(generous(t), l.URL()) // with the context's
	must(t, err)
	if ep.Principal() != "farm" {
		t.Errorf("%q", ep.Principal())
	}
	if _, err := w.Dial(generous(t), l.URL(), DialKeyring(nil)); !errors.Is(err, ErrRefused) {
		t.Errorf("without the context's: %v", err)
	}
	if _, err := NewWorker(c); !errors.Is(err, ErrClosed) {
		t.Errorf("a worker of a closed context: %v", err)
	}
}

func TestKeysInFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "k")
	key := newKey(t)
	if words := fmt.Sprintf("%v %x %s", key, key, &key); words != "Key(...) Key(...) Key(...)" {
		t.Errorf("a key is shown: %s", words)
	}
	must(t, SaveKey(file, "alice", key))
	k, err := LoadKeyring(file)
	must(t, err)
	defer k.Close()
	for _, c := range []struct {
		what   string
		err    error
		status Status
		words  string
	}{
		{"it is there", SaveKey(file, "alice", key), ErrAlreadyExists, file},
		{"a name with a space", k.Add("a b", newKey(t)), ErrInvalidParam, "a b"},
		{"a NUL in the name", k.Add("a\x00b", newKey(t)), ErrInvalidParam, "NUL"},
		{"a NUL in a name of several", k.Replace(map[string][]Key{"a\x00b": {key}}), ErrInvalidParam, "NUL"},
		{"a key that is there", k.Add("bob", key), ErrAlreadyExists, "alice"},
		{"nobody's", k.Remove("bob"), ErrNotFound, "bob"},
		{"no file", k.Load(file + "x"), ErrNotFound, file + "x"},
		{"zeros", k.Replace(map[string][]Key{"a": {Key{}}}), ErrInvalidParam, ""},
	} {
		if !errors.Is(c.err, c.status) || !strings.Contains(c.err.Error(), c.words) {
			t.Errorf("%s: %v", c.what, c.err)
		}
	}
	must(t, k.Remove("alice")) // what failed has changed nothing
	must(t, os.Chmod(file, 0o644))
	if _, err := LoadKeyring(file); !errors.Is(err, ErrInsecure) {
		t.Errorf("a file that others may read: %v", err)
	}
	must(t, k.Close())
	must(t, k.Close())
	if err := k.Add("a", key); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed keyring: %v", err)
	}
	if _, err := newWorker(t).Listen("tcp://127.0.0.1:0", ListenKeyring(k)); !errors.Is(err, ErrClosed) {
		t.Errorf("a listener of a closed keyring: %v", err)
	}
}

// Certificates of an authority of its own, in a folder: ca.pem, NAME.pem and
// NAME.key.
func certificates(t *testing.T, names ...string) string {
	t.Helper()
	folder := t.TempDir()
	write := func(name, kind string, der []byte) {
		must(t, os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	made := func(serial int64, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}, key
	}
	ca, caKey := made(1, "the authority")
	ca.IsCA, ca.KeyUsage = true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	must(t, err)
	write("ca.pem", "CERTIFICATE", der)
	for i, name := range names {
		cert, key := made(int64(i+2), name)
		der, err := x509.CreateCertificate(rand.Reader, cert, ca, &key.PublicKey, caKey)
		must(t, err)
		write(name+".pem", "CERTIFICATE", der)
		der, err = x509.MarshalPKCS8PrivateKey(key)
		must(t, err)
		write(name+".key", "PRIVATE KEY", der)
	}
	return folder
}

func filesOf(folder, name string) TLSFiles {
	return TLSFiles{CA: filepath.Join(folder, "ca.pem"), Cert: filepath.Join(folder, name+".pem"), Key: filepath.Join(folder, name+".key")}
}

func TestPeersProveTheirCertificates(t *testing.T) {
	folder, elsewhere := certificates(t, "farm", "camera"), certificates(t, "camera")
	read := func(files TLSFiles) *TLS {
		made, err := NewTLS(files)
		must(t, err)
		t.Cleanup(func() { made.Close() })
		return made
	}
	farm, camera := read(filesOf(folder, "farm")), read(filesOf(folder, "camera"))
	a, b, err := meet(t, "tls://127.0.0.1:0", []ListenOption{ListenTLS(farm)}, []DialOption{DialTLS(camera)})
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	must(t, err)
	if a.Principal() != "farm" || b.Principal() != "camera" {
		t.Errorf("%q and %q have met", a.Principal(), b.Principal())
	}
	must(t, a.Send(generous(t), Map{"x": Of(make([]float32, 1<<16))}))
	m, err := b.Recv(generous(t))
	must(t, err)
	m.Close()
	stranger := read(filesOf(elsewhere, "camera"))
	if _, _, err := meet(t, "tls://127.0.0.1:0", []ListenOption{ListenTLS(farm)}, []DialOption{DialTLS(stranger)}); !errors.Is(err, ErrInsecure) && !errors.Is(err, ErrRefused) {
		t.Errorf("another authority: %v", err)
	}
	must(t, farm.Reload())
	must(t, os.WriteFile(filepath.Join(folder, "farm.pem"), []byte("no certificate"), 0o600))
	if err := farm.Reload(); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "farm.pem") {
		t.Errorf("a spoilt file: %v", err)
	}
	if _, _, err := meet(t, "tls://127.0.0.1:0", []ListenOption{ListenTLS(farm)}, []DialOption{DialTLS(camera)}); err != nil {
		t.Errorf("what was there holds: %v", err)
	}
	secret := filesOf(folder, "camera")
	secret.Password = "nobody\x00sees"
	inline := filesOf(folder, "camera")
	inline.CA = "-----BEGIN CERTIFICATE-----"
	for _, c := range []struct {
		files  TLSFiles
		status Status
		words  string
	}{
		{TLSFiles{}, ErrInvalidParam, ""},
		{TLSFiles{Cert: "/nowhere/c", Key: "/nowhere/k", CA: "/nowhere/ca"}, ErrNotFound, "/nowhere/"},
		{secret, ErrInvalidParam, "TLSFiles.Password: it has a NUL"},
		{inline, ErrInvalidParam, "TLSFiles.CA: that is the content of a file"},
	} {
		if _, err := NewTLS(c.files); !errors.Is(err, c.status) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%v: %v", c.files, err)
		}
	}
	camera.Close()
	if err := camera.Reload(); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed TLS: %v", err)
	}
}

// A relay of TCP connections, which can be cut.
type relay struct {
	net.Listener
	to    string
	conns chan net.Conn
}

func newRelay(t *testing.T, url string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{l, strings.TrimPrefix(url, "tcp://"), make(chan net.Conn, 1000)}
	t.Cleanup(func() { l.Close(); r.cut() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", r.to)
			if err != nil {
				from.Close()
				continue
			}
			r.conns <- from
			r.conns <- to
			pump := func(to, from net.Conn) {
				buffer := make([]byte, 1<<16)
				for {
					n, err := from.Read(buffer)
					if _, e := to.Write(buffer[:n]); err != nil || e != nil {
						to.Close()
						from.Close()
						return
					}
				}
			}
			go pump(to, from)
			go pump(from, to)
		}
	}()
	return r
}

func (r *relay) cut() {
	for len(r.conns) > 0 {
		(<-r.conns).Close()
	}
}

func (r *relay) url() string { return "tcp://" + r.Addr().String() }

func expect(t *testing.T, ep *Endpoint, want SessionKind) {
	t.Helper()
	e, err := ep.SessionEvent(generous(t))
	must(t, err)
	if e.Kind != want || e.Words == "" {
		t.Fatalf("%v, not %v", e, want)
	}
}

func TestASessionComesBack(t *testing.T) {
	ctx := generous(t)
	w := newWorker(t)
	l, err := w.Listen("tcp://127.0.0.1:0", ListenResume(time.Minute), ListenCarrier(CarrierStream), ListenPeerEvents())
	must(t, err)
	r := newRelay(t, l.URL())
	again := DialReconnect(Reconnect{FirstBackoff: 10 * time.Millisecond, MostBackoff: 50 * time.Millisecond})
	a, err := newWorker(t).Dial(ctx, r.url(), again)
	must(t, err)
	b, err := l.Accept(ctx)
	must(t, err)
	came, err := l.PeerEvent(ctx)
	if err != nil || came.Gone || came.Peer != b.Peer() {
		t.Errorf("%+v (%v), not %s", came, err, b.Peer())
	}
	r.cut()
	sent := make(chan error, 1)
	go func() { sent <- a.Send(ctx, Map{"x": Of([]int8{1})}, Acked()) }()
	m, err := b.Recv(ctx) // it waited for the connection
	must(t, err)
	m.Close()
	expect(t, a, SessionAway)
	expect(t, a, SessionBack)
	expect(t, b, SessionAway)
	expect(t, b, SessionBack)
	must(t, a.Ready(ctx))
	must(t, a.Err())
	go b.Recv(ctx) // drives b's worker
	must(t, <-sent)

	w.Close() // and another process begins, for all that the dialling side knows
	expect(t, a, SessionAway)
	if _, err := b.SessionEvent(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed worker: %v", err)
	}
	l, err = newWorker(t).Listen(l.URL(), ListenCarrier(CarrierStream))
	must(t, err)
	b, err = l.Accept(ctx)
	must(t, err)
	expect(t, a, SessionNew)
	if _, err := b.SessionEvent(ctx); !errors.Is(err, ErrUnsupported) {
		t.Errorf("no session is kept: %v", err)
	}
	waits := make(chan error, 1)
	go func() { _, err := a.SessionEvent(ctx); waits <- err }()
	b.Abort(fail(ErrApplication, "that was all"))
	if err := <-waits; !errors.Is(err, ErrApplication) || !strings.Contains(err.Error(), "that was all") {
		t.Errorf("the end: %v", err)
	}
	if err := a.Err(); !errors.Is(err, ErrApplication) {
		t.Errorf("the end: %v", err)
	}
	if _, err := a.SessionEvent(ctx); !errors.Is(err, ErrApplication) {
		t.Errorf("the end again: %v", err)
	}
	a.Close(ctx)
	a, err = a.w.Dial(ctx, l.URL(), again)
	must(t, err)
	go func() { _, err := a.SessionEvent(ctx); waits <- err }()
	for ctx.Err() == nil && (len(a.w.lead) == 0 || a.w.keeping.Load()) {
		runtime.Gosched()
	}
	a.Close(ctx)
	if err := <-waits; !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestAListenerTellsWhoComesAndGoes(t *testing.T) {
	ctx := generous(t)
	url := "unix://" + filepath.Join(t.TempDir(), "s")
	server := newWorker(t)
	l, err := server.Listen(url, ListenKeep(), ListenPeerEvents())
	must(t, err)
	next := func(gone bool, status Status) {
		t.Helper()
		e, err := l.PeerEvent(ctx)
		must(t, err)
		if e.Gone != gone || gone && !errors.Is(e.Err, status) || e.Peer == "" || e.Principal != "" {
			t.Errorf("%+v, not %v %v", e, gone, status)
		}
	}
	w := newWorker(t)
	ep, err := w.Dial(ctx, url)
	must(t, err)
	next(false, 0)
	if took, err := ep.Ping(ctx); err != nil || took <= 0 {
		t.Errorf("%v (%v)", took, err)
	}
	server.askForLead()
	server.lead <- struct{}{} // nobody drives the other side meanwhile
	brief, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := ep.Ping(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	server.release()
	must(t, ep.Err())
	must(t, ep.Close(ctx))
	next(true, ErrClosed)
	_, err = w.Dial(ctx, url)
	must(t, err)
	next(false, 0)
	w.Close()
	next(true, ErrPeerLost)
	waits := make(chan error, 1)
	go func() { _, err := l.PeerEvent(ctx); waits <- err }()
	text, err := l.Describe()
	if err != nil || !strings.Contains(text, "\"connected\":\t2") {
		t.Errorf("%s (%v)", text, err)
	}
	l.Close()
	if err := <-waits; !errors.Is(err, ErrClosed) {
		t.Errorf("a closed listener: %v", err)
	}
	other, err := server.Listen(url)
	must(t, err)
	if _, err := other.PeerEvent(ctx); !errors.Is(err, ErrUnsupported) {
		t.Errorf("nobody asked: %v", err)
	}
}

func TestABlobIsDialled(t *testing.T) {
	ctx := generous(t)
	k := newKeyring(t)
	must(t, k.Add("alice", newKey(t)))
	l, err := newWorker(t).Listen("blob://", ListenKeyring(k))
	must(t, err)
	blob, err := l.Blob()
	must(t, err)
	ep, err := newWorker(t).DialBlob(ctx, blob, DialKeyring(k))
	must(t, err)
	accepted, err := l.Accept(ctx)
	must(t, err)
	if ep.Principal() != "alice" || accepted.Principal() != "alice" {
		t.Errorf("%q, %q", ep.Principal(), accepted.Principal())
	}
	if _, err := newWorker(t).DialBlob(ctx, blob[:10]); !errors.Is(err, ErrMalformed) {
		t.Errorf("a part of one: %v", err)
	}
	if _, err := newWorker(t).DialBlob(ctx, nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("none: %v", err)
	}
}

func TestAWaitForAListenerEndsWithTheContext(t *testing.T) {
	w, url := newWorker(t), "unix://"+filepath.Join(t.TempDir(), "s")
	for within := 50 * time.Millisecond; ; within *= 2 { // until it has tried once meanwhile
		ctx, cancel := context.WithTimeout(context.Background(), within)
		_, err := w.Dial(ctx, url, DialWait())
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || within > 10*time.Second {
			t.Fatalf("%v", err)
		}
		if strings.Contains(err.Error(), "listen") {
			return
		}
	}
}

func TestOptionsThatAreWrongAreNamed(t *testing.T) {
	w := newWorker(t)
	url := "unix://" + filepath.Join(t.TempDir(), "s")
	listen := func(option ListenOption) error { _, err := w.Listen(url, option); return err }
	dial := func(option DialOption) error { _, err := w.Dial(generous(t), url, option); return err }
	worker := func(option WorkerOption) error { _, err := NewWorker(nil, option); return err }
	made := func(option ContextOption) error { _, err := NewContext(option); return err }
	for option, err := range map[string]error{
		"ContextPeerTimeout":          made(ContextPeerTimeout(-time.Second)),
		"ContextConfigFile":           made(ContextConfigFile("a\x00b")),
		"WorkerQueueDepth":            worker(WorkerQueueDepth(-1)),
		"WorkerSendQueue: 1 ":         worker(WorkerSendQueue(Queue{Policy: 1})),
		"WorkerSendQueue: Most":       worker(WorkerSendQueue(Queue{Most: -1})),
		"ListenHandshakeTimeout":      listen(ListenHandshakeTimeout(1 << 62)),
		"ListenMaxHandshakes":         listen(ListenMaxHandshakes(1 << 40)),
		"DialReconnect: FirstBackoff": dial(DialReconnect(Reconnect{FirstBackoff: -1})),
		"DialDevices":                 dial(DialDevices("\x00")),
		"MethodConcurrency":           w.Handle("m", func(context.Context, *Message) (Map, error) { return nil, nil }, MethodConcurrency(-1)),
		"SetQueue: Messages":          (&Endpoint{}).SetQueue(Queue{Messages: -1}),
		"limits: tensors":             made(ContextLimits(Limits{Tensors: 1 << 40})),
	} {
		if !errors.Is(err, ErrInvalidParam) || !strings.Contains(err.Error(), option) {
			t.Errorf("%s: %v", option, err)
		}
	}
}

func TestTheCommandProvesKeysAndCertificatesOfGo(t *testing.T) {
	folder := certificates(t, "farm", "probe")
	file := filepath.Join(folder, "secret.key")
	must(t, SaveKey(file, "probe", newKey(t)))
	k, err := LoadKeyring(file)
	must(t, err)
	defer k.Close()
	farm, err := NewTLS(filesOf(folder, "farm"))
	must(t, err)
	defer farm.Close()
	server := newWorker(t)
	must(t, server.Handle("m", func(context.Context, *Message) (Map, error) { return nil, nil }, MethodPrincipals("probe")))
	ask := func(words []string, options ...ListenOption) (string, error) {
		l, err := server.Listen("tls://127.0.0.1:0", append(options, ListenKeep())...)
		must(t, err)
		defer l.Close()
		said, err := command(t, append([]string{"health", l.URL(), "m"}, words...)...).Output()
		return string(said), err
	}
	if said, err := ask([]string{"--key", file}, ListenKeyring(k)); err != nil || !strings.Contains(said, "SERVING") {
		t.Errorf("by a key: %s (%v)", said, err)
	}
	mine := filesOf(folder, "probe")
	by := []string{"--tls-ca", mine.CA, "--tls-cert", mine.Cert, "--tls-key", mine.Key}
	if said, err := ask(by, ListenTLS(farm)); err != nil || !strings.Contains(said, "SERVING") {
		t.Errorf("by a certificate: %s (%v)", said, err)
	}
	saved := filepath.Join(folder, "a.safetensors")
	must(t, Save(saved, Map{"image": Of([]float32{1, 2}, 2, 1)}))
	if said, err := command(t, "dump", saved).Output(); err != nil || !strings.Contains(string(said), "image") {
		t.Errorf("a file: %s (%v)", said, err)
	}
}

func TestPythonProvesKeysAndCertificatesAndComesBack(t *testing.T) {
	interpreter := python(t)
	ctx := generous(t)
	folder := certificates(t, "farm", "python")
	must(t, SaveKey(filepath.Join(folder, "secret.key"), "site", newKey(t)))
	k, err := LoadKeyring(filepath.Join(folder, "secret.key"))
	must(t, err)
	defer k.Close()
	farm, err := NewTLS(filesOf(folder, "farm"))
	must(t, err)
	defer farm.Close()
	must(t, Save(filepath.Join(folder, "go.safetensors"), Map{"image": Of([]int16{1, 2, 3, 4}, 2, 2)}))
	w := newWorker(t)
	must(t, w.Handle("who", func(ctx context.Context, in *Message) (Map, error) {
		TaskOf(ctx).SetReplyMeta(Meta{"principal": TaskOf(ctx).Principal(), "asked": in.Meta()["q"]})
		return nil, nil
	}))
	byCertificate, err := w.Listen("tls://127.0.0.1:0", ListenTLS(farm), ListenKeep())
	must(t, err)
	byKey, err := w.Listen("tcp://127.0.0.1:0", ListenKeyring(k), ListenKeep())
	must(t, err)
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- w.Serve(serving) }()
	defer func() { stop(); <-served }()

	peer := exec.CommandContext(ctx, interpreter, "-B", "testdata/secure.py",
		folder, byCertificate.URL(), byKey.URL())
	peer.Stderr = os.Stderr
	in, err := peer.StdinPipe()
	must(t, err)
	out, err := peer.StdoutPipe()
	must(t, err)
	must(t, peer.Start())
	defer peer.Process.Kill()
	lines := bufio.NewScanner(out)
	next := func() string { lines.Scan(); return lines.Text() }
	for _, want := range []string{
		"farm python 7", "SERVING ['who']", "site site 7", "SERVING ['who']", "[[1, 2], [3, 4]]",
	} {
		if said := next(); said != want {
			t.Errorf("Python says %q, not %q", said, want)
		}
	}
	m, err := Load(filepath.Join(folder, "python.npz"))
	must(t, err)
	image, err := Data[float64](m.Get("image"))
	if err != nil || len(image) != 6 || image[5] != 5 {
		t.Errorf("%v (%v)", image, err)
	}
	m.Close()
	r := newRelay(t, strings.TrimPrefix(next(), "listens "))
	ep, err := newWorker(t).Dial(ctx, r.url(), DialKeyring(k), DialReconnect(Reconnect{FirstBackoff: 10 * time.Millisecond}))
	must(t, err)
	for i := int64(1); i <= 2; i++ {
		must(t, ep.Send(ctx, Map{"x": Scalar(i)}, Acked()))
		if said, want := next(), fmt.Sprint("site ", i); said != want {
			t.Errorf("Python says %q, not %q", said, want)
		}
		if i == 1 {
			r.cut()
			expect(t, ep, SessionAway)
			expect(t, ep, SessionBack)
		}
	}
	in.Close()
	ep.Close(ctx)
	must(t, peer.Wait())
}
