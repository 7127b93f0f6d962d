#include "shmsync.h"
#include "shmsync.h"

/* These calls are macros, which the compiler checks in the file of the program. */
int joins(shmsync_arena **a);
int joins(shmsync_arena **a) { return shmsync_arena_open("name", NULL, a) + shmsync_arena_from_fd(0, NULL, a); }

int main(void) { return sizeof(shmsync_mutex) + sizeof(shmsync_futex) == 0; }
