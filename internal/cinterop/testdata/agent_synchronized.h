/* Verbs of the agent for Synchronized. All words of a value are equal. A value of "sync" has 16 words, a value of
 * "wide" has 8192. */

#define SYNC_MOST 8192

static uint64_t sync_words(const order *o) { return strncmp(o->word[1], "wide.", 5) == 0 ? SYNC_MOST : 16; }

static int sync_open(const order *o, shmsync_synchronized *s)
{
    static uint64_t initial[SYNC_MOST];
    shmsync_synchronized_options opts;
    char layout[32];
    uint64_t words = sync_words(o), i;
    memset(&opts, 0, sizeof opts);
    snprintf(layout, sizeof layout, "[%llu] u8 ", (unsigned long long)words);
    opts.layout = shmsync_layout(layout);
    if (strcmp(strchr(o->word[1], '.'), ".open") == 0) {
        for (i = 0; i < words; i++)
            initial[i] = (uint64_t)arg(o, 0);
        opts.initial = initial;
    }
    return shmsync_synchronized_open(arena, o->word[2], words * 8, &opts, s);
}

static int sync_equal(const uint64_t *v, uint64_t words)
{
    uint64_t i;
    for (i = 1; i < words; i++)
        if (v[i] != v[0])
            return 0;
    return 1;
}

/* Adds k to all words, one after the other. With a file, read(2) first writes to the words. */
static int sync_change(const order *o, shmsync_synchronized *s, uint64_t k, int fd)
{
    uint64_t words = sync_words(o), i, to;
    volatile uint64_t *v;
    void *copy;
    int err = shmsync_synchronized_begin(s, &copy);
    if (err != 0)
        return err;
    if (!sync_equal((uint64_t *)copy, words))
        return EILSEQ;
    v = (volatile uint64_t *)copy;
    to = v[0] + k;
    if (fd >= 0 && pread(fd, copy, words * 8, 0) != (ssize_t)(words * 8))
        return EIO;
    for (i = 0; i < words; i++)
        v[i] = to;
    return 0;
}

/* A mistake that the tests have to find: the commit comes before the copy is written. */
static int sync_tear(const order *o, shmsync_synchronized *s)
{
    uint64_t words = sync_words(o), i, c;
    volatile uint64_t *v;
    void *copy;
    int err = shmsync_synchronized_begin(s, &copy);
    if (err != 0)
        return err;
    c = s->impl->w->current;
    v = (volatile uint64_t *)copy;
    shmi_commit_store(&s->impl->w->current, c + 1);
    for (i = 0; i < words; i++)
        v[i]++;
    return shmsync_synchronized_abort(s);
}

static int synchronized_(const order *o, uint64_t *n)
{
    static __thread uint64_t value[SYNC_MOST];
    const char *verb = strchr(o->word[1], '.') + 1;
    shmsync_synchronized s;
    uint64_t words = sync_words(o), i;
    int64_t k;
    int err = sync_open(o, &s), fd;
    if (err != 0)
        return err;
    *n = shmsync_synchronized_offset(&s);
    if (strcmp(verb, "open") == 0)
        return 0;
    if (strcmp(verb, "store") == 0) {
        for (i = 0; i < words; i++)
            value[i] = (uint64_t)arg(o, 0);
        return shmsync_synchronized_store(&s, value);
    }
    if (strcmp(verb, "load") == 0) {
        err = shmsync_synchronized_load(&s, value);
        *n = value[0];
        return err == 0 && !sync_equal(value, words) ? EILSEQ : err;
    }
    if (strcmp(verb, "watch") == 0) { /* N loads: each is whole, and none is older than the last */
        uint64_t last = 0;
        for (k = 0; k < arg(o, 0); k++) {
            if ((err = shmsync_synchronized_load(&s, value)) != 0)
                return err;
            if (!sync_equal(value, words) || value[0] < last)
                return EILSEQ;
            last = value[0];
        }
        return 0;
    }
    if (strcmp(verb, "commits") == 0)
        return *n = shmsync_synchronized_commits(&s), 0;
    if (strcmp(verb, "try") == 0) { /* MS */
        struct timespec ts;
        void *copy;
        err = shmsync_synchronized_timedbegin(&s, &copy, until(o, 0, &ts));
        return err != 0 ? err : shmsync_synchronized_abort(&s);
    }
    if (strcmp(verb, "add") == 0) {
        err = sync_change(o, &s, (uint64_t)arg(o, 0), -1);
        return err != 0 ? err : shmsync_synchronized_commit(&s);
    }
    if (strcmp(verb, "fail") == 0) {
        err = sync_change(o, &s, (uint64_t)arg(o, 0), -1);
        return err != 0 ? err : shmsync_synchronized_abort(&s);
    }
    if (strcmp(verb, "take") == 0) { /* MS: begins a change, without an end */
        struct timespec ts;
        const struct timespec *abs = until(o, 0, &ts);
        void *copy;
        return abs != NULL ? shmsync_synchronized_timedbegin(&s, &copy, abs) : shmsync_synchronized_begin(&s, &copy);
    }
    if (strcmp(verb, "begin") == 0) /* K: begins a change, without an end */
        return sync_change(o, &s, (uint64_t)arg(o, 0), -1);
    if (strcmp(verb, "commit") == 0)
        return shmsync_synchronized_commit(&s);
    if (strcmp(verb, "tear") == 0) {
        while (err == 0)
            err = sync_tear(o, &s);
        return err;
    }
    if (strcmp(verb, "churn") == 0) { /* FILE: changes for ever; some changes are aborted, and some read the file */
        fd = o->n > 3 ? open(o->word[3], O_RDONLY | O_CLOEXEC) : -1;
        for (k = 0; err == 0; k++) {
            err = sync_change(o, &s, 1, fd);
            if (err == 0)
                err = k % 16 == 5 ? shmsync_synchronized_abort(&s) : shmsync_synchronized_commit(&s);
        }
        return err;
    }
    return ENOSYS;
}

/* A thread's share of the work of a group: changes, some of which are aborted, and loads. */
static int group_sync(const order *o, uint64_t *n)
{
    uint64_t value[16];
    shmsync_synchronized s;
    int64_t k;
    int err = 0;
    for (k = 0; k < arg(o, 0) && err == 0; k++, ++*n) {
        if ((err = sync_open(o, &s)) != 0)
            return err;
        if ((err = sync_change(o, &s, 1, -1)) == 0)
            err = k % 5 == 3 ? shmsync_synchronized_abort(&s) : shmsync_synchronized_commit(&s);
        if (err == 0 && (err = shmsync_synchronized_load(&s, value)) == 0 && !sync_equal(value, 16))
            err = EILSEQ;
        shmsync_synchronized_close(&s);
    }
    return err;
}
