package prims

import (
	"fmt"
	"math/bits"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// signalGateWord is the word of a gate. It alone says whether the gate's queue has to be served. The bits in the
// signals, the summary and the permits only help to find such words. A reap can repair them from the gate words at
// any time.
//
//	bits  0..28  executor   the participant that executes the queue, or 0
//	bit   29     scheduled  the next executor has to serve the queue
//	bit   30     executing  a worker serves the queue
//	bit   31     reserved
//	bits 32..63  epoch      counts the executions, and wraps
//
//	executor  scheduled  executing  meaning                        left by
//	0         0          0          idle (also all-zero memory)    Finish
//	0         1          0          to be executed by the winner   Schedule, Finish,
//	                                of the CAS to executing        FinishAndSchedule, reap
//	n         0          1          n executes                     Begin, Next, TryBeginInline
//	n         1          1          the same, and something came   Schedule
//	                                meanwhile
//
// While scheduled is set and executing is not, the bit in the signal is set. There are two exceptions. The first is
// the time between the CAS of this word and the setting of the bit. The second is the time between the clearing of the
// bit and the check of this word: each process that clears the bit checks this word afterwards.
//
//	writers: Schedule, Begin, Finish and their like, reaps (any process), each by CAS
//	readers: the same
//	order:   release by Schedule and Finish, acquire by Begin; seq-cst against the bits
//	futex:   none
//	crash:   an executor that is not current is dead: the reap schedules the queue. The
//	         epoch then differs from the one that the executor remembers, so nobody can
//	         finish an execution that is not its own
type signalGateWord uint64

const (
	gateScheduled signalGateWord = 1 << 29
	gateExecuting signalGateWord = 1 << 30
	gateReserved  signalGateWord = 1 << 31
	gateEpoch     signalGateWord = 1 << 32
	gateEpochs    signalGateWord = ^(gateEpoch - 1)
)

func (g signalGateWord) participant() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(g & arenakernel.ParticipantIDMask)
}
func (g signalGateWord) scheduled() bool { return g&gateScheduled != 0 }
func (g signalGateWord) executing() bool { return g&gateExecuting != 0 }
func (g signalGateWord) epoch() uint32   { return uint32(g >> 32) }

// ready reports whether the gate waits for an executor.
func (g signalGateWord) ready() bool { return g.scheduled() && !g.executing() }

// idle reports whether the queue is neither scheduled nor executed.
func (g signalGateWord) idle() bool { return !g.scheduled() && !g.executing() }

// schedule returns the word after a producer has scheduled the queue.
func (g signalGateWord) schedule() signalGateWord { return g | gateScheduled }

// begin returns the word at the beginning of the next execution, by participant n.
func (g signalGateWord) begin(n arenakernel.ParticipantID) signalGateWord {
	return (g+gateEpoch)&gateEpochs | gateExecuting | signalGateWord(n)
}

// finish returns the word after the end of an execution. The queue is scheduled if a producer has scheduled it
// meanwhile, or if again is true.
func (g signalGateWord) finish(again bool) signalGateWord {
	next := g & (gateEpochs | gateScheduled)
	if again {
		next |= gateScheduled
	}
	return next
}

// orphan returns the word after the death of the executor: the queue is scheduled again.
func (g signalGateWord) orphan() signalGateWord { return (g+gateEpoch)&gateEpochs | gateScheduled }

// valid reports whether a correct participant may have written g.
func (g signalGateWord) valid() bool {
	return g&gateReserved == 0 && g.executing() == (g.participant() != 0)
}

// String describes the word by the names of its parts.
func (g signalGateWord) String() string {
	s := "idle"
	switch {
	case g.executing() && g.scheduled():
		s = fmt.Sprintf("executing %v, scheduled", g.participant())
	case g.executing():
		s = fmt.Sprintf("executing %v", g.participant())
	case g.scheduled():
		s = "scheduled"
	}
	return fmt.Sprintf("%s, epoch %d", s, g.epoch())
}

// signalStatus is the status word of a SignalWaker. It is separate from the summary, so that clearing bits of the
// summary cannot clear a bit of the status.
//
//	bit  0      yield  a worker has yielded
//	bit  1      tasks  the partition has tasks
//	bits 2..63  reserved
//
//	yield  tasks  meaning                                     left by
//	0      0      nothing (also all-zero memory)              TryUnmarkYield, TryUnmarkTasks
//	1      0|1    a worker yielded                            MarkYield
//	0|1    1      a leaf of the partition may have work       MarkTasks, SyncPartitionSummary
//
//	writers: the above (any process)
//	readers: StatusBits
//	order:   seq-cst, tasks against partition
//	futex:   none
//	crash:   a superfluous bit costs one check; the reap sets tasks if the partition has bits
type signalStatus uint64

const (
	statusYield signalStatus = 1 << iota
	statusTasks
)

// signalCount counts the workers and sleepers that a participant has registered at a SignalWaker. Executions and
// reserved tasks are not counted in it.
//
//	bits  0..28  name      the participant; the counts of a name that is not current are 0
//	bits 29..43  workers   registered workers
//	bits 44..63  sleepers  goroutines that wait for a permit, or have registered as sleepers
//
//	writers: the participant, by CAS; reapers (CAS to 0)
//	readers: WorkerCount, Sleepers
//	order:   relaxed; nobody's wake depends on it
//	futex:   none
//	crash:   the counts of a dead participant are ignored
type signalCount uint64

const (
	countWorker  signalCount = 1 << 29
	countSleeper signalCount = 1 << 44

	maxWorkers  = 1<<15 - 1
	maxSleepers = 1<<20 - 1
)

func (c signalCount) participant() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(c & arenakernel.ParticipantIDMask)
}
func (c signalCount) workers() int  { return int(c >> 29 & maxWorkers) }
func (c signalCount) sleepers() int { return int(c >> 44) }

// signalsOf returns the number of signals of a SignalWaker. The parameter is the word signalHead.config.
func signalsOf(config uint32) int {
	if n := int(config & 0xff); n != 0 {
		return n
	}
	return signalBits
}

const signalCounts = 1 << 8 // the bit of signalHead.config that is set if the option Count was set

// nearestBit returns the bit of bitmap that is nearest to start. If two bits are equally near, it returns the lower
// one. If there is no bit, or if start is not one of 0 to 63, it returns 64.
func nearestBit(bitmap uint64, start int) int {
	if bitmap == 0 || start >= signalBits || start < 0 {
		return signalBits
	}
	above := bits.TrailingZeros64(bitmap >> start)
	below := bits.LeadingZeros64(bitmap << (signalBits - 1 - start))
	if above < below {
		return start + above
	}
	if below == signalBits {
		return signalBits
	}
	return start - below
}

// signalBits is the number of queues of a signal. A waker also has at most that many signals.
const signalBits = 64
