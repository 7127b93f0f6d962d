// Package examples has programs to read, run and copy. Each program shows one thing. Most programs test themselves:
// they kill some of their processes at work, start new ones, and check the result.
//
//	go run ./examples/death       # what others see of a death in a change: Synchronized
//	go run ./examples/cache       # a shared hash map: Mutex.Update, Tx.Alloc, Tx.Free
//	go run ./examples/workers     # a worker pool: Queue, SignalWaker
//	go run ./examples/prefork     # a server of several processes: MultiLock, Semaphore
//	go run ./examples/leader      # leader election: Mutex, Recover, OnDeath
//	go run ./examples/config      # configuration for all: Sequencer, Event, RWMutex
//	go run ./examples/locktable   # numbered locks for a container engine: Mutex
//	go run ./examples/pipeline    # stages in lockstep: Barrier
//	go run ./examples/custom      # a primitive of your own: Waitable
//	go run ./examples/c-producer  # a C program fills a Queue that Go empties
//	go run ./examples/go-control  # Go directs C workers: Sequencer
//
// The module in the directory beyond runs the same code with two locks: with a Mutex on one host, and with a lock of
// etcd, which can serve several hosts:
//
//	go -C examples/beyond run .
//
// Most examples take the flags -kills, the number of kills, and -seed, which decides which process is killed and when.
// In your system a supervisor takes the place of the package internal/workergroup, so do not copy that package.
package examples
