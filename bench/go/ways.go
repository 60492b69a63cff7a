// SPDX-License-Identifier: BSD-3-Clause

package main

import "tensormsg"

func open(url string, asking bool) *tensormsg.Endpoint {
	w := got(tensormsg.NewWorker(nil))
	if asking {
		return got(w.Dial(ctx, url, tensormsg.DialWait()))
	}
	return got(got(w.Listen(url)).Accept(ctx))
}

func eight(data *[8][]float32) tensormsg.Map {
	return tensormsg.Map{
		"t0": tensormsg.Of(data[0]), "t1": tensormsg.Of(data[1]), "t2": tensormsg.Of(data[2]), "t3": tensormsg.Of(data[3]),
		"t4": tensormsg.Of(data[4]), "t5": tensormsg.Of(data[5]), "t6": tensormsg.Of(data[6]), "t7": tensormsg.Of(data[7]),
	}
}

func inGo(url string, asking bool) []*way {
	ep := open(url, asking)
	var data, came [8][]float32
	for i := range data {
		data[i], came[i] = make([]float32, 16), make([]float32, 16)
	}
	out, in := got(tensormsg.Prepare(eight(&data))), got(tensormsg.Prepare(eight(&came)))
	send := func() { must(ep.SendPrepared(ctx, out)) }
	recv := func() { must(ep.RecvInto(ctx, in)) }
	sendMap := func() { must(ep.Send(ctx, eight(&data))) }
	recvMap := func() { got(ep.Recv(ctx)).Close() }

	big := tensormsg.Map{"t0": tensormsg.Of(make([]float32, large/4))}
	push := func() {
		var under [window]<-chan error
		for i := 0; i < pushes+window; i++ {
			if i >= window {
				must(<-under[i%window])
			}
			if i < pushes {
				under[i%window] = ep.SendOwned(ctx, big)
			}
		}
		recvMap()
	}
	pull := func() {
		for i := 0; i < pushes; i++ {
			recvMap()
		}
		send()
	}
	return []*way{
		{name: "prepared", ask: turns(send, recv), answer: turns(recv, send)},
		{name: "map", ask: turns(sendMap, recvMap), answer: turns(recvMap, sendMap), push: push, pull: pull},
	}
}

func turns(first, second func()) func() {
	return func() {
		for i := 0; i < rounds; i++ {
			first()
			second()
		}
	}
}
