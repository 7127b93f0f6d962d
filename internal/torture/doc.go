// Package torture kills processes while they use all primitives, and checks that the other processes continue without
// errors.
//
// A torture is one arena with objects of all kinds. A few processes, the residents, use all of them and check the
// results. Other processes, the victims, join, use some objects, and end in one of many ways. The parent starts, kills
// and stops processes; it is no participant of the arena. Between rounds all processes pause, and a resident checks
// that the arena is in the state that it would have without deaths.
//
// A job is what a process does with one kind of object. Victims and residents that work at the jobs of crash-safe data
// may be programs in C: a C compiler builds worker.c when a torture begins. A resident in C writes the begin and end of
// each operation to shared memory, and the parent computes how long the operation took.
//
// A seed determines the plan of the victims.
package torture
