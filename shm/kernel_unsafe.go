//go:build linux

package shm

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mbind sets the NUMA policy of mem. mem begins at a page.
func mbind(mem []byte, mode uintptr, mask []uint64, flags uintptr) error {
	// The kernel reads one bit less than maxNode says, so maxNode is the number of bits plus 1, or 0 if there is no
	// mask.
	maxNode := uintptr(0)
	if len(mask) > 0 {
		maxNode = uintptr(len(mask))*64 + 1
	}
	// SAFETY: the kernel does not write to mem. It reads maxNode-1 bits, and mask has that many. For a
	// nil mask unsafe.SliceData returns NULL, as mbind expects.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)),
		mode, uintptr(unsafe.Pointer(unsafe.SliceData(mask))), maxNode, flags)
	if errno != 0 {
		return errno
	}
	return nil
}

// policyMask is the length of the mask in policyAt, in words. It has a bit for the largest node number
// that a kernel can be built for.
const policyMask = (maxNode + 1) / 64

// policyAt returns the policy of the page that begins with b: its mode and its nodes.
func policyAt(b *byte) (mode uintptr, mask [policyMask]uint64, err error) {
	var m int32
	// SAFETY: the kernel writes an int and, at most, as many bits as mask has.
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&mask)),
		policyMask*64, uintptr(unsafe.Pointer(b)), unix.MPOL_F_ADDR, 0)
	if errno != 0 {
		return 0, mask, errno
	}
	return uintptr(m), mask, nil
}

// replace puts private memory in the place of mem, which mapFile has mapped, in one step. The new pages do not belong to
// the file, and are zero at first. If replace returns an error and lost is false, mem is still mapped as before. If lost
// is true, the move has failed, and the caller must not unmap mem: the kernel may have removed the old mapping before it
// failed, and then other code may already use the addresses.
//
// A mapping with MAP_FIXED would need one call less. But before Linux 6.12, the kernel removes the old mapping first,
// and may then refuse the new one if memory must not be overcommitted. So replace maps the memory elsewhere and moves
// it. The kernel makes most checks of a move before it removes the old mapping. After that, a move fails only if the
// kernel lacks memory of its own. replace unlocks the memory before it makes the memory readable: under mlockall, the
// kernel allocates every page of a mapping that is readable from the start.
func replace(mem []byte) (lost bool, _ error) {
	n := uintptr(len(mem))
	p, err := unix.MmapPtr(-1, 0, nil, n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return false, err
	}
	// SAFETY: the n bytes at p are a mapping that only this function knows.
	fresh := unsafe.Slice((*byte)(p), n)
	unix.Munlock(fresh)
	if err = unix.Mprotect(fresh, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		// SAFETY: mem is a whole mapping of this process, and no other code unmaps it. Pointers into mem
		// remain valid, and refer to the new mapping from then on.
		_, err = mremap(p, n, unsafe.Pointer(&mem[0]), n, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED)
		lost = err != nil
	}
	if err != nil {
		unix.MunmapPtr(p, n)
	}
	return lost, err
}

// mremap is a variable so that a test can make the move fail.
var mremap = unix.MremapPtr

// resident finds out which pages of mem are in memory. It stores the result for each page in bit 0 of
// one byte of vec. The pages have the base size of the system. A page of a file is in memory if it is
// in the page cache.
//
// Preconditions: mem has as many pages as vec has bytes, and at least one page.
func resident(mem, vec []byte) error {
	// SAFETY: the kernel writes a byte for each page of mem.
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		return errno
	}
	return nil
}

// address returns the address at which mem is mapped, to compare with /proc.
func address(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

// pageNodes stores in status, for each page of mem, the NUMA node of the page or a negative errno.
//
// Preconditions: mem has at least len(status) pages; status is not empty.
func pageNodes(mem []byte, pageSize int64, status []int32) error {
	return movePages(mem, pageSize, nil, status, 0)
}

// movePages moves successive pages of mem to NUMA nodes. The parameter called to has the node for
// each page. If it is nil, no page moves. For each page, movePages stores in status the node on which
// the page is now, or a negative errno.
//
// Preconditions: mem has at least len(status) pages, and status is not empty. The parameter called to
// is nil, or as long as status.
func movePages(mem []byte, pageSize int64, to, status []int32, flags uintptr) error {
	addrs := make([]uintptr, len(status))
	base := uintptr(unsafe.Pointer(&mem[0]))
	for i := range addrs {
		addrs[i] = base + uintptr(i)*uintptr(pageSize)
	}
	// SAFETY: mem is a mapping, which the garbage collector does not move, so its addresses may be kept as numbers. The
	// kernel reads len(status) addresses and writes len(status) words into status. It reads len(status) nodes if pages
	// are to move, and otherwise gets a null pointer for the nodes. Moving a page does not change its bytes.
	_, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(len(status)),
		uintptr(unsafe.Pointer(&addrs[0])), uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(unsafe.Pointer(&status[0])), flags)
	runtime.KeepAlive(addrs)
	if errno != 0 {
		return errno
	}
	return nil
}

// peek reads each page of mem, so that the page is faulted in for reading.
func peek(mem []byte, pageSize int64) {
	for off := int64(0); off < int64(len(mem)); off += pageSize {
		// SAFETY: as in the function touch.
		atomic.LoadUint32((*uint32)(unsafe.Pointer(&mem[off])))
	}
}

// touch faults in each page of mem for writing. It atomically adds 0 to a word of the page, which
// changes no byte even if other processes write there.
func touch(mem []byte, pageSize int64) {
	for off := int64(0); off < int64(len(mem)); off += pageSize {
		// SAFETY: off is within mem. Both off and the start of mem are multiples of the page size, and
		// a page has more than four bytes.
		atomic.AddUint32((*uint32)(unsafe.Pointer(&mem[off])), 0)
	}
}
