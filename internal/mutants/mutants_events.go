package main

// eventMutants are mistakes in the auto-reset Event, and in calls that find nothing to change.
var eventMutants = []mutant{
	{
		name: "a Set makes no token for a second wait",
		file: "prims/event_auto.go",
		old:  "if s.tokens() > waits || s.tokens() == tokensMost {",
		new:  "if s.tokens() > 0 && waits > 0 {",
		pkg:  "prims", run: "TestEventAutoReset/asManyAsSets|TestEventRemembersItsShares",
	},
	{
		name: "the end of a wait clears the announcement of the others",
		file: "prims/event_auto.go",
		old:  ".alone(others)",
		new:  ".alone(false)",
		pkg:  "prims", run: "TestEventAutoReset/oneAtATime", tags: withPoints, env: noLooks,
	},
	{
		name: "a wait that leaves tokens behind passes no wake on",
		file: "prims/event_auto.go",
		old:  "\t\tx.pass()\n",
		new:  "",
		pkg:  "prims", run: "TestEventWaitPassesTheWakeOn", tags: withPoints, env: noLooks,
	},
	{
		name: "a wait that gives up leaves a token that is there",
		file: "prims/event_auto.go",
		old:  "took := unless && tokens > 0",
		new:  "took := unless && tokens > 1",
		pkg:  "prims", run: "TestEventTokenBeforeTheEndOfAWait",
	},
	{
		name: "the waits of the dead count",
		file: "prims/event_shares.go",
		old:  "waits() == 0 || !x.a.Current(",
		new:  "waits() == 0 || 0 == (",
		pkg:  "prims", run: "TestEventOutlivesItsFirstParticipant",
	},
	{
		name: "a Set does not count off the wait that the word names",
		file: "prims/event_auto.go",
		old:  "\t\tx.countOff(s)\n\t\tif x.swap(s, s.with(1)) {",
		new:  "\t\tif x.swap(s, s.with(1)) {",
		pkg:  "prims", run: "TestEventWaitEndsInAStoppedProcess", tags: withPoints,
	},
	{
		name: "a participant inherits the waits of the one before",
		file: "prims/event_shares.go",
		old:  "uint64(h&^waitShare(1<<32-1))",
		new:  "uint64(h)",
		pkg:  "prims", run: "TestEventOutlivesItsFirstParticipant",
	},
	{
		name: "the version of an end is that of the last one, after 2^32 changes",
		file: "prims/event_auto.go",
		old:  "ended() == to.version() {",
		new:  "ended() == to.version()+1 {",
		pkg:  "prims", run: "TestEventEndsWithTheVersionOfTheLastEnd",
	},
	{
		name: "a wait without a goroutine leaves a token to a stopped process",
		file: "prims/event_auto_pending.go",
		old:  "time.AfterFunc(eventYield, w.notify)",
		new:  "time.AfterFunc(time.Hour, w.notify)",
		pkg:  "prims", run: "TestEventWaitBehindOneThatIsStopped/e.async", tags: withPoints,
	},
	{
		name: "a wait leaves a token to a stopped process",
		file: "prims/event_auto.go",
		old:  "spec.Bounded = int64(eventYield)",
		new:  "spec.Bounded = int64(time.Hour)",
		pkg:  "prims", run: "TestEventWaitBehindOneThatIsStopped/e.wait$", tags: withPoints,
	},
	{
		name: "a call that changes nothing makes no fence",
		file: "prims/fence.go",
		old:  "\tw.Add(1)\n",
		new:  "\t_ = &w\n",
		pkg:  "prims", run: "TestCallThatChangesNothing",
	},
}
