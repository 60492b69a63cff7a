// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "offers.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// A Slice asks for a box of one tensor: Count elements from Start on, in each of
// its first dimensions, and all of the others. It is an error if the box goes
// beyond the tensor.
type Slice struct {
	Name  string // of the tensor in the offer
	As    string // its name in what comes; "": the same
	Start []int  // from 0 on; nil, with Count: all of the tensor
	Count []int  // as many as Start; -1: to the end
}

// An OfferVersion is a version of an offer's name. Versions count within one run
// of the owner, its epoch.
type OfferVersion struct {
	Epoch  uint64
	Number uint64
}

// A FetchOption is one of those that begin with Fetch.
type FetchOption func(*fetchOptions)

type fetchOptions struct {
	fetch  C.tmsggo_fetch_t
	slices []Slice
	sliced bool
	into   *Prepared
}

// FetchAtLeast asks for that version of the name, or a higher one.
func FetchAtLeast(version uint64) FetchOption {
	return func(o *fetchOptions) { o.fetch.at_least = C.uint64_t(version) }
}

// FetchAfter asks for a version after one that was fetched before
// (Message.OfferVersion). Of an owner that was restarted since every version is.
// After the zero OfferVersion any is.
func FetchAfter(version OfferVersion) FetchOption {
	return func(o *fetchOptions) {
		if version != (OfferVersion{}) {
			o.fetch.at_least = C.uint64_t(version.Number + 1)
			o.fetch.epoch, o.fetch.has_epoch = C.uint64_t(version.Epoch), 1
		}
	}
}

// FetchWait waits that long for a name or a version that is not there yet; 0:
// as long as the context allows.
func FetchWait(d time.Duration) FetchOption {
	return func(o *fetchOptions) {
		o.fetch.wait_ms = -1
		if d > 0 {
			o.fetch.wait_ms = C.int32_t(max(1, min(d.Milliseconds(), math.MaxInt32)))
		}
	}
}

// FetchSlices fetches parts of the map, one or more, in place of all of it.
func FetchSlices(slices ...Slice) FetchOption {
	return func(o *fetchOptions) { o.slices, o.sliced = slices, true }
}

// FetchInto receives into the slices of a prepared map, by name; what is only in
// the offer goes where it would go without, and what is only in the prepared map
// is left as it was. The slices are the message's until it is closed: until
// then, and while late bytes of a fetch that failed may be written there, Set and
// further receives fail with ErrBusy. A fetch that failed may have written into
// them.
func FetchInto(p *Prepared) FetchOption { return func(o *fetchOptions) { o.into = p } }

// CallInto receives the reply to a Call into the slices of a prepared map, as
// FetchInto does what is fetched.
func CallInto(p *Prepared) CallOption {
	return callOption(func(o *callOptions) { o.into = p })
}

// FetchBorrow takes a loan, where the owner lends (OfferLend) and the connection
// is of unix://: Data gives views of the owner's memory, which a program that
// writes to them is ended for. Message.Lent says whether it is one.
func FetchBorrow() FetchOption {
	return func(o *fetchOptions) { o.fetch.flags |= C.TMSG_FETCH_BORROW }
}

// Fetch fetches the newest map that the peer offers by that name. The caller
// closes the message. Fails with ErrNotFound (there is no such offer, and why),
// ErrCanceled (it was withdrawn meanwhile), ErrInvalidParam (a slice, or what is
// received into: the tensor is named), ErrResourceExhausted, ErrTimedOut,
// ErrPeerLost and ErrClosed. A fetch may always be made again.
func (ep *Endpoint) Fetch(ctx context.Context, name string, options ...FetchOption) (*Message, error) {
	if err := badName("the offer's name", name); err != nil {
		return nil, err
	}
	return ep.fetch(ctx, name, fetchOptions{}, options)
}

// FetchKey fetches the map of that key. Fails as Fetch does, and with ErrRefused
// (it is for other principals). It takes neither a version nor FetchWait.
func (ep *Endpoint) FetchKey(ctx context.Context, key OfferKey, options ...FetchOption) (*Message, error) {
	o := fetchOptions{}
	o.fetch.by_key = 1
	o.fetch.key = *(*C.tmsg_offer_key_t)(unsafe.Pointer(&key))
	return ep.fetch(ctx, "", o, options)
}

