
#ifdef SHMSYNC_EXPORTS
#pragma GCC visibility pop
#endif
