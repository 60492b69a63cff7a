// SPDX-License-Identifier: BSD-3-Clause

// Package tensormsg sends maps of tensors between processes. docs/reference/go.md is its
// tutorial.
//
// A [Worker] moves the messages of its listeners and endpoints. One of the
// goroutines that wait in a method drives it for all, and one of the worker's
// own where none waits; it sleeps in Go's poller when nothing comes. All
// methods may be called by any goroutine.
package tensormsg
