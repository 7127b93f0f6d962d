package proctest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
)

// Exit statuses of a helper process.
const (
	exitFatal  = 1   // Child.Fatal, or the helper is not registered
	exitOrphan = 113 // the parent is gone
)

// Child is a helper process's own view of its connection with the parent, the test.
type Child struct {
	params string
	files  []*os.File
	lines  *queue[[]byte] // from the parent

	mu  sync.Mutex // held while a line is written to the parent
	out *os.File
}

// runHelper runs one helper and exits.
func runHelper(name string) {
	c := &Child{
		params: os.Getenv(envParams),
		lines:  newQueue[[]byte](),
		out:    os.Stdout,
	}
	// Stdout carries the lines that the helper sends to the parent, so everything that the helper prints goes to
	// stderr. The helper must not pass on the environment variables that make it a helper, because a program that it
	// executes would start as a helper as well.
	os.Stdout = os.Stderr
	n, _ := strconv.Atoi(os.Getenv(envFiles))
	for i := range n {
		c.files = append(c.files, os.NewFile(uintptr(3+i), fmt.Sprintf("proctest file %d", i)))
	}
	for _, key := range []string{envHelper, envParams, envFiles} {
		os.Unsetenv(key)
	}
	go c.readParent(stdin())

	f, err := lookup(name)
	if err != nil {
		c.Fatal(err)
	}
	f(c)
	end(0)
}

// readParent puts the parent's lines into a queue. It ends this process when the input ends, because then the
// parent is gone.
func (c *Child) readParent(in *os.File) {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			end(exitOrphan)
		}
		c.lines.put(line)
	}
}

// Params decodes the value that the parent gave to the option Params.
func (c *Child) Params(v any) {
	if err := json.Unmarshal([]byte(c.params), v); err != nil {
		c.Fatalf("proctest: params %q: %v", c.params, err)
	}
}

// File returns the i'th of the files that the parent gave to the option Files.
func (c *Child) File(i int) *os.File {
	if i < 0 || i >= len(c.files) {
		c.Fatalf("proctest: file %d of %d", i, len(c.files))
	}
	return c.files[i]
}

// Ready tells the parent that the setup is done; see [Proc.Await].
func (c *Child) Ready() { c.send(message{Ready: true}) }

// Say sends v to the parent; see [Proc.Recv]. It may be called by any goroutine.
func (c *Child) Say(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		c.Fatalf("proctest: Say(%T): %v", v, err)
	}
	c.send(message{Say: b})
}

// Await waits for a line from the parent, whatever the line contains.
func (c *Child) Await() { c.lines.get(nil) }

// Recv waits for a line from the parent and decodes it.
func (c *Child) Recv(v any) {
	line, _ := c.lines.get(nil)
	if err := json.Unmarshal(line, v); err != nil {
		c.Fatalf("proctest: %q from the parent: %v", line, err)
	}
}

// Fatal reports an error to the parent and exits. It may be called by any goroutine.
func (c *Child) Fatal(args ...any) {
	c.send(message{Fatal: fmt.Sprint(args...)})
	end(exitFatal)
}

// Fatalf does what Fatal does, with a format as in fmt.Printf.
func (c *Child) Fatalf(format string, args ...any) {
	c.Fatal(fmt.Sprintf(format, args...))
}

func (c *Child) send(m message) {
	line, err := json.Marshal(m)
	if err != nil {
		panic(err) // a message always marshals
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.out.Write(append(line, '\n')); err != nil {
		end(exitOrphan)
	}
}
