// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

/*
#include <stdlib.h>
#include "publisher.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// A Publisher sends each map to all of its subscribers, none of which slows
// another (docs/reference/publish.md).
type Publisher struct {
	w      *Worker
	c      unsafe.Pointer // nil: closed. w.life guards it
	mu     sync.Mutex
	doors  []*Listener
	crowds map[*C.tmsggo_crowd_t]bool // that somebody waits for
}

// A PublisherOption is one of those that begin with Publisher.
type PublisherOption func(*publisherOptions)

type publisherOptions struct {
	given
	params     C.tmsg_publisher_params_t
	subscriber C.tmsg_subscriber_params_t
}

// PublisherLive sends the newest map alone, whenever the subscriber took the
// one before: it is near now at any speed. A subscriber asks for it by itself
// with DialLive.
func PublisherLive() PublisherOption {
	return func(o *publisherOptions) {
		o.subscriber.field_mask |= C.TMSG_SUBSCRIBER_PARAM_FLAGS
		o.subscriber.flags |= C.TMSG_SUBSCRIBER_NEWEST
	}
}

// PublisherAll drops nothing while the connection stands: Publish waits until
// there is room for the slowest subscriber.
func PublisherAll() PublisherOption { return PublisherSlow(SlowWait) }

// A Slow says what becomes of a subscriber for which too much waits.
type Slow int32

// What can become of it.
const (
	SlowDropOldest Slow = C.TMSG_SLOW_DROP_OLDEST // of what waits; the default
	SlowDropNewest Slow = C.TMSG_SLOW_DROP_NEWEST // what was just published
	SlowDisconnect Slow = C.TMSG_SLOW_DISCONNECT  // its endpoint ends with ErrLimitExceeded
	SlowWait       Slow = C.TMSG_SLOW_WAIT        // Publish waits for it
)

// PublisherSlow says what becomes of a subscriber for which more waits than the
// bounds allow.
func PublisherSlow(slow Slow) PublisherOption {
	return func(o *publisherOptions) {
		o.subscriber.field_mask |= C.TMSG_SUBSCRIBER_PARAM_SLOW
		o.subscriber.slow = C.int32_t(slow)
	}
}

// PublisherQueue bounds the messages that wait for a subscriber: 1 or more, 16
// by default, and fewer for who does not keep up.
func PublisherQueue(messages int) PublisherOption {
	return func(o *publisherOptions) {
		o.subscriber.field_mask |= C.TMSG_SUBSCRIBER_PARAM_MESSAGES
		o.subscriber.messages = o.count("PublisherQueue", messages)
	}
}

// PublisherQueueBytes bounds the bytes of tensors that wait for a subscriber,
// but for a single message. No bound by default.
func PublisherQueueBytes(bytes int64) PublisherOption {
	return func(o *publisherOptions) {
		o.subscriber.field_mask |= C.TMSG_SUBSCRIBER_PARAM_BYTES
		if bytes < 0 {
			o.wrong("PublisherQueueBytes", "%d is negative", bytes)
		}
		o.subscriber.bytes = C.uint64_t(bytes)
	}
}

// PublisherQueueTime bounds how long a message waits for a subscriber: 1 ms or
// more, no bound by default.
func PublisherQueueTime(most time.Duration) PublisherOption {
	return func(o *publisherOptions) {
		o.subscriber.field_mask |= C.TMSG_SUBSCRIBER_PARAM_MOST_MS
		o.subscriber.most_ms = C.uint32_t(o.time("PublisherQueueTime", most))
	}
}

// PublisherWindow says how many messages may be on their way to a subscriber
// that its application has not taken; further ones wait. 1 or more, 32 by
// default, and fewer for who does not keep up.
func PublisherWindow(messages int) PublisherOption {
	return func(o *publisherOptions) {
		o.subscriber.field_mask |= C.TMSG_SUBSCRIBER_PARAM_WINDOW
		o.subscriber.window = o.count("PublisherWindow", messages)
	}
}

// PublisherKeep has the publisher keep the newest so many maps, which a newcomer
// is sent first. For NewPublisher, not for Add.
func PublisherKeep(maps int) PublisherOption {
	return func(o *publisherOptions) {
		o.params.field_mask |= C.TMSG_PUBLISHER_PARAM_KEEP
		o.params.keep = o.count("PublisherKeep", maps)
	}
}

// NewPublisher makes a publisher without subscribers, for which the options
// hold. Fails with ErrInvalidParam, ErrNoMemory and ErrClosed.
func (w *Worker) NewPublisher(options ...PublisherOption) (*Publisher, error) {
	var o publisherOptions
	for _, option := range options {
		option(&o)
	}
	if o.err != nil {
		return nil, o.err
	}
	if !w.enter() {
		return nil, errClosed
	}
	defer w.leave()
	var c *C.tmsg_publisher_t
	if err := errOf(C.tmsggo_publisher(w.hub, o.params, o.subscriber, &c)); err != nil {
		return nil, err
	}
	return &Publisher{w: w, c: unsafe.Pointer(c), crowds: map[*C.tmsggo_crowd_t]bool{}}, nil
}

func (p *Publisher) handle() *C.tmsg_publisher_t { return (*C.tmsg_publisher_t)(p.c) }

// enter is the worker's, and fails where the publisher is closed.
func (p *Publisher) enter() bool {
	if !p.w.enter() {
		return false
	}
	if p.c == nil {
		p.w.leave()
		return false
	}
	return true
}

// Listen has everybody subscribe who connects to a URL: such peers dial and
// receive. They may also call the worker's methods. The listener's Accept gives
// none of them. Fails as Worker.Listen does.
func (p *Publisher) Listen(url string, options ...ListenOption) (*Listener, error) {
	return p.w.listen(url, options, p.enter, func(o *listenOptions, url *C.char, door **C.tmsggo_door_t) C.tmsggo_result_t {
		return C.tmsggo_publisher_listen(p.w.hub, url, o.params, o.peers, p.handle(), door)
	}, func(l *Listener) { // destroy() finds it
		p.mu.Lock()
		p.doors = append(p.doors, l)
		p.mu.Unlock()
	})
}

// Add subscribes an endpoint of the same worker, whichever side dialled; with
// options in the place of the publisher's. It can be used for anything else
// besides, is closed by the caller, and leaves when it ends. Fails with
// ErrInvalidParam, ErrAlreadyExists, ErrClosed, and with what the endpoint ended
// with.
func (p *Publisher) Add(ep *Endpoint, options ...PublisherOption) error {
	var o publisherOptions
	for _, option := range options {
		option(&o)
	}
	if o.err != nil {
		return o.err
	}
	if o.params.field_mask != 0 {
		return fail(ErrInvalidParam, "PublisherKeep is of the publisher, not of one subscriber")
	}
	return p.with(ep, func() C.tmsggo_result_t {
		return C.tmsggo_publisher_add(p.handle(), ep.handle(), o.subscriber)
	})
}

// Remove takes an endpoint out that was added. What waits for it is dropped.
// Fails with ErrNotFound and ErrClosed.
func (p *Publisher) Remove(ep *Endpoint) error {
	return p.with(ep, func() C.tmsggo_result_t {
		return C.tmsggo_publisher_remove(p.handle(), ep.handle())
	})
}

func (p *Publisher) with(ep *Endpoint, do func() C.tmsggo_result_t) error {
	if ep.w != p.w {
		return fail(ErrInvalidParam, "the endpoint is of another worker than the publisher")
	}
	if !p.enter() {
		return errClosed
	}
	defer p.w.leave()
	if ep.c == nil {
		return errClosed
	}
	err := errOf(do())
	p.w.kickParked()
	return err
}

// Publish sends a map to all subscribers. It copies the map, so that slices of m
// may be changed when it has returned, and waits for nobody, but for the room of
// subscribers with PublisherAll: where ctx ends before there is some, nobody is
// sent the map, and the error names a subscriber. Acked is no option: what
// became of each message is counted (Stats). Fails with ErrInvalidParam,
// ErrUnsupported (a tensor of a device; PublishOwned takes it), ErrTimedOut,
// ErrCanceled, ErrNoMemory and ErrClosed.
func (p *Publisher) Publish(ctx context.Context, m Map, options ...SendOption) error {
	var o opening
	defer o.free()
	more, err := p.build(ctx, &o, m, options)
	if err != nil {
		return err
	}
	var copied *C.tmsg_map_t
	err = errOf(C.tmsggo_copy(o.made, &copied))
	runtime.KeepAlive(m)
	if err != nil {
		return err
	}
	defer C.tmsg_map_destroy(copied)
	request, err := p.publish(ctx, copied, more)
	C.tmsg_request_destroy(request)
	return err
}

// PublishOwned is Publish for slices that nobody changes any more, of which it
// makes no copy. When all have the map, or it was dropped for them, and it is
// kept for newcomers no longer, the channel says nil, or else why it was not
// published; nobody has to read it.
func (p *Publisher) PublishOwned(ctx context.Context, m Map, options ...SendOption) <-chan error {
	said := make(chan error, 1)
	var o opening
	more, err := p.build(ctx, &o, m, options)
	var request *C.tmsg_request_t
	if err == nil {
		request, err = p.publish(ctx, o.made, more)
	}
	if request == nil {
		o.free()
		said <- err
		return said
	}
	go func() {
		thing := unsafe.Pointer(request)
		if p.w.wait(context.Background(), C.TMSGGO_REQUEST, &thing) != nil {
			<-p.w.gone
		}
		err := errOf(C.tmsggo_request_end(request))
		o.free()
		runtime.KeepAlive(m)
		said <- err
	}()
	return said
}

func (p *Publisher) build(ctx context.Context, o *opening, m Map, options []SendOption) (*sendOptions, error) {
	o.flat = flats.Get().(*flat)
	if ctx.Err() != nil {
		return nil, ctxError(ctx, "nothing was published")
	}
	more := new(sendOptions)
	for _, option := range options {
		option.toSend(more)
	}
	var err error
	o.made, err = o.flat.build(m, more.meta)
	return more, err
}

func (p *Publisher) publish(ctx context.Context, c *C.tmsg_map_t, o *sendOptions) (*C.tmsg_request_t, error) {
	for {
		if !p.enter() {
			return nil, errClosed
		}
		sent := C.tmsggo_publish(p.handle(), c, o.flags&^C.TMSG_SEND_ACKED, C.uint16_t(o.channel))
		p.w.leave()
		p.w.kickParked()
		err := errOf(sent.result)
		if !errors.Is(err, ErrWouldBlock) {
			return sent.request, err
		}
		thing := unsafe.Pointer(sent.request)
		late := p.w.wait(ctx, C.TMSGGO_REQUEST, &thing)
		C.tmsg_request_destroy(sent.request)
		if late != nil && ctx.Err() != nil {
			return nil, ctxError(ctx, err.(*Error).Words)
		}
		if late != nil {
			return nil, late
		}
	}
}

// Subscribers says how many there are.
func (p *Publisher) Subscribers() int {
	if !p.enter() {
		return 0
	}
	defer p.w.leave()
	return int(C.tmsg_publisher_size(p.handle()))
}

// WaitFor waits until there are so many subscribers. Fails with ErrTimedOut,
// ErrCanceled and ErrClosed.
func (p *Publisher) WaitFor(ctx context.Context, subscribers int) error {
	if !p.enter() {
		return errClosed
	}
	w := p.w
	crowd := C.tmsggo_crowd(p.handle(), C.size_t(max(subscribers, 0)))
	if crowd == nil {
		w.leave()
		return fail(ErrNoMemory, "")
	}
	p.mu.Lock()
	p.crowds[crowd] = true
	p.mu.Unlock()
	w.leave()
	thing := unsafe.Pointer(crowd)
	defer C.free(thing)
	err := w.wait(ctx, C.TMSGGO_CROWD, &thing)
	if isClosed(w.closed) {
		<-w.gone
	}
	p.mu.Lock()
	delete(p.crowds, crowd)
	p.mu.Unlock()
	if err == nil && crowd.publisher == nil {
		err = errClosed
	}
	return err
}

// PublisherStats is what has become of a publisher's maps: each of those that
// were Published is, for each subscriber, delivered, dropped or failed, or it
// waits or is on its way.
type PublisherStats struct {
	Published   uint64            `json:"published"` // maps
	Kept        uint64            `json:"kept"`      // for newcomers
	Delivered   uint64            `json:"delivered"` // messages that the peer's application took
	Dropped     uint64            `json:"dropped"`   // by a bound, or as the subscriber left
	Failed      uint64            `json:"failed"`    // on their way when it left, or refused by it
	DroppedFor  map[string]uint64 `json:"dropped_for"`
	Blocked     uint64            `json:"blocked"` // how often publishing waited
	Subscribers []SubscriberStats `json:"subscribers"`
}

// SubscriberStats is what has become of the messages to one subscriber. What it
// missed is Dropped and Failed, and DroppedFor says why: "messages", "bytes",
// "age" (the bounds), "left", "memory".
type SubscriberStats struct {
	Peer       string            `json:"peer"`
	Mode       string            `json:"mode"` // "live", "all" or ""
	Delivered  uint64            `json:"delivered"`
	Dropped    uint64            `json:"dropped"`
	Failed     uint64            `json:"failed"`
	DroppedFor map[string]uint64 `json:"dropped_for"`
	Waiting    uint64            `json:"waiting"`
	UnderWay   uint64            `json:"under_way"`
}

// Stats gives the counts. Fails with ErrClosed and ErrNoMemory.
func (p *Publisher) Stats() (PublisherStats, error) {
	var stats PublisherStats
	text, err := p.Describe()
	if err != nil {
		return stats, err
	}
	if err := json.Unmarshal([]byte(text), &stats); err != nil {
		return stats, fail(ErrInternal, err.Error())
	}
	return stats, nil
}

// Describe gives the publisher's counters as JSON.
func (p *Publisher) Describe() (string, error) {
	if !p.enter() {
		return "", errClosed
	}
	defer p.w.leave()
	return taken(C.tmsggo_describe_publisher(p.handle()))
}

// Close closes in order: its listeners close, what waits is sent, and the
// subscribers that came by them hear ErrClosed. Endpoints that were added live
// on. When ctx has ended it is closed at once. Again does nothing. Fails with
// ErrTimedOut and ErrCanceled.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	doors := p.doors
	p.doors = nil
	p.mu.Unlock()
	for _, door := range doors {
		door.Close()
	}
	if !p.enter() {
		return nil
	}
	var request *C.tmsg_request_t
	err := errOf(C.tmsggo_publisher_close(p.handle(), &request))
	p.w.leave()
	if err == nil {
		p.w.kickParked()
		thing := unsafe.Pointer(request)
		err = p.w.wait(ctx, C.TMSGGO_REQUEST, &thing)
		C.tmsg_request_destroy(request)
	}
	p.destroy()
	return err
}

func (p *Publisher) destroy() {
	w := p.w
	w.life.Lock()
	if !w.isShut && p.c != nil {
		p.mu.Lock()
		for crowd := range p.crowds {
			crowd.publisher = nil
			C.tmsggo_forget(w.hub, unsafe.Pointer(crowd))
		}
		for _, door := range p.doors { // opened since Close began
			door.destroy()
		}
		p.mu.Unlock()
		C.tmsg_publisher_destroy(p.handle())
	}
	p.c = nil
	w.life.Unlock()
	w.kickParked()
}
