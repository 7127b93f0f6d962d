package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long a program may take to print its stacks after the signal that asks for them.
var grace = 20 * time.Second

// run executes the program, copies the important lines of its output, and prints a line RESULT at the end. It
// reports whether the program ended well and, if it is a test, has passed at least one test.
func (p *program) run(out io.Writer) bool {
	fmt.Fprintln(out, "RUN", p.name)
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), p.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), p.env...)
	// The program gets a process group of its own, so that all its processes can be killed before the next program
	// runs.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGQUIT) }
	cmd.WaitDelay = grace
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w

	var t counter
	read := make(chan struct{})
	go func() {
		defer close(read)
		t.read(out, r)
	}()
	err := cmd.Start()
	if err == nil {
		err = cmd.Wait()
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	w.Close()
	<-read

	var why string
	switch {
	case ctx.Err() != nil:
		why = fmt.Sprintf(" (not within %v)", p.limit)
	case errors.Is(err, exec.ErrWaitDelay):
		why = " (it has left processes behind)"
	case err != nil:
		why = fmt.Sprintf(" (%v)", err)
	case t.failed > 0:
		why = " (status 0 all the same)"
	case t.verbose && t.passed == 0:
		why = " (no test passed)"
	}
	fmt.Fprintf(out, "RESULT %s %s: %v, %.1f s%s\n", p.name, verdict(why == ""), t, time.Since(start).Seconds(), why)
	return why == ""
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAIL"
}

// read copies lines, and counts those that report the end of a test. It stops copying when it has copied a fixed number
// of lines, because the serial line is slow and the host keeps all lines.
func (t *counter) read(out io.Writer, r io.Reader) {
	const most = 5000
	lines := bufio.NewReaderSize(r, 1<<16)
	shown := 0
	for {
		line, err := lines.ReadString('\n')
		if t.line(line) {
			if shown++; shown <= most {
				fmt.Fprint(out, line)
			} else if shown == most+1 {
				fmt.Fprintf(out, "more than %d lines: the others are left out\n", most)
			}
		}
		if err != nil {
			return
		}
	}
}
