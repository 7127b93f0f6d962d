package prims

import "sync/atomic"

// fence orders the earlier stores of this goroutine before its later loads, for all processes. A call that
// finds nothing to change needs it, such as a Set of an Event that is set already. The process that changes the
// word afterwards has to see all stores before the call. So the call makes a fence, and then changes nothing if
// the word is still the same.
//
//	Set                     a call that takes the token
//	data: written           token: taken
//	fence                   data: read
//	token: is it there?
//
// Without the fence, a CPU may read the token before other CPUs see the data.
func fence() {
	var w atomic.Uint32
	w.Add(1)
}
