// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

// #include "hub.h"
import "C"

// Keys of metadata that have a meaning, named as in Python. They travel under
// the names of tensormsg/meta.h.
const (
	MetaSequence    = "sequence"     // int64
	MetaFrame       = "frame"        // int64
	MetaAcquired    = "acquired_ns"  // int64: nanoseconds of Unix time
	MetaPublished   = "published_ns" // int64: nanoseconds of Unix time
	MetaTraceParent = "trace_parent" // string: traceparent of W3C's Trace Context
	MetaTraceState  = "trace_state"  // string: tracestate, likewise
	MetaFileName    = "file_name"    // string: of a file that was loaded
	MetaFileFormat  = "file_format"  // string
)

var metaKeys = map[string]string{
	MetaSequence:    C.TMSG_META_SEQUENCE,
	MetaFrame:       C.TMSG_META_FRAME,
	MetaAcquired:    C.TMSG_META_ACQUIRED,
	MetaPublished:   C.TMSG_META_PUBLISHED,
	MetaTraceParent: C.TMSG_META_TRACE_PARENT,
	MetaTraceState:  C.TMSG_META_TRACE_STATE,
	MetaFileName:    C.TMSG_META_FILE_NAME,
	MetaFileFormat:  C.TMSG_META_FILE_FORMAT,
	"ucxx_header":   C.TMSG_META_UCXX_HEADER,
}

var metaNames = func() map[string]string {
	names := make(map[string]string, len(metaKeys))
	for name, key := range metaKeys {
		names[key] = name
	}
	return names
}()

// What a key is called on the way.
func metaKey(name string) string {
	if key, ok := metaKeys[name]; ok {
		return key
	}
	return name
}

// And here.
func metaName(key string) string {
	if name, ok := metaNames[key]; ok {
		return name
	}
	return key
}

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
