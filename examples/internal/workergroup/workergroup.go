// Package workergroup starts and kills the processes of an example. In your system, systemd, a container engine or a
// master process starts the processes.
//
// The first process is the boss. For each further process, the package executes the program again, with the name of a
// role in the environment. The boss and the other processes send each other lines of text. A process ends when its
// standard input ends, so it does not outlive the boss.
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

// Main calls boss. In a process that Start has started, Main instead calls the function for the role of that process.
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

// Kills returns how often the boss should kill a worker.
func Kills() int { return *kills }

// Random returns a random number below n. Only the boss may call it.
func Random(n int) int { return rng.IntN(n) }

// Check prints err and ends the program if err is not nil.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Proc is a process that Start has started.
type Proc struct {
	Name string

	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{}
	err  error
}

// Event is a line from a process, or the end of the process.
type Event struct {
	From  *Proc
	Line  string
	Ended bool
}

var events = make(chan Event, 1<<16)

// Next waits for the next line from any process, or for the end of a process.
func Next() Event { return <-events }

// Await waits for a line from p that begins with the text what. It returns the rest of that line, and discards all
// earlier lines. If p ends first, Await ends the program.
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

// Start starts a process. The process gets the open files as its descriptors 3, 4 and so on.
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

// Pid returns the process ID.
func (p *Proc) Pid() int { return p.cmd.Process.Pid }

// Tell sends a line to the process, where Hear returns it. If the process has ended, the line is lost.
func (p *Proc) Tell(line string) { fmt.Fprintln(p.in, line) }

// Kill sends SIGKILL and waits until the process has ended.
func (p *Proc) Kill() { p.cmd.Process.Kill(); <-p.done }

// Wait waits until the process has ended. It returns an error unless the process ended by itself with status 0.
func (p *Proc) Wait() error { <-p.done; return p.err }

// Stop asks the process to end, and waits until it has ended.
func (p *Proc) Stop() { p.in.Close(); <-p.done }

var (
	lines       = make(chan string, 1024)
	ctx, cancel = context.WithCancel(context.Background())
	out         sync.Mutex
)

// listen receives the lines from the boss, and keeps them for Hear.
func listen() {
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		lines <- s.Text()
	}
	cancel()
	time.AfterFunc(5*time.Second, func() { os.Exit(1) }) // the boss may be dead, so do not wait for ever
}

// Name returns the name that the boss has given to this process.
func Name() string { return os.Getenv(envName) }

// Context returns a context that ends when the boss asks this process to end, or when the boss has ended.
func Context() context.Context { return ctx }

// Say sends a line to the boss.
func Say(format string, args ...any) {
	out.Lock()
	defer out.Unlock()
	fmt.Printf(format+"\n", args...)
}

// Hear waits for a line from the boss and returns it. If no more lines can come, it ends the process.
func Hear() string {
	select {
	case line := <-lines:
		return line
	case <-ctx.Done():
	}
	select {
	case line := <-lines: // the line arrived before the end of the input
		return line
	default:
		os.Exit(0)
		return ""
	}
}
