package prims

import "context"

// Awaitable is a wait that WaitAny and WaitAll can combine with others:
//
//   - a Future: the wait ends when the Future is set, or when its producer has died;
//   - a Pending: the wait ends when the Pending ends;
//   - Futex.At: the wait ends when the counter of the Futex has reached a given number;
//   - Sequencer.At: the wait ends when the Sequencer has reached a given number;
//   - an Event: the wait ends when the Event is set;
//   - Event.ResetAwaitable: the wait ends when a bidirectional Event is reset.
//
// A wait for an auto-reset Event takes a token, that is, the permission for one waiter to go on. A Set makes at most
// one token, so it ends at most one such wait. Waits of all other kinds take nothing, so a single cause, such as the
// Set of a Future, can end any number of them.
//
// The methods are not exported, so no other package can implement an Awaitable. An implementation must not lose a
// token when WaitAny gives a wait up.
type Awaitable interface {
	// reached reports, without waiting, whether a wait would end now, and with which error. At an auto-reset Event,
	// reached also takes the token that ends the wait.
	reached() (done bool, err error)
	// watch begins a wait. It takes no token of an auto-reset Event; only watcher.reached takes one. When the wait
	// may be over, the wait calls notify, during watch or later, on any goroutine. This call may come even after
	// watcher.leave. notify never blocks. If watch returns an error, the wait has not begun.
	watch(notify func()) (watcher, error)
}

// watcher is a wait for an Awaitable that has begun. Only one goroutine calls its methods.
type watcher interface {
	// reached reports whether the wait is over, and with which error. The wait began with watch. If an Event was set
	// after watch and is reset again, the wait for the Event is over. At an auto-reset Event, the wait is over only
	// if reached can still take a token.
	reached() (done bool, err error)
	// leave ends the wait. The owner of the watcher calls leave once, even if the wait is over.
	leave()
}

// WaitAny waits until at least one element of the list has come. An element has come if a wait for this element alone
// would end. WaitAny returns the index of an element that has come, the lowest one if there are several. The error is
// the result of the wait for this element: nil or, for example, ErrOwnerDead from a Future whose producer died.
// WaitAny takes nothing from the other elements. The list may have the same element more than once.
//
// At an auto-reset Event, WaitAny counts as a waiter: a Set makes a token for it, and IsSet does not report that
// token. WaitAny takes the token only if it returns the index of the Event. Otherwise the Event keeps the token for
// other waiters.
//
// The elements may belong to several arenas. If an arena or a handle is closed while WaitAny waits, the waits for
// the elements of that arena or handle end with ErrClosed.
//
// If the waiting itself fails, WaitAny returns -1 and an error that Is ErrCorrupt or ErrClosed. WaitAny of an empty
// list returns -1 and nil at once.
//
// If WaitAny returns an index, its return synchronizes with the same calls as the return of a wait for that element
// alone.
func WaitAny(list ...Awaitable) (int, error) { return WaitAnyContext(context.Background(), list...) }

// WaitAnyContext is like WaitAny, but returns -1 and ctx.Err() if ctx ends first. An element that has come takes
// precedence over a context that has ended.
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

// WaitAll waits until each element of the list has come. The elements may come at different times. If the waits
// for some elements end with an error, WaitAll still waits for the others. It then returns the error of the
// first such element in the list. WaitAll of an empty list returns nil at once.
func WaitAll(list ...Awaitable) error { return WaitAllContext(context.Background(), list...) }

// WaitAllContext is like WaitAll, but returns ctx.Err() if ctx ends first. In that case, it does not give back the
// tokens of auto-reset Events that it has taken.
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
	want  int // how many elements have to come: 1 for WaitAny, all for WaitAll
	ends  int // how many elements have come
	ended []bool
	errs  []error
	at    []watcher
	told  chan struct{} // of capacity 1; notify sends to it, and wait receives from it
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

// wait waits until t.want elements have come.
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

// watch makes a watcher for each element that has not come and has no watcher.
func (t *together) watch() error {
	for i, x := range t.list {
		if t.ended[i] || t.at[i] != nil {
			continue
		}
		w, err := x.watch(t.notify)
		if err != nil {
			return err
		}
		t.at[i] = w
	}
	return nil
}

// scan records which elements have come, in the order of the list, and reports whether enough have come. It stops
// as soon as enough have come. Otherwise it could take a token that the call does not need.
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
