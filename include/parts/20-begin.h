#ifdef SHMSYNC_IMPLEMENTATION

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SHMI_FN static __attribute__((unused))
/* For the steps of a call that succeeds at once. These steps are always inlined, because a function call for each step
 * would double the cost of the call. */
#define SHMI_FAST static inline __attribute__((unused, always_inline))
/* For steps that a call seldom needs before it goes on. These functions are not marked cold, because gcc would then
 * also place the rest of the call far away. */
#define SHMI_SELDOM static __attribute__((unused, noinline))
#define SHMI_COLD static __attribute__((unused, noinline, cold))
#define SHMI_LIKELY(x) __builtin_expect(!!(x), 1)
#define SHMI_UNLIKELY(x) __builtin_expect(!!(x), 0)

#ifdef __cplusplus
#define SHMI_ASSERT(cond, text) static_assert(cond, text)
#define SHMI_THREAD thread_local
#else
#define SHMI_ASSERT(cond, text) _Static_assert(cond, text)
#define SHMI_THREAD _Thread_local
#endif

