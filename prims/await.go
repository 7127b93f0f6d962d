package prims

import "context"

// Awaitable is a wait that WaitAny and WaitAll can combine with others:
//
//   - a Future: that it is set, or that its producer has died;
//   - a Pending: that it has ended;
//   - Futex.At: that a Futex has reached a token;
//   - Sequencer.At: that a Sequencer has reached a token;
//   - an Event: that it is set; Event.ResetAwaitable: that a bidirectional one is not.
//
// A wait for an auto-reset Event takes its token, as Wait does. All other waits change
// nothing, and any number of waiters can see the same event.
//
// Its methods are not exported: only this package can make a wait that takes nothing.
type Awaitable interface {
	// reached reports, without waiting, whether a wait would end now, and by what
	// error. It takes what such a wait takes.
	reached() (done bool, err error)
	// watch begins a wait that takes nothing. It calls notify, which never blocks,
	// when the wait may be over: before watch returns, or later on any goroutine,
	// and after the watcher was left, perhaps. An error means that it has not begun.
	watch(notify func()) (watcher, error)
}

// watcher is a wait of an Awaitable. Its methods are called by one goroutine.
type watcher interface {
	// reached is as Awaitable's, for a wait that began when the watcher was made:
	// what was there meanwhile counts, unless it is of the kind that is taken.
	reached() (done bool, err error)
	// spent reports whether notify has been called, or is about to be, for the last
	// time: the watcher has to be replaced if it is not reached.
	spent() bool
	// leave ends the wait. It is called once, also when it is over.
	leave()
}

// WaitAny waits until one of the list has come, and returns its index, the lowest if
// several have come. The error is the one that its own wait would return: nil, or
// ErrOwnerDead from a Future whose producer died, for example. WaitAny takes nothing from
// the others. The list may have the same one more than once.
//
// For an auto-reset Event it waits in the queue like Wait. A token that is handed to it
// when another has come, too, goes to the next in the queue, or back. Until WaitAny has
// looked, that token is on its way: IsSet does not see it, and another Set makes one
// more. If this process dies before WaitAny has chosen it, it passes to the next.
//
// ErrNoSpace, ErrCorrupt and ErrClosed of the waiting itself come with an index of -1.
// WaitAny of an empty list returns -1 and nil at once.
//
// The return of WaitAny synchronizes with the same events as the wait for the one that it
// returns.
func WaitAny(list ...Awaitable) (int, error) { return WaitAnyContext(context.Background(), list...) }

// WaitAnyContext is WaitAny that ends with -1 and ctx.Err() when ctx ends before. One that
// has come beats a context that has ended.
func WaitAnyContext(ctx context.Context, list ...Awaitable) (int, error) {
	for i, x := range list {
		if done, err := x.reached(); done {
			return i, err
		}
	}
	if len(list) == 0 {
		return -1, nil
	}
	t := newTogether(ctx, list, 1)
	defer t.leave()
	if err := t.wait(); err != nil {
		return -1, err
	}
	for i, ended := range t.ended {
		if ended {
			return i, t.errs[i]
		}
	}
	panic("unreachable: one has ended")
}

// WaitAll waits until each of them has come, at whatever time, and returns the error
// of the first in the list whose own wait ends with one. It waits for the others all
// the same. WaitAll of none returns nil at once.
func WaitAll(list ...Awaitable) error { return WaitAllContext(context.Background(), list...) }

// WaitAllContext is WaitAll that ends with ctx.Err() when ctx ends before. Tokens of auto-reset
// Events that it has taken by then stay taken.
func WaitAllContext(ctx context.Context, list ...Awaitable) error {
	t := newTogether(ctx, list, len(list))
	defer t.leave()
	if err := t.wait(); err != nil {
		return err
	}
	for _, err := range t.errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// together is one call of WaitAny or WaitAll.
type together struct {
	ctx   context.Context
	list  []Awaitable
	want  int // how many have to end
	ends  int // how many have
	ended []bool
	errs  []error
	at    []watcher
	told  chan struct{} // capacity 1: something may have ended
}

func newTogether(ctx context.Context, list []Awaitable, want int) *together {
	return &together{
		ctx: ctx, list: list, want: want, ended: make([]bool, len(list)), errs: make([]error, len(list)),
		at: make([]watcher, len(list)), told: make(chan struct{}, 1),
	}
}

func (t *together) notify() {
	select {
	case t.told <- struct{}{}:
	default:
	}
}

// wait waits until as many as are wanted have ended.
func (t *together) wait() error {
	if t.scan() {
		return nil
	}
	var done <-chan struct{}
	if t.ctx != nil {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		done = t.ctx.Done()
	}
	for {
		if err := t.watch(); err != nil {
			return err
		}
		select {
		case <-t.told:
			if t.scan() {
				return nil
			}
		case <-done:
			if t.scan() {
				return nil
			}
			return t.ctx.Err()
		}
	}
}

// watch makes a watcher of each that has not ended and has none that will tell.
func (t *together) watch() error {
	for i, x := range t.list {
		switch {
		case t.ended[i] || t.at[i] != nil && !t.at[i].spent():
			continue
		case t.at[i] != nil:
			t.at[i].leave()
			t.at[i] = nil
		}
		w, err := x.watch(t.notify)
		if err != nil {
			return err
		}
		t.at[i] = w
	}
	return nil
}

// scan notes which have ended, in order, and reports whether that is enough. It looks
// no further then, so as not to take more than is wanted.
func (t *together) scan() bool {
	for i, x := range t.list {
		if t.ends == t.want {
			break
		}
		if t.ended[i] {
			continue
		}
		check := x.reached
		if t.at[i] != nil {
			check = t.at[i].reached
		}
		if t.ended[i], t.errs[i] = check(); t.ended[i] {
			t.ends++
		}
	}
	return t.ends == t.want
}

func (t *together) leave() {
	for _, w := range t.at {
		if w != nil {
			w.leave()
		}
	}
}
