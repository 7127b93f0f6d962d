/* Prints the value of a key of the cache. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "cache_shm.h" /* made by shmgen: struct head and struct entry, as the Go side declares them */

static int failed(const char *what)
{
    fprintf(stderr, "reader: %s: %s\n", what, shmsync_error());
    return 1;
}

static uint64_t hash(const char *s)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (; *s != 0; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

/* The bytes after an entry: its key, and then its value. */
static const char *bytes(const struct entry *e) { return (const char *)(e + 1); }

/* Finds the entry of the key; NULL if there is none. */
static struct entry *find(shmsync_arena *a, const struct head *h, const char *key)
{
    uint64_t i, n = strlen(key), want = hash(key);
    const shmsync_offset *table = shmsync_at(a, h->table, h->slots * sizeof *table);
    for (i = 0; table != NULL && i < h->slots; i++) {
        shmsync_offset off = table[(want + i) & (h->slots - 1)];
        struct entry *e;
        if (off == 0) /* unused */
            break;
        if (off == 1) /* dropped */
            continue;
        e = entry_at(a, off, 1);
        if (e != NULL && e->hash == want && e->key == n && shmsync_at(a, off, sizeof *e + n + e->value) != NULL &&
            memcmp(bytes(e), key, n) == 0)
            return e;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    shmsync_arena_options join;
    shmsync_arena *a;
    shmsync_mutex m;
    struct head *h;
    struct entry *e;
    if (argc != 3)
        return fprintf(stderr, "usage: reader ARENA KEY\n"), 1;
    memset(&join, 0, sizeof join);
    join.label = "reader";
    join.attach_only = 1;
    if (shmsync_arena_open(argv[1], &join, &a) != 0)
        return failed("arena");
    if (shmsync_mutex_attach(a, "cache", NULL, &m) != 0)
        return failed("mutex");
    if (head_value_attach(a, "cache head", &h) != 0)
        return failed("head");
    /* If a writer was killed, this call undoes the change that it had not finished. */
    if (shmsync_mutex_lock(&m) != 0)
        return failed("lock");
    if ((e = find(a, h, argv[2])) != NULL) {
        e->read = 1; /* a hint for the eviction, so the transaction need not save it */
        printf("%.*s\n", (int)e->value, bytes(e) + e->key);
    }
    shmsync_mutex_unlock(&m);
    if (e == NULL)
        fprintf(stderr, "reader: %s is not in the cache\n", argv[2]);
    return shmsync_arena_close(a) != 0 || e == NULL;
}
