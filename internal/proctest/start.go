package proctest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Option is an option of Start.
type Option func(*config)

type config struct {
	params any
	files  []*os.File
	env    []string
	attr   *syscall.SysProcAttr
	dump   func() string
	limit  time.Duration
}

// Params passes v to the helper as JSON; see [Child.Params].
func Params(v any) Option { return func(c *config) { c.params = v } }

// Files passes open files to the helper; see [Child.File].
func Files(files ...*os.File) Option {
	return func(c *config) { c.files = append(c.files, files...) }
}

// Env adds variables, as "key=value", to the helper's environment.
func Env(env ...string) Option {
	return func(c *config) { c.env = append(c.env, env...) }
}

// Attr sets the attributes with which the operating system starts the helper, for instance a namespace of its own.
func Attr(attr *syscall.SysProcAttr) Option { return func(c *config) { c.attr = attr } }

// Dump sets a function that is called when a wait for the helper times out. It returns the state of
// the words that the helper waits for, and must not block.
func Dump(f func() string) Option { return func(c *config) { c.dump = f } }

// Limit sets how long each wait for this helper may take, instead of DefaultTimeout. Scale applies to the limit.
func Limit(d time.Duration) Option { return func(c *config) { c.limit = d } }

// Start runs the helper that is registered under the given name, in a process of its own. If the process has not
// ended when the test ends, it is killed.
func Start(t testing.TB, name string, opts ...Option) *Proc {
	t.Helper()
	cfg := config{limit: DefaultTimeout}
	for _, opt := range opts {
		opt(&cfg)
	}
	if !mainCalled() {
		t.Fatal("proctest: TestMain does not call proctest.Main")
	}
	if _, err := lookup(name); err != nil {
		t.Fatal(err)
	}
	p, err := start(t, name, &cfg)
	if err != nil {
		t.Fatalf("proctest: start %s: %v", name, err)
	}
	t.Cleanup(func() { p.cleanup(t) })
	return p
}

func start(t testing.TB, name string, cfg *config) (*Proc, error) {
	params, err := json.Marshal(cfg.params)
	if err != nil {
		return nil, err
	}
	cmd, err := selfCommand()
	if err != nil {
		return nil, err
	}
	p := &Proc{
		name:     name,
		tb:       t,
		cmd:      cmd,
		dump:     cfg.dump,
		limit:    Scale(cfg.limit),
		grace:    Scale(quitGrace),
		messages: newQueue[message](),
		readDone: make(chan struct{}),
		done:     make(chan struct{}),
	}
	cmd.Env = append(os.Environ(), "GOTRACEBACK=all",
		// Without this setting, each exit of a child takes a second with the race detector.
		"GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"),
		envHelper+"="+name,
		envParams+"="+string(params),
		envFiles+"="+strconv.Itoa(len(cfg.files)))
	cmd.Env = append(cmd.Env, cfg.env...)
	cmd.ExtraFiles = cfg.files
	cmd.SysProcAttr = cfg.attr
	cmd.Stderr = &p.stderr
	// Limit how long Wait waits for the end of the pipes, because a process that the child has started may keep
	// them open. The limit is long, because on a busy machine the test may read the child's output long after the
	// child has ended.
	cmd.WaitDelay = Scale(DefaultTimeout)

	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer childIn.Close()
	out, childOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer childOut.Close()
	cmd.Stdin, cmd.Stdout, p.in = childIn, childOut, in
	if err := cmd.Start(); err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	go func() {
		defer close(p.readDone)
		p.readMessages(out)
	}()
	go p.reap(out)
	return p, nil
}

// selfCommand returns the command that runs this test binary again.
func selfCommand() (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	argv := append(strings.Fields(os.Getenv("SHMSYNC_EXEC_WRAP")), self)
	if testing.Short() {
		argv = append(argv, "-test.short")
	}
	return exec.Command(argv[0], argv[1:]...), nil
}

// readMessages puts the messages of the child into a queue until the pipe ends.
func (p *Proc) readMessages(out *os.File) {
	defer p.messages.close()
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return // a line that is incomplete because the child died is ignored
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			m = message{Fatal: fmt.Sprintf("wrote %q to the pipe of the protocol: %v", line, err)}
		}
		if m.Fatal != "" {
			p.mu.Lock()
			p.fatal = cmp.Or(p.fatal, m.Fatal)
			p.mu.Unlock()
		}
		p.messages.put(m)
	}
}

// reap waits for the end of the child, and collects its exit status and what is left in its pipes.
func (p *Proc) reap(out *os.File) {
	err := p.cmd.Wait()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) && !errors.Is(err, exec.ErrWaitDelay) {
		fmt.Fprintf(&p.stderr, "proctest: wait: %v\n", err)
	}
	out.SetReadDeadline(time.Now().Add(p.cmd.WaitDelay))
	<-p.readDone
	out.Close()
	p.in.Close()
	p.exit = exitOf(p.cmd.ProcessState)
	close(p.done)
}
