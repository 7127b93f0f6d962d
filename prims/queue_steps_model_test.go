//go:build linux

package prims

// put executes a step of TryPut.
func (x *ringExec) put() (said string, optional bool) {
	s, t := &x.s, x.t
	me := uint8(x.me + 1)
	switch t.pc {
	case ringIdle:
		if s.puts == 0 {
			return "", false
		}
		s.puts--
		t.item = s.puts + 1
		x.to(ringTail, "")
		return "puts", true
	case ringTail:
		t.p = s.tail
		return x.to(ringNext, "reads the tail")
	case ringNext:
		c := *x.cellOf(t.p)
		switch d := x.ahead(c, t.p); {
		case d == -1:
			t.was = c
			return x.to(ringFullHead, "finds a cell to fill")
		case d >= 0:
			t.p += uint8(d)<<x.shift + 1
			return x.to(ringNext, "goes on")
		}
		return x.to(ringTail, "meets a cell of the past")
	case ringFullHead:
		t.q = s.head
		return x.to(ringFullCell, "reads the head")
	case ringFullCell:
		c := *x.cellOf(t.q)
		switch d := x.ahead(c, t.q); {
		case d == 0:
			t.best = c.slot
			return x.to(ringFullSlot, "finds a filled cell")
		case d > 0:
			t.q += uint8(d-1)<<x.shift + 1
			return x.to(ringFullCell, "jumps")
		}
		return x.hasRoom("finds no item")
	case ringFullSlot:
		sl := s.slot[t.best-1]
		t.best = 0
		if !x.at(sl, t.q) {
			t.q++
			return x.to(ringFullCell, "finds an item that was taken")
		}
		if int8(t.p-t.q) >= int8(x.capacity) {
			if s.n < x.capacity {
				s.wrong = ringNotFull
			}
			return x.noRoom("finds no room")
		}
		return x.hasRoom("finds room")
	case ringIrregular:
		t.k, t.n = 0, 0
		if s.irregular && x.slots > x.capacity && x.bug != ringCountsNothing {
			return x.to(ringCount, "has to count")
		}
		return x.roomy("need not count")
	case ringCount:
		if t.k == x.slots {
			n := t.n
			t.k, t.n = 0, 0
			if n >= x.capacity {
				return x.noRoom("counts no room")
			}
			return x.roomy("counts room")
		}
		sl := s.slot[t.k]
		switch sl.kind {
		case queueFull:
			t.state = sl
			return x.to(ringCountCell, "sees a slot that was put")
		case queueLeased, queueReturned:
			t.n++
		}
		t.k++
		return x.to(ringCount, "counts a slot")
	case ringCountCell:
		if x.named(*x.cellOf(t.state.tag), t.k, t.state) {
			t.n++
		}
		t.state = ringSlot{}
		t.k++
		return x.to(ringCount, "counts a slot that was put")
	case ringClaim:
		if t.k == x.slots {
			t.k = 0
			return x.to(ringSame, "finds no slot")
		}
		k := (t.p + t.k) % x.slots
		if s.slot[k].kind != queueFree {
			t.k++
			return x.to(ringClaim, "finds a slot that is not free")
		}
		s.slot[k] = ringSlot{kind: queueClaimed, owner: me}
		t.at, t.k = k+1, 0
		if x.bug == ringTagsFirst {
			s.slot[k] = ringSlot{kind: queueFull, owner: me, tag: t.p}
			return x.to(ringWrite, "claims and tags a slot")
		}
		return x.to(ringLook, "claims a slot")
	case ringSame:
		if *x.cellOf(t.p) != t.was {
			return x.to(ringTail, "sees that the cell was filled, and begins anew")
		}
		return x.end("sees the cell as it was")
	case ringLook:
		if *x.cellOf(t.p) != t.was {
			return x.to(ringTail, "sees that the cell was filled")
		}
		return x.to(ringTag, "sees the cell as it was")
	case ringTag:
		sl := &s.slot[t.at-1]
		sl.kind, sl.tag = queueFull, t.p
		return x.to(ringWrite, "tags the slot")
	case ringWrite:
		s.slot[t.at-1].item = t.item
		return x.to(ringSetTail, "copies the item")
	case ringSetTail:
		s.tail = t.p
		if x.bug == ringTailAhead {
			s.tail++
		}
		return x.to(ringPublish, "writes the tail")
	case ringPublish:
		if *x.cellOf(t.p) != t.was {
			return x.to(ringTail, "loses the cell")
		}
		*x.cellOf(t.p) = ringCell{x.lap(t.p), t.at}
		x.append(t.p)
		return x.end("fills the cell")
	case ringRelease:
		s.slot[t.at-1] = ringSlot{}
		return x.end("gives its slot back")
	}
	panic(t.pc)
}

