//go:build !linux

package shmsync

// The features that the library probes for; none exists on this system.
var (
	FeatureRobustList = &Feature{name: "robust", probe: absent}
	FeatureWaitV      = &Feature{name: "waitv", probe: absent}
	FeatureMembarrier = &Feature{name: "membarrier", probe: absent}
	FeatureOFDLock    = &Feature{name: "ofd", probe: absent}
	FeatureThreads    = &Feature{name: "threads", probe: absent}
)

func absent() error { return ErrNotSupported }

// RegisterFence reports ErrNotSupported on this system.
func RegisterFence() error { return ErrNotSupported }

// Fence reports ErrNotSupported on this system.
func Fence() error { return ErrNotSupported }

// The bits of a word that a robust list names.
const (
	RobustWaiters   uint32 = 0x80000000
	RobustOwnerDied uint32 = 0x40000000
	RobustTIDMask   uint32 = 0x3fffffff
)

// RobustNodes is the number of words that a RobustList can name.
const RobustNodes = 4

// RobustList is a list of words that the kernel marks when a thread ends.
type RobustList struct{}

// NewRobustList reports ErrNotSupported on this system.
func NewRobustList() (*RobustList, error) { return nil, ErrNotSupported }

// Link does nothing on this system.
func (l *RobustList) Link(first *uint32, n int) {}

// Clear does nothing on this system.
func (l *RobustList) Clear() {}

// Register reports ErrNotSupported on this system.
func (l *RobustList) Register() error { return ErrNotSupported }

// Unregister reports ErrNotSupported on this system.
func (l *RobustList) Unregister() error { return ErrNotSupported }

// Free reports ErrNotSupported on this system.
func (l *RobustList) Free() error { return ErrNotSupported }

// Detached returns false on this system.
func Detached(pid int, startTime uint64) bool { return false }

// NoProcess returns false on this system.
func NoProcess(pid int) bool { return false }

// ThreadID returns 0 on this system.
func ThreadID() int { return 0 }

// PromptThread does nothing on this system.
func PromptThread() (undo func()) { return func() {} }

// Yield does nothing on this system.
func Yield() int64 { return 0 }
