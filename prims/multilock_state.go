package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// MultiLockState is the state of a key, as State returns it.
type MultiLockState struct {
	Held    bool              // a process holds or recovers the key, or was granted it
	Owner   *shmsync.Identity // that process, or the dead process that left the key locked; nil if there is none or it is not known
	Waiting bool              // there are waiters
	Err     error             // why no call can lock the key: nil, ErrOwnerDead, ErrNotRecoverable or ErrCorrupt
	Word    string            // the state of the key as text
}

// State reads the state of a key without locking anything. The answer may be out of date when it
// returns.
func (x *MultiLock) State(key uint64) MultiLockState {
	defer x.opening.serve(x.queue).end()
	state, waiting := keyFree, false
	x.findBlocks() // after an error, keys in blocks that this handle does not know look free
	if k := x.bucket(key); k != nil {
		k.completeBare() // the last change may be an Unlock by a process that died before it carried the change out
		if i, ok := k.search(key); ok {
			e := k.at(i)
			waiting = valueIn(&e.first) != 0
			s, is := k.read(e)
			if state = s; is != key { // the entry has got another key meanwhile, so this key was free
				state, waiting = keyFree, false
			}
		}
	}
	s := MultiLockState{Held: state.holder() != 0, Waiting: waiting, Word: state.String()}
	if n := state.participant(); n != 0 {
		s.Owner = x.a.Who(n)
	}
	s.Err = state.err()
	return s
}

// err returns the error that says why nobody can lock a key in the state s. It returns nil if a call can lock
// the key, now or later.
func (s keyState) err() error {
	switch {
	case !s.valid():
		return shmsync.ErrCorrupt
	case s.kind() == kindOwnerDead:
		return shmsync.ErrOwnerDead
	case s.kind() == kindNotRecoverable:
		return shmsync.ErrNotRecoverable
	}
	return nil
}

// String renders the state on one line.
func (x *MultiLock) String() string {
	defer x.opening.serve(x.queue).end()
	n := 0
	x.busy(func(k *multiBucket) {
		for i := range k.size() {
			if e := k.at(i); !e.state().free() || valueIn(&e.first) != 0 {
				n++
			}
		}
	})
	return fmt.Sprintf("multilock %s: %d keys are not free, of %d buckets", objectName(x.object), n, len(x.all))
}

func inspectMultiLock(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	x, err := buildMultiLock(a, o, true)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.Policy = x.policy.String()
	i.Counts, i.Spin = x.counts.tell(), spinText(x.words.spin.Load())
	held, lost := map[uint64][]int{}, 0
	x.busy(func(k *multiBucket) {
		for j := range k.size() {
			e := k.at(j)
			s, key := k.read(e)
			if s.free() {
				continue
			}
			i.word(fmt.Sprintf("key %d", key), e.hold.Load(), "%v", s)
			if n := s.holder(); n != 0 && s.valid() {
				hold := ownerHold(ownerWord(s))
				if s.granted() {
					hold.Owner, hold.Mode = n, arenakernel.HoldReserved
				}
				hold.Key = &key
				held[key] = i.hold(hold)
				continue
			}
			i.Keys = append(i.Keys, key)
			if lost++; lost == 1 { // the state counts all lost keys, but describes only the first one
				i.Key = &key
				i.lost(s.err(), s.participant())
			}
		}
	})
	i.State = fmt.Sprintf("%d keys held", len(held))
	if lost > 0 {
		i.State += fmt.Sprintf(", %d that nobody can have", lost)
	}
	dated := map[uint64]bool{}
	for n := range i.Waits {
		w := &i.Waits[n]
		if w.For != "" || !inQueue(w) {
			continue
		}
		w.For, w.On = "key", held[*w.Want]
		dated[*w.Want] = dated[*w.Want] || i.dateByWait(w, w.On)
	}
	return i.Inspection
}

// read returns the key of the entry e, and the state of that key. If the death of the holder makes the key owner-dead,
// the state says so, even if no reaper has recorded the death yet; see stateSeen.
func (k *multiBucket) read(e *multiLockEntry) (s keyState, key uint64) {
	_, o := k.stateSeen(func() (v recordedWord, o ownerWord) {
		v, s, key = e.read()
		return v, ownerWord(s)
	})
	return keyState(o), key
}

// eachLost calls f for each key that nobody can get, with its state.
func (x *MultiLock) eachLost(f func(key uint64, s keyState)) {
	x.busy(func(k *multiBucket) {
		for i := range k.size() {
			if s, key := k.read(k.at(i)); s.err() != nil {
				f(key, s)
			}
		}
	})
}
