//go:build linux

package cinterop

import (
	"syscall"
	"testing"
)

const release = 2 // the number of PolicyRelease

func TestFairMutexPlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "fair.open", "f")
		s.b.start(t, "fair.open", "f", release).fails(t, syscall.EINVAL)
		s.a.do(t, "fair.lock", "f")
		s.b.start(t, "fair.try", "f").fails(t, syscall.EBUSY)
		s.b.start(t, "fair.lock", "f", 20).fails(t, syscall.ETIMEDOUT)
		s.b.start(t, "fair.unlock", "f").fails(t, syscall.EPERM)
		w := s.b.blocked(t, off, 1, "fair.lock", "f")
		x := s.c.blocked(t, off, 2, "fair.lock", "f")
		s.a.do(t, "fair.unlock", "f")
		w.must(t)
		s.a.start(t, "fair.try", "f").fails(t, syscall.EBUSY)
		s.b.do(t, "fair.unlock", "f")
		x.must(t)
		s.c.do(t, "fair.unlock", "f")
		s.a.do(t, "fair.try", "f")
	})
}

func TestFairMutexKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "fair.open", "f")
		s.a.do(t, "fair.lock", "f")
		w := s.b.blocked(t, off, 1, "fair.lock", "f")
		x := s.c.blocked(t, off, 2, "fair.lock", "f")
		s.a.kill(t)
		w.fails(t, syscall.EOWNERDEAD)
		x.fails(t, syscall.EOWNERDEAD)
		s.b.start(t, "fair.unlock", "f").fails(t, syscall.EPERM)
		s.b.start(t, "fair.spoil", "f").fails(t, syscall.ENOTRECOVERABLE)
		s.c.start(t, "fair.lock", "f").fails(t, syscall.ENOTRECOVERABLE)
		if n := s.c.do(t, "fair.recover", "f"); n != 1 {
			t.Fatalf("%d repairs", n)
		}
		s.b.do(t, "fair.lock", "f")
	})
}

// With PolicyRelease the death of the holder passes the lock to the next waiter in the queue.
func TestFairMutexKilledHolderRelease(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "fair.open", "f", release)
		s.a.do(t, "fair.lock", "f")
		w := s.b.blocked(t, off, 1, "fair.lock", "f")
		s.a.kill(t)
		w.must(t)
		s.c.start(t, "fair.try", "f").fails(t, syscall.EBUSY)
	})
}

func TestFairMutexKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "fair.open", "f")
		s.b.do(t, "fair.lock", "f")
		s.a.blocked(t, off, 1, "fair.lock", "f")
		w := s.c.blocked(t, off, 2, "fair.lock", "f")
		s.a.kill(t)
		s.b.do(t, "fair.unlock", "f")
		w.must(t)
		s.none(t, off)
	})
}

// A waiter is stopped, is handed the lock, and is killed. It never held the lock, so no death is reported.
func TestFairMutexKilledGranted(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "fair.open", "f")
		s.b.do(t, "fair.lock", "f")
		s.a.blocked(t, off, 1, "fair.lock", "f")
		w := s.c.blocked(t, off, 2, "fair.lock", "f")
		s.a.stop(t)
		s.b.do(t, "fair.unlock", "f")
		s.a.kill(t)
		w.must(t)
		s.c.do(t, "fair.unlock", "f")
		s.b.do(t, "fair.lock", "f")
		s.none(t, off)
	})
}

func TestFuturePlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "future.open", "f")
		s.a.do(t, "future.claim", "f")
		s.b.start(t, "future.claim", "f").fails(t, syscall.EBUSY)
		s.b.start(t, "future.wait", "f", 20).fails(t, syscall.ETIMEDOUT)
		w := s.b.blocked(t, off, 1, "future.wait", "f")
		x := s.c.blocked(t, off, 2, "future.wait", "f")
		s.a.do(t, "future.set", "f", 5)
		if v := w.must(t); v != 5 {
			t.Fatalf("set to %d", v)
		}
		x.must(t)
		s.b.start(t, "future.set", "f", 6).fails(t, syscall.EBUSY)
		if v := s.c.do(t, "future.wait", "f", 0); v != 5 {
			t.Fatalf("is %d", v)
		}
		s.b.do(t, "future.reset", "f")
		s.a.start(t, "future.reset", "f").fails(t, syscall.EBUSY)
		if s.a.do(t, "future.isset", "f") != 0 {
			t.Fatal("still set")
		}
	})
}

func TestFutureKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "future.open", "f")
		s.a.do(t, "future.claim", "f")
		w := s.b.blocked(t, off, 1, "future.wait", "f")
		s.a.kill(t)
		w.fails(t, syscall.EOWNERDEAD)
		s.c.start(t, "future.wait", "f").fails(t, syscall.EOWNERDEAD)
		s.c.start(t, "future.set", "f", 0).fails(t, syscall.EBUSY)
		s.c.do(t, "future.reset", "f")
		s.c.do(t, "future.claim", "f")
		s.c.do(t, "future.set", "f", 0)
		s.b.do(t, "future.wait", "f")
	})
}

func TestFutureKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "future.open", "f")
		s.a.blocked(t, off, 1, "future.wait", "f")
		w := s.c.blocked(t, off, 2, "future.wait", "f")
		s.a.kill(t)
		s.b.do(t, "future.set", "f", 1)
		w.must(t)
		s.none(t, off)
	})
}

func TestCondPlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "cond.open", "c")
		w := s.b.blocked(t, off, 1, "cond.wait", "c")
		x := s.c.blocked(t, off, 2, "cond.wait", "c")
		y := s.a.blocked(t, off, 3, "cond.wait", "c")
		s.a.do(t, "cond.signal", "c")
		w.must(t)
		s.b.start(t, "cond.wait", "c", 20).fails(t, syscall.ETIMEDOUT)
		s.a.do(t, "cond.broadcast", "c")
		x.must(t)
		y.must(t)
		s.none(t, off)
		s.b.do(t, "cond.lock", "c") // succeeds only if every process has unlocked the lock
	})
}

// If a waiter got a signal and died before it had locked the lock again, the signal passes to the
// next waiter.
func TestCondKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "cond.open", "c")
		s.a.blocked(t, off, 1, "cond.wait", "c")
		w := s.c.blocked(t, off, 2, "cond.wait", "c")
		s.b.do(t, "cond.lock", "c")
		s.b.do(t, "cond.signal", "c")
		s.waits(t, off, 1) // agent a was woken, and now waits for the lock
		s.a.kill(t)
		s.b.do(t, "cond.unlock", "c")
		w.must(t)
	})
}

func TestCondKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "cond.open", "c")
		s.a.blocked(t, off, 1, "cond.wait", "c")
		w := s.c.blocked(t, off, 2, "cond.wait", "c")
		s.a.kill(t)
		s.b.do(t, "cond.signal", "c")
		w.must(t)
		s.none(t, off)
	})
}

// The holder of the lock of a Cond dies. So a wait that was woken cannot lock again, and ends with the error for that
// death.
func TestCondKilledLockHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "cond.open", "c")
		w := s.b.blocked(t, off, 1, "cond.wait", "c")
		s.a.do(t, "cond.lock", "c")
		s.a.do(t, "cond.signal", "c")
		s.a.kill(t)
		w.fails(t, syscall.EOWNERDEAD)
		s.none(t, off)
	})
}

