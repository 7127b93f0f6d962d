/*
 * shmsync.h: locks and other primitives that processes share, for C11 and C++17.
 *
 * A C program that includes this header and a Go program that imports
 * github.com/shmsync/shmsync open the same arena, and use the same objects in it as
 * equals. A process that is killed, at any instruction, blocks no other process: the
 * other processes notice its death within about a millisecond, and take back what it
 * held. Their calls report the death. In the repository github.com/shmsync/shmsync,
 * docs/c-api.md is the reference, and docs/abi.md describes the bytes of an arena.
 *
 * A program that links with libshmsync includes only the header:
 *
 *     cc program.c $(pkg-config --cflags --libs shmsync)
 *
 * A program without the library compiles the implementation in exactly one file:
 *
 *     #define SHMSYNC_IMPLEMENTATION
 *     #include "shmsync.h"      // before other headers, or with -D_GNU_SOURCE
 *
 * All other files of the program have only the #include. Link the program with -pthread.
 *
 * READ THIS BEFORE EOWNERDEAD: this result means that the lock is NOT HELD.
 *
 * pthread_mutex_lock of a robust mutex returns EOWNERDEAD *with* the lock held. In this
 * library, any error means that the caller holds and has consumed nothing. After
 * EOWNERDEAD there is nothing to unlock, and an unlock that follows returns EPERM. To
 * go on, call shmsync_mutex_recover, which takes the lock, runs your repair, and
 * releases the lock.
 *
 * Results are 0 or an errno, never -1; no call sets errno on purpose:
 *
 *     EOWNERDEAD       the holder of the lock died; the caller does not hold the lock
 *     ENOTRECOVERABLE  a repair failed; only a recover makes the object usable
 *     ETIMEDOUT        the absolute CLOCK_MONOTONIC time has passed; or an open of an arena took too long
 *     ECANCELED        the object was stopped
 *     EBUSY            a try would have to wait; or a process has the object open
 *     EEXIST           the name is taken, and the call must create (SHMSYNC_CREATE_ONLY)
 *     ENOENT           there is no such arena or object
 *     EPERM            the caller gives back something that it does not hold
 *     EPROTO           a peer wrote what no correct program writes
 *     EPROTONOSUPPORT  the arena has another layout version, or needs features that
 *                      this header does not know
 *     EINVAL           an argument is not valid; or the file is no arena; or the object is
 *                      of another kind, or has other options
 *     EBADF            this process has closed the arena or the handle
 *     ENOTCONN         the caller is a child of fork that has not opened the arena: see below
 *     EDEADLK          the call would wait for itself
 *     ENOSPC           no room: in the arena, or in the file system below it
 *     ENOMEM           the process has no memory left
 *     ENOTSUP          the kernel lacks a feature that the call needs
 *
 * shmsync_error describes the last failure of the calling thread in words.
 *
 * FORK. A child of fork is no participant. If it uses an object that its parent opened,
 * the call changes nothing in the arena, and returns ENOTCONN. There is one exception:
 * a wait for a Once, a WaitGroup, a Latch or a Sequencer returns 0 if the condition for
 * which it waits is true already. To take part, the child opens the arena and its
 * objects again. A program that calls exec need not do anything.
 *
 * SIGNALS. A handler may make these calls, and no others:
 *
 *     shmsync_cond_signal, shmsync_cond_broadcast
 *     shmsync_event_set, shmsync_event_reset, shmsync_event_is_set
 *     shmsync_futex_post, shmsync_futex_get
 *     shmsync_gate_schedule, shmsync_signalwaker_release
 *     shmsync_semaphore_tryacquire, shmsync_semaphore_release, shmsync_semaphore_free
 *     shmsync_sequencer_increment, shmsync_sequencer_advance, shmsync_sequencer_value
 *
 * They may change errno, so a handler saves errno first. A handler of a signal that a
 * fault raises, such as SIGSEGV, must not make any of these calls.
 *
 * LOCKS. A lock belongs to a process: one thread may lock it, and another thread of
 * the process may unlock it. A lock is not recursive.
 */
#ifndef SHMSYNC_H
#define SHMSYNC_H

/* glibc looks at _GNU_SOURCE only when the program includes its first header. */
#if defined(SHMSYNC_IMPLEMENTATION) && defined(__GLIBC__) && !defined(__USE_GNU)
#error "shmsync.h: where SHMSYNC_IMPLEMENTATION is defined, include shmsync.h before other headers, or compile with -D_GNU_SOURCE"
#undef SHMSYNC_IMPLEMENTATION /* this one error is enough */
#endif
#if defined(SHMSYNC_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif

#if !defined(__linux__)
#error "shmsync.h works on Linux only"
#endif
#if !defined(__LP64__) && !(defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ == 8)
#error "shmsync.h: a 32-bit program cannot join an arena: its machine words have 4 bytes, those of the layout 8"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "shmsync.h: the layout is little-endian"
#endif
#if !defined(__GNUC__)
#error "shmsync.h needs the atomics of gcc or clang"
#endif

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* The version of this header: 10,000 for the major number, 100 for the minor one, 1 for the patch. */
#define SHMSYNC_VERSION 100

/* The version of the arena layout that this header was made for. An open of an arena with another layout version
 * fails with EPROTONOSUPPORT. */
#ifndef SHMSYNC_LAYOUT_VERSION
#define SHMSYNC_LAYOUT_VERSION 10 /* the same number as arena.LayoutVersion in Go */
#endif

/* The next macro is used in the files of programs. It has no cast, because compilers of C++ may warn of casts as in C. */

/* The layout version and the pointer size, 8, with which a program is compiled. An open passes them to the
 * implementation, which may come from another version of the header. */
#define SHMSYNC_ABI (SHMSYNC_LAYOUT_VERSION * 256u + 8u)

#ifdef __cplusplus
extern "C" {
#endif

#ifdef SHMSYNC_EXPORTS /* set by the build of the library, to export these functions in spite of -fvisibility=hidden */
#pragma GCC visibility push(default)
#endif

