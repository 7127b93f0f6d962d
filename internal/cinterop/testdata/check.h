/* CHECK ends a program unless a call returns what it should. The program includes this after shmsync.h. */
#ifndef CHECK
#define CHECK(got, want)                                                                                     \
    do {                                                                                                     \
        long long got_ = (long long)(got), want_ = (long long)(want);                                       \
        if (got_ != want_) {                                                                                 \
            fprintf(stderr, "line %d: %s is %lld, not %lld: %s\n", __LINE__, #got, got_, want_, shmsync_error()); \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#endif
