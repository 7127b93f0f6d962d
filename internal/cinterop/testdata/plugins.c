/* plugins FILE NAME: loads the shared object FILE, which opens the arena NAME, and unloads it. The code must stay
 * loaded, because the thread of the library runs it. Exit status 0: it stays. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int (*plugin_open)(const char *);
    void *plugin = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL, *f;
    if (plugin == NULL || (f = dlsym(plugin, "plugin_open")) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    memcpy(&plugin_open, &f, sizeof f);
    if (plugin_open(argv[2]) != 0 || dlclose(plugin) != 0)
        return 3;
    if (dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) == NULL) {
        fprintf(stderr, "the code was unloaded while the thread of the library runs\n");
        return 1;
    }
    return 0;
}
