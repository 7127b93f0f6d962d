package prims

// withKnown returns the slot records that a handle already knows, followed by new ones. The new ones are the
// records in the parameter read, the present list of the object, whose slots the handle does not know yet. A
// correct process never removes a record from the list before the object is deleted. So if the list lacks a known
// record, a peer has overwritten the list, and withKnown keeps the record. slotOf returns the slot of a record,
// which is at most slots.
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
