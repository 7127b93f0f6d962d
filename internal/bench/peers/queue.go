//go:build linux

package peers

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/bench/control"
)

// ChanQueue is a channel that serves as a queue.
type ChanQueue chan uint64

func (q ChanQueue) Put(items []uint64) {
	for _, v := range items {
		q <- v
	}
}

func (q ChanQueue) Get(buf []uint64) int {
	v, ok := <-q
	if !ok {
		return 0
	}
	buf[0] = v
	for n := 1; n < len(buf); n++ {
		select {
		case v, ok := <-q:
			if !ok {
				return n
			}
			buf[n] = v
		default:
			return n
		}
	}
	return len(buf)
}

func (q ChanQueue) Shut(int) { close(q) }

// streamQueue moves items of eight bytes through a pipe or a socket. All threads share the two ends of the pipe or
// socket. Each read and write is small enough to be atomic. An item of 0 tells the consumer that reads it that no more
// items come.
type streamQueue struct {
	in, out int
	ended   bool
	bytes   [control.MaxBatch * 8]byte
}

func (q *streamQueue) Put(items []uint64) {
	for i, v := range items {
		binary.NativeEndian.PutUint64(q.bytes[i*8:], v)
	}
	q.write(len(items))
}

func (q *streamQueue) write(n int) {
	mustRetry("write", func() error { _, err := unix.Write(q.out, q.bytes[:n*8]); return err })
}

func (q *streamQueue) Get(buf []uint64) (n int) {
	if q.ended {
		return 0
	}
	var got int
	mustRetry("read", func() (err error) { got, err = unix.Read(q.in, q.bytes[:len(buf)*8]); return err })
	if got%8 != 0 || got == 0 {
		panic(os.NewSyscallError("read", unix.EIO))
	}
	zeros := 0
	for i := range got / 8 {
		if v := binary.NativeEndian.Uint64(q.bytes[i*8:]); v != 0 {
			buf[n] = v
			n++
		} else {
			zeros++
		}
	}
	if zeros > 0 {
		q.ended = true
		q.Shut(zeros - 1) // pass on the zeros that are for other consumers
	}
	return n
}

func (q *streamQueue) Shut(consumers int) {
	for range consumers {
		q.Put([]uint64{0})
	}
}
