// SPDX-License-Identifier: BSD-3-Clause

// Inference asks a server for the classes of images, with several calls at
// once, each of which has its time. The server offers a method "infer" that takes
// "images" (float32[n 3 224 224]) and gives "scores" (float32[n classes]), in
// whatever language; with -serve it is one whose model is the mean of each
// channel:
//
//	inference -serve tcp://127.0.0.1:4000
//	inference -calls 100 tcp://127.0.0.1:4000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"tensormsg"
)

const channels, side = 3, 224

// infer gives the best class of each image of a batch, within a second.
func infer(ctx context.Context, ep *tensormsg.Endpoint, images []float32) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	count := len(images) / (channels * side * side)
	reply, err := ep.Call(ctx, "infer", tensormsg.Map{"images": tensormsg.Of(images, count, channels, side, side)})
	if err != nil {
		return nil, err
	}
	defer reply.Close()
	scores, err := tensormsg.Data[float32](reply.Get("scores"))
	if err != nil {
		return nil, err
	}
	classes := len(scores) / max(1, count)
	best := make([]int, count)
	for i := range best {
		of := scores[i*classes : (i+1)*classes]
		for class, score := range of {
			if score > of[best[i]] {
				best[i] = class
			}
		}
	}
	return best, nil
}

// askMany makes calls, `atOnce` of them at a time, and gives how many were
// answered and what kept others from that.
func askMany(ctx context.Context, ep *tensormsg.Endpoint, calls, atOnce int) (answered int, failed map[string]int) {
	failed = map[string]int{}
	turns := make(chan int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := 0; i < atOnce; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			images := make([]float32, channels*side*side)
			for turn := range turns {
				for j := range images {
					images[j] = float32((j/(side*side)+turn)%channels) / channels
				}
				_, err := infer(ctx, ep, images)
				mu.Lock()
				switch {
				case err == nil:
					answered++
				case errors.Is(err, context.DeadlineExceeded):
					failed["too late"]++
				case errors.Is(err, tensormsg.ErrResourceExhausted):
					failed["the server is full"]++
				case errors.Is(err, tensormsg.ErrPeerLost):
					failed["the server has ended"]++
				default:
					failed[err.Error()]++
				}
				mu.Unlock()
			}
		}()
	}
	for i := 0; i < calls; i++ {
		turns <- i
	}
	close(turns)
	all.Wait()
	return answered, failed
}

// serve answers until its context ends.
func serve(ctx context.Context, w *tensormsg.Worker, url string) (*tensormsg.Listener, error) {
	err := w.Handle("infer", func(ctx context.Context, in *tensormsg.Message) (tensormsg.Map, error) {
		images, err := tensormsg.Data[float32](in.Get("images"))
		if err != nil {
			return nil, err
		}
		scores := make([]float32, len(images)/(side*side))
		for i, value := range images {
			scores[i/(side*side)] += value / (side * side)
		}
		return tensormsg.Map{"scores": tensormsg.Of(scores, len(scores)/channels, channels)}, nil
	}, tensormsg.MethodSignature("(images: float32[n, 3, 224, 224]) -> (scores: float32[n, 3])"))
	if err != nil {
		return nil, err
	}
	l, err := w.Listen(url, tensormsg.ListenKeep())
	if err == nil {
		go w.Serve(ctx)
	}
	return l, err
}

func run(ctx context.Context, url string, serves bool, calls, atOnce int) error {
	w, err := tensormsg.NewWorker(nil)
	if err != nil {
		return err
	}
	defer w.Close()
	if serves {
		l, err := serve(ctx, w, url)
		if err != nil {
			return err
		}
		log.Printf("infer at %s", l.URL())
		<-ctx.Done()
		return nil
	}
	ep, err := w.Dial(ctx, url)
	if err != nil {
		return err
	}
	defer ep.Close(ctx)
	answered, failed := askMany(ctx, ep, calls, atOnce)
	fmt.Printf("%d calls were answered\n", answered)
	for why, count := range failed {
		fmt.Printf("%d were not: %s\n", count, why)
	}
	return nil
}

func main() {
	log.SetFlags(0)
	serves := flag.Bool("serve", false, "answer calls")
	calls := flag.Int("calls", 10, "how many calls")
	atOnce := flag.Int("at-once", 4, "of them at a time")
	flag.Parse()
	if flag.NArg() != 1 || *atOnce < 1 {
		log.Fatal("usage: inference [-serve] [-calls N] [-at-once N] URL")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Arg(0), *serves, *calls, *atOnce); err != nil {
		log.Fatal(err)
	}
}
