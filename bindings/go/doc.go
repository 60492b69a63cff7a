// SPDX-License-Identifier: BSD-3-Clause

// Package tensormsg sends maps of tensors between processes. docs/go.md is its
// tutorial.
//
// A [Worker] moves the messages of its listeners and endpoints while some
// goroutine waits in one of their methods: one of those that wait drives it
// for all, and sleeps in Go's poller when nothing comes. All methods may be
// called by any goroutine.
package tensormsg
