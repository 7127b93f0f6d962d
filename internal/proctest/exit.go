package proctest

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
)

// Exit says how a process ended.
type Exit struct {
	Code       int            // the exit status; -1 if a signal ended the process
	Signal     syscall.Signal // the signal, or 0
	CoreDumped bool
	Stderr     string // its standard error
	Fatal      string // the message of Child.Fatal
}

// OK reports whether the process ended by itself, with status 0.
func (e Exit) OK() bool { return e.Code == 0 }

// String describes the exit for a failure message.
func (e Exit) String() string {
	var b strings.Builder
	if e.Signal != 0 {
		fmt.Fprintf(&b, "killed by signal %d (%v)", int(e.Signal), e.Signal)
	} else {
		fmt.Fprintf(&b, "exit status %d", e.Code)
	}
	if e.CoreDumped {
		b.WriteString(", core dumped")
	}
	if e.Code == exitOrphan {
		b.WriteString(" (its input ended)")
	}
	if e.Fatal != "" {
		b.WriteString("\nfatal: " + e.Fatal)
	}
	if e.Stderr != "" {
		b.WriteString("\nstderr:\n" + indent(e.Stderr))
	}
	return b.String()
}

func exitOf(state *os.ProcessState) Exit {
	if state == nil {
		return Exit{Code: -1}
	}
	e := Exit{Code: state.ExitCode()}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal, e.CoreDumped = ws.Signal(), ws.CoreDump()
	}
	return e
}

// indent indents text, so that it stands out from the failure message that contains it.
func indent(text string) string {
	return "\t" + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n\t")
}

// output collects the standard error of a process while other goroutines read it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
