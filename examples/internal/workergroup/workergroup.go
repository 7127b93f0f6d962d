// Package workergroup starts and kills the processes of an example. It stands in for
// what looks after yours: systemd, a container engine, a master process.
//
// The program is run again for each process, with the name of its role in the
// environment. The two sides talk in lines: no side waits by sleeping. A process
// does not outlive its boss, because its standard input ends.
package workergroup

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	envRole = "SHMSYNC_EXAMPLE_ROLE"
	envName = "SHMSYNC_EXAMPLE_NAME"
)

var (
	seed  = flag.Uint64("seed", uint64(time.Now().UnixNano()), "decides who is killed, and when")
	kills = flag.Int("kills", 3, "how often somebody is killed")
)

// Main runs the boss. In a process that Start has made it runs the function of its role.
func Main(boss func(), roles map[string]func()) {
	log.SetFlags(0)
	role, ok := os.LookupEnv(envRole)
	if !ok {
		flag.Parse()
		log.SetPrefix(fmt.Sprintf("-seed %d: ", *seed))
		rng = rand.New(rand.NewPCG(*seed, 0))
		boss()
		return
	}
	log.SetPrefix(Name() + ": ")
	go listen()
	roles[role]()
}

var rng *rand.Rand

// Kills is how often the boss should kill a worker.
func Kills() int { return *kills }

// Random gives a number below n, for the boss.
func Random(n int) int { return rng.IntN(n) }

// Check ends the program if there is an error.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Proc is a process that Start made.
type Proc struct {
	Name string

	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{}
	err  error
}

// Event is something that a process said, or its end.
type Event struct {
	From  *Proc
	Line  string
	Ended bool
}

var events = make(chan Event, 1<<16)

// Next waits for what some process says next, or for one's end.
func Next() Event { return <-events }

// Await waits for a line of p's that begins with what, and gives the rest of it. It drops
// the lines before that. An end of p before that is fatal.
func Await(p *Proc, what string) string {
	for {
		e := Next()
		if e.From == p && e.Ended {
			log.Fatalf("%s ended, and did not say %q: %v", p.Name, what, p.err)
		}
		if rest, ok := strings.CutPrefix(e.Line, what); ok && e.From == p {
			return strings.TrimSpace(rest)
		}
	}
}

// Start starts a process. It gets files as its descriptors from 3 on.
func Start(name, role string, args []string, files ...*os.File) *Proc {
	self, err := os.Executable()
	Check(err)
	p := &Proc{Name: name, cmd: exec.Command(self, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), envRole+"="+role, envName+"="+name)
	p.cmd.Stderr, p.cmd.ExtraFiles = os.Stderr, files
	p.in, err = p.cmd.StdinPipe()
	Check(err)
	out, err := p.cmd.StdoutPipe()
	Check(err)
	Check(p.cmd.Start())
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			events <- Event{From: p, Line: s.Text()}
		}
		p.err = p.cmd.Wait()
		close(p.done)
		events <- Event{From: p, Ended: true}
	}()
	return p
}

// Pid is the process's id.
func (p *Proc) Pid() int { return p.cmd.Process.Pid }

// Tell sends a line, which Hear gives. A process that is gone does not hear it.
func (p *Proc) Tell(line string) { fmt.Fprintln(p.in, line) }

// Kill sends SIGKILL and waits until the process has ended.
func (p *Proc) Kill() { p.cmd.Process.Kill(); <-p.done }

// Wait waits until the process has ended, and says how unless that was by itself
// and well.
func (p *Proc) Wait() error { <-p.done; return p.err }

// Stop asks the process to end, and waits until it has.
func (p *Proc) Stop() { p.in.Close(); <-p.done }

var (
	lines       = make(chan string, 1024)
	ctx, cancel = context.WithCancel(context.Background())
	out         sync.Mutex
)

// listen passes on what the boss tells this process.
func listen() {
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		lines <- s.Text()
	}
	cancel()
	time.AfterFunc(5*time.Second, func() { os.Exit(1) }) // the boss may be dead
}

// Name is what the boss called this process.
func Name() string { return os.Getenv(envName) }

// Context ends when the boss wants this process to end, or is gone.
func Context() context.Context { return ctx }

// Say sends a line to the boss.
func Say(format string, args ...any) {
	out.Lock()
	defer out.Unlock()
	fmt.Printf(format+"\n", args...)
}

// Hear waits for a line of the boss's. It ends the process when there can be none.
func Hear() string {
	select {
	case line := <-lines:
		return line
	case <-ctx.Done():
	}
	select {
	case line := <-lines: // came before the end
		return line
	default:
		os.Exit(0)
		return ""
	}
}
