//go:build linux

package prims_test

import (
	"expvar"
	"fmt"
	"log"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// A program publishes the metrics of an arena in package expvar, which net/http serves.
func ExampleOpenMutex_metrics() {
	a, err := arena.Open("example-metrics", &arena.Options{Size: 1 << 20, Counted: true})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove("example-metrics")
	defer a.Close()
	expvar.Publish("jobs", expvar.Func(func() any { return a.Metrics() }))

	m, err := prims.OpenMutex(a, "ledger", nil)
	if err != nil {
		log.Fatal(err)
	}
	m.Lock()
	m.Unlock()
	m.Lock()
	fmt.Println(a.Metrics().Objects["ledger"].Counts.Acquired, a.Metrics().Objects["ledger"].Holds)
	m.Unlock()
	fmt.Println(len(expvar.Get("jobs").String()) > 2)
	// Output:
	// 2 1
	// true
}
