// SPDX-License-Identifier: BSD-3-Clause

// Camera publishes frames to viewers that come and go, each of which sees the
// newest frame, however slow it is; or, with -view, is such a viewer, of this
// camera or of one in another language:
//
//	camera -rate 60 unix:///tmp/frames
//	camera -view unix:///tmp/frames
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"time"

	"tensormsg"
)

const height, width = 480, 640

// film publishes frames at a rate until its context ends.
func film(ctx context.Context, p *tensormsg.Publisher, rate float64) error {
	pixels := make([]uint8, height*width*3)
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for frame := 0; ; frame++ {
		for i := range pixels {
			pixels[i] = uint8(frame)
		}
		// Publish has copied the frame when it returns.
		err := p.Publish(ctx, tensormsg.Map{"image": tensormsg.Of(pixels, height, width, 3)},
			tensormsg.WithMeta(tensormsg.Meta{"frame": frame}))
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// view tells of each frame that it sees, `most` at most, until the camera ends.
func view(ctx context.Context, ep *tensormsg.Endpoint, most int, to io.Writer) error {
	for ; most != 0; most-- {
		msg, err := ep.Recv(ctx)
		if errors.Is(err, tensormsg.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		err = look(msg, to)
		msg.Close() // its memory is the library's again
		if err != nil {
			return err
		}
	}
	return nil
}

func look(msg *tensormsg.Message, to io.Writer) error {
	image := msg.Get("image")
	pixels, err := tensormsg.Data[uint8](image) // where they lie
	if err != nil {
		return err
	}
	sum := 0
	for _, value := range pixels {
		sum += int(value)
	}
	_, err = fmt.Fprintf(to, "frame %v: %v, mean %.1f\n", msg.Meta()["frame"], image, float64(sum)/float64(max(1, len(pixels))))
	return err
}

func run(ctx context.Context, url string, views bool, rate float64) error {
	w, err := tensormsg.NewWorker(nil)
	if err != nil {
		return err
	}
	defer w.Close()
	if views {
		// It waits for the camera, and comes back when the camera was restarted.
		ep, err := w.Dial(ctx, url, tensormsg.DialLive(), tensormsg.DialWait(), tensormsg.DialReconnect(tensormsg.Reconnect{}))
		if err != nil {
			return err
		}
		return view(ctx, ep, -1, os.Stdout)
	}
	p, err := w.NewPublisher(tensormsg.PublisherLive(), tensormsg.PublisherKeep(1))
	if err != nil {
		return err
	}
	l, err := p.Listen(url)
	if err != nil {
		return err
	}
	log.Printf("frames at %s", l.URL())
	return film(ctx, p, rate)
}

func main() {
	log.SetFlags(0)
	views := flag.Bool("view", false, "look at frames")
	rate := flag.Float64("rate", 30, "frames a second")
	flag.Parse()
	if flag.NArg() != 1 || *rate <= 0 {
		log.Fatal("usage: camera [-view] [-rate FRAMES] URL")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Arg(0), *views, *rate); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}
