// Command vm is the first process of a virtual machine: the whole user space of
// one that .ci/kernels boots, but for the test programs that it runs.
//
// It mounts what they need, says what machine it is, runs the programs of /plan one
// after the other, and switches the machine off. All it has to say goes to its
// standard output, the serial line. These lines are for the other side to read:
//
//	MACHINE nodes 0-3          a fact, with its name
//	RESULT shm ok: 41 passed, 2 skipped, 0 failed, 12.3 s
//	RESULT all ok              the last line; without it the machine has hung
//
// A plan has one line for each program: its name, how long it may take, its working
// directory, and what to execute, apart by blanks.
//
//	shm 2m /src/shm /bin/shm.test -test.v -test.short
//	set SHMSYNC_TEST_TIMEOUT_SCALE=10
//
// A line "set" adds to the environment of all programs after it. An empty line, and
// one that begins with #, says nothing.
//
// Executed as sleep it sleeps: some tests want another program than themselves, and
// there is none.
package main
