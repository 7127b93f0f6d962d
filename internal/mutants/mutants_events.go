package main

// eventMutants are mistakes in the auto-reset Event, and in calls that find nothing to change.
var eventMutants = []mutant{
	{
		name: "Set of an auto-reset Event makes no second token for a second wait",
		file: "prims/event_auto.go",
		old:  "if s.tokens() > waits || s.tokens() == tokensMost {",
		new:  "if s.tokens() > 0 && waits > 0 {",
		pkg:  "prims", run: "TestEventAutoReset/asManyAsSets|TestEventRemembersItsShares",
	},
	{
		name: "the end of a wait for an auto-reset Event clears the announcement of other waits",
		file: "prims/event_auto.go",
		old:  ".alone(others)",
		new:  ".alone(false)",
		pkg:  "prims", run: "TestEventAutoReset/oneAtATime", tags: withPoints, env: noLooks,
	},
	{
		name: "a wait of an auto-reset Event that leaves tokens passes no wake on",
		file: "prims/event_auto.go",
		old:  "\t\tx.pass()\n",
		new:  "",
		pkg:  "prims", run: "TestEventWaitPassesTheWakeOn", tags: withPoints, env: noLooks,
	},
	{
		name: "a wait of an auto-reset Event that gives up does not take the last token",
		file: "prims/event_auto.go",
		old:  "took := unless && tokens > 0",
		new:  "took := unless && tokens > 1",
		pkg:  "prims", run: "TestEventTokenBeforeTheEndOfAWait",
	},
	{
		name: "waits of dead participants count as waits of an auto-reset Event",
		file: "prims/event_shares.go",
		old:  "waits() == 0 || !x.a.Current(",
		new:  "waits() == 0 || 0 == (",
		pkg:  "prims", run: "TestEventOutlivesItsFirstParticipant",
	},
	{
		name: "Set of an auto-reset Event still counts the wait that ended last",
		file: "prims/event_auto.go",
		old:  "\t\tx.countOff(s)\n\t\tif x.swap(s, s.with(1)) {",
		new:  "\t\tif x.swap(s, s.with(1)) {",
		pkg:  "prims", run: "TestEventWaitEndsInAStoppedProcess", tags: withPoints,
	},
	{
		name: "a participant inherits the waits of its predecessor in the share of an auto-reset Event",
		file: "prims/event_shares.go",
		old:  "uint64(h&^waitShare(1<<32-1))",
		new:  "uint64(h)",
		pkg:  "prims", run: "TestEventOutlivesItsFirstParticipant",
	},
	{
		name: "two waits of one participant can end at the same version of an auto-reset Event",
		file: "prims/event_auto.go",
		old:  "ended() == to.version() {",
		new:  "ended() == to.version()+1 {",
		pkg:  "prims", run: "TestEventEndsWithTheVersionOfTheLastEnd",
	},
	{
		name: "a WaitAny leaves the token of an auto-reset Event to a stopped process",
		file: "prims/event_auto_pending.go",
		old:  "time.AfterFunc(eventYield, w.notify)",
		new:  "time.AfterFunc(time.Hour, w.notify)",
		pkg:  "prims", run: "TestEventWaitBehindOneThatIsStopped/e.async", tags: withPoints,
	},
	{
		name: "a Wait leaves the token of an auto-reset Event to a stopped process",
		file: "prims/event_auto.go",
		old:  "spec.Bounded = int64(eventYield)",
		new:  "spec.Bounded = int64(time.Hour)",
		pkg:  "prims", run: "TestEventWaitBehindOneThatIsStopped/e.wait$", tags: withPoints,
	},
	{
		name: "a call that finds nothing to change reads without a memory fence",
		file: "prims/fence.go",
		old:  "\tw.Add(1)\n",
		new:  "\t_ = &w\n",
		pkg:  "prims", run: "TestCallThatChangesNothing",
	},
}
