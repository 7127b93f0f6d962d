//go:build linux

// C-producer is a Go program that takes samples out of a Queue. A C program measures the samples and puts them into the
// Queue. An Event tells the C program when the Go program has enough samples. Neither program knows in which language
// the other program is written.
//
//	go run ./examples/c-producer
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/ccbuild"
	"github.com/shmsync/shmsync/prims"
)

//go:generate go run github.com/shmsync/shmsync/cmd/shmgen -type sample -o producer/sample_shm.h

// sample is the same type as struct sample of producer/sample_shm.h. When a program opens the queue, the library
// compares the type of the program with that of the queue.
type sample struct {
	Seq   uint64
	Value float64
}

const samples = 1000

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	dir, err := os.MkdirTemp("", "c-producer")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	producer := filepath.Join(dir, "producer")
	if err := ccbuild.Build("examples/c-producer/producer/producer.c", producer); err != nil {
		return err
	}

	name := fmt.Sprintf("c-producer-%d", os.Getpid())
	a, err := arena.Create(name, &arena.Options{Size: 4 << 20, Label: "consumer"})
	if err != nil {
		return err
	}
	defer arena.Remove(name)
	defer a.Close()
	queue, err := prims.OpenQueue[sample](a, "samples", 64, nil)
	if err != nil {
		return err
	}
	enough, err := prims.OpenEvent(a, "enough", nil)
	if err != nil {
		return err
	}

	cmd := exec.Command(producer, name)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Wait()
	defer enough.Set()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var sum float64
	for n := uint64(0); n < samples; n++ {
		// The sample is on lease until Ack. If this process dies before Ack, the next consumer gets the sample.
		l, err := queue.LeaseContext(ctx)
		if err != nil {
			return err
		}
		if l.Item.Seq != n {
			return fmt.Errorf("sample %d came as number %d", l.Item.Seq, n)
		}
		sum += l.Item.Value
		l.Ack()
	}
	enough.Set()
	if err := cmd.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d samples from a C program, sum %.0f\n", samples, sum)
	return nil
}
