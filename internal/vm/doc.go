// Command vm is the first process of a virtual machine that .ci/kernels boots. The user space of that machine
// consists of this command and the test programs that it runs.
//
// The command mounts the file systems that the tests need, prints facts about the machine, runs the programs of
// /plan one after the other, and switches the machine off. It prints everything to its standard output, the
// serial line. The program at the other end of the line reads these lines:
//
//	MACHINE nodes 0-3          a fact, with its name
//	RESULT shm ok: 41 passed, 2 skipped, 0 failed, 12.3 s
//	RESULT all ok              the last line; without it the machine has hung
//
// A plan has one line for each program: its name, its time limit, its working directory, and the command with its
// arguments, separated by blanks.
//
//	shm 2m /src/shm /bin/shm.test -test.v -test.short
//	set SHMSYNC_TEST_TIMEOUT_SCALE=10
//
// A line that begins with "set" adds a variable to the environment of all later programs. Empty lines and lines
// that begin with # are ignored.
//
// Some tests need a program other than themselves, and the machine has no other program than this command. So it also
// serves as the program sleep: if it is executed under that name, it sleeps.
package main
