package arenakernel

// Metrics describes the state of an arena in numbers, for a monitoring system. Its JSON form has
// one member for each field.
type Metrics struct {
	Participants int                      // how many participants are in the arena
	Deaths       uint32                   // how many deaths and leaves were recorded since the arena was created
	Path         PathState                // whether the arena's path still leads to its file
	Size         int64                    // bytes
	Used         uint64                   // bytes of the heap that have memory
	Objects      map[string]ObjectMetrics // by name, or by offset for an object without a name
}

// ObjectMetrics describes one object in numbers.
type ObjectMetrics struct {
	Kind    string  // four letters
	Holds   int     // how many holds of the object, or of parts of it, participants have
	Waiters uint64  // how many goroutines wait, as far as the arena records it
	Lost    bool    // no participant can take the object any more
	Counts  *Counts // nil if the arena is not counted
}

// Metrics returns the numbers of the arena and of its objects. It leaves out objects of the kinds Value and
// Block, and of kinds that this process does not know. The call takes longer the more objects there are. To
// publish the numbers in package expvar:
//
//	expvar.Publish("jobs", expvar.Func(func() any { return a.Metrics() }))
func (a *Arena) Metrics() Metrics {
	a.mustBeginCall("arena.metrics") // because the walk over the objects writes to the slot of this process
	defer a.EndCall()
	stats := a.Within().Stats()
	m := Metrics{Deaths: a.reaped(), Path: a.PathState(), Size: a.Size(), Used: stats.Reserved * chunkSize, Objects: map[string]ObjectMetrics{}}
	for range a.Within().Participants() {
		m.Participants++
	}
	waits := a.findWaits()
	a.visit(func(o Object) {
		ops, ok := opsOf(o)
		if !ok || ops.Inspect == nil {
			return
		}
		i := ops.Inspect(a, o)
		x := ObjectMetrics{Kind: o.Kind.String(), Holds: len(i.Holds), Lost: i.Err != nil, Counts: i.Counts}
		for _, w := range waits[o.Offset] {
			x.Waiters += max(w.Count, 1)
		}
		m.Objects[o.String()] = x
	})
	return m
}
