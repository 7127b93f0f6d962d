//go:build linux

package prims_test

import (
	"context"
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
	How   string // queue, batch, or file
	N     int
}

func init() {
	// The other end of BenchmarkQueueProcs: takes N numbers, which must be in order.
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
		q, err := prims.OpenQueue[uint64](a, "q", 0, nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		into := make([]uint64, 1)
		if p.How == "batch" {
			into = make([]uint64, 64)
		}
		for i := 0; i < p.N; {
			n, err := q.GetBatch(context.Background(), into)
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

// One process puts numbers, another takes them: through a queue, one by one and in
// batches, and beside it through a socket and a pipe.
func BenchmarkQueueProcs(b *testing.B) {
	for _, how := range []string{"queue", "batch", "socket", "pipe"} {
		b.Run("kind="+how, func(b *testing.B) {
			a := newArena(b, nil)
			q := newQueue[uint64](b, a, "q", 1024)
			pump := queuePump{nameOf(a), how, b.N}
			var opts []proctest.Option
			var out *os.File
			if how == "socket" || how == "pipe" {
				pump.How = "file"
				var in *os.File
				if how == "pipe" {
					var err error
					in, out, err = os.Pipe()
					require.NoError(b, err)
				} else {
					fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
					require.NoError(b, err)
					in, out = os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "out")
				}
				defer in.Close()
				defer out.Close()
				opts = append(opts, proctest.Files(in))
			}
			p := proctest.Start(b, "queue/pump", append(opts, proctest.Params(pump))...)
			p.Await(b)
			b.ResetTimer()
			switch how {
			case "queue":
				for i := range uint64(b.N) {
					q.Put(i)
				}
			case "batch":
				vs := make([]uint64, 0, 64)
				for i := range uint64(b.N) {
					if vs = append(vs, i); len(vs) == cap(vs) || i == uint64(b.N)-1 {
						q.PutBatch(context.Background(), vs)
						vs = vs[:0]
					}
				}
			default:
				var buf [8]byte
				for i := range uint64(b.N) {
					binary.LittleEndian.PutUint64(buf[:], i)
					if _, err := out.Write(buf[:]); err != nil {
						b.Fatal(err)
					}
				}
			}
			var n int
			p.Recv(b, &n)
			b.StopTimer()
			require.Equal(b, b.N, n)
			p.WaitExit(b)
		})
	}
}
