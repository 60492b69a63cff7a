// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"runtime"
	"strings"
	"sync"
)

// TLSFiles says what a side of tls:// proves by its certificate, and what it
// asks of its peers'. The files are PEM. "" and 0 stand for the defaults.
type TLSFiles struct {
	CA   string // certificates of the authorities that have to have signed a peer's; needed, unless Pins are given
	Cert string // this side's certificate, and behind it those that lead to its authority; needed
	Key  string // its private key, which its owner alone may read; needed

	Password   string   // of an encrypted Key
	CRL        string   // lists of revoked certificates, one of each authority; by default none is asked
	Name       string   // a DNS name or IP address that a listener's certificate has to be for; by default the host of the URL
	Pins       []string // SHA-256 of the public keys that a peer may have, 64 hexadecimal digits each, or "NAME=DIGITS"
	Depth      int      // the most certificates between a peer's and its authority's; by default 4
	RekeyBytes uint64   // how many bytes are encrypted with one key; 16 KiB to 64 GiB, which is the default
}

// A TLS is what was read of these files. It is given to listeners and endpoints
// of tls://, to any number of them (docs/reference/tls.md). All methods may be called by
// any goroutine.
type TLS struct {
	life sync.RWMutex
	c    *C.tmsg_tls_t // nil: closed
}

// NewTLS reads the files. Fails with ErrInvalidParam (what is needed is missing,
// a pin, the key of another certificate), ErrNotFound, ErrMalformed (a file
// holds something else, or the password is wrong), ErrInsecure (others may read
// the key), ErrLimitExceeded, ErrIO, and ErrUnsupported (the library was built
// without OpenSSL).
func NewTLS(files TLSFiles) (*TLS, error) {
	var g given
	defer g.free()
	var p C.tmsg_tls_params_t
	for _, file := range []struct {
		name, text string
		bit        C.uint64_t
		to         **C.char
	}{
		{"TLSFiles.CA", files.CA, C.TMSG_TLS_PARAM_CA, &p.ca},
		{"TLSFiles.Cert", files.Cert, C.TMSG_TLS_PARAM_CERT, &p.cert},
		{"TLSFiles.Key", files.Key, C.TMSG_TLS_PARAM_KEY, &p.key},
		{"TLSFiles.Password", files.Password, C.TMSG_TLS_PARAM_PASSWORD, &p.password},
		{"TLSFiles.CRL", files.CRL, C.TMSG_TLS_PARAM_CRL, &p.crl},
		{"TLSFiles.Name", files.Name, C.TMSG_TLS_PARAM_NAME, &p.name},
		{"TLSFiles.Pins", strings.Join(files.Pins, ","), C.TMSG_TLS_PARAM_PIN, &p.pin},
	} {
		if strings.HasPrefix(file.text, "-----BEGIN") {
			g.wrong(file.name, "that is the content of a file: write it to a file, and give its name")
		} else if file.text != "" {
			p.field_mask |= file.bit
			*file.to = g.text(file.name, file.text)
		}
	}
	if files.Depth != 0 {
		p.field_mask |= C.TMSG_TLS_PARAM_DEPTH
		p.depth = g.count("TLSFiles.Depth", files.Depth)
	}
	if files.RekeyBytes != 0 {
		p.field_mask |= C.TMSG_TLS_PARAM_REKEY_BYTES
		p.rekey_bytes = C.uint64_t(files.RekeyBytes)
	}
	if g.err != nil {
		return nil, g.err
	}
	t := &TLS{}
	if err := errOf(C.tmsggo_tls(p, &t.c)); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(t, (*TLS).Close)
	return t, nil
}

// Reload reads all files again, for connections that begin from now on; on an
// error what was there before holds. Fails as NewTLS does, and with ErrClosed.
func (t *TLS) Reload() error {
	t.life.RLock()
	defer t.life.RUnlock()
	if t.c == nil {
		return fail(ErrClosed, "the TLS is closed")
	}
	return errOf(C.tmsggo_tls_reload(t.c))
}

// Close gives it back. Listeners and endpoints that were given it keep it. Again
// does nothing. The error is nil.
func (t *TLS) Close() error {
	t.life.Lock()
	defer t.life.Unlock()
	runtime.SetFinalizer(t, nil)
	C.tmsg_tls_destroy(t.c)
	t.c = nil
	return nil
}

// ListenTLS says by which certificate a listener of tls:// proves itself, and
// which it asks of its peers.
func ListenTLS(t *TLS) ListenOption { return func(o *listenOptions) { o.tls = t } }

// DialTLS is the same for a connection.
func DialTLS(t *TLS) DialOption { return func(o *dialOptions) { o.tls = t } }
