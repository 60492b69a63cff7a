// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "hub.h"
*/
import "C"

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// A Key is a secret that peers prove to each other, and that never travels. It
// is not shown when it is printed.
type Key [C.TMSG_KEY_BYTES]byte

// Format writes "Key(...)", whatever the verb.
func (Key) Format(f fmt.State, verb rune) { io.WriteString(f, "Key(...)") }

// GenerateKey gives a new random key. Fails with ErrIO.
func GenerateKey() (Key, error) {
	var key Key
	err := errOf(C.tmsggo_key_generate((*C.uint8_t)(&key[0])))
	return key, err
}

// SaveKey writes a new file of one key, which its owner alone may read. The
// principal is 1 to 63 bytes of printable ASCII without spaces. Fails with
// ErrAlreadyExists (there is a file), ErrInvalidParam (the name) and ErrIO.
func SaveKey(path, principal string, key Key) error {
	var g given
	defer g.free()
	file, name := g.text("the file", path), g.text("the principal", principal)
	if g.err != nil {
		return g.err
	}
	return errOf(C.tmsggo_key_save(file, name, (*C.uint8_t)(&key[0])))
}

// A Keyring holds keys, each of a named principal, 64 at most. A side with a
// keyring takes no peer that does not prove one of them (docs/understand/security.md). It
// is given to contexts, listeners and endpoints, to any number of them.
// Changes hold for connections that begin after them. One without keys admits
// nobody. All methods may be called by any goroutine.
type Keyring struct {
	life sync.RWMutex
	c    *C.tmsg_keyring_t // nil: closed
}

// NewKeyring makes a keyring without keys. Fails with ErrNoMemory.
func NewKeyring() (*Keyring, error) {
	k := &Keyring{}
	if err := errOf(C.tmsggo_keyring(&k.c)); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(k, (*Keyring).Close)
	return k, nil
}

// LoadKeyring makes one of a file, as Keyring.Load reads it, and fails as it.
func LoadKeyring(path string) (*Keyring, error) {
	k, err := NewKeyring()
	if err != nil {
		return nil, err
	}
	if err := k.Load(path); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

func (k *Keyring) with(use func(*C.tmsg_keyring_t) C.tmsggo_result_t) error {
	k.life.RLock()
	defer k.life.RUnlock()
	if k.c == nil {
		return fail(ErrClosed, "the keyring is closed")
	}
	return errOf(use(k.c))
}

// Add adds a key: the new one beside the old while peers change. Fails with
// ErrInvalidParam (the name; a key of zeros), ErrAlreadyExists and
// ErrLimitExceeded.
func (k *Keyring) Add(principal string, key Key) error {
	var g given
	defer g.free()
	name := g.text("the principal", principal)
	if g.err != nil {
		return g.err
	}
	return k.with(func(c *C.tmsg_keyring_t) C.tmsggo_result_t {
		return C.tmsggo_keyring_add(c, name, (*C.uint8_t)(&key[0]))
	})
}

// Remove takes all keys of a principal away. Fails with ErrNotFound.
func (k *Keyring) Remove(principal string) error {
	var g given
	defer g.free()
	name := g.text("the principal", principal)
	if g.err != nil {
		return g.err
	}
	return k.with(func(c *C.tmsg_keyring_t) C.tmsggo_result_t { return C.tmsggo_keyring_remove(c, name) })
}

// Load puts the keys of a file, as `tensormsg key` and SaveKey write it, in the
// place of all that were there, at once; on an error these stay. Fails with
// ErrNotFound, ErrInsecure (others may read the file), ErrMalformed,
// ErrAlreadyExists (a key is there twice), ErrLimitExceeded and ErrIO.
func (k *Keyring) Load(path string) error {
	var g given
	defer g.free()
	file := g.text("the file", path)
	if g.err != nil {
		return g.err
	}
	return k.with(func(c *C.tmsg_keyring_t) C.tmsggo_result_t { return C.tmsggo_keyring_load(c, file) })
}

// Replace puts keys, by principal, in the place of all that were there, at
// once; on an error these stay. Fails as Add does.
func (k *Keyring) Replace(keys map[string][]Key) error {
	count := 0
	for _, several := range keys {
		count += len(several)
	}
	var names strings.Builder
	all := make([]byte, 0, count*C.TMSG_KEY_BYTES)
	defer func() { C.tmsggo_wipe((*C.uint8_t)(unsafe.SliceData(all)), C.size_t(len(all))) }()
	for _, principal := range sorted(keys) {
		if err := badName("the principal", principal); err != nil {
			return err
		}
		for _, key := range keys[principal] {
			names.WriteString(principal + "\x00")
			all = append(all, key[:]...)
		}
	}
	text := C.CString(names.String()) // not given.text(): it has NULs
	defer C.free(unsafe.Pointer(text))
	return k.with(func(c *C.tmsg_keyring_t) C.tmsggo_result_t {
		return C.tmsggo_keyring_replace(c, text, (*C.uint8_t)(unsafe.SliceData(all)), C.size_t(count))
	})
}

// Close gives the keyring back. Whoever was given it keeps it; the last one
// wipes the keys from memory. Again does nothing. The error is nil.
func (k *Keyring) Close() error {
	k.life.Lock()
	defer k.life.Unlock()
	runtime.SetFinalizer(k, nil)
	C.tmsg_keyring_destroy(k.c)
	k.c = nil
	return nil
}

// ContextKeyring gives the keyring of all listeners and endpoints that are
// given none of their own.
func ContextKeyring(k *Keyring) ContextOption {
	return func(o *contextOptions) { o.keyring(k) }
}

// ListenKeyring gives the keyring of a listener, of which peers have to prove a
// key; nil: no key, whatever the context has.
func ListenKeyring(k *Keyring) ListenOption {
	return func(o *listenOptions) { o.keyring(k) }
}

// DialKeyring gives the keyring of a connection: the listener has to prove a
// key of it, and this side proves its first ones; nil: no key, whatever the
// context has.
func DialKeyring(k *Keyring) DialOption {
	return func(o *dialOptions) { o.keyring(k) }
}

// Principal is whose key, or certificate, the peer has proved, by the name that
// it has in the keyring of this side; "" where none was asked for. It does not
// change.
func (ep *Endpoint) Principal() string { return ep.principal }
