// Package litmus decides which results the memory model of arm64 allows for a small program. Such a program is called a
// litmus test. It has a few threads, each of which is a list of instructions without branches.
//
// A test on amd64 or in an emulator does not show the reorderings that an arm64 CPU may make. So the tests of this
// package model the instructions that the compilers emit for each protocol of the library. The tests show that these
// instructions suffice, and that weaker instructions do not.
//
// A litmus test has a finite number of executions. In each execution, each load reads from one of the stores to its
// word, and all stores to a word have an order. The model forbids an execution if one of these relations has a cycle:
//
//   - internal: for each word, the order of the accesses in each thread, the store that each load reads from, and the
//     order of the stores. The model calls this coherence.
//   - external: the store that a load of another thread reads from, the order of stores of different threads, and the
//     order of the accesses of each thread, as far as its instructions guarantee this order.
//
// The model also forbids that a store of another thread comes between the load and the store of a read-modify-write.
//
// The rules are those of Arm Architecture Reference Manual DDI 0487, B2.3, and of the file aarch64.cat of herdtools,
// without the orders that follow from dependencies between instructions. So the model allows more results than a CPU,
// and a result that the model forbids is impossible on a CPU. No test expects a result that the model allows and that
// a dependency makes impossible on a CPU.
package litmus
