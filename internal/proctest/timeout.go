package proctest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// DefaultTimeout is how long the parent waits for anything from a child, before Scale is applied. It is long
// because a process on a busy machine has once waited for 20 s, and only a hang should take longer than the limit.
const DefaultTimeout = time.Minute

// quitGrace is how long a child may take to print its stacks, before Scale is applied.
const quitGrace = time.Minute

// timeoutScale is the factor in SHMSYNC_TEST_TIMEOUT_SCALE, for machines that
// are slow or emulated.
var timeoutScale = sync.OnceValue(func() float64 {
	return parseScale(os.Getenv("SHMSYNC_TEST_TIMEOUT_SCALE"))
})

func parseScale(s string) float64 {
	if s == "" {
		return 1
	}
	scale, err := strconv.ParseFloat(s, 64)
	if err != nil || !(scale > 0 && scale <= 1000) {
		panic(fmt.Sprintf("proctest: SHMSYNC_TEST_TIMEOUT_SCALE=%q: want a factor up to 1000", s))
	}
	return scale
}

// Scale returns d times the factor in SHMSYNC_TEST_TIMEOUT_SCALE.
func Scale(d time.Duration) time.Duration {
	return time.Duration(float64(d) * timeoutScale())
}

// hang fails the test because the child did not do what it should, and logs everything that is
// known about the reason. It also ends the child.
func (p *Proc) hang(t testing.TB, what string) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "proctest: %s did not %s within %v\nstate: %s\n", p, what, p.limit, p.processState())
	if p.dump != nil {
		fmt.Fprintf(&b, "words:\n%s\n", indent(p.dump()))
	}
	// After SIGQUIT, the standard error that is printed below ends with the stacks. A stopped process handles the
	// signal only when it is continued.
	p.cmd.Process.Signal(syscall.SIGQUIT)
	p.resume()
	if !p.endsWithin(p.grace) {
		fmt.Fprintf(&b, "SIGQUIT did not end it within %v\n", p.grace)
		p.cmd.Process.Kill()
		if !p.endsWithin(Scale(DefaultTimeout)) {
			t.Fatalf("%sand neither did SIGKILL\nstderr:\n%s", b.String(), indent(p.Stderr()))
		}
	}
	e := p.result()
	p.mu.Lock()
	p.shown = true
	p.mu.Unlock()
	t.Fatalf("%s%v", b.String(), e)
}

// endsWithin waits for at most d, and reports whether the child has ended by then.
func (p *Proc) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// cleanup runs when the child's test ends. It ends the child.
func (p *Proc) cleanup(t testing.TB) {
	t.Helper()
	p.cmd.Process.Kill()
	if limit := max(p.limit, Scale(DefaultTimeout)); !p.endsWithin(limit) {
		t.Errorf("proctest: %s survives SIGKILL for %v\nstate: %s", p, limit, p.processState())
		return
	}
	p.mu.Lock()
	unexpected := !p.observed && (p.exit.Code > 0 || p.fatal != "")
	shown := p.shown
	p.mu.Unlock()
	if e := p.result(); unexpected {
		t.Errorf("proctest: %s ended by itself: %v", p, e)
	} else if t.Failed() && !shown && e.Stderr != "" {
		t.Logf("proctest: stderr of %s:\n%s", p, indent(e.Stderr))
	}
}
