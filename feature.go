package shmsync

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

// What each feature needs:
//
//	feature      since   system call                        may be absent because of
//	robust       2.6.17  set_robust_list                    qemu-user, seccomp
//	waitv        5.16    futex_waitv                        old kernel, seccomp (podman, CRI-O)
//	membarrier   4.16    membarrier(GLOBAL_EXPEDITED)       seccomp, nohz_full (EINVAL)
//	ofd          3.15    fcntl(F_OFD_SETLK)                 network file systems
//	threads      5.16    /proc/PID/task                     no /proc, or a /proc of another pid namespace
//
// A probe makes the real call. Some sandboxes answer EPERM and others ENOSYS, so either error means
// that the feature is absent.

// Feature is an optional facility of the kernel. Without the feature, the library works, but it is slower or has fewer
// functions.
type Feature struct {
	name  string
	since string
	probe func() error

	works atomic.Bool // done is true and err is nil

	mu   sync.Mutex
	done bool
	err  error
}

// Features lists every feature.
func Features() []*Feature {
	return []*Feature{FeatureRobustList, FeatureWaitV, FeatureMembarrier, FeatureOFDLock, FeatureThreads}
}

// Name returns the name of the feature, as SHMSYNC_DISABLE accepts it.
func (f *Feature) Name() string { return f.name }

// Check returns nil if the feature works here, an error that Is [ErrNotSupported] if it does not,
// and another error if the probe was inconclusive. Only conclusive results are remembered.
func (f *Feature) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return f.err
	}
	var err error
	if disabled()[f.name] {
		err = fmt.Errorf("%s is switched off by SHMSYNC_DISABLE: %w", f.name, ErrNotSupported)
	} else if err = f.probe(); err != nil {
		err = fmt.Errorf("%s (Linux %s and newer): %w", f.name, f.since, err)
	}
	if err == nil || errors.Is(err, ErrNotSupported) {
		f.know(err)
	}
	return err
}

// know remembers whether the feature works. Preconditions: mu is held.
func (f *Feature) know(err error) {
	f.done, f.err = true, err
	f.works.Store(err == nil)
}

// refused returns an error if the feature is known not to work here. It returns nil if the feature works or has not
// been probed.
func (f *Feature) refused() error {
	if disabled()[f.name] {
		return f.Check()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// worked records that a call which needs the feature has worked, so that no probe is needed.
func (f *Feature) worked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.done {
		f.know(nil)
	}
}

// stopped records that a call which needs the feature has returned err, which Is ErrNotSupported. The feature has worked
// earlier, but since then the program has installed a filter for system calls. A process cannot remove such a filter.
func (f *Feature) stopped(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.know(fmt.Errorf("%s: %w", f.name, err))
}

// Have reports whether the feature is known to work here.
func (f *Feature) Have() bool { return f.works.Load() || f.Check() == nil }

var disabled = sync.OnceValue(func() map[string]bool {
	off := map[string]bool{}
	for name := range strings.SplitSeq(os.Getenv("SHMSYNC_DISABLE"), ",") {
		off[strings.TrimSpace(name)] = true
	}
	return off
})
