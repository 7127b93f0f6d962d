// Package torture kills processes while they use all primitives, and checks that the other processes continue without
// errors.
//
// A torture has one arena with objects of all kinds. A few processes, the residents, use all objects and check the
// results. Other processes, the victims, join, use some objects, and end in one of many ways. The parent starts,
// kills and stops processes; it is no participant of the arena. After each round of victims, all processes pause, and
// a resident checks that the state of the arena is as if no process had died.
//
// A job is what a process does with one kind of object. A victim or resident may be a program in C if its jobs change
// crash-safe data; a C compiler builds worker.c when a torture begins. A resident in C writes the begin and end of
// each operation to shared memory, and the parent computes how long the operation took.
//
// A seed determines the plan of the victims.
package torture
