// Command beyond runs the same workers with a lock for one host and with a lock for several hosts.
//
// A worker uses a sync.Locker. On one host the Locker is a Mutex in shared memory. When the application outgrows
// the host, the Locker is a lock of etcd; in this example, etcd runs within the program. Workers are killed while
// they hold the lock. The Mutex passes to the next worker within about a millisecond. The lock of etcd passes on
// only when the session of the dead worker has run out, because no other host can distinguish a dead process from a
// slow network.
package main

import (
	"fmt"
	"log"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/workergroup"
	"github.com/shmsync/shmsync/prims"
)

const (
	workers   = 3
	additions = 60
)

// work adds one to the number in a file whenever the boss says so. The lock guards the file.
func work(l sync.Locker, file string) {
	for more := true; more; {
		l.Lock()
		workergroup.Say("holds")
		if more = workergroup.Hear() == "add"; more {
			workergroup.Check(write(file, read(file)+1))
		}
		l.Unlock()
	}
}

// onOneHost returns a lock for the processes of this host.
func onOneHost(name string) sync.Locker {
	a, err := arena.Open(name, nil)
	workergroup.Check(err)
	// With etcd, the lock of a dead process is released without a notice. This policy makes the Mutex do the same.
	m, err := prims.OpenMutex(a, "number", &prims.MutexOptions{Policy: prims.PolicyRelease})
	workergroup.Check(err)
	return m
}

// onSeveral returns a lock for all processes that reach the same etcd.
func onSeveral(endpoint string) sync.Locker {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	workergroup.Check(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(1)) // seconds
	workergroup.Check(err)
	return concurrency.NewLocker(session, "/number")
}

// run makes workers add to a number, and kills some of them while they hold the lock.
func run(role, where, file string) {
	workergroup.Check(write(file, 0))
	var group []*workergroup.Kept // each worker is started again when it dies
	for i := range workers {
		group = append(group, workergroup.Keep(fmt.Sprintf("worker %d", i), role, []string{where, file}))
	}
	begun, added, killed := time.Now(), 0, 0
	for ended := 0; ended < workers; {
		e := workergroup.Next()
		switch {
		case e.Line != "holds":
		case added == additions:
			ended++
			e.From.Tell("end")
		case workergroup.Random(additions) < workergroup.Kills() && killed < workergroup.Kills() || additions-added <= workergroup.Kills()-killed:
			killed++
			e.From.Kill()
		default:
			added++
			e.From.Tell("add")
		}
	}
	took := time.Since(begun)
	for _, w := range group {
		w.Stop()
	}
	if n := read(file); n != additions {
		log.Fatalf("%s: the number is %d, want %d", role, n, additions)
	}
	fmt.Printf("%-11s %d additions by %d processes, %d killed with the lock held: none lost; %v\n",
		role+":", additions, workers, killed, took.Round(time.Millisecond))
}

func boss() {
	dir, err := os.MkdirTemp("", "example-beyond")
	workergroup.Check(err)
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "number")

	name := fmt.Sprintf("example-beyond-%d", os.Getpid())
	run("one host", name, file)
	workergroup.Check(arena.Remove(name))

	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = filepath.Join(dir, "etcd"), "fatal"
	cfg.TickMs, cfg.ElectionMs = 10, 100 // a short election time is enough for a cluster of one member
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = anyPort, anyPort
	etcd, err := embed.StartEtcd(cfg)
	workergroup.Check(err)
	<-etcd.Server.ReadyNotify()
	run("several", etcd.Clients[0].Addr().String(), file)
	etcd.Close()
}

func read(file string) int {
	b, err := os.ReadFile(file)
	workergroup.Check(err)
	n, err := strconv.Atoi(string(b))
	workergroup.Check(err)
	return n
}

// write replaces the whole file by a rename. If the process is killed before the rename, the old file stays.
func write(file string, n int) error {
	next := file + ".next"
	if err := os.WriteFile(next, []byte(strconv.Itoa(n)), 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}

func main() {
	workergroup.Main(boss, map[string]func(){
		"one host": func() { work(onOneHost(os.Args[1]), os.Args[2]) },
		"several":  func() { work(onSeveral(os.Args[1]), os.Args[2]) },
	})
}
