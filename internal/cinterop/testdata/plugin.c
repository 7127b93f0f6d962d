/* A shared object that opens an arena and does not close it: plugin_open(NAME). */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

int plugin_open(const char *name);
int plugin_open(const char *name)
{
    shmsync_arena *a;
    return shmsync_arena_open(name, NULL, &a);
}
