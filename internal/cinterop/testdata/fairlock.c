/* fairlock ARENA POLICY: locks the FairMutex "f", which has that policy, and keeps it until its standard input ends. A lock whose
 * holder died is enough, too. */
#include "shmsync.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_fairmutex f;
    shmsync_fairmutex_options o;
    if (argc != 3)
        return 2;
    alarm(60);
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    o.policy = atoi(argv[2]);
    CHECK(shmsync_arena_open(argv[1], NULL, &a), 0);
    CHECK(shmsync_fairmutex_open(a, "f", &o, &f), 0);
    int err = shmsync_fairmutex_lock(&f);
    if (o.policy == SHMSYNC_POLICY_RELEASE || err != EOWNERDEAD)
        CHECK(err, 0);
    printf("ready\n");
    fflush(stdout);
    getchar();
    return 0;
}
