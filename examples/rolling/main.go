//go:build linux

// Rolling upgrades a group of processes one after the other, while they work. The new version has a new type of job and
// new statistics, under new names in the arena. So processes of both versions can be in the arena at the same time.
// No job is lost, even if a process is killed, or if the old version replaces a process of the new version.
//
//	go run ./examples/rolling
//
// The two versions are two builds of this directory: v1.go, and v2.go with the build tag v2.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/shmsync/shmsync/arena"
)

const (
	members = 3
	jobs    = 40 // the number of jobs that each member puts into its queue at each step
)

func main() {
	run := func() error { return roll(os.Stdout) }
	if len(os.Args) == 2 {
		run = func() error { return serve(os.Args[1]) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// roll replaces the processes one by one. In your system a supervisor does that.
func roll(out io.Writer) error {
	dir, err := os.MkdirTemp("", "rolling")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	builds := map[int]string{1: filepath.Join(dir, "v1"), 2: filepath.Join(dir, "v2")}
	for version, program := range builds {
		cmd := exec.Command("go", "build", "-tags", fmt.Sprintf("v%d", version), "-o", program, "github.com/shmsync/shmsync/examples/rolling")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
	}
	name := fmt.Sprintf("example-rolling-%d", os.Getpid())
	defer arena.Remove(name)
	a, err := arena.Open(name, &arena.Options{Size: 4 << 20})
	if err != nil {
		return err
	}
	defer a.Close()
	l, err := openLedger(a)
	if err != nil {
		return err
	}
	var group [members]*member
	for i := range group {
		if group[i], err = start(builds[1], name); err != nil {
			return err
		}
		defer group[i].end() // does nothing if the member was replaced
	}
	next := 0 // the number of the next new job
	for _, step := range []struct {
		what    string
		member  int
		version int
		kill    bool
	}{
		{"all are of version 1", -1, 0, false},
		{"member 0 is of version 2", 0, 2, false},
		{"member 1 was killed, and is of version 2", 1, 2, true},
		{"member 0 is of version 1 again", 0, 1, false},
		{"member 0 is of version 2", 0, 2, false},
		{"member 2 is of version 2, as all are", 2, 2, false},
	} {
		if i := step.member; i >= 0 {
			if step.kill {
				group[i].kill()
			} else {
				group[i].end()
			}
			if group[i], err = start(builds[step.version], name); err != nil {
				return err
			}
			defer group[i].end()
		}
		for _, m := range group {
			if _, err := m.put(next, next+jobs); err != nil {
				return err
			}
			next += jobs
		}
		fmt.Fprintln(out, step.what) // jobs of this step may still be in the queues when the next step begins
	}
	if err := l.await(next); err != nil {
		return err
	}
	total, err := group[0].put(next, next)
	if err != nil {
		return err
	}
	if total < next {
		return fmt.Errorf("%d jobs are done, and the statistics have %d", next, total)
	}
	fmt.Fprintf(out, "%d jobs, none lost\n", next)
	return nil
}

// member is a process of the group.
type member struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(program, arena string) (*member, error) {
	m := &member{cmd: exec.Command(program, arena)}
	m.cmd.Stderr = os.Stderr
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.in, m.out = in, bufio.NewReader(out)
	return m, m.cmd.Start()
}

// put makes the member put jobs into its queue. The parameter from is the number of the first job, and to-1 is the
// number of the last job. The result is the number of finished jobs in the statistics of the member.
func (m *member) put(from, to int) (total int, err error) {
	fmt.Fprintln(m.in, from, to)
	_, err = fmt.Fscanln(m.out, &total)
	return total, err
}

// end closes the input of the member and waits until the member has ended. In your system, SIGTERM may do this.
func (m *member) end() {
	m.in.Close()
	m.cmd.Wait()
}

func (m *member) kill() {
	m.cmd.Process.Kill()
	m.cmd.Wait()
}
