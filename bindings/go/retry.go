// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

// #include "hub.h"
import "C"

import "time"

// A Retry says how a call is made again that failed for a while only. 0 stands
// for the default.
type Retry struct {
	Attempts     int           // with the first: 2 to 100; needed
	FirstBackoff time.Duration // before the second; each further one waits twice as long: 20 ms
	MostBackoff  time.Duration // but no longer than this: 1 s
}

// A CallOption says more about one call: WithMeta, and those that begin with
// Call.
type CallOption interface{ toCall(*callOptions) }

type callOption func(*callOptions)

func (o callOption) toCall(all *callOptions) { o(all) }

type callOptions struct {
	given
	params C.tmsg_call_params_t
	into   *Prepared
	meta   Meta
}

// CallRetry makes a Call again that failed with ErrResourceExhausted,
// ErrUnavailable, ErrNoMemory or ErrBusy, or with ErrPeerLost where the endpoint
// begins a new session (DialReconnect). A call that a handler may have seen is
// made again only if it or its method is idempotent. None is made that would
// begin after the deadline of the context.
func CallRetry(r Retry) CallOption {
	return callOption(func(c *callOptions) {
		c.params.field_mask |= C.TMSG_CALL_PARAM_RETRY
		c.params.retry.attempts = c.count("CallRetry: Attempts", r.Attempts)
		c.params.retry.first_backoff_ms = c.time("CallRetry: FirstBackoff", r.FirstBackoff)
		c.params.retry.most_backoff_ms = c.time("CallRetry: MostBackoff", r.MostBackoff)
	})
}

// CallIdempotent says that to run a Call twice is as once.
func CallIdempotent() CallOption { return callFlag(C.TMSG_CALL_IDEMPOTENT) }

// CallWait has a Call wait for a server that is not ready, instead of failing
// with ErrUnavailable.
func CallWait() CallOption { return callFlag(C.TMSG_CALL_WAIT) }

func callFlag(flag C.uint32_t) CallOption {
	return callOption(func(o *callOptions) {
		o.params.field_mask |= C.TMSG_CALL_PARAM_FLAGS
		o.params.flags |= flag
	})
}

// SetRetryBudget bounds the retries of an endpoint, so that they do not add to
// what makes its peer fail: each attempt that fails takes one of its tokens,
// each that succeeds gives so many thousandths of one back, and nothing is
// retried while there are not more than half. 10 tokens and 100 thousandths by
// default; 0 tokens: no bound. Fails with ErrInvalidParam and ErrClosed.
func (ep *Endpoint) SetRetryBudget(tokens, thousandths int) error {
	var g given
	most, back := g.count("SetRetryBudget: tokens", tokens), g.count("SetRetryBudget: thousandths", thousandths)
	if g.err != nil {
		return g.err
	}
	if !ep.enter() {
		return errClosed
	}
	defer ep.w.leave()
	return errOf(C.tmsggo_set_retry_budget(ep.handle(), most, back))
}
