/* Verbs of the agent for RWMutex. */

static int rw(const order *o, uint64_t *n)
{
    shmsync_rwmutex m;
    shmsync_rwmutex_options opts;
    struct timespec ts;
    const struct timespec *abs;
    uint64_t repaired = 0;
    int err;
    memset(&opts, 0, sizeof opts);
    if (is(o, "rw.open"))
        opts.policy = (int)arg(o, 0);
    if ((err = shmsync_rwmutex_open(arena, o->word[2], &opts, &m)) != 0)
        return err;
    *n = shmsync_rwmutex_offset(&m);
    if (is(o, "rw.open"))
        return 0;
    if (is(o, "rw.try"))
        return shmsync_rwmutex_trylock(&m);
    if (is(o, "rw.rtry"))
        return shmsync_rwmutex_tryrdlock(&m);
    if (is(o, "rw.unlock"))
        return shmsync_rwmutex_unlock(&m);
    if (is(o, "rw.runlock"))
        return shmsync_rwmutex_rdunlock(&m);
    if (is(o, "rw.down"))
        return shmsync_rwmutex_downgrade(&m);
    if (is(o, "rw.utry"))
        return shmsync_rwmutex_try_lock_upgradable(&m);
    if (is(o, "rw.uunlock"))
        return shmsync_rwmutex_unlock_upgradable(&m);
    if (is(o, "rw.uptry"))
        return shmsync_rwmutex_try_upgrade(&m);
    if (is(o, "rw.w2u"))
        return shmsync_rwmutex_downgrade_to_upgradable(&m);
    if (is(o, "rw.u2r"))
        return shmsync_rwmutex_downgrade_to_read(&m);
    if (is(o, "rw.nullrecover"))
        return shmsync_rwmutex_recover(&m, NULL, NULL);
    if (is(o, "rw.state"))
        return shmsync_rwmutex_state(&m);
    if (is(o, "rw.hang"))
        return shmsync_rwmutex_recover(&m, repair_hangs, NULL);
    if (is(o, "rw.recover"))
        return err = shmsync_rwmutex_recover(&m, repair_good, &repaired), *n = repaired, err;
    if (is(o, "rw.spoil"))
        return err = shmsync_rwmutex_recover(&m, repair_bad, NULL), *n = who_died(), err;
    abs = until(o, 0, &ts);
    if (is(o, "rw.lock"))
        return abs == NULL ? shmsync_rwmutex_lock(&m) : shmsync_rwmutex_timedlock(&m, abs);
    if (is(o, "rw.ulock"))
        return abs == NULL ? shmsync_rwmutex_lock_upgradable(&m) : shmsync_rwmutex_timed_lock_upgradable(&m, abs);
    if (is(o, "rw.up"))
        return abs == NULL ? shmsync_rwmutex_upgrade(&m) : shmsync_rwmutex_timed_upgrade(&m, abs);
    if (is(o, "rw.rlock"))
        return abs == NULL ? shmsync_rwmutex_rdlock(&m) : shmsync_rwmutex_timedrdlock(&m, abs);
    return ENOSYS;
}

/* A turn of a group that holds m upgradable: it changes to another kind of hold, and gives that back. */
static int group_upgrades(shmsync_rwmutex *m, const char *name, int turn)
{
    struct timespec ts;
    int err;
    if (turn % 5 == 0)
        return shmsync_rwmutex_unlock_upgradable(m);
    if (turn % 5 == 1)
        return (err = shmsync_rwmutex_downgrade_to_read(m)) != 0 ? err : shmsync_rwmutex_rdunlock(m);
    if ((err = turn % 5 == 2 ? shmsync_rwmutex_try_upgrade(m) : shmsync_rwmutex_timed_upgrade(m, in_ms(&ts, 1))) != 0) {
        int gave = shmsync_rwmutex_unlock_upgradable(m);
        return gave != 0 ? gave : err == EBUSY ? 0 : err;
    }
    if ((err = alone(name)) != 0)
        return err;
    if (turn % 5 == 3)
        return shmsync_rwmutex_unlock(m);
    return (err = shmsync_rwmutex_downgrade_to_upgradable(m)) != 0 ? err : shmsync_rwmutex_unlock_upgradable(m);
}

/* A turn of a group: it mostly reads, and writes now and then. */
static int group_rw(const char *name, int turn)
{
    shmsync_rwmutex m;
    struct timespec ts;
    int writes = turn % 3 == 0, upgrades = turn % 6 == 1, err, i;
    if ((err = shmsync_rwmutex_open(arena, name, NULL, &m)) != 0)
        return err;
    if (upgrades)
        err = turn % 4 != 1 ? shmsync_rwmutex_lock_upgradable(&m) : shmsync_rwmutex_timed_lock_upgradable(&m, in_ms(&ts, 1));
    else if (writes)
        err = turn % 2 == 0 ? shmsync_rwmutex_lock(&m) : shmsync_rwmutex_timedlock(&m, in_ms(&ts, 1));
    else
        err = turn % 4 != 0 ? shmsync_rwmutex_rdlock(&m) : shmsync_rwmutex_timedrdlock(&m, in_ms(&ts, 1));
    if (err == EOWNERDEAD) {
        err = shmsync_rwmutex_recover(&m, no_repair, NULL);
    } else if (err == 0 && upgrades) {
        err = group_upgrades(&m, name, turn / 6);
    } else if (err == 0 && writes) {
        err = alone(name);
        if (err == 0 && turn % 9 == 0 && (err = shmsync_rwmutex_downgrade(&m)) == 0)
            err = shmsync_rwmutex_rdunlock(&m);
        else if (err == 0)
            err = shmsync_rwmutex_unlock(&m);
    } else if (err == 0) { /* nobody writes beside readers */
        char other[600];
        shmsync_sequencer s;
        uint64_t was;
        snprintf(other, sizeof other, "%s-in", name);
        if ((err = shmsync_sequencer_open(arena, other, NULL, &s)) == 0) {
            was = shmsync_sequencer_value(&s);
            for (i = 0; i < 3; i++)
                sched_yield();
            if (shmsync_sequencer_value(&s) != was)
                err = EILSEQ;
            shmsync_sequencer_close(&s);
        }
        if (err == 0)
            err = shmsync_rwmutex_rdunlock(&m);
    }
    shmsync_rwmutex_close(&m);
    return err == ETIMEDOUT ? 0 : err;
}
