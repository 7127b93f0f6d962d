package prims

// OverwritePolicy stores PolicyRollback into the policy word of s, as a peer may do.
func (s *Synchronized[T]) OverwritePolicy() { s.lock.words.policy = PolicyRollback.stored() }

// OverwritePolicy does the same to the lock of c.
func (c *CohortMutex) OverwritePolicy() { c.global.words.policy = PolicyRollback.stored() }
