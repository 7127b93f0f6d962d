
#ifdef SHMSYNC_EXPORTS
#pragma GCC visibility pop
#endif

#if defined(__has_attribute) && !defined(SHMSYNC_IMPLEMENTATION)
#if __has_attribute(noplt)
/* A program calls these functions through the address that the loader has found. Without this attribute each call goes
 * through a stub (PLT), which costs a third of the time of a lock and unlock. */
#define SHMSYNC_NEAR(function) extern __typeof__(function) function __attribute__((noplt))
SHMSYNC_NEAR(shmsync_mutex_lock);
SHMSYNC_NEAR(shmsync_mutex_trylock);
SHMSYNC_NEAR(shmsync_mutex_unlock);
SHMSYNC_NEAR(shmsync_rwmutex_lock);
SHMSYNC_NEAR(shmsync_rwmutex_unlock);
SHMSYNC_NEAR(shmsync_rwmutex_rdlock);
SHMSYNC_NEAR(shmsync_rwmutex_rdunlock);
#undef SHMSYNC_NEAR
#endif
#endif
