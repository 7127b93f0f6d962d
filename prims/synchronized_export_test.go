//go:build linux

package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// Lock returns the lock of s.
func (s *Synchronized[T]) Lock() *Mutex { return s.lock }

// LoadLocked is the part of Load that takes the lock.
func (s *Synchronized[T]) LoadLocked(v *T) error { return s.loadSlow(v) }

// SetOwnerWord overwrites the owner word.
func (s *Synchronized[T]) SetOwnerWord(v uint32) { s.lock.owner.Store(v) }

// SetCommits overwrites the number of commits.
func (s *Synchronized[T]) SetCommits(n uint64) { s.words.current.Store(n) }

// Object returns the object of s.
func (s *Synchronized[T]) Object() arenakernel.Object { return s.lock.object }
