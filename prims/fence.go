package prims

import "sync/atomic"

// fence orders what this goroutine has written before what it reads from now on, for all processes. A call that finds that
// it has nothing to change needs it, such as a Set of an Event that is set: the process that changes the word afterwards has
// to see all stores before the call. The call makes a fence, and changes nothing if the word is still the same.
//
//	Set                     a call that takes the token
//	data: written           token: taken
//	fence                   data: read
//	token: is it there?
//
// Without the fence, a CPU may look at the token before others see the data.
func fence() {
	var w atomic.Uint32
	w.Add(1)
}
