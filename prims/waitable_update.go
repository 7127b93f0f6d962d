package prims

import "context"

// Update calls f with a copy of the state, makes the changed copy the state, and ends the waits that can go on now. If
// f panics, the state is unchanged and x can still be used. If x is not recoverable, Update panics with an error that
// Is ErrNotRecoverable.
//
// Update calls f again if another call has changed the state meanwhile. So f must do nothing but change *s. In
// particular, f must not change the Waitable by other calls, because Update would then not end. If f takes less than
// 5 ms, and Update has called f many times in vain, other calls let this Update go first. If f takes longer, and the
// state changes often, Update may call f again for a long time.
//
// While f runs, no other call waits for it, except Close. So if f closes x or its arena, Close panics.
func (x *Waitable[S, E]) Update(f func(s *S)) {
	defer x.opening.serve(x.queue).end()
	x.yield(context.Background())
	s, _ := x.copies.Get().(*S)
	if s == nil {
		s = new(S)
	}
	defer x.copies.Put(s)
	var tries attempts
	defer x.over(&tries)
	for {
		// The loop repeats only if another call has changed the state. So it is lock-free.
		x.again(&tries)
		seen, err := x.snapshot(s, &tries)
		if err != nil {
			panic(err)
		}
		// The goroutine has no lock here, so f may block, panic, or end the goroutine.
		x.run(f, s)
		switch done, err := x.replace(s, seen); {
		case err != nil:
			panic(err)
		case done:
			return
		}
	}
}

// run calls f for an Update. While f runs, run records this goroutine. So if f calls Close, Close panics. Otherwise it
// would wait for f, and so for itself.
func (x *Waitable[S, E]) run(f func(s *S), s *S) {
	if x.updating.tryBegin() {
		defer x.updating.end()
	} else {
		running := &runningFunc{what: "the function of an Update of " + x.opening.title(nil), a: x.a, handle: x.opening}
		running.begin()
		defer running.end()
	}
	f(s)
}

// stateSeen says which state a call has copied.
type stateSeen struct {
	version uint64 // of the commit word, read before the last check that the copy is valid
	current recordedWord
}

// snapshot copies the state to *s for an Update. It returns an error if x is not recoverable.
func (x *Waitable[S, E]) snapshot(s *S, t *attempts) (seen stateSeen, err error) {
	seen, ok := x.read(s)
	if !ok {
		b := takeWakes()
		defer x.wake(b)
		var c recordedChange
		if seen.current, err = x.copyState(&c, b, s, t); err != nil {
			return seen, err
		}
		seen.version = c.c.version()
	}
	if by := x.lostBy(); by != 0 {
		return seen, x.notRecoverable("waitable.update", by)
	}
	return seen, nil
}

// replace makes *s the state, if the state has not changed since the caller has seen it. Otherwise done is false.
func (x *Waitable[S, E]) replace(s *S, seen stateSeen) (done bool, err error) {
	x.underLock(func(c *recordedChange, b *wakes) (changed bool) {
		for {
			// The loop repeats only if another process has changed the Waitable. So it is lock-free.
			if err = x.begin(c, b); err != nil {
				return false
			}
			// Each change of the Waitable changes the tag of current at most once. So current can have the same tag
			// again only after 2^32 changes.
			if recordedWord(x.words.current.Load()) != seen.current || c.c.version()-seen.version >= 1<<32 {
				return false
			}
			if by := x.lostIn(c); by != 0 {
				err = x.notRecoverable("waitable.update", by)
				return false
			}
			x.put(c, s)
			if done, err = x.end(c, b); done || err != nil {
				return done
			}
		}
	})
	return done, err
}