// append adds the item of a Put to the contents that a correct queue would have.
func (x *ringExec) append(p uint8) {
	s := &x.s
	if s.n == ringItems || s.n >= x.capacity+onesIn(s.dead) {
		s.wrong = ringTooMany
		return
	}
	leased := uint8(0)
	for k := range x.slots {
		if s.slot[k].kind == queueLeased {
			leased++
		}
	}
	for _, b := range s.backing {
		if b != 0 {
			leased++
		}
	}
	if s.n+leased >= x.capacity+onesIn(s.dead) {
		s.wrong = ringTooMany
		return
	}
	s.queue[s.n] = p
	s.n++
}

func (x *ringExec) hasRoom(said string) (string, bool) {
	x.t.q, x.t.best = 0, 0
	return x.to(ringIrregular, said)
}

// roomy continues a Put after it has found that there is room.
func (x *ringExec) roomy(said string) (string, bool) {
	if x.t.at == 0 {
		return x.to(ringClaim, said)
	}
	return x.to(ringLook, said)
}

// noRoom ends a Put that has found no room.
func (x *ringExec) noRoom(said string) (string, bool) {
	if x.t.at != 0 && x.bug != ringKeepsSlot {
		x.t.q = 0
		return x.to(ringRelease, said)
	}
	return x.end(said)
}

// get executes a step of TryGet, or of TryLease and the following Ack or Nack.
func (x *ringExec) get() (said string, optional bool) {
	s, t := &x.s, x.t
	me := uint8(x.me + 1)
	kind := queueTaken
	if x.leases() {
		kind = queueLeased
	}
	switch t.pc {
	case ringIdle:
		if s.gets == 0 {
			return "", false
		}
		s.gets--
		x.to(ringBack, "")
		if kind == queueLeased && x.bug != ringDeviatesLate {
			x.to(ringDeviate, "")
		}
		return "gets", true
	case ringDeviate:
		s.irregular = true
		return x.to(ringBack, "says that it leases")
	case ringBack:
		*t = ringThread{pc: ringHead, back: s.returned}
		if t.back&1 != 0 {
			return x.to(ringScan, "sees that items came back")
		}
		return x.to(ringHead, "sees that none came back")
	case ringScan:
		if t.k == x.slots {
			t.k = 0
			if t.best == 0 {
				return x.to(ringClear, "finds none")
			}
			return x.to(ringScanned, "has seen all slots")
		}
		if sl := s.slot[t.k]; sl.kind == queueReturned && (t.best == 0 || sl.tag < t.state.tag) {
			t.best, t.state = t.k+1, sl
		}
		t.k++
		return x.to(ringScan, "looks at a slot")
	case ringClear:
		if s.returned == t.back || x.bug == ringClearsBlind {
			s.returned &^= 1
		}
		return x.to(ringBack, "clears")
	case ringScanned:
		if s.returned != t.back {
			return x.to(ringBack, "sees that more came back")
		}
		t.first = x.first()
		for _, b := range s.backing {
			if b == t.state.tag && (t.first == 0 || b < t.first) {
				t.first = b // the item came back, although the bit in returned is not set yet
			}
		}
		return x.to(ringTakeBack, "sees that no more came back")
	case ringTakeBack:
		sl := &s.slot[t.best-1]
		if *sl != t.state {
			return x.to(ringBack, "fails to take it")
		}
		sl.kind, sl.owner = kind, me
		t.at = t.best
		x.remove(sl.tag)
		return x.to(ringCopy, "takes it")
	case ringHead:
		t.p = s.head
		return x.to(ringAtCell, "reads the head")
	case ringAtCell:
		c := *x.cellOf(t.p)
		switch d := x.ahead(c, t.p); {
		case d == 0:
			t.at = c.slot
			return x.to(ringAtSlot, "finds a filled cell")
		case d > 0 && x.bug == ringJumpsFar:
			t.p += uint8(d)<<x.shift + 1
			return x.to(ringAtCell, "jumps")
		case d > 0:
			t.p += uint8(d-1)<<x.shift + 1
			return x.to(ringAtCell, "jumps")
		}
		t.at = 0
		return x.to(ringAgain, "finds a cell that is not filled")
	case ringAtSlot:
		sl := s.slot[t.at-1]
		if !x.at(sl, t.p) {
			t.p++
			t.at = 0
			return x.to(ringAtCell, "finds an item that was taken")
		}
		t.state = sl
		return x.to(ringAgain, "finds an item")
	case ringAgain:
		if s.returned != t.back && x.bug != ringReadsBack {
			return x.to(ringBack, "sees that items came back meanwhile")
		}
		t.first = x.first()
		if t.at == 0 {
			return x.to(ringEmpty, "sees again that none came back")
		}
		return x.to(ringTake, "sees again that none came back")
	case ringEmpty:
		if x.bug != ringLooksOnce && x.ahead(*x.cellOf(t.p), t.p) >= 0 {
			return x.to(ringBack, "sees that the cell was filled")
		}
		if t.first != 0 {
			s.wrong = ringNotEmpty
		}
		return x.end("finds nothing")
	case ringTake:
		sl := &s.slot[t.at-1]
		if *sl != t.state && x.bug != ringStores {
			return x.to(ringBack, "fails to take it")
		}
		x.remove(t.p)
		sl.kind, sl.owner = kind, me
		return x.to(ringSetHead, "takes it")
	case ringSetHead:
		s.head = t.p + 1
		return x.to(ringCopy, "writes the head")
	case ringCopy:
		if s.slot[t.at-1].item == 0 {
			s.wrong = ringTorn
		}
		*t = ringThread{at: t.at}
		if kind == queueLeased {
			if x.bug == ringDeviatesLate {
				s.irregular = true
			}
			return x.to(ringLeased, "has it on lease")
		}
		return x.to(ringFree, "copies it")
	case ringLeased:
		x.more = x.choice == 0
		if x.choice == 0 {
			return x.to(ringFree, "is about to acknowledge")
		}
		return x.to(ringNackDeviate, "is about to give it back")
	case ringFree:
		if s.slot[t.at-1].kind == queueFree {
			s.wrong = ringTwice
		}
		s.slot[t.at-1] = ringSlot{}
		return x.end("makes its slot free")
	case ringNackDeviate:
		s.irregular = true
		return x.to(ringCountBack, "says that an item comes back")
	case ringCountBack:
		t.back = s.returned
		return x.to(ringNack, "reads the count of returns")
	case ringNack:
		sl := &s.slot[t.at-1]
		sl.kind, sl.owner = queueReturned, t.back>>1
		if x.bug == ringNoCount {
			sl.owner = 0
		}
		x.comesBack(sl.tag)
		if x.bug == ringTellsNobody {
			return x.end("gives it back")
		}
		return x.to(ringTell, "gives it back")
	case ringTell:
		x.tell()
		return x.end("tells")
	}
	panic(t.pc)
}

