package prims

import "sync/atomic"

// fence orders the earlier stores of this goroutine before its later loads, for all processes. A call that finds
// nothing to change needs a fence, for example a Set of an Event that is set already. A process that changes the word
// of the object after that call must see everything that this goroutine stored before the call. So the call makes a
// fence and loads the word once more. If the word is still the same, the call returns without a change.
//
//	Set                     a call that takes the token
//	data: written           token: taken
//	fence                   data: read
//	token: is it there?
//
// Without the fence, the CPU of Set may read the token before other CPUs see the data. The call that takes the
// token needs the counterpart, orderLoads. Without orderLoads, its CPU may read the data before other CPUs see that
// the token is taken.
func fence() {
	var w atomic.Uint32
	w.Add(1)
}

// orderLoads keeps the later loads of this goroutine after its CAS of w, which has succeeded. Another call may have
// loaded the word before this CAS, and so have changed nothing. The later loads must see what was stored before that
// call; see fence.
//
// On an arm64 CPU without the instructions of LSE, a CAS is a loop of a load-exclusive and a store-exclusive
// instruction. Later loads may overtake the store-exclusive. An atomic load of Go does not overtake it, and later
// loads do not overtake that atomic load. On amd64 the CAS is a fence.
func orderLoads(w *atomic.Uint64) {
	if !casIsFence {
		w.Load()
	}
}
