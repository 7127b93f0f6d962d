package prims

func (e *Event) reached() (bool, error) {
	if err := e.opening.error("event.wait"); err != nil {
		return true, err
	}
	if e.auto != nil {
		return e.auto.claim(), nil
	}
	_, set := e.manual.reached(true)
	return set, nil
}

func (e *Event) watch(notify func()) (watcher, error) {
	if e.auto != nil {
		return e.auto.watch(notify)
	}
	return e.manual.watchUntil(true, notify)
}

// ResetAwaitable returns the wait of WaitReset as an Awaitable. e must be bidirectional.
func (e *Event) ResetAwaitable() Awaitable {
	e.needBidirectional("ResetAwaitable")
	return eventReset{e}
}

// eventReset is an Awaitable that waits for the reset of an Event.
type eventReset struct{ e *Event }

func (x eventReset) reached() (bool, error) {
	if err := x.e.opening.error("event.wait"); err != nil {
		return true, err
	}
	_, ok := x.e.manual.reached(false)
	return ok, nil
}

func (x eventReset) watch(notify func()) (watcher, error) {
	return x.e.manual.watchUntil(false, notify)
}
