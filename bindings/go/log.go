// SPDX-License-Identifier: BSD-3-Clause

package tensormsg

// #include "hub.h"
import "C"

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync"
	"syscall"
)

var logging struct {
	sync.Mutex
	logger *slog.Logger
	level  slog.Level
	pipe   int // its end that C writes to; 0: there is none yet
}

// LogTo has the library's log lines of that level and graver, and all of UCX's
// own, go to a logger; nil: to standard error, as where it is not called (the
// variable TENSORMSG_LOG then says the level). So do the lines of this package:
// of a handler that panicked, with its "stack", and of a message that nobody
// closed. A line has the attribute "from",
// "tensormsg" or "ucx". It is for the whole process, and for its end: lines
// come from a goroutine, and those of an exit may not come any more. Where
// lines come faster than they are written some are left out, and a line says
// how many. Fails with ErrIO.
func LogTo(logger *slog.Logger, level slog.Level) error {
	logging.Lock()
	defer logging.Unlock()
	fd := -1
	if logger != nil {
		if logging.pipe == 0 {
			var ends [2]int
			if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
				return fail(ErrIO, "a pipe for the log: "+err.Error())
			}
			logging.pipe = ends[1]
			go passLines(os.NewFile(uintptr(ends[0]), "the log"))
		}
		fd = logging.pipe
	}
	logging.logger, logging.level = logger, level
	C.tmsggo_log(C.int(fd), levelOf(level))
	return nil
}

// Logs words of this package's own: to the logger of LogTo; without one by
// package log.
func say(level slog.Level, words string, attributes ...any) {
	logging.Lock()
	logger, least := logging.logger, logging.level
	logging.Unlock()
	if logger == nil {
		for i := 1; i < len(attributes); i += 2 {
			words += fmt.Sprintf("\n%v", attributes[i])
		}
		log.Print("tensormsg: " + words)
	} else if level >= least {
		logger.Log(context.Background(), level, words, append(attributes, "from", "tensormsg")...)
	}
}

func levelOf(level slog.Level) C.tmsg_log_level_t {
	switch {
	case level > slog.LevelWarn:
		return C.TMSG_LOG_ERROR
	case level > slog.LevelInfo:
		return C.TMSG_LOG_WARN
	case level > slog.LevelDebug:
		return C.TMSG_LOG_INFO
	}
	return C.TMSG_LOG_DEBUG
}

var levels = [...]slog.Level{
	C.TMSG_LOG_ERROR: slog.LevelError,
	C.TMSG_LOG_WARN:  slog.LevelWarn,
	C.TMSG_LOG_INFO:  slog.LevelInfo,
	C.TMSG_LOG_DEBUG: slog.LevelDebug,
}

// A line is a letter, of whose it is, a digit, its level, and the words.
func passLines(pipe *os.File) {
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		line := lines.Text()
		logging.Lock()
		logger := logging.logger
		logging.Unlock()
		if logger == nil || len(line) < 2 {
			continue
		}
		from := "tensormsg"
		if line[0] == 'u' {
			from = "ucx"
		}
		logger.Log(context.Background(), levels[line[1]-'0'], line[2:], "from", from)
	}
}
