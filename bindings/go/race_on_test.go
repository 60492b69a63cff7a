// SPDX-License-Identifier: BSD-3-Clause

//go:build race

package tensormsg

// The race detector keeps memory beside that of the program, and more of it as
// time goes by.
const raceDetector = true
