// Command cache shares a cache between processes: a hash map whose table, entries and values are blocks of an
// arena. Writers are killed in the middle of a put, while the table grows, while an entry is evicted, and at any
// other moment. The other processes go on, no value is torn, and no block is lost.
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/workergroup"
)

const (
	pages = 200
	most  = 16 << 10 // bytes: room for about 50 of the pages
)

func join(name string) (*arena.Arena, *cache) {
	a, err := arena.Open(name, &arena.Options{Size: 4 << 20, Label: workergroup.Name()})
	workergroup.Check(err)
	c, err := openCache(a)
	workergroup.Check(err)
	return a, c
}

// page returns a version of a page. All parts of the page are equal.
func page(key string, version int) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("%s in version %d;", key, version), 1+version%32))
}

func whole(key string, v []byte) bool {
	parts := strings.SplitAfter(string(v), ";")
	version, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(parts[0], key+" in version "), ";"))
	return err == nil && string(page(key, version)) == string(v)
}

// use puts and gets pages until the boss ends the process. The order of the pages depends on the process ID.
func use(c *cache) {
	for i := os.Getpid(); workergroup.Context().Err() == nil; i++ {
		key := fmt.Sprintf("page %d", i*i%pages)
		if v := c.get(key); v != nil && !whole(key, v) {
			log.Fatalf("%s is torn: %q", key, v)
		}
		workergroup.Check(c.put(key, page(key, i), most))
		c.half("any")
	}
}

// writer uses the cache. The second argument names a step. When the writer is in the middle of this step, it tells the
// boss, and the boss kills the writer.
func writer() {
	_, c := join(os.Args[1])
	c.half = func(step string) {
		if step == os.Args[2] {
			workergroup.Say("in it")
			if step != "any" {
				workergroup.Hear() // the process is killed here
			}
		}
	}
	use(c)
}

func worker() {
	_, c := join(os.Args[1])
	use(c)
}

// check ends the program if an entry or the head of the cache is inconsistent. It returns the number of blocks that the
// cache uses.
func check(c *cache) (blocks uint64) {
	c.m.Lock()
	defer c.m.Unlock()
	var count, taken, bytes uint64
	for i := range c.head.Slots {
		off := *c.slot(i)
		if off != unused {
			taken++
		}
		if off > dropped {
			e := arena.At[entry](c.a, off)
			count, bytes = count+1, bytes+uint64(e.Key+e.Value)
			if key := string(c.key(off, e)); hash(key) != e.Hash || !whole(key, c.value(off, e)) {
				log.Fatalf("the entry of %q is torn: %v", key, *e)
			}
		}
	}
	if h := c.head; count != h.Count || taken != h.Taken || bytes != h.Bytes || bytes > most {
		log.Fatalf("%d entries in %d slots of %d bytes, but the head says %+v", count, taken, bytes, *h)
	}
	return count + 1 // the entries, and the table
}

func boss() {
	name := fmt.Sprintf("example-cache-%d", os.Getpid())
	defer arena.Remove(name)
	a, c := join(name)
	beside := workergroup.Start("worker", "worker", []string{name})
	steps := []string{"put", "grow", "evict", "any"}
	first := workergroup.Random(len(steps))
	for i := range workergroup.Kills() {
		step := steps[(first+i)%len(steps)]
		w := workergroup.Start("writer", "writer", []string{name, step})
		for range 1 + workergroup.Random(50) {
			workergroup.Await(w, "in it")
			if step != "any" {
				break
			}
		}
		w.Kill()
		check(c)
		fmt.Printf("a writer was killed, step %s: the cache is whole\n", step)
	}
	beside.Stop()
	a.Close()

	// OnFirst checks the cache. It runs when the first process of an epoch joins: no other process is in the arena, and
	// all dead processes have been reaped.
	a, err := arena.Open(name, &arena.Options{OnFirst: func(a *arena.Arena, _ arena.Epoch) error {
		c, err := openCache(a)
		if err != nil {
			return err
		}
		if want, got := check(c), a.Stats().Raw; got != want {
			return fmt.Errorf("%d blocks in use, want %d", got, want)
		}
		fmt.Println("each block of the arena is in the cache")
		return a.Check()
	}})
	workergroup.Check(err)
	a.Close()
}

func main() {
	workergroup.Main(boss, map[string]func(){"writer": writer, "worker": worker})
}
