// Shmctl examines arenas from outside: their participants, holds, waits and their ages, deaths, and whether their
// bytes are valid.
//
// Commands that only examine an arena open its file for reading. They take no slot, write nothing and wake nobody, so
// they work while the application is stuck or the arena is damaged. Commands that change something (reap, recover,
// set, create, rm, load) say so in their help. If such a command needs the arena's own locks, it joins the arena for
// a moment as any other process does.
package main
