package proctest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Proc is a helper process as its parent sees it.
type Proc struct {
	name  string
	tb    testing.TB // the test that started it
	cmd   *exec.Cmd
	in    *os.File
	dump  func() string
	limit time.Duration // how long each wait for the child may take
	grace time.Duration // after limit: how long the child may take to print its stacks

	stderr   output
	messages *queue[message]

	readDone chan struct{} // closed when all messages of the child are queued
	done     chan struct{} // closed when the field exit is set
	exit     Exit

	mu       sync.Mutex
	fatal    string // the text of the child's first Fatal
	observed bool   // the test has learned how the child ended
	shown    bool   // the log of the test contains the standard error
}

// String names the process for messages.
func (p *Proc) String() string { return fmt.Sprintf("%s (pid %d)", p.name, p.Pid()) }

// Pid returns the process id.
func (p *Proc) Pid() int { return p.cmd.Process.Pid }

// Stderr returns what the process has written to its standard error so far.
func (p *Proc) Stderr() string { return p.stderr.String() }

// Await waits until the child says Ready.
func (p *Proc) Await(t testing.TB) {
	t.Helper()
	if m := p.next(t, "ready"); !m.Ready {
		t.Fatalf("proctest: %s: %v, want ready", p, m)
	}
}

// Recv waits for the child's next Say and decodes it into v.
func (p *Proc) Recv(t testing.TB, v any) {
	t.Helper()
	m := p.next(t, "say something")
	if m.Say == nil {
		t.Fatalf("proctest: %s: %v, want a value", p, m)
	}
	if err := json.Unmarshal(m.Say, v); err != nil {
		t.Fatalf("proctest: %s: %v: %v", p, m, err)
	}
}

// Poll decodes the child's next Say into v, and returns true. It does not wait: it returns false if the child has
// sent no further Say yet, or will never send another.
func (p *Proc) Poll(t testing.TB, v any) bool {
	t.Helper()
	m, o, ok := p.messages.poll()
	if !ok || o == ended {
		return false
	}
	if m.Say == nil {
		t.Fatalf("proctest: %s: %v, want a value", p, m)
	}
	if err := json.Unmarshal(m.Say, v); err != nil {
		t.Fatalf("proctest: %s: %v: %v", p, m, err)
	}
	return true
}

// next returns the next message of the child. It fails the test if the message is a Fatal, or if the child ends or
// is too slow.
func (p *Proc) next(t testing.TB, what string) message {
	t.Helper()
	timer := time.NewTimer(p.limit)
	defer timer.Stop()
	m, o := p.messages.get(timer.C)
	switch {
	case o == expired:
		p.hang(t, what)
	case o == ended:
		e := p.Wait(t)
		t.Fatalf("proctest: %s ended when it should %s: %v", p, what, e)
	case m.Fatal != "":
		e := p.Wait(t)
		t.Fatalf("proctest: %s failed when it should %s: %v", p, what, e)
	}
	return m
}

// Send sends v to the child; see [Child.Recv] and [Child.Await]. If the child has ended, the test
// that started it fails.
func (p *Proc) Send(v any) {
	p.tb.Helper()
	line, err := json.Marshal(v)
	if err == nil {
		p.in.SetWriteDeadline(time.Now().Add(p.limit)) // a stopped child reads nothing
		_, err = p.in.Write(append(line, '\n'))
	}
	if err != nil {
		p.tb.Fatalf("proctest: send to %s: %v", p, err)
	}
}

// Signal sends sig to the child.
func (p *Proc) Signal(t testing.TB, sig os.Signal) {
	t.Helper()
	if sig == os.Kill {
		p.keepLocks(t)
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("proctest: signal %v to %s: %v", sig, p, err)
	}
}

// Kill sends SIGKILL and waits until the child has ended and been reaped. If the child had already ended in another
// way, the returned Exit shows that.
func (p *Proc) Kill(t testing.TB) Exit {
	t.Helper()
	p.keepLocks(t)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("proctest: kill %s: %v", p, err)
	}
	return p.Wait(t)
}

// Stop sends SIGSTOP and waits until every thread of the child has stopped.
func (p *Proc) Stop(t testing.TB) {
	t.Helper()
	p.stop(t)
}

// Cont sends SIGCONT.
func (p *Proc) Cont(t testing.TB) {
	t.Helper()
	p.cont(t)
}

// AwaitStop waits until every thread of the child has stopped. It is for a child that stops itself.
func (p *Proc) AwaitStop(t testing.TB) {
	t.Helper()
	p.awaitStop(t)
}

// AwaitPoint waits until the child has reached the crash point that it was started with. The parameter variable is
// the environment variable that names the point. If variable is SHMSYNC_CRASHPOINT, the child has died there; if it
// is SHMSYNC_CRASHPOINT_STOP, the child has stopped there.
func (p *Proc) AwaitPoint(t testing.TB, variable string) {
	t.Helper()
	if variable == "SHMSYNC_CRASHPOINT" {
		p.WaitSignal(t, syscall.SIGKILL)
		return
	}
	p.awaitStop(t)
}

// Wait waits until the child has ended, and returns how it ended.
func (p *Proc) Wait(t testing.TB) Exit {
	t.Helper()
	timer := time.NewTimer(p.limit)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.hang(t, "exit")
	}
	return p.result()
}

// WaitExit waits until the child has ended. It fails the test unless the child ended by itself,
// with status 0.
func (p *Proc) WaitExit(t testing.TB) {
	t.Helper()
	if e := p.Wait(t); !e.OK() {
		t.Fatalf("proctest: %s: %v, want exit status 0", p, e)
	}
}

// WaitSignal waits until the child has ended. It fails the test unless sig killed the child, as
// SIGKILL does at a crash point.
func (p *Proc) WaitSignal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if e := p.Wait(t); e.Signal != sig {
		t.Fatalf("proctest: %s: %v, want signal %d (%v)", p, e, int(sig), sig)
	}
}

// Done returns a channel that is closed once the child has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// result returns the Exit of a child that has ended, and records that the test knows it.
func (p *Proc) result() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observed = true
	e := p.exit
	e.Stderr, e.Fatal = p.stderr.String(), p.fatal
	return e
}
