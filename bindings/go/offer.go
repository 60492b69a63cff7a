// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "offers.h"
*/
import "C"

import (
	"context"
	"encoding/hex"
	"sync"
	"time"
	"unsafe"
)

// An OfferKey names one offer to peers, for ever: 48 bytes, which may travel in
// any way. Whoever has them and a connection to the owner may fetch.
type OfferKey [C.TMSG_OFFER_KEY_BYTES]byte

// String gives the bytes as hexadecimal digits.
func (k OfferKey) String() string { return hex.EncodeToString(k[:]) }

// An Offer is a map that its owner keeps and that peers fetch when they like,
// whole or in part (docs/reference/offers.md). No code of the owner's runs for that. It is
// live until Withdraw, Close, its worker's Close, or what its options say; one
// that is dropped is live, too.
type Offer struct {
	w        *Worker
	words    string
	key      OfferKey
	id       uint64
	released chan struct{}

	mu     sync.Mutex
	c      *C.tmsggo_offered_t // nil: closed, and its memory is free
	f      *flat               // nil: its memory is free
	closed bool
	last   OfferStats
}

// An OfferOption is one of those that begin with Offer.
type OfferOption func(*offerOptions)

type offerOptions struct {
	given
	params C.tmsg_offer_params_t
	meta   Meta
}

// OfferName lets peers fetch by that name, of 1 to 255 bytes. Of several offers
// of one name a fetch gets the one with the highest version.
func OfferName(name string, version uint64) OfferOption {
	return func(o *offerOptions) {
		if name == "" {
			o.wrong("OfferName", "it is empty")
		}
		o.params.field_mask |= C.TMSG_OFFER_PARAM_NAME | C.TMSG_OFFER_PARAM_VERSION
		o.params.name = o.text("OfferName", name)
		o.params.version = C.uint64_t(version)
	}
}

// OfferTTL says how long it is live.
func OfferTTL(d time.Duration) OfferOption {
	return func(o *offerOptions) {
		if d == 0 {
			o.wrong("OfferTTL", "0 is not a time")
		}
		o.params.field_mask |= C.TMSG_OFFER_PARAM_TTL
		o.params.ttl_ms = o.time("OfferTTL", d)
	}
}

// OfferFetches says how often the whole map may be fetched.
func OfferFetches(count uint32) OfferOption {
	return func(o *offerOptions) {
		o.params.field_mask |= C.TMSG_OFFER_PARAM_FETCHES
		o.params.fetches = C.uint32_t(count)
	}
}

// OfferPrincipals says who may fetch it, and see it in a list, as
// MethodPrincipals says who may call a method.
func OfferPrincipals(names ...string) OfferOption {
	return func(o *offerOptions) {
		o.params.field_mask |= C.TMSG_OFFER_PARAM_PRINCIPALS
		o.params.principals = o.principals("OfferPrincipals", names)
	}
}

// OfferMeta gives metadata that come with every fetch.
func OfferMeta(meta Meta) OfferOption { return func(o *offerOptions) { o.meta = meta } }

// OfferLend lends the memory to those who borrow (FetchBorrow) over unix://:
// the slices of a Buffer as they are, others as one copy for all.
func OfferLend() OfferOption {
	return func(o *offerOptions) {
		o.params.field_mask |= C.TMSG_OFFER_PARAM_FLAGS
		o.params.flags |= C.TMSG_OFFER_LEND
	}
}

// Offer offers a map to the peers of the worker, whichever side dialled. Its
// slices must not be changed until Released. Fails with ErrInvalidParam (a
// tensor, which is named), ErrAlreadyExists (that name with that version),
// ErrLimitExceeded and ErrClosed.
func (w *Worker) Offer(m Map, options ...OfferOption) (*Offer, error) {
	var how offerOptions
	for _, option := range options {
		option(&how)
	}
	defer how.free()
	if how.err != nil {
		return nil, how.err
	}
	f := flats.Get().(*flat)
	made, err := f.build(m, how.meta)
	if err != nil {
		f.free()
		return nil, err
	}
	defer C.tmsg_map_destroy(made)
	o := &Offer{w: w, words: "Offer" + m.String(), f: f, released: make(chan struct{})}
	if err := o.begin(made, how.params); err != nil {
		f.free()
		return nil, err
	}
	w.kickParked()
	return o, nil
}

