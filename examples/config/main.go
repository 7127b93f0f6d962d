// Command config publishes a configuration to processes whenever it changes.
//
// A Sequencer counts the versions. A process that wants a newer version waits until the Sequencer reaches its
// number. There are two copies of the configuration. The publisher writes the copy that is not in use, and then
// advances the Sequencer. If a publisher is killed before this advance, the old version stays in use, and the
// next publisher writes the new version again. An Event tells all processes to end.
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/workergroup"
	"github.com/shmsync/shmsync/prims"
)

const subscribers = 4

type config struct {
	Version uint64
	Routes  [500]uint64
}

type board struct {
	arena   *arena.Arena
	copies  *[2]config
	mu      *prims.RWMutex // the publisher must not overwrite a copy while a subscriber reads it
	version *prims.Sequencer
	quit    *prims.Event
}

func join(name string) *board {
	a, err := arena.Open(name, nil)
	workergroup.Check(err)
	b := &board{arena: a}
	b.copies, err = arena.Value[[2]config](a, "configuration")
	workergroup.Check(err)
	// A reader or a publisher that dies leaves nothing that needs a repair.
	b.mu, err = prims.OpenRWMutex(a, "lock", &prims.RWMutexOptions{Policy: prims.PolicyRelease})
	workergroup.Check(err)
	b.version, err = prims.OpenSequencer(a, "version", nil)
	workergroup.Check(err)
	b.quit, err = prims.OpenEvent(a, "quit", nil)
	workergroup.Check(err)
	return b
}

// publish is the main function of a publisher. It writes the next version of the configuration when the boss tells it
// to.
func publish() {
	b := join(os.Args[1])
	for {
		line := workergroup.Hear()
		b.mu.Lock()
		v := b.version.Value() + 1
		c := &b.copies[v%2]
		c.Version = v
		for i := range c.Routes {
			c.Routes[i] = v * uint64(i)
			if line == "half" && i == len(c.Routes)/2 {
				workergroup.Say("half")
				workergroup.Hear()
			}
		}
		b.version.Advance(v)
		b.mu.Unlock()
		workergroup.Say("published %d", v)
	}
}

// read returns the configuration in use.
func (b *board) read() config {
	b.mu.RLock()
	v := b.version.Value()
	c := b.copies[v%2]
	b.mu.RUnlock()
	for i, route := range c.Routes {
		if c.Version != v || route != v*uint64(i) {
			log.Fatalf("version %d is torn", v)
		}
	}
	return c
}

// subscribe is the main function of a subscriber, which waits for new versions and reads them.
func subscribe() {
	b := join(os.Args[1])
	for seen := uint64(0); ; {
		which, err := prims.WaitAnyContext(workergroup.Context(), b.version.At(seen+1), b.quit)
		if err != nil || which == 1 {
			return
		}
		seen = b.read().Version
		workergroup.Say("uses %d", seen)
	}
}

func boss() {
	name := fmt.Sprintf("example-config-%d", os.Getpid())
	defer arena.Remove(name)
	b := join(name)
	defer b.arena.Close()
	start := func(i int) *workergroup.Proc {
		if i == 0 {
			return workergroup.Start("publisher", "publish", []string{name})
		}
		return workergroup.Start(fmt.Sprintf("subscriber %d", i), "subscribe", []string{name})
	}
	var procs [1 + subscribers]*workergroup.Proc
	for i := range procs {
		procs[i] = start(i)
	}
	for v := 1; v <= workergroup.Kills()+1; v++ {
		procs[0].Tell("publish")
		using := 0
		for said := map[string]bool{}; using < subscribers; {
			e := workergroup.Next()
			if e.Line == "uses "+strconv.Itoa(v) && !said[e.From.Name] {
				said[e.From.Name] = true
				using++
			} else if e.Ended && e.From == procs[0] {
				log.Fatal("the publisher ended")
			}
		}
		fmt.Printf("version %d: used by %d subscribers\n", v, using)
		if v > workergroup.Kills() {
			break
		}
		i := workergroup.Random(len(procs))
		if i == 0 {
			procs[0].Tell("half")
			workergroup.Await(procs[0], "half")
		}
		procs[i].Kill()
		fmt.Printf("%s killed, version %d stays\n", procs[i].Name, b.read().Version)
		procs[i] = start(i)
	}
	b.quit.Set()
	for _, p := range procs[1:] {
		workergroup.Check(p.Wait())
	}
	procs[0].Stop()
	fmt.Printf("%d versions, none torn\n", b.version.Value())
}

func main() { workergroup.Main(boss, map[string]func(){"publish": publish, "subscribe": subscribe}) }
