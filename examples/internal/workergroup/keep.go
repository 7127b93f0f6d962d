package workergroup

import (
	"os"
	"sync"
)

// Kept is a process of the group that is started again whenever it dies.
type Kept struct {
	Name string

	mu      sync.Mutex
	proc    *Proc
	deaths  int
	stopped bool
	over    chan struct{}
}

// Keep starts a process. Whenever the process ends with an error, Keep starts it again.
func Keep(name, role string, args []string, files ...*os.File) *Kept {
	k := &Kept{Name: name, over: make(chan struct{}), proc: Start(name, role, args, files...)}
	go func() {
		defer close(k.over)
		for k.Proc().Wait() != nil {
			k.mu.Lock()
			k.deaths++
			if k.stopped {
				k.mu.Unlock()
				return
			}
			k.proc = Start(name, role, args, files...)
			k.mu.Unlock()
		}
	}()
	return k
}

// Proc returns the present process.
func (k *Kept) Proc() *Proc {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.proc
}

// Kill sends SIGKILL to the kept process that runs now, and waits until it has ended.
func (k *Kept) Kill() { k.Proc().Kill() }

// Stop asks the process to end, and waits until it has ended. It returns how often the process has ended with an error.
func (k *Kept) Stop() (deaths int) {
	k.mu.Lock()
	k.stopped = true
	p := k.proc
	k.mu.Unlock()
	p.Stop()
	<-k.over
	return k.deaths
}
