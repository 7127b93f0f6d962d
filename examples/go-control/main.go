//go:build linux

// Go-control is a Go program that directs a pool of C workers by a Sequencer. For each order, it writes the order into
// the arena and increments the Sequencer. The workers wait for this increment, do their parts of the order, and
// increment a second Sequencer.
//
//	go run ./examples/go-control
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/ccbuild"
	"github.com/shmsync/shmsync/prims"
)

const (
	workers = 3
	orders  = 20
)

//go:generate go run github.com/shmsync/shmsync/cmd/shmgen -type board -o worker/board_shm.h

// board is the same type as struct board of worker/board_shm.h. It has the present order and its result.
type board struct {
	Upto uint64 // the order: add up all numbers below Upto
	Sum  atomic.Uint64
}

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	dir, err := os.MkdirTemp("", "go-control")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	worker := filepath.Join(dir, "worker")
	if err := ccbuild.Build("examples/go-control/worker/worker.c", worker); err != nil {
		return err
	}

	name := fmt.Sprintf("go-control-%d", os.Getpid())
	a, err := arena.Create(name, &arena.Options{Size: 4 << 20, Label: "control"})
	if err != nil {
		return err
	}
	defer arena.Remove(name)
	defer a.Close()
	present, err := prims.OpenSequencer(a, "orders", nil)
	if err != nil {
		return err
	}
	done, err := prims.OpenSequencer(a, "done", nil)
	if err != nil {
		return err
	}
	b, err := arena.Value[board](a, "board")
	if err != nil {
		return err
	}

	pool := make([]*exec.Cmd, workers)
	for i := range pool {
		pool[i] = exec.Command(worker, name, strconv.Itoa(i), strconv.Itoa(workers))
		pool[i].Stderr = os.Stderr
		if err := pool[i].Start(); err != nil {
			return err
		}
		defer pool[i].Wait()
	}
	defer present.Stop()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for n := uint64(1); n <= orders; n++ {
		b.Upto = 100 * n
		b.Sum.Store(0)
		present.Increment() // a worker that sees the new count also sees the writes above
		if err := done.WaitContext(ctx, n*workers); err != nil {
			return err
		}
		if got, want := b.Sum.Load(), b.Upto*(b.Upto-1)/2; got != want {
			return fmt.Errorf("order %d: the workers say %d, it is %d", n, got, want)
		}
	}
	present.Stop() // this ends the waits of the workers, and the workers end
	for _, w := range pool {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d orders, each done by %d C workers\n", orders, workers)
	return nil
}
