/* A program that was compiled with the declarations of an older layout. */
#define SHMSYNC_LAYOUT_VERSION 1
#include "shmsync.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    shmsync_arena *a;
    if (argc != 3)
        return 2;
    printf("%d ", shmsync_arena_open(argv[2], NULL, &a));
    printf("%s\n", shmsync_error());
    return 0;
}
