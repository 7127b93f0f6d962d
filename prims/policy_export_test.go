package prims

// OverwritePolicy stores PolicyRollback into the policy word of s, as a peer may do.
func (s *Synchronized[T]) OverwritePolicy() { s.lock.words.policy = PolicyRollback.stored() }

// OverwritePolicy stores PolicyRollback into the policy word of the lock of c, as a peer may do.
func (c *CohortMutex) OverwritePolicy() { c.global.words.policy = PolicyRollback.stored() }
