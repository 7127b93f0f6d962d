package shm

import (
	"os"

	"golang.org/x/sys/unix"
)

func createMemfd(label string, size int64, init func(*Segment) error, opts *Options) (*Segment, error) {
	name := "memfd:" + label
	set, err := opts.settings()
	if err != nil {
		return nil, &opError{op: "create", name: name, err: err}
	}
	size, err = roundSize(size, max(set.pageSize, int64(os.Getpagesize())))
	if err != nil {
		return nil, &opError{op: "create", name: name, err: err}
	}
	fd, err := memfd(label, set.HugePages)
	if err != nil {
		if e := unix.ENODEV; err == e && set.pageSize != 0 {
			return nil, &opError{op: "create", name: name, why: "no huge pages of size " + set.HugePages.String(), kind: ErrNotSupported, err: err}
		}
		return nil, fail("create", name, "memfd_create", err)
	}
	s, err := build(os.NewFile(uintptr(fd), name), name, size, set, func() error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, memfdSeals)
		return err
	}, init)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// memfd makes an empty memfd that can be sealed.
func memfd(label string, huge HugePages) (int, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	switch huge {
	case Huge2M:
		flags |= unix.MFD_HUGETLB | unix.MFD_HUGE_2MB
	case Huge1G:
		flags |= unix.MFD_HUGETLB | unix.MFD_HUGE_1GB
	}
	// Linux 6.3 and later expect a flag which says whether the file may be executed. Earlier kernels
	// reject the flag.
	fd, err := unix.MemfdCreate(label, flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(label, flags)
	}
	return fd, err
}
