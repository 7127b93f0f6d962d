package arena

// Metrics describes the state of an arena by numbers, for a monitoring system. Encoded as JSON, it has one member for
// each field.
type Metrics struct {
	Participants int                      // how many participants are in the arena
	Deaths       uint32                   // how many deaths and leaves were recorded since the arena was made
	Path         PathState                // whether the arena's path still leads to its file
	Size         int64                    // bytes
	Used         uint64                   // bytes of the heap that are backed by memory
	Objects      map[string]ObjectMetrics // by name, or by offset for an object without a name
}

// ObjectMetrics are the numbers of one object.
type ObjectMetrics struct {
	Kind    string  // four letters
	Holds   int     // how many participants hold the object, or a part of it
	Waiters uint64  // how many goroutines wait, as far as the arena records it
	Lost    bool    // no participant can take the object any more
	Counts  *Counts // nil if the arena is not counted
}

// Metrics returns the numbers of the arena, and of its objects except values and blocks. The call takes
// longer the more objects there are. To publish the numbers in package expvar:
//
//	expvar.Publish("jobs", expvar.Func(func() any { return a.Metrics() }))
func (a *Arena) Metrics() Metrics {
	k := a.kernel().Metrics()
	m := Metrics{
		Participants: k.Participants, Deaths: k.Deaths, Path: PathState(k.Path), Size: k.Size, Used: k.Used,
		Objects: make(map[string]ObjectMetrics, len(k.Objects)),
	}
	for name, o := range k.Objects {
		m.Objects[name] = ObjectMetrics{Kind: o.Kind, Holds: o.Holds, Waiters: o.Waiters, Lost: o.Lost, Counts: (*Counts)(o.Counts)}
	}
	return m
}

// AllocStats counts the blocks in the heap of an arena.
type AllocStats struct {
	Chunks       uint64 // how many chunks of 64 KiB the heap has
	FreeChunks   uint64 // chunks that are not in use
	Headroom     uint64 // chunks that Alloc and the creation of objects cannot use; see [Arena.Alloc]
	FreeHeadroom uint64 // chunks of the headroom that are not in use
	Reserved     uint64 // chunks that are backed by memory
	Raw          uint64 // blocks that Alloc returned and no process has freed
	Objects      uint64
	SlotRecords  uint64 // blocks in which objects keep the state of a participant
	Nodes        uint64 // all wait nodes, including PollerNodes
	PollerNodes  uint64 // wait nodes on the wait list of an object; they are freed with the object
	Claimed      uint64 // blocks that are being made or freed
	BytesUsed    uint64 // total size of the blocks that the fields above count, each rounded up by the allocator
	Bytes        uint64 // size of the heap
}

// Stats counts the blocks in the heap. If other processes use the arena at the same time, the numbers
// may belong to different moments.
func (a *Arena) Stats() AllocStats { return AllocStats(a.kernel().Stats()) }

// Check examines the whole arena, including the objects of each kind that this program knows. It
// returns an error for every state that no correct participant writes. The errors are joined, and each
// of them Is [shmsync.ErrCorrupt]. Changes that other processes make during the call can cause a false
// report: call Check again before you act on one.
func (a *Arena) Check() error { return a.kernel().Check() }
