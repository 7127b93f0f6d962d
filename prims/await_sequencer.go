package prims

// At returns an Awaitable that waits as Wait(token) does. CancelWaiters, Stop and ResetTo end such a wait, too.
func (s *Sequencer) At(token uint64) Awaitable { return sequencerToken{s, token} }

// sequencerToken is an Awaitable that waits until a Sequencer reaches a token.
type sequencerToken struct {
	s     *Sequencer
	token uint64
}

func (x sequencerToken) reached() (bool, error) {
	s := x.s
	if err := s.opening.error("sequencer.wait"); err != nil {
		return true, err
	}
	w := s.begin(x.token)
	return s.judge(&w)
}

func (x sequencerToken) watch(notify func()) (watcher, error) {
	s := x.s
	c := s.cell(x.token)
	if c == nil {
		return nil, s.opening.error("sequencer.wait")
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	w := &tokenWatch{c: c, wait: s.begin(x.token)}
	w.wait.tell = notify
	c.join(&w.wait)
	return w, nil
}

// tokenWatch is a watcher of a sequencerToken.
type tokenWatch struct {
	c    *tokenCell
	wait tokenWait
	done bool
	err  error
}

// reached implements watcher. Until the result of the wait is known, the watcher counts as a call of the Sequencer,
// and a Close waits for this call. When the result is known, reached ends the call, so that a Close does not wait
// until the other elements of the list have come, too.
func (w *tokenWatch) reached() (bool, error) {
	if w.done {
		return true, w.err
	}
	over, err := w.c.s.judge(&w.wait)
	if !over && w.c.isOff(&w.wait) { // the Sequencer has ended the wait, and calls notify no more
		over, err = true, w.c.outcome(&w.wait)
	}
	if over {
		w.leave()
		w.done, w.err = true, err
	}
	return over, err
}

func (w *tokenWatch) leave() {
	if !w.done {
		w.c.remove(&w.wait)
		w.c.leave()
	}
}
