// Package bench has the types and terms that the packages of shmbench share.
//
// A Scenario is one kind of measurement, such as a contended lock. A Subject is one implementation that scenarios
// measure, such as a mutex of pthreads. A Cell is a scenario, a subject and values of the parameters. A Repetition is
// one run of a cell; a Result has all repetitions of a cell. A Worker is a process that runs a cell.
//
// The packages below this one import each other in one direction only:
//
//	cmd/shmbench      flags, commands, and where output goes
//	report            tables, JSON, pages and advice
//	engine            starts the workers of a plan and collects their reports
//	load              the measuring loops of the workers
//	bars              the ratios that this project promises
//	plan              which cells a command runs, how long, and in which order
//	subjects          the primitives of this module, and the list of all subjects
//	peers             the subjects of the host and of Go, and the helper in C
//	bench             this package
//	host, place       what figures depend on; which CPUs a process uses
//	control, stats    the page that parent and workers share; histograms and intervals
//	child             how the program starts itself again
package bench
