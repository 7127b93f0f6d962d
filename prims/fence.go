package prims

import "sync/atomic"

// fence orders the earlier stores of this goroutine before its later loads, for all processes. A call needs a
// fence if it finds that it has nothing to change, such as a Set of an Event that is set already. Another
// process may change the word of the object afterwards, and must then see everything that this goroutine stored
// before the call. So the call makes a fence and loads the word once more. If the word is still the same, the
// call returns without a change.
//
//	Set                     a call that takes the token
//	data: written           token: taken
//	fence                   data: read
//	token: is it there?
//
// Without the fence, the CPU of Set may read the token before other CPUs see the data.
func fence() {
	var w atomic.Uint32
	w.Add(1)
}