// reap executes a step of the reaper.
func (x *ringExec) reap() (said string, optional bool) {
	s, t := &x.s, x.t
	isDead := func(owner uint8) bool { return owner != 0 && s.dead>>(owner-1)&1 != 0 }
	switch t.pc {
	case ringIdle:
		if s.dead == s.reaped {
			return "", false
		}
		t.item = s.dead
		return x.to(ringReap, "begins to reap")
	case ringReap:
		if t.k == x.slots {
			s.reaped = t.item
			if s.returned&1 == 0 || x.bug != ringReapTrusts {
				x.tell()
			}
			return x.end("tells")
		}
		sl := &s.slot[t.k]
		switch {
		case sl.kind == queueReturned || !isDead(sl.owner):
		case sl.kind == queueFull && x.bug != ringReapsPut:
			t.state = *sl
			return x.to(ringReapCell, "finds a slot that was put by the dead")
		case sl.kind == queueFull, sl.kind == queueClaimed:
			*sl = ringSlot{}
		case x.bug == ringReapsNothing:
		default:
			// In the code, the flag, the count and the state change in three steps, as in a Nack.
			s.irregular = true
			sl.kind, sl.owner = queueReturned, s.returned>>1
			x.comesBack(sl.tag)
		}
		t.k++
		return x.to(ringReap, "looks at a slot")
	case ringReapCell:
		sl := &s.slot[t.k]
		if !x.named(*x.cellOf(t.state.tag), t.k, t.state) && *sl == t.state {
			*sl = ringSlot{}
		}
		t.state = ringSlot{}
		t.k++
		return x.to(ringReap, "looks at its cell")
	}
	panic(t.pc)
}
