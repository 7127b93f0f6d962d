//go:build linux

package subjects

import "github.com/shmsync/shmsync/internal/bench"

// wordToken is one of two ends that pass a token to each other. For each direction, there is a plain word with the
// value of the token. An end writes its word, and then calls the function post. The other end reads this word after its
// function wait has returned.
type wordToken struct {
	out, in    *uint64
	post, wait func()
}

func newWordToken(w *bench.Worker, end int, post, wait func()) bench.Token {
	ways := [2]*uint64{&w.Scratch().First, &w.Scratch().Second}
	return wordToken{ways[end], ways[1-end], post, wait}
}

func (t wordToken) Pass(v uint32) {
	*t.out = uint64(v)
	t.post()
}

func (t wordToken) Await() uint32 {
	t.wait()
	return uint32(*t.in)
}

// tokenNames are the names of the two objects through which a token passes, one for each direction.
var tokenNames = [2]string{"to and", "fro"}
