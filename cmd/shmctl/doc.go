// Shmctl examines arenas from outside: their participants, holds, waits and their ages, deaths,
// and whether the bytes are sound.
//
// Commands that only look open the arena's file for reading. They take no slot, write nothing and
// wake nobody, so they work while the application is wedged or the arena is damaged. Commands
// that change something (reap, recover, set, create, rm, load) say so in their help. If they need
// an arena's own locks, they join the arena for a moment as any other process does.
package main
