package litmus_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/shmsync/shmsync/internal/litmus"
)

// protocol is a part of a protocol of the library, and a result that must not happen.
type protocol struct {
	program func(l LSE) Program
	wrong   func(r Result) bool
	// weaker are variants of the program with fewer or weaker instructions. On a CPU without LSE, the model allows
	// the wrong result for each variant.
	weaker map[string]func(l LSE) Program
}

// TestProtocols checks that the model forbids the wrong results of the pairs of accesses of docs/memory-model.md,
// with the instructions that the compilers emit.
func TestProtocols(t *testing.T) {
	for name, p := range protocols {
		t.Run(name, func(t *testing.T) {
			for _, l := range []LSE{pairs, lse} {
				require.False(t, Allowed(p.program(l), p.wrong), "LSE: %v", l)
				require.True(t, Allowed(p.program(l), func(Result) bool { return true }), "LSE: %v: there is no execution", l)
			}
			for how, program := range p.weaker {
				require.True(t, Allowed(program(pairs), p.wrong), how)
			}
		})
	}
}

var protocols = map[string]protocol{
	// An Event is set: its word is 1. A process writes plain data and calls Set, which makes a fence, finds the Event
	// set, and changes nothing. Then a TryWait takes the token. The caller of the TryWait must see the data.
	"event.set": {
		program: func(l LSE) Program {
			return Program{
				{STR("data", 1), l.Add("", "fence", 1), LDAR("set", "word")},
				{l.CAS("word", 1, 2), LDAR("", "word"), LDR("seen", "data")},
				{STLR("word", 1)},
			}
		},
		wrong: func(r Result) bool { return r["set"] == 1 && r["seen"] == 0 && r["word"] == 2 },
		weaker: map[string]func(l LSE) Program{
			"no load after the CAS": func(l LSE) Program {
				return Program{
					{STR("data", 1), l.Add("", "fence", 1), LDAR("set", "word")},
					{l.CAS("word", 1, 2), LDR("seen", "data")},
					{STLR("word", 1)},
				}
			},
			"no fence": func(l LSE) Program {
				return Program{
					{STR("data", 1), LDAR("set", "word")},
					{l.CAS("word", 1, 2), LDAR("", "word"), LDR("seen", "data")},
					{STLR("word", 1)},
				}
			},
		},
	},
	// The same in C, whose fence is DMB.
	"event.set in C": {
		program: func(l LSE) Program {
			return Program{
				{STR("data", 1), DMB, LDAR("set", "word")},
				{l.CAS("word", 1, 2), DMB, LDR("seen", "data")},
				{STLR("word", 1)},
			}
		},
		wrong: func(r Result) bool { return r["set"] == 1 && r["seen"] == 0 && r["word"] == 2 },
		weaker: map[string]func(l LSE) Program{
			"no fence after the CAS": func(l LSE) Program {
				return Program{
					{STR("data", 1), DMB, LDAR("set", "word")},
					{l.CAS("word", 1, 2), LDR("seen", "data")},
					{STLR("word", 1)},
				}
			},
		},
	},
	// A call of Schedule finds in the gate that the queue is already scheduled. Then a call of Begin changes the
	// gate, and loads the bits of the signal. The process that executes the queue must see the item that was written
	// before the Schedule.
	"signal.schedule": {
		program: func(l LSE) Program {
			return Program{
				{STR("item", 1), l.Add("", "fence", 1), LDAR("scheduled", "gate")},
				{l.CAS("gate", 1, 2), LDAR("", "bits"), LDR("seen", "item")},
				{STLR("gate", 1)},
			}
		},
		wrong: func(r Result) bool { return r["scheduled"] == 1 && r["seen"] == 0 && r["gate"] == 2 },
	},
	// A process writes data and calls Get, which takes the first item and stores a hint, the word head. A Put finds
	// in the hint that there is room, without a load of the slot of the taken item. The caller of the Put must see
	// the data.
	"queue.room by the hint": {
		program: func(l LSE) Program {
			return Program{
				{STR("data", 1), l.CAS("slot", 0, 1), STLR("head", 1)},
				{LDAR("head seen", "head"), LDR("seen", "data")},
			}
		},
		wrong: func(r Result) bool { return r["head seen"] == 1 && r["seen"] == 0 },
		weaker: map[string]func(l LSE) Program{
			"a plain store of the hint": func(l LSE) Program {
				return Program{
					{STR("data", 1), l.CAS("slot", 0, 1), STR("head", 1)},
					{LDAR("head seen", "head"), LDR("seen", "data")},
				}
			},
		},
	},
	// The release of a biased hold is a store, followed by a load. On arm64, the accesses of the releaser and of the
	// waiter stay in order even without membarrier.
	"mutex.release, biased": {
		program: func(l LSE) Program {
			return Program{
				{STLR("owner", 1), LDAR("announced", "wake")},
				{l.CAS("wake", 0, 1), LDAR("free", "owner")},
			}
		},
		wrong: func(r Result) bool { return r["announced"] == 0 && r["free"] == 0 },
		weaker: map[string]func(l LSE) Program{
			"a load with __ATOMIC_ACQUIRE": func(l LSE) Program {
				return Program{
					{STLR("owner", 1), LDAPR("announced", "wake")},
					{l.CAS("wake", 0, 1), LDAR("free", "owner")},
				}
			},
		},
	},
	"waitlist.announce": {
		program: func(l LSE) Program {
			return Program{
				{l.CAS("owner", 0, 1), LDAR("announced", "wake")},
				{l.CAS("wake", 0, 1), LDAR("free", "owner")},
			}
		},
		wrong: func(r Result) bool { return r["announced"] == 0 && r["free"] == 0 },
		weaker: map[string]func(l LSE) Program{
			"a load with __ATOMIC_RELAXED": func(l LSE) Program {
				return Program{
					{l.CAS("owner", 0, 1), LDR("announced", "wake")},
					{l.CAS("wake", 0, 1), LDAR("free", "owner")},
				}
			},
		},
	},
	// A waiter finds that another waiter has already announced itself in the wake word. So it does not change the
	// word, but its two loads must stay in order.
	"waitlist.announce, announced by another waiter": {
		program: func(l LSE) Program {
			return Program{
				{l.CAS("owner", 0, 1), LDAR("announced", "wake")},
				{l.CAS("wake", 0, 1)},
				{LDAR("found", "wake"), LDAR("free", "owner")},
			}
		},
		wrong: func(r Result) bool { return r["announced"] == 0 && r["found"] == 1 && r["free"] == 0 },
	},
	// A reader adds itself and loads the gate. A writer closes the gate and loads the reader word.
	"rwmutex.gate": {
		program: func(l LSE) Program {
			return Program{
				{l.Add("", "readers", 1), LDAR("closed", "gate"), LDR("seen", "data")},
				{l.CAS("gate", 0, 1), LDAR("reading", "readers"), l.CAS("gate", 1, 2), STR("data", 1)},
			}
		},
		wrong: func(r Result) bool { return r["closed"] == 0 && r["reading"] == 0 },
		weaker: map[string]func(l LSE) Program{
			"the reader loads with __ATOMIC_ACQUIRE": func(l LSE) Program {
				return Program{
					{l.Add("", "readers", 1), LDAPR("closed", "gate")},
					{l.CAS("gate", 0, 1), LDAR("reading", "readers")},
				}
			},
		},
	},
	// A writer of a Synchronized commits. The next writer begins to write the other copy, from which a Load reads
	// at the same time. The Load must find out that the copy was written. The first writer releases the lock by a
	// store, and the next writer takes the lock by a CAS.
	"synchronized.commit": {
		program: func(l LSE) Program {
			return Program{
				{STLR("current", 1), STLR("lock", 1), l.CAS("lock", 1, 2), STR("copy", 1)},
				{LDAR("first", "current"), LDR("seen", "copy"), DMBLD, LDAR("second", "current")},
			}
		},
		wrong: func(r Result) bool { return r["first"] == 0 && r["seen"] == 1 && r["second"] == 0 },
		weaker: map[string]func(l LSE) Program{
			"no load fence": func(l LSE) Program {
				return Program{
					{STLR("current", 1), STLR("lock", 1), l.CAS("lock", 1, 2), STR("copy", 1)},
					{LDAR("first", "current"), LDR("seen", "copy"), LDAR("second", "current")},
				}
			},
			"no lock between the commits": func(LSE) Program {
				return Program{
					{STLR("current", 1), STR("copy", 1)},
					{LDAR("first", "current"), LDR("seen", "copy"), DMBLD, LDAR("second", "current")},
				}
			},
		},
	},
	// A call of State on a Waitable reads an image. A writer finds that another process has committed a change, so that
	// this image is no longer valid, and overwrites it. The State must find out that the image was overwritten.
	"waitable.state": {
		program: func(l LSE) Program {
			return Program{
				{l.CAS("commit", 0, 1)},
				{LDAR("found", "commit"), STR("image", 1)},
				{LDAR("first", "commit"), LDR("seen", "image"), DMBLD, LDAR("second", "commit")},
			}
		},
		wrong: func(r Result) bool {
			return r["found"] == 1 && r["first"] == 0 && r["seen"] == 1 && r["second"] == 0
		},
	},
	// A joiner stores 0 in the word "described" of its slot and loads this word again, before it changes the label.
	// Then it stores its generation in the word. In this program, the joiner stores 2 instead of 0, because each word
	// is 0 at the beginning.
	"arena.described": {
		program: func(LSE) Program {
			return Program{
				{STLR("described", 2), LDAR("", "described"), STR("label", 1), STLR("described", 3)},
				{LDAR("first", "described"), LDR("seen", "label"), DMBLD, LDAR("second", "described")},
			}
		},
		wrong: func(r Result) bool { return r["first"] == 0 && r["seen"] == 1 && r["second"] == 0 },
		weaker: map[string]func(l LSE) Program{
			"no load after the store": func(LSE) Program {
				return Program{
					{STLR("described", 2), STR("label", 1), STLR("described", 3)},
					{LDAR("first", "described"), LDR("seen", "label"), DMBLD, LDAR("second", "described")},
				}
			},
			"an exchange instead of the store and the load": func(l LSE) Program {
				return Program{
					{l.CAS("described", 0, 2), STR("label", 1), STLR("described", 3)},
					{LDAR("first", "described"), LDR("seen", "label"), DMBLD, LDAR("second", "described")},
				}
			},
		},
	},
	// The author of a record changes the head of the record before its entries. A process that has read a new entry
	// must see the new head.
	"record.commit": {
		program: func(l LSE) Program {
			return Program{
				{STLR("head", 1), STLR("entry", 1), l.CAS("commit", 0, 1)},
				{LDAR("seen", "entry"), LDAR("version", "head")},
			}
		},
		wrong: func(r Result) bool { return r["seen"] == 1 && r["version"] == 0 },
		weaker: map[string]func(l LSE) Program{
			"plain stores": func(l LSE) Program {
				return Program{
					{STR("head", 1), STR("entry", 1), l.CAS("commit", 0, 1)},
					{LDAR("seen", "entry"), LDAR("version", "head")},
				}
			},
		},
	},
	// A process restores bytes and ends the rollback. A second process sees the end, and frees the memory. A third
	// process allocates the memory and overwrites it.
	"tx.idle": {
		program: func(l LSE) Program {
			return Program{
				{STR("data", 1), STLR("state", 1)},
				{LDAR("idle", "state"), l.CAS("block", 0, 1)},
				{l.CAS("block", 1, 2), STR("data", 2)},
			}
		},
		wrong: func(r Result) bool { return r["idle"] == 1 && r["block"] == 2 && r["data"] == 1 },
		weaker: map[string]func(l LSE) Program{
			"a plain store of the state": func(l LSE) Program {
				return Program{
					{STR("data", 1), STR("state", 1)},
					{LDAR("idle", "state"), l.CAS("block", 0, 1)},
					{l.CAS("block", 1, 2), STR("data", 2)},
				}
			},
		},
	},
	// A word W contains the ID of a dead participant. A thread stores this ID in an act word, and then reads W again.
	// Another process removes the ID from W. If the thread still finds the ID in W, a joiner that finds W without the
	// ID must find the ID in the act word.
	"arena.act": {
		program: func(l LSE) Program {
			return Program{
				{STLR("act", 1), LDAR("again", "word")},
				{l.CAS("word", 0, 1)},
				{LDAR("removed", "word"), LDAR("acting", "act")},
			}
		},
		wrong: func(r Result) bool { return r["again"] == 0 && r["removed"] == 1 && r["acting"] == 0 },
	},
	// A reader of an object stores a guard and looks for the object again. The process that frees the block has removed the
	// object, loads the guards, and overwrites the block.
	"arena.guard": {
		program: func(l LSE) Program {
			return Program{
				{STLR("guard", 1), LDAR("gone", "entry"), LDR("seen", "block")},
				{l.CAS("entry", 0, 1), LDAR("guarded", "guard"), STR("block", 1)},
			}
		},
		wrong: func(r Result) bool { return r["gone"] == 0 && r["guarded"] == 0 },
	},
}
