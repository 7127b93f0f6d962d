//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/cmdline"
	"github.com/shmsync/shmsync/internal/diagnose"
)

type program struct {
	JSON    bool        `name:"json" help:"Print a JSON document, as -o json; see the manual for its fields. Not for metrics, completion and man."`
	Version versionFlag `help:"Print the version, the commit and the memory layout, and exit."`

	Ls         lsCmd         `cmd:"" help:"List the arenas of this host: size, users, health."`
	Ps         psCmd         `cmd:"" help:"List the participants: label, pid, alive or dead, since when."`
	Objects    objectsCmd    `cmd:"" help:"List the objects of an arena."`
	Du         duCmd         `cmd:"" help:"Show the memory that the objects take, by type."`
	Show       showCmd       `cmd:"" help:"Show one object: its state, its holders, its waiters."`
	Value      valueCmd      `cmd:"" help:"Show the value of a Value or a Synchronized, by field."`
	Locks      locksCmd      `cmd:"" help:"List the holds, with their holders."`
	Waits      waitsCmd      `cmd:"" help:"List the waits, and say why they do not end."`
	Graph      graphCmd      `cmd:"" help:"Draw the wait-for graph."`
	Top        topCmd        `cmd:"" help:"Show the state on the terminal, until q."`
	Check      checkCmd      `cmd:"" help:"Search the whole arena for impossible values."`
	Metrics    metricsCmd    `cmd:"" help:"Print counters in the text format of Prometheus."`
	Dump       dumpCmd       `cmd:"" help:"Write an arena to a file for a bug report."`
	Diff       diffCmd       `cmd:"" help:"Compare two dumps, or a dump and an arena."`
	Load       loadCmd       `cmd:"" help:"Make a plain file of a dump, to inspect. Writes FILE."`
	Reap       reapCmd       `cmd:"" help:"Reap dead participants. Joins the arena."`
	Recover    recoverCmd    `cmd:"" help:"Make a lock usable after a death, or all locks. Joins the arena."`
	Set        setCmd        `cmd:"" help:"Set how long waiters of an object spin: spin=TIME. Joins the arena."`
	Create     createCmd     `cmd:"" help:"Create an arena."`
	Delete     deleteCmd     `cmd:"" help:"Delete an object that no process has open. Joins the arena."`
	Rm         rmCmd         `cmd:"" help:"Remove an arena that no process is in."`
	Completion completionCmd `cmd:"" help:"Print completions for a shell."`
	Man        manCmd        `cmd:"" help:"Print the manual page."`
	Complete   completeCmd   `cmd:"" hidden:"" help:"Print candidates for completions."`
}

const description = `Inspect arenas of shared memory from outside: the "ps for locks".

ARENA is the name of one under /dev/shm, the path of a file (with a slash in it, so /proc/PID/fd/N
works for a memfd), or a dump. Commands that only inspect open it for reading: they take no slot, write nothing
and wake nobody.`

// Exit statuses.
const (
	exitOK      = 0
	exitError   = 1 // a usage error, or the system refused
	exitMissing = 2 // there is no such arena or object, or it is of another kind
	exitTrouble = 3 // the arena is damaged, or a participant is stuck
	exitRefused = 4 // the arena is in use, or the command needs --force
)

const exitHelp = `Exit status: 0 ok; 1 usage, or the system refused; 2 no such arena or object, or it is none;
3 the arena is damaged, or processes are stuck: a deadlock, a dead or stopped holder, a lock that no process can take,
a wait that lasts long (ls, ps, objects, locks, waits and graph look for all of these, ls also for an arena that cannot
be read, show for those of its object, reap --dry-run for the dead, check for damage; waits --older and locks --older
also look for a wait or a hold of at least that age); 4 refused, as rm of an arena in use, recover of a lock that is
held, recover --all that could not recover every lock, or a change of a dump.`

// status is an exit status whose reason has been printed already.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// refused is the error of a command that does nothing because it would do harm.
type refused struct{ why string }

func (r refused) Error() string { return r.why }

// missing is an error about something that does not exist.
type missing struct{ what string }

func (m missing) Error() string { return m.what }

// session is the input and output of a run of shmctl, and the flags that all commands have. Each command gets it as an
// argument.
type session struct {
	ctx            context.Context
	json           bool
	format         string // text, wide, json or name; empty for a command that has no choice
	stdout, stderr io.Writer
	terminal       *os.File // stdout, if it is a terminal
	now            func() time.Time
	older          time.Duration // show only waits and locks that are at least that old
	model          *kong.Application
}

func main() { os.Exit(realMain(os.Args[1:], os.Stdout, os.Stderr)) }

// realMain does what the function main does, with its environment as arguments.
func realMain(args []string, stdout, stderr io.Writer) int {
	var p program
	ended := -1
	out := &output{to: stdout}
	parser, err := kong.New(&p, append(cmdline.Options(), kong.Name("shmctl"), kong.Description(description+"\n\n"+exitHelp),
		kong.Writers(out, stderr), kong.Exit(func(code int) { ended = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}))...)
	if err != nil {
		fmt.Fprintln(stderr, "shmctl:", err)
		return exitError
	}
	addExamples(parser.Model)
	k, err := parser.Parse(args)
	if ended >= 0 && out.err == nil {
		return ended // the user asked for help
	}
	if out.err != nil {
		err = out.err
	}
	if err != nil {
		fmt.Fprintf(stderr, "shmctl: %v (see %s --help)\n", err, calledIn(err))
		return exitError
	}
	if name := k.Selected().Name; p.JSON && withoutJSON[name] {
		fmt.Fprintf(stderr, "shmctl: %s has no JSON form\n", name)
		return exitError
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &session{ctx: ctx, json: p.JSON, stdout: out, stderr: stderr, now: time.Now, model: parser.Model}
	if file, ok := stdout.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		s.terminal = file
	}
	err = s.run(k)
	if out.err != nil {
		err = out.err // the command may have ignored this error
	}
	return exitOf(err, stderr)
}

// output writes to the standard output, and remembers the first error. So a command need not check each write.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.to.Write(b)
	o.err = err
	return n, err
}

// calledIn returns the command whose arguments are wrong, with the name of the program before it.
func calledIn(err error) string {
	var wrong *kong.ParseError
	if errors.As(err, &wrong) && wrong.Context != nil && wrong.Context.Selected() != nil {
		return "shmctl " + wrong.Context.Selected().Name
	}
	return "shmctl"
}

// exitOf explains an error and returns its exit status.
func exitOf(err error, stderr io.Writer) int {
	var (
		s status
		r refused
		m missing
	)
	if err == nil {
		return exitOK
	}
	if errors.As(err, &s) {
		return int(s)
	}
	for line := range strings.SplitSeq("shmctl: "+err.Error(), "\n") {
		fmt.Fprintln(stderr, diagnose.Clean(line)) // the line may contain the path of a file, which any user can choose
	}
	switch {
	case errors.As(err, &r):
		return exitRefused
	case errors.As(err, &m), errors.Is(err, fs.ErrNotExist), errors.Is(err, shmsync.ErrIncompatible):
		return exitMissing
	case errors.Is(err, shmsync.ErrCorrupt):
		return exitTrouble
	}
	return exitError
}
