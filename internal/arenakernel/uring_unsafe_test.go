//go:build linux

package arenakernel

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The part of the kernel's io_uring interface that the tests use; see io_uring_setup(2) and
// io_uring_enter(2).
const (
	uringOpRead      = 22
	uringAsync       = 1 << 4 // IOSQE_ASYNC: a worker thread does the read from the start
	uringGetEvents   = 1
	uringSQRing      = 0
	uringCQRing      = 0x8000000
	uringSQEs        = 0x10000000
	uringSQESize     = 64
	uringCQESize     = 16
	uringSQTail      = 40 + 4 // offsets in struct io_uring_params: sq_off begins at byte 40
	uringSQMask      = 40 + 8
	uringSQArray     = 40 + 24
	uringCQHead      = 80 // cq_off
	uringCQTail      = 80 + 4
	uringCQMask      = 80 + 8
	uringCQCQEs      = 80 + 20
	uringParamsBytes = 120
)

// uring is a ring for reads.
type uring struct {
	fd           int
	params       [uringParamsBytes / 8]uint64
	sq, cq, sqes []byte
	entries      uint32
}

func (u *uring) param(at int) uint32 {
	return *(*uint32)(unsafe.Add(unsafe.Pointer(&u.params[0]), at))
}

func word32(b []byte, at uint32) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&b[at]))
}

func newURing(entries uint32) (*uring, error) {
	u := &uring{}
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&u.params[0])), 0)
	if e != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", e)
	}
	u.fd, u.entries = int(fd), u.param(0)
	for _, m := range []struct {
		to   *[]byte
		at   int64
		size uint32
	}{
		{&u.sq, uringSQRing, u.param(uringSQArray) + 4*u.entries},
		{&u.cq, uringCQRing, u.param(uringCQCQEs) + uringCQESize*u.param(4)},
		{&u.sqes, uringSQEs, uringSQESize * u.entries},
	} {
		b, err := unix.Mmap(u.fd, m.at, int(m.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			return nil, fmt.Errorf("mmap of an io_uring: %w", err)
		}
		*m.to = b
	}
	return u, nil
}

// readAll reads the file into parts of data. It starts all reads at once and waits until they are done.
func (u *uring) readAll(f int, data []byte, parts int, flags byte) error {
	size := len(data) / parts
	tail, mask := word32(u.sq, u.param(uringSQTail)), word32(u.sq, u.param(uringSQMask)).Load()
	for k := range parts {
		i := (tail.Load() + uint32(k)) & mask
		sqe := u.sqes[i*uringSQESize:][:uringSQESize]
		clear(sqe)
		sqe[0], sqe[1] = uringOpRead, flags
		*(*int32)(unsafe.Pointer(&sqe[4])) = int32(f)
		*(*uint64)(unsafe.Pointer(&sqe[8])) = uint64(k * size)
		*(*uint64)(unsafe.Pointer(&sqe[16])) = uint64(uintptr(unsafe.Pointer(&data[k*size])))
		*(*uint32)(unsafe.Pointer(&sqe[24])) = uint32(size)
		word32(u.sq, u.param(uringSQArray)+4*i).Store(i)
	}
	tail.Add(uint32(parts))
	submit := uintptr(parts)
	for done := 0; done < parts; {
		_, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(u.fd), submit, 1, uringGetEvents, 0, 0)
		if e == unix.EINTR {
			continue
		} else if e != 0 {
			return fmt.Errorf("io_uring_enter: %w", e)
		}
		submit = 0
		head, end := word32(u.cq, u.param(uringCQHead)), word32(u.cq, u.param(uringCQTail)).Load()
		for at := head.Load(); at != end; at++ {
			cqe := u.cq[u.param(uringCQCQEs)+(at&word32(u.cq, u.param(uringCQMask)).Load())*uringCQESize:]
			if n := *(*int32)(unsafe.Pointer(&cqe[8])); int(n) != size {
				return fmt.Errorf("a read of an io_uring gave %d instead of %d", n, size)
			}
			done++
		}
		head.Store(end)
	}
	return nil
}

// addressOf returns the address of the first byte of b.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// aio is a context of io_submit(2), for reads.
type aio struct{ context uintptr }

func newAIO(entries int) (*aio, error) {
	x := &aio{}
	if _, _, e := unix.Syscall(unix.SYS_IO_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&x.context)), 0); e != 0 {
		return nil, fmt.Errorf("io_setup: %w", e)
	}
	return x, nil
}

// readAll reads the file into parts of data. It starts all reads at once and waits until they are done.
func (x *aio) readAll(f int, data []byte, parts int) error {
	size := len(data) / parts
	blocks, pointers := make([][8]uint64, parts), make([]unsafe.Pointer, parts)
	for k := range parts {
		b := &blocks[k]
		b[2] = uint64(uint32(f)) << 32 // valid on little-endian machines; operation 0 is a read
		b[3], b[4], b[5] = uint64(uintptr(unsafe.Pointer(&data[k*size]))), uint64(size), uint64(k*size)
		pointers[k] = unsafe.Pointer(b)
	}
	n, _, e := unix.Syscall(unix.SYS_IO_SUBMIT, x.context, uintptr(parts), uintptr(unsafe.Pointer(&pointers[0])))
	if e != 0 || int(n) != parts {
		return fmt.Errorf("io_submit of %d gave %d: %w", parts, n, e)
	}
	events := make([][4]uint64, parts)
	for done := 0; done < parts; {
		n, _, e := unix.Syscall6(unix.SYS_IO_GETEVENTS, x.context, 1, uintptr(parts-done), uintptr(unsafe.Pointer(&events[0])), 0, 0)
		if e == unix.EINTR {
			continue
		} else if e != 0 {
			return fmt.Errorf("io_getevents: %w", e)
		}
		for _, ev := range events[:n] {
			if ev[2] != uint64(size) {
				return fmt.Errorf("a read of io_submit gave %d instead of %d", int64(ev[2]), size)
			}
		}
		done += int(n)
	}
	runtime.KeepAlive(pointers)
	return nil
}