func (o *Offer) begin(made *C.tmsg_map_t, params C.tmsg_offer_params_t) error {
	w := o.w
	if !w.enter() {
		return errClosed
	}
	defer w.leave()
	if err := errOf(C.tmsggo_offered_create(w.hub, made, params, &o.c)); err != nil {
		return err
	}
	key := C.tmsggo_offered_key(o.c)
	o.key = *(*OfferKey)(unsafe.Pointer(&key))
	o.id = w.await(func() { go o.free() })
	w.mu.Lock()
	w.offers[o] = struct{}{}
	w.mu.Unlock()
	if C.tmsggo_watch(w.hub, C.TMSGGO_LENT, unsafe.Pointer(o.c), C.uint64_t(o.id)) != 0 {
		go o.free()
	}
	return nil
}

// Its memory is free, or the worker is gone: unpins it, once.
func (o *Offer) free() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.f == nil {
		return
	}
	if C.tmsggo_offered_is_lent(o.c) != 0 {
		keepForEver(o)
		return
	}
	w := o.w
	w.mu.Lock()
	w.forgetLocked(o.id)
	delete(w.offers, o)
	w.mu.Unlock()
	o.f.free()
	o.f = nil
	close(o.released)
	o.destroy()
}

// With mu. The handle is given back when nobody needs it any more.
func (o *Offer) destroy() {
	if o.f != nil || !o.closed || o.c == nil {
		return
	}
	o.last = o.stats()
	if o.w.enter() {
		defer o.w.leave()
	}
	C.tmsggo_offered_destroy(o.c)
	o.c = nil
}

// When the worker is gone: so are its offers.
func (w *Worker) endOffers() {
	w.mu.Lock()
	var all []*Offer
	for o := range w.offers {
		all = append(all, o)
	}
	w.mu.Unlock()
	for _, o := range all {
		o.free()
	}
}

var kept struct {
	sync.Mutex
	all []*Offer
}

// What UCX may still read, for it does not say that it has ended, is never given
// back: it is little, and rare.
func keepForEver(o *Offer) {
	kept.Lock()
	kept.all = append(kept.all, o)
	kept.Unlock()
}

// Key names the offer to peers.
func (o *Offer) Key() OfferKey { return o.key }

// Live says whether fetches find it.
func (o *Offer) Live() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.c != nil && C.tmsggo_offered_is_live(o.c) != 0
}

// Released is closed when nothing can read the memory any more: the slices may
// be changed.
func (o *Offer) Released() <-chan struct{} { return o.released }

// An OfferStats counts the fetches of an offer.
type OfferStats struct {
	Fetches  uint64 // that succeeded
	Failed   uint64 // that began, and did not
	Bytes    uint64 // of tensors, of those that succeeded
	UnderWay uint64 // fetches that may read the memory, and loans of it
}

// Stats counts its fetches.
func (o *Offer) Stats() OfferStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.c == nil {
		return o.last
	}
	return o.stats()
}

func (o *Offer) stats() OfferStats {
	c := C.tmsggo_offered_stats(o.c)
	return OfferStats{uint64(c.fetches), uint64(c.failed), uint64(c.bytes), uint64(c.under_way)}
}

func (o *Offer) end(ms C.int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.c != nil && o.w.enter() {
		C.tmsggo_offered_end(o.c, ms)
		o.w.leave()
		o.w.kickParked()
	}
}

// How long fetchers may take to answer that they read no more.
const withdrawTime = 500 * time.Millisecond

// Withdraw ends the offer: fetches that come later fail with ErrNotFound, and
// those under way go on until ctx ends, when they are given up. It returns when
// the slices may be changed, or half a second after ctx has ended, with
// ErrTimedOut or ErrCanceled: a peer may still read them, as one that keeps a
// loan may, and Released tells when that is over.
func (o *Offer) Withdraw(ctx context.Context) error {
	if ctx.Err() == nil {
		o.end(timeoutMS(ctx))
	}
	select {
	case <-o.released:
		return nil
	case <-ctx.Done():
	}
	o.end(0)
	patience := time.NewTimer(withdrawTime)
	defer patience.Stop()
	select {
	case <-o.released:
		return nil
	case <-patience.C:
		return ctxError(ctx, "a peer may still read the memory of the offer")
	}
}

// Close ends the offer at once, and fetches under way with it. It does not wait:
// Released tells when the slices may be changed. The error is nil.
func (o *Offer) Close() error {
	o.end(0)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.destroy()
	return nil
}

// String gives names, dtypes and shapes of what it offers.
func (o *Offer) String() string { return o.words }
