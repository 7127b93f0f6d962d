//go:build linux

package prims

// HoldWord describes the hold of a key, which is in its entry or, if the key has spilled, in its
// node. HoldWord does not claim the key.
func (x *MultiLock) HoldWord(key uint64) string {
	k := x.bucket(key)
	for i := range k.words.entries {
		if s := &k.words.entries[i]; s.key.Load() == key && s.hold.Load() != 0 {
			return keyHold(s.hold.Load()).String()
		}
	}
	h, _ := k.peek(key)
	return h.String()
}

// Opens reports whether a call opens the bucket of the key if it found x open and then ran between.
func (x *MultiLock) Opens(key uint64, between func()) bool {
	if x.opening.error("multilock.lock") != nil {
		return false
	}
	between()
	return x.bucket(key) != nil
}

// LockBeside is Lock of a key that is held. It calls beside when it has the queue lock and has not
// counted itself yet.
func (x *MultiLock) LockBeside(key uint64, beside func()) error {
	k := x.bucket(key)
	if err := k.mon.enter(nil); err != nil {
		return err
	}
	beside()
	_, err := k.lockSlow(nil, key)
	return err
}
