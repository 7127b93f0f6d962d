package prims

// withKnown returns the slot records that a handle knows, followed by the records of read whose slots are not
// among the known ones. read is what the list of the object has now. A record stays on the list until the
// object is deleted. So if the list lacks a known record, a peer has overwritten the list. slotOf returns the
// slot of a record, which is at most slots.
func withKnown[R any](known, read []R, slotOf func(R) int, slots int) []R {
	has := make([]bool, slots+1)
	for _, r := range known {
		has[slotOf(r)] = true
	}
	all := append(make([]R, 0, max(len(known), len(read))), known...)
	for _, r := range read {
		if !has[slotOf(r)] {
			all = append(all, r)
		}
	}
	return all
}
