/* Verbs of the agent for SpinLock and RWSpinLock. */

static int spin(const order *o, uint64_t *n)
{
    shmsync_spinlock l;
    shmsync_spinlock_options opts;
    struct timespec ts;
    const struct timespec *abs;
    uint64_t repaired = 0;
    int err;
    memset(&opts, 0, sizeof opts);
    if (is(o, "spin.open"))
        opts.policy = (int)arg(o, 0);
    if ((err = shmsync_spinlock_open(arena, o->word[2], &opts, &l)) != 0)
        return err;
    *n = shmsync_spinlock_offset(&l);
    if (is(o, "spin.open"))
        return 0;
    if (is(o, "spin.try"))
        return shmsync_spinlock_trylock(&l);
    if (is(o, "spin.unlock"))
        return shmsync_spinlock_unlock(&l);
    if (is(o, "spin.nullrecover"))
        return shmsync_spinlock_recover(&l, NULL, NULL);
    if (is(o, "spin.state"))
        return shmsync_spinlock_state(&l);
    if (is(o, "spin.hang"))
        return shmsync_spinlock_recover(&l, repair_hangs, NULL);
    if (is(o, "spin.recover"))
        return err = shmsync_spinlock_recover(&l, repair_good, &repaired), *n = repaired, err;
    if (is(o, "spin.spoil"))
        return err = shmsync_spinlock_recover(&l, repair_bad, NULL), *n = who_died(), err;
    abs = until(o, 0, &ts);
    if (is(o, "spin.lock"))
        return abs == NULL ? shmsync_spinlock_lock(&l) : shmsync_spinlock_timedlock(&l, abs);
    return ENOSYS;
}

static int rwspin(const order *o, uint64_t *n)
{
    shmsync_rwspinlock l;
    shmsync_spinlock_options opts;
    struct timespec ts;
    const struct timespec *abs;
    uint64_t repaired = 0;
    int err;
    memset(&opts, 0, sizeof opts);
    if (is(o, "rwspin.open"))
        opts.policy = (int)arg(o, 0);
    if (is(o, "rwspin.mend")) {
        opts.repair = repair_good;
        opts.repair_arg = &repaired;
    }
    if ((err = shmsync_rwspinlock_open(arena, o->word[2], &opts, &l)) != 0)
        return err;
    *n = shmsync_rwspinlock_offset(&l);
    if (is(o, "rwspin.open"))
        return 0;
    if (is(o, "rwspin.try"))
        return shmsync_rwspinlock_trylock(&l);
    if (is(o, "rwspin.rtry"))
        return shmsync_rwspinlock_tryrdlock(&l);
    if (is(o, "rwspin.utry"))
        return shmsync_rwspinlock_tryuplock(&l);
    if (is(o, "rwspin.unlock"))
        return shmsync_rwspinlock_unlock(&l);
    if (is(o, "rwspin.runlock"))
        return shmsync_rwspinlock_rdunlock(&l);
    if (is(o, "rwspin.uunlock"))
        return shmsync_rwspinlock_upunlock(&l);
    if (is(o, "rwspin.tryup"))
        return shmsync_rwspinlock_tryupgrade(&l);
    if (is(o, "rwspin.down"))
        return shmsync_rwspinlock_downgrade(&l);
    if (is(o, "rwspin.udown"))
        return shmsync_rwspinlock_downgrade_to_read(&l);
    if (is(o, "rwspin.downtou"))
        return shmsync_rwspinlock_downgrade_to_upgradable(&l);
    if (is(o, "rwspin.nullrecover"))
        return shmsync_rwspinlock_recover(&l, NULL, NULL);
    if (is(o, "rwspin.state"))
        return shmsync_rwspinlock_state(&l);
    if (is(o, "rwspin.hang"))
        return shmsync_rwspinlock_recover(&l, repair_hangs, NULL);
    if (is(o, "rwspin.recover"))
        return err = shmsync_rwspinlock_recover(&l, repair_good, &repaired), *n = repaired, err;
    abs = until(o, 0, &ts);
    if (is(o, "rwspin.lock") || is(o, "rwspin.mend"))
        return abs == NULL ? shmsync_rwspinlock_lock(&l) : shmsync_rwspinlock_timedlock(&l, abs);
    if (is(o, "rwspin.rlock"))
        return abs == NULL ? shmsync_rwspinlock_rdlock(&l) : shmsync_rwspinlock_timedrdlock(&l, abs);
    if (is(o, "rwspin.ulock"))
        return abs == NULL ? shmsync_rwspinlock_uplock(&l) : shmsync_rwspinlock_timeduplock(&l, abs);
    if (is(o, "rwspin.up"))
        return abs == NULL ? shmsync_rwspinlock_upgrade(&l) : shmsync_rwspinlock_timedupgrade(&l, abs);
    return ENOSYS;
}

static int group_spin(const char *name, int turn)
{
    shmsync_spinlock l;
    struct timespec ts;
    int err;
    if ((err = shmsync_spinlock_open(arena, name, NULL, &l)) != 0)
        return err;
    err = turn % 4 == 3 ? shmsync_spinlock_timedlock(&l, in_ms(&ts, 1)) : shmsync_spinlock_lock(&l);
    if (err == 0) {
        err = alone(name);
        if (err == 0)
            err = shmsync_spinlock_unlock(&l);
    } else if (err == EOWNERDEAD) {
        err = shmsync_spinlock_recover(&l, no_repair, NULL);
    }
    shmsync_spinlock_close(&l);
    return err == ETIMEDOUT ? 0 : err;
}

static int group_rwspin(const char *name, int turn)
{
    shmsync_rwspinlock l;
    struct timespec ts;
    int err;
    if ((err = shmsync_rwspinlock_open(arena, name, NULL, &l)) != 0)
        return err;
    switch (turn % 4) {
    case 0:
        err = turn % 8 == 0 ? shmsync_rwspinlock_lock(&l) : shmsync_rwspinlock_timedlock(&l, in_ms(&ts, 1));
        if (err == 0 && (err = alone(name)) == 0) {
            if (turn % 16 == 0 && (err = shmsync_rwspinlock_downgrade(&l)) == 0)
                err = shmsync_rwspinlock_rdunlock(&l);
            else if (err == 0)
                err = shmsync_rwspinlock_unlock(&l);
        }
        break;
    case 1:
        err = shmsync_rwspinlock_uplock(&l);
        if (err == 0) {
            err = shmsync_rwspinlock_timedupgrade(&l, in_ms(&ts, 2));
            if (err == 0 && (err = alone(name)) == 0)
                err = shmsync_rwspinlock_unlock(&l);
            else if (err == ETIMEDOUT)
                err = shmsync_rwspinlock_upunlock(&l);
        }
        break;
    default:
        err = turn % 3 == 0 ? shmsync_rwspinlock_timedrdlock(&l, in_ms(&ts, 1)) : shmsync_rwspinlock_rdlock(&l);
        if (err == 0) {
            sched_yield();
            err = shmsync_rwspinlock_rdunlock(&l);
        }
    }
    if (err == EOWNERDEAD)
        err = shmsync_rwspinlock_recover(&l, no_repair, NULL);
    shmsync_rwspinlock_close(&l);
    return err == ETIMEDOUT ? 0 : err;
}
