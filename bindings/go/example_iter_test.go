// SPDX-License-Identifier: BSD-3-Clause

//go:build go1.23

package tensormsg_test

import (
	"context"
	"fmt"
	"time"

	"tensormsg"
)

func ExampleStream_Messages() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ep, end := serving(ctx)
	defer end()
	s, err := ep.Stream(ctx, "double", nil)
	check(err)
	defer s.Close()
	check(s.Send(ctx, tensormsg.Map{"x": tensormsg.Of([]float32{1})}))
	check(s.Send(ctx, tensormsg.Map{"x": tensormsg.Of([]float32{2})}))
	check(s.Finish())

	for msg, err := range s.Messages(ctx) {
		check(err)
		x, err := tensormsg.Data[float32](msg.Get("x")) // valid until the loop goes on
		fmt.Println(x, err)
	}
	// Output:
	// [2] <nil>
	// [4] <nil>
}