func TestSemaphorePlain(t *testing.T) {
	t.Parallel()
	for name, transferable := range map[string]int{"s": 0, "t": 1} {
		forPairs(t, func(t *testing.T, s scene) {
			off := s.a.do(t, "sem.open", name, 3, transferable)
			s.b.start(t, "sem.open", name, 4).fails(t, syscall.EINVAL)
			s.a.do(t, "sem.acquire", name, 2)
			s.b.do(t, "sem.acquire", name, 1)
			s.b.start(t, "sem.try", name, 1).fails(t, syscall.EBUSY)
			s.b.start(t, "sem.acquire", name, 1, 20).fails(t, syscall.ETIMEDOUT)
			w := s.c.blocked(t, off, 1, "sem.acquire", name, 2)
			x := s.b.blocked(t, off, 2, "sem.acquire", name, 1)
			s.b.do(t, "sem.release", name, 1) // one permit is not enough for the first waiter
			s.a.do(t, "sem.release", name, 2)
			w.must(t)
			x.must(t)
			s.b.do(t, "sem.release", name, 1)
			s.c.do(t, "sem.release", name, 2)
			s.a.start(t, "sem.release", name, 1).fails(t, syscall.EPERM)
			if n := s.b.do(t, "sem.free", name); n != 3 {
				t.Fatalf("%d free", n)
			}
		})
	}
}

// A process holds permits of a Semaphore, and its share also has free permits. Other processes can acquire the free
// permits. After the death of the process they can acquire the held permits, too.
func TestSemaphoreKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "sem.open", "s", 5)
		for range 4 {
			s.a.do(t, "sem.acquire", "s", 2)
			s.a.do(t, "sem.release", "s", 2)
		}
		s.a.do(t, "sem.acquire", "s", 1)
		s.b.do(t, "sem.acquire", "s", 4) // takes the free permits in the share of a
		s.b.do(t, "sem.release", "s", 3)
		for range 3 {
			s.a.do(t, "sem.acquire", "s", 1)
			s.a.do(t, "sem.release", "s", 1)
		}
		s.a.do(t, "sem.acquire", "s", 2)
		w := s.c.blocked(t, off, 1, "sem.acquire", "s", 4)
		s.a.kill(t)
		w.must(t)
		s.c.do(t, "sem.release", "s", 4)
		s.b.do(t, "sem.release", "s", 1)
		eventually(t, "all is free", s.arena, func() bool { return s.b.do(t, "sem.free", "s") == 5 })
		s.b.do(t, "sem.acquire", "s", 5)
	})
}

func TestSemaphoreKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "sem.open", "s", 2)
		s.b.do(t, "sem.acquire", "s", 2)
		s.a.blocked(t, off, 1, "sem.acquire", "s", 2)
		w := s.c.blocked(t, off, 2, "sem.acquire", "s", 1)
		s.a.kill(t)
		s.b.do(t, "sem.release", "s", 1)
		w.must(t)
		s.none(t, off)
	})
}

// A stopped process is granted a permit, and is killed before it runs again. The permit goes to the next waiter. A
// permit that the process had accepted before goes to the next waiter, too, unless the Semaphore is transferable.
func TestSemaphoreGrantToTheKilledPassesOn(t *testing.T) {
	for _, transferable := range []int{0, 1} {
		forPairs(t, func(t *testing.T, s scene) {
			off := s.b.do(t, "sem.open", "s", 4, transferable)
			s.b.do(t, "sem.acquire", "s", 4)
			for range 2 { // the second victim gets the slot of the first
				victim := newAgent(t, s.a.lang, s.arena, "victim")
				accepts := victim.blocked(t, off, 1, "sem.acquire", "s", 1)
				s.b.do(t, "sem.release", "s", 1)
				accepts.must(t)
				victim.blocked(t, off, 1, "sem.acquire", "s", 1)
				victim.stop(t)
				s.b.do(t, "sem.release", "s", 1)
				victim.kill(t)
				s.c.do(t, "sem.acquire", "s", 1, 5000)
				s.c.do(t, "sem.release", "s", 1)
				s.b.do(t, "sem.acquire", "s", 2-transferable, 5000)
				if n := s.b.do(t, "sem.free", "s"); n != 0 {
					t.Fatalf("%d free", n)
				}
			}
			sound(t, s.arena)
		})
	}
}
