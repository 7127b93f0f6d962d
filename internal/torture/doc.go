// Package torture lets processes die over all primitives, and checks what survives that.
//
// A torture is one arena with objects of all kinds. Residents work with all of them and check what
// they get. Victims come, work with some, and end in one of many ways. The parent starts, kills
// and stops processes; it is no participant. Between rounds everybody rests, and a resident checks
// whether the arena is as if nobody had died.
//
// A job is what a party does with one kind of object. The plan of the victims is a seed's.
package torture
