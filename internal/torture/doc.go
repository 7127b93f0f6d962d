// Package torture lets processes die while they use all primitives, and checks the survivors.
//
// A torture is one arena with objects of all kinds. Residents use all of them and check what
// they get. Victims come, use some, and end in one of many ways. The parent starts, kills
// and stops processes; it is no participant. Between rounds all processes rest, and a resident
// checks that the arena is as if nobody had died.
//
// A job is what a party does with one kind of object. Victims and residents that work at the
// jobs of crash-safe data may be programs in C: a C compiler builds worker.c when a torture
// begins. A resident in C tells the parent of its turns, and the parent measures them.
//
// A seed determines the plan of the victims.
package torture
