// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

// #include "hub.h"
import "C"

// Keys of metadata that the library knows (tensormsg/meta.h).
const (
	MetaSequence    = C.TMSG_META_SEQUENCE     // int64
	MetaFrame       = C.TMSG_META_FRAME        // int64
	MetaAcquired    = C.TMSG_META_ACQUIRED     // int64: nanoseconds of Unix time
	MetaPublished   = C.TMSG_META_PUBLISHED    // int64: nanoseconds of Unix time
	MetaTraceParent = C.TMSG_META_TRACE_PARENT // string: traceparent, as the W3C's Trace Context has it
	MetaTraceState  = C.TMSG_META_TRACE_STATE  // string: tracestate, likewise
	MetaFileName    = C.TMSG_META_FILE_NAME    // string: of a file that was loaded
	MetaFileFormat  = C.TMSG_META_FILE_FORMAT  // string
)

// A TraceCarrier is metadata as OpenTelemetry's propagators read and write it
// (its propagation.TextMapCarrier). It has "traceparent" and "tracestate", under
// the keys by which peers in C and Python know them (docs/reference/interceptors.md);
// other keys are left out.
type TraceCarrier Meta

var traceKeys = map[string]string{"traceparent": MetaTraceParent, "tracestate": MetaTraceState}

// Get gives the value of a key; "" where there is none.
func (c TraceCarrier) Get(key string) string {
	text, _ := c[traceKeys[key]].(string)
	return text
}

// Set puts a value, if the key is one of the two.
func (c TraceCarrier) Set(key, value string) {
	if known := traceKeys[key]; known != "" {
		c[known] = value
	}
}

// Keys gives those of the two that are there.
func (c TraceCarrier) Keys() []string {
	var keys []string
	for key := range traceKeys {
		if c.Get(key) != "" {
			keys = append(keys, key)
		}
	}
	return keys
}
