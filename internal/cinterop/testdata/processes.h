/* Children of a test program. The program includes this after check.h. */
#include <sys/wait.h>

/* Waits until p has stopped. */
static inline void await_stop(pid_t p)
{
    int status;
    CHECK(waitpid(p, &status, WUNTRACED), p);
    CHECK(WIFSTOPPED(status), 1);
}
/* Waits until a SIGKILL has ended p. */
static inline void await_kill(pid_t p)
{
    int status;
    CHECK(waitpid(p, &status, 0), p);
    CHECK(WTERMSIG(status), SIGKILL);
}
/* Kills p, and waits until it has ended. */
static inline void kills(pid_t p)
{
    CHECK(kill(p, SIGKILL), 0);
    await_kill(p);
}
/* Continues p, which was stopped, and waits until it has ended well. */
static inline void goes_on(pid_t p)
{
    int status;
    CHECK(kill(p, SIGCONT), 0);
    CHECK(waitpid(p, &status, 0), p);
    CHECK(status, 0);
}
