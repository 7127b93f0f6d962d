//go:build linux

package prims_test

import (
	"encoding/binary"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

type queuePump struct {
	Arena string
	How   string // queue, batch, or file; a file is a socket or a pipe
	N     int
}

func init() {
	// queue/pump is the receiver of pumpNumbers. It takes N numbers, and checks that they are in order.
	proctest.Register("queue/pump", func(c *proctest.Child) {
		var p queuePump
		c.Params(&p)
		if p.How == "file" {
			c.Ready()
			var b [8]byte
			for i := range uint64(p.N) {
				if _, err := io.ReadFull(c.File(0), b[:]); err != nil || binary.LittleEndian.Uint64(b[:]) != i {
					c.Fatal(i, err)
				}
			}
			c.Say(p.N)
			return
		}
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		q, err := prims.AttachQueue[uint64](a, "q", nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		into := make([]uint64, 1)
		if p.How == "batch" {
			into = make([]uint64, 64)
		}
		for i := 0; i < p.N; {
			n, err := q.GetBatch(into)
			if err != nil {
				c.Fatal(err)
			}
			for _, v := range into[:n] {
				if v != uint64(i) {
					c.Fatal(v, "and not", i)
				}
				i++
			}
		}
		c.Say(p.N)
	})
}

// pumpNumbers sends n numbers from this process to another, and calls the function begin before it sends the first
// number. The parameter how selects the way: queue (one by one), batch, socket or pipe.
func pumpNumbers(t testing.TB, how string, n int, begin func()) {
	a := newArena(t, nil)
	q := newQueue[uint64](t, a, "q", 1024)
	pump := queuePump{nameOf(a), how, n}
	var opts []proctest.Option
	var in, out *os.File
	switch how {
	case "pipe":
		var err error
		in, out, err = os.Pipe()
		require.NoError(t, err)
	case "socket":
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		require.NoError(t, err)
		in, out = os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "out")
	}
	if in != nil {
		pump.How = "file"
		defer in.Close()
		defer out.Close()
		opts = append(opts, proctest.Files(in))
	}
	p := proctest.Start(t, "queue/pump", append(opts, proctest.Params(pump))...)
	p.Await(t)
	begin()
	switch how {
	case "queue":
		for i := range uint64(n) {
			q.Put(i)
		}
	case "batch":
		vs := make([]uint64, 0, 64)
		for i := range uint64(n) {
			if vs = append(vs, i); len(vs) == cap(vs) || i == uint64(n)-1 {
				q.PutBatch(vs)
				vs = vs[:0]
			}
		}
	default:
		var buf [8]byte
		for i := range uint64(n) {
			binary.LittleEndian.PutUint64(buf[:], i)
			_, err := out.Write(buf[:])
			require.NoError(t, err)
		}
	}
	var got int
	p.Recv(t, &got)
	require.Equal(t, n, got)
	p.WaitExit(t)
}

func BenchmarkQueueProcs(b *testing.B) {
	for _, how := range []string{"queue", "batch", "socket", "pipe"} {
		b.Run("kind="+how, func(b *testing.B) { pumpNumbers(b, how, b.N, b.ResetTimer) })
	}
}

// TestQueueStream: numbers that one process sends to another arrive complete and in order.
func TestQueueStream(t *testing.T) {
	for _, how := range []string{"queue", "batch", "socket", "pipe"} {
		pumpNumbers(t, how, 10_000, func() {})
	}
}
