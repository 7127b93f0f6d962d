//go:build linux

package subjects

import "github.com/shmsync/shmsync/internal/bench"

// wordToken is one end of a token whose value is in a plain word. The word is guarded by a post and a wait for each
// direction.
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

// tokenNames are the names of the objects for the two directions of a token.
var tokenNames = [2]string{"to and", "fro"}
