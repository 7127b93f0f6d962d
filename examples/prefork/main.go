// Command prefork is an HTTP server of several processes that accept connections from one socket. The processes
// share a cache of pages, and a limit for the load on the origin.
//
// The servers fetch a page from the origin only once, however many clients ask for it. A MultiLock has a lock for
// each page. A process that has waited for the lock of a page finds the page in the cache. A Semaphore limits the
// number of concurrent fetches of all processes together. If a server is killed while it fetches, the lock passes
// to the next waiter, and the Semaphore gets the permit back.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/workergroup"
	"github.com/shmsync/shmsync/prims"
)

const (
	servers = 3
	pages   = 8
	atOnce  = 2 // concurrent fetches from the origin

	requests = 25 // for each page
)

// page is a page of the cache. A process that reads a Length other than 0 also sees the first Length bytes.
type page struct {
	Length atomic.Int64
	Bytes  [4096]byte
}

type cache struct {
	pages  *[pages]page
	filler *prims.MultiLock
	limit  *prims.Semaphore
	origin string
}

// get returns the page with the number key. It fetches the page from the origin if the cache does not have it.
func (c *cache) get(r *http.Request, key uint64) ([]byte, error) {
	p := &c.pages[key]
	if n := p.Length.Load(); n > 0 {
		return p.Bytes[:n], nil
	}
	hold, err := c.filler.LockContext(r.Context(), key)
	if err != nil {
		return nil, err
	}
	defer hold.Unlock()
	if n := p.Length.Load(); n > 0 { // another process has fetched it meanwhile
		return p.Bytes[:n], nil
	}
	if err := c.limit.AcquireContext(r.Context(), 1); err != nil {
		return nil, err
	}
	defer c.limit.Release(1)
	body, err := fetch(fmt.Sprintf("%s/%s/%d", c.origin, os.Args[3], key))
	if err == nil {
		p.Length.Store(int64(copy(p.Bytes[:], body)))
	}
	return body, err
}

func serve() {
	a, err := arena.Open(os.Args[1], nil)
	workergroup.Check(err)
	c := &cache{origin: os.Args[2]}
	c.pages, err = arena.Value[[pages]page](a, "pages")
	workergroup.Check(err)
	c.filler, err = prims.OpenMultiLock(a, "filler", &prims.MultiLockOptions{Policy: prims.PolicyRelease})
	workergroup.Check(err)
	c.limit, err = prims.OpenSemaphore(a, "limit", atOnce, nil)
	workergroup.Check(err)
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	workergroup.Check(err)
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := strconv.ParseUint(r.URL.Path[1:], 10, 64)
		workergroup.Check(err)
		if body, err := c.get(r, key); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		} else {
			w.Write(body)
		}
	}))
	<-workergroup.Context().Done()
}

func boss() {
	name := fmt.Sprintf("example-prefork-%d", os.Getpid())
	defer arena.Remove(name)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	workergroup.Check(err)
	file, err := front.(*net.TCPListener).File()
	workergroup.Check(err)
	front.Close() // the servers accept connections from the file, which they inherit

	// For each doomed page, the origin kills the first server that asks for the page. A kill may hit a server that
	// has asked for two doomed pages, so fewer servers may die than there are doomed pages.
	var doomed [pages]atomic.Bool
	for range min(workergroup.Kills(), pages) {
		for !doomed[workergroup.Random(pages)].CompareAndSwap(false, true) {
		}
	}
	var group []*workergroup.Kept
	var asked atomic.Int32
	started := make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-started
		var server, key int
		fmt.Sscanf(r.URL.Path, "/%d/%d", &server, &key)
		asked.Add(1)
		if doomed[key].CompareAndSwap(true, false) {
			group[server].Kill()
		}
		fmt.Fprintf(w, "this is page %d", key)
	}))
	for i := range servers {
		args := []string{name, origin.URL, strconv.Itoa(i)}
		group = append(group, workergroup.Keep(fmt.Sprintf("server %d", i), "server", args, file))
	}
	close(started)

	var clients sync.WaitGroup
	for i := range pages * requests {
		clients.Go(func() {
			url, want := fmt.Sprintf("http://%s/%d", front.Addr(), i%pages), fmt.Sprintf("this is page %d", i%pages)
			body, err := fetch(url)
			for err != nil { // the server was killed: ask another one, as a load balancer would
				body, err = fetch(url)
			}
			if string(body) != want {
				log.Fatalf("%s is %q", url, body)
			}
		})
	}
	clients.Wait()
	deaths := 0
	for _, s := range group {
		deaths += s.Stop()
	}
	// At most atOnce fetches are in progress when a server dies, and only these fetches are repeated.
	if n := int(asked.Load()); n > pages+atOnce*deaths {
		log.Fatalf("the origin was asked %d times", n)
	}
	fmt.Printf("%d requests for %d pages answered by %d processes\n", pages*requests, pages, servers)
	fmt.Printf("%d processes killed while they fetched, %d fetches\n", deaths, asked.Load())
}

func fetch(url string) ([]byte, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(resp.Body)
}

func main() { workergroup.Main(boss, map[string]func(){"server": serve}) }
