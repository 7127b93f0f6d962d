/* Bytes that are found by name, and bytes at an offset. */
#include <shmsync.h>
#include <stdio.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", shmsync_error());
    return 1;
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_offset off;
    void *p, *bytes;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_block_open(a, "config", sizeof(shmsync_offset), &p) != 0 ||
        shmsync_alloc(a, 100, &off) != 0)
        return fail();
    bytes = shmsync_at(a, off, 100); /* NULL if a peer gave a wrong offset */
    if (bytes == NULL)
        return fail();
    snprintf((char *)bytes, 100, "hello");
    *(shmsync_offset *)p = off; /* other processes find the bytes there */
    printf("%s\n", (char *)shmsync_at(a, *(shmsync_offset *)p, 100));
    if (shmsync_free(a, off) != 0)
        return fail();
    return shmsync_arena_close(a);
}
