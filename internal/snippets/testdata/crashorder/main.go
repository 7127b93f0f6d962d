// Command crashorder contains the recipe of docs/memory-model.md, so that a test can examine its instructions.
package main

import (
	"os"
	"sync/atomic"
)

type record struct {
	Dirty uint32
	A, B  int64
}

//go:noinline
func change(r *record, v int64) {
	atomic.StoreUint32(&r.Dirty, 1)
	r.A = v
	r.B = -v
	atomic.StoreUint32(&r.Dirty, 0)
}

func main() { change(new(record), int64(len(os.Args))) }
