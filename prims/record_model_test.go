//go:build linux

package prims

// The models of objects that change by records share these types. rqWord is a recordedWord, rqCommit is a commit word,
// and rqRecord is a record. In rqRecord, the field word has the indexes of the words that change.

type rqWord struct{ v, tag uint8 }

type rqCommit struct{ version, slot uint8 } // slot is the process, plus 1

const rqEntries = 8

type rqRecord struct {
	n    uint8
	word [rqEntries]uint8
	to   [rqEntries]uint8
	was  [rqEntries]rqWord
}

// entry returns the index of the entry of r that changes the word w, or -1 if there is none.
func (r *rqRecord) entry(w uint8) int {
	for i := range r.n {
		if r.word[i] == w {
			return int(i)
		}
	}
	return -1
}

// get returns the value that the word w has after r.
func (r *rqRecord) get(words []rqWord, w uint8) uint8 {
	if i := r.entry(w); i >= 0 {
		return r.to[i]
	}
	return words[w].v
}

func (r *rqRecord) set(words []rqWord, w, v uint8) {
	if i := r.entry(w); i >= 0 {
		r.to[i] = v
	} else if words[w].v != v {
		r.word[r.n], r.to[r.n], r.was[r.n] = w, v, words[w]
		r.n++
	}
}

func (r *rqRecord) add(words []rqWord, w, v uint8) { r.set(words, w, r.get(words, w)+v) }

// carryOut changes the words as r says.
func (r *rqRecord) carryOut(words []rqWord) {
	for i := range r.n {
		if words[r.word[i]] == r.was[i] {
			words[r.word[i]] = rqWord{r.to[i], r.was[i].tag + 1}
		}
	}
}

// rqQueueAt says where the words of a queue are. first and last are the indexes of the ends of the queue. The word next
// of node k has the index next+k, and its word prev has the index prev+k.
type rqQueueAt struct{ first, last, next, prev uint8 }

// detach adds to r that the wait of node k leaves the queue at q.
func (r *rqRecord) detach(words []rqWord, q rqQueueAt, k, outcome uint8) {
	next, prev := r.get(words, q.next+k), r.get(words, q.prev+k)
	if next == rqEnd {
		r.set(words, q.last, prev)
	} else {
		r.set(words, q.prev+next-rqNode, prev)
	}
	switch {
	case prev != 0:
		r.set(words, q.next+prev-1, next)
	case next == rqEnd:
		r.set(words, q.first, 0)
	default:
		r.set(words, q.first, next-rqNode+1)
	}
	r.set(words, q.next+k, outcome)
}

// rqIsQueued reports whether v, the value of the word next of a node, means that the node is on the queue.
func rqIsQueued(v uint8) bool { return v == rqEnd || v >= rqNode }
