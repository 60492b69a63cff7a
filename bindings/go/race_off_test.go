// SPDX-License-Identifier: BSD-3-Clause

//go:build !race

package tensormsg

const raceDetector = false
