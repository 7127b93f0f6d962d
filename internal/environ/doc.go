// Command environ checks which parts of the library work in an environment: under a certain kernel,
// in a sandbox, under a resource limit. .ci/environments makes the environments and calls it.
//
//	environ header
//	environ check [-brief] [-cause TEXT]... [-limit 3m] NAME [COMMAND...]
//	environ seccomp ANSWER FILE COMMAND...
//
// header prints the names of the columns. check prints one row of values, separated by tabs. It
// runs each check as a process of its own, which COMMAND starts if there is one. So environ itself
// needs no permission that the environment withholds, and if the environment kills a check, that is
// one of the values. The exit status is 0 if everything worked. With -cause something must fail, and
// for each failure the library must have named one of the causes.
//
// seccomp runs COMMAND under a filter. Each line of FILE has the number of a system call, a blank
// and the answer to it; ANSWER is the answer to all other calls. An answer is allow, kill, or the
// name of the errno that the call returns: EPERM or ENOSYS.
package main
