//go:build linux

package arena_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// A program serves a page which shows why processes in its arena do not make progress. In this example,
// a goroutine waits for a mutex that its own process never unlocks.
func ExampleInspector_Diagnose() {
	a, err := arena.Open("example-diagnose", &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove("example-diagnose")
	defer a.Close()

	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ins, err := arena.Inspect(a.Path())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer ins.Close()
		findings, err := ins.Diagnose(time.Millisecond) // 0 finds waits of 10 s and longer
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for _, f := range findings {
			fmt.Fprintln(w, f.Kind, f.Objects) // f.Text, f.Advice, f.Command and f.Force say more
		}
	})

	m, err := prims.OpenMutex(a, "ledger", nil)
	if err != nil {
		log.Fatal(err)
	}
	m.Lock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- m.LockContext(ctx) }()

	body := ""
	for body == "" { // until the wait has lasted for a millisecond
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest("GET", "/debug/shmsync", nil))
		body = answer.Body.String()
	}
	fmt.Print(body)
	cancel()
	<-done
	m.Unlock()
	// Output: self-wait [ledger]
}