func (ep *Endpoint) fetch(ctx context.Context, name string, o fetchOptions, options []FetchOption) (*Message, error) {
	if ctx.Err() != nil {
		return nil, ctxError(ctx, "nothing was fetched")
	}
	for _, option := range options {
		option(&o)
	}
	if o.fetch.by_key != 0 && (o.fetch.at_least != 0 || o.fetch.has_epoch != 0) {
		return nil, fail(ErrInvalidParam, "a key is of one version: Fetch, by name, takes FetchAtLeast and FetchAfter")
	}
	o.fetch.timeout_ms = C.int32_t(timeoutMS(ctx))
	f := flats.Get().(*flat)
	defer f.free()
	slices, err := f.addSlices(o.slices, o.sliced)
	if err != nil {
		return nil, err
	}
	o.fetch.count = C.uint64_t(len(slices))
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var call *C.tmsggo_call_t
	err = o.into.lend(func(into *C.tmsg_map_t) error {
		if !ep.enter() {
			return errClosed
		}
		defer ep.w.leave()
		return errOf(C.tmsggo_fetch(ep.handle(), text, o.fetch, unsafe.SliceData(slices),
			(*C.int64_t)(unsafe.SliceData(f.dims)), (*C.char)(unsafe.Pointer(unsafe.SliceData(f.bytes))), into, &call))
	})
	if err != nil {
		return nil, err
	}
	return ep.finishCall(ctx, call, o.into)
}

func (f *flat) addSlices(slices []Slice, sliced bool) ([]C.tmsggo_slice_t, error) {
	if sliced && len(slices) == 0 {
		return nil, fail(ErrInvalidParam, "FetchSlices of no slice: without it the whole map is fetched")
	}
	flat := make([]C.tmsggo_slice_t, 0, len(slices))
	for _, s := range slices {
		as := s.As
		if as == "" {
			as = s.Name
		}
		for _, name := range []string{s.Name, as} {
			if err := badName("the slice's name", name); err != nil {
				return nil, err
			}
		}
		if len(s.Start) != len(s.Count) {
			return nil, fail(ErrInvalidParam, fmt.Sprintf("the slice of %q has %d starts, but %d counts", s.Name, len(s.Start), len(s.Count)))
		}
		flat = append(flat, C.tmsggo_slice_t{
			name: f.text(s.Name), as: f.text(as), ndim: C.uint32_t(len(s.Start)), dims: C.uint64_t(len(f.dims)),
		})
		for _, box := range [][]int{s.Start, s.Count} {
			for _, value := range box {
				f.dims = append(f.dims, int64(value))
			}
		}
	}
	return flat, nil
}

// OfferVersion says which version of which run of the owner was fetched by name;
// the zero value of another message.
func (m *Message) OfferVersion() OfferVersion {
	meta := m.Meta()
	epoch, _ := meta[C.TMSG_META_OFFER_EPOCH].(int64)
	number, _ := meta[C.TMSG_META_OFFER_VERSION].(int64)
	return OfferVersion{uint64(epoch), uint64(number)}
}

// An Offered is what a peer offers by one name.
type Offered struct {
	Version  uint64 // the newest
	Tensors  uint64 // of it
	Bytes    uint64 // of its tensors
	Versions uint64 // how many there are
}

// Offers lists what the peer offers by name, up to 4096 names; more: there are
// others. Fails as Call does, and with ErrMalformed.
func (ep *Endpoint) Offers(ctx context.Context) (offers map[string]Offered, more bool, err error) {
	m, err := ep.Call(ctx, "tensormsg.offers", nil)
	if err != nil {
		return nil, false, err
	}
	defer m.Close()
	offers = map[string]Offered{}
	for key, value := range m.Meta() {
		if key == "more" {
			more, _ = value.(bool)
		}
		name, isOffer := strings.CutPrefix(key, "offer/")
		if !isOffer {
			continue
		}
		text, _ := value.(string)
		var said struct{ Version, Tensors, Bytes, Offers digits }
		if err := json.Unmarshal([]byte(text), &said); err != nil {
			return nil, false, fail(ErrMalformed, fmt.Sprintf("what %s says of its offer %q: %v", ep.peer, name, err))
		}
		offers[name] = Offered{uint64(said.Version), uint64(said.Tensors), uint64(said.Bytes), uint64(said.Offers)}
	}
	return offers, more, nil
}

// A number of JSON. One above 2^53 comes as a string of its digits.
type digits uint64

func (n *digits) UnmarshalJSON(text []byte) error {
	value, err := strconv.ParseUint(strings.Trim(string(text), `"`), 10, 64)
	*n = digits(value)
	return err
}
