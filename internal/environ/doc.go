// Command environ checks which parts of the library work in an environment: on a certain kernel, in a sandbox, or
// under a resource limit. .ci/environments makes the environments and calls this command.
//
//	environ header
//	environ check [-brief] [-cause TEXT]... [-limit 3m] NAME [COMMAND...]
//	environ seccomp ANSWER FILE COMMAND...
//
// header prints the names of the columns. check prints one row of values, separated by tabs. It runs each check
// in a process of its own. COMMAND, if given, starts these processes in the environment, while environ itself stays
// outside. So environ can report that the environment has killed a check. The exit status is 0 if everything worked.
// With -cause it is 0 if something failed, and the library named one of the causes for each failure.
//
// seccomp runs COMMAND under a filter. Each line of FILE has the number of a system call, a blank, and the answer
// to that call. ANSWER is the answer to all other calls. An answer is allow, kill, or the name of the errno value
// that the call returns: EPERM or ENOSYS.
package main
