/* ---- Spinning: the same policy as in Go, with the same words of the object ---- */

enum {
    SHMI_spinLeast = 600,
    SHMI_spinSome = 10000,
    SHMI_spinMost = 40000,
    SHMI_spinGiveUp = 3,
    SHMI_payUnit = 64,
    SHMI_payField = 1023,
    SHMI_payPart = 32,
    SHMI_spinChunk = 8,
    SHMI_probeEvery = 16,
    SHMI_yieldMost = 20000,
    SHMI_yieldPause = 30,
    SHMI_yieldLongest = 100000000
};

/* The words of an object that control how its waiters spin. All are hints. */
typedef struct shmi_tuning {
    uint32_t *budget;   /* 0: adaptive; otherwise 1 + the budget in ns */
    uint32_t *pays;     /* how successful spins were recently: see shmi_make_pay */
    uint32_t *last_cpu; /* the CPUs of the last releasers: see shmi_note_cpu */
    uint32_t slot;      /* the slot of this participant */
} shmi_tuning;

static int64_t shmi_no_yield_until;
static int64_t shmi_pause_ns_; /* length of a pause, in 1/1024 ns */
static int shmi_one_cpu_;      /* 0 not known, 1 no, 2 yes */

SHMI_FN int64_t shmi_pause_ns(void)
{
    int64_t best = __atomic_load_n(&shmi_pause_ns_, __ATOMIC_RELAXED), start, took;
    int i;
    if (best != 0)
        return best;
    best = INT64_C(1) << 40;
    for (i = 0; i < 5; i++) {
        start = shmi_now();
        shmi_pause(200);
        took = shmi_now() - start;
        if (took < best)
            best = took;
    }
    best = best * 1024 / 200;
    if (best < 1024)
        best = 1024;
    __atomic_store_n(&shmi_pause_ns_, best, __ATOMIC_RELAXED);
    return best;
}

/* Whether the machine has only one CPU. The CPU affinity of this process does not matter, because its peers may run on
 * other CPUs. If a shortage, such as a full table of descriptors, keeps this process from reading the number of CPUs,
 * the answer is no, and the next call reads again. */
SHMI_FN int shmi_one_cpu(void)
{
    int known = __atomic_load_n(&shmi_one_cpu_, __ATOMIC_RELAXED);
    if (known == 0) {
        char b[64];
        int before = errno, fd;
        ssize_t n;
        shmi_hold_cancel();
        fd = open("/sys/devices/system/cpu/online", O_RDONLY | O_CLOEXEC);
        n = fd >= 0 ? read(fd, b, sizeof b) : -1;
        if (n > 0)
            known = memchr(b, '-', (size_t)n) == NULL && memchr(b, ',', (size_t)n) == NULL ? 2 : 1;
        else if (n == 0 || !shmi_is_shortage(errno))
            known = sysconf(_SC_NPROCESSORS_ONLN) == 1 ? 2 : 1;
        if (fd >= 0)
            close(fd);
        shmi_let_cancel();
        errno = before;
        if (known != 0)
            __atomic_store_n(&shmi_one_cpu_, known, __ATOMIC_RELAXED);
    }
    return known == 2;
}

/* Returns 1 + the number of the CPU of the last releaser that is not in this slot; 0: not known. */
SHMI_FN uint32_t shmi_note_other(uint32_t note, uint32_t slot)
{
    return (note >> 20 & 2047) == slot ? note >> 10 & 1023 : note & 1023;
}

/* Notes the number of this CPU for waiters: a waiter on the same CPU does not spin, but yields. */
SHMI_FN void shmi_note_cpu(const shmi_tuning *t)
{
    int cpu = sched_getcpu();
    uint32_t old = __atomic_load_n(t->last_cpu, __ATOMIC_RELAXED), before, note;
    if (cpu < 0)
        return;
    before = (old >> 20 & 2047) == t->slot ? old >> 10 & 1023 : old & 1023;
    note = (cpu + 1 > 1023 ? 0 : (uint32_t)cpu + 1) | before << 10 | t->slot << 20;
    if (note != old)
        __atomic_store_n(t->last_cpu, note, __ATOMIC_RELAXED);
}

/* Packs the results of recent spins into a word. Bits 0..9: how long successful spins took, a mean in units of 64 ns.
 * Bits 10..19: the share of spins that failed, a mean in 1/1024. Bits 20..31: failures in a row. */
SHMI_FN uint32_t shmi_make_pay(uint32_t took, uint32_t share, uint32_t failures)
{
    return took | share << 10 | (failures & 4095) << 20;
}
/* The longest time that the next spin may take, in ns. */
SHMI_FN int64_t shmi_pay_budget(uint32_t p)
{
    uint32_t failures = p >> 20, share = p >> 10 & SHMI_payField;
    int64_t need = 4 * SHMI_payUnit * (int64_t)(p & SHMI_payField) + SHMI_spinLeast; /* nearly all successful spins take at most this time */
    if (need > SHMI_spinMost)
        need = SHMI_spinMost;
    if (failures >= SHMI_spinGiveUp && failures % SHMI_probeEvery == 0)
        return SHMI_spinMost;
    if (failures < SHMI_spinGiveUp && share < (SHMI_payField + 1) / 64)
        return SHMI_spinMost;
    if (failures < SHMI_spinGiveUp && share < (SHMI_payField + 1) / 8)
        return need > SHMI_spinSome ? need : (int64_t)SHMI_spinSome;
    need = need * (SHMI_payField + 1 - (int64_t)share) / (SHMI_payField + 1) >> (failures / 4 < 32 ? failures / 4 : 32);
    return need > SHMI_spinLeast ? need : (int64_t)SHMI_spinLeast;
}
/* The word that replaces p after a spin of spent nanoseconds: see shmi_make_pay. */
SHMI_FN uint32_t shmi_pay_after(uint32_t p, int64_t spent, int success)
{
    uint32_t took = p & SHMI_payField, share = p >> 10 & SHMI_payField, now;
    if (!success)
        return shmi_make_pay(took, share + (SHMI_payField - share) / SHMI_payPart, (p >> 20) + 1);
    /* The means are whole numbers, so each step towards the new value is rounded up. Otherwise a small difference
     * between the mean and a constant value would never go away. */
    now = spent / SHMI_payUnit < SHMI_payField ? (uint32_t)(spent / SHMI_payUnit) : (uint32_t)SHMI_payField;
    if (now > took)
        took += (now - took + 7) / 8;
    else
        took -= (took - now + 7) / 8;
    return shmi_make_pay(took, share - (share + SHMI_payPart - 1) / SHMI_payPart, 0);
}
/* The word that replaces p after a yield. A yield shows only whether the release came in time, and nothing about the
 * length of spins. */
SHMI_FN uint32_t shmi_pay_after_yield(uint32_t p, int success)
{
    return shmi_make_pay(p & SHMI_payField, p >> 10 & SHMI_payField, success ? 0 : (p >> 20) + 1);
}
SHMI_FN void shmi_learn(const shmi_tuning *t, uint32_t p, uint32_t next)
{
    if (next != p && __atomic_load_n(t->budget, __ATOMIC_RELAXED) == 0)
        __atomic_store_n(t->pays, next, __ATOMIC_RELAXED);
}

/* Called after a yield that took so many ns. Returns whether another thread has used the CPU meanwhile. If so, this
 * process does not yield for some time. This time has a limit, because the process may have been stopped for long in
 * the yield. */
SHMI_FN int shmi_note_yield(int64_t took)
{
    if (took <= SHMI_yieldMost)
        return 0;
    if (took > SHMI_yieldLongest)
        took = SHMI_yieldLongest;
    __atomic_store_n(&shmi_no_yield_until, shmi_now() + SHMI_yieldPause * took, __ATOMIC_RELAXED);
    return 1;
}

/* Calls done until it returns a value other than 0, as long as spinning is likely to be quicker than a sleep. Returns
 * whether done returned such a value. */
SHMI_FN int shmi_spin(const shmi_tuning *t, int (*done)(void *), void *arg)
{
    uint32_t b = __atomic_load_n(t->budget, __ATOMIC_RELAXED), p, chunk = 2;
    int64_t limit, pause_, spent = 0;
    int cpu;
    if (b == 1 || shmi_one_cpu())
        return 0;
    p = __atomic_load_n(t->pays, __ATOMIC_RELAXED);
    cpu = sched_getcpu();
    if (cpu >= 0 && shmi_note_other(__atomic_load_n(t->last_cpu, __ATOMIC_RELAXED), t->slot) == (uint32_t)cpu + 1) {
        /* The last releaser ran on this CPU, where it cannot run while this thread spins. So this thread yields to it,
         * once. */
        int ok;
        if (p >> 20 > 4 && (p >> 20) % SHMI_probeEvery != 0) {
            shmi_learn(t, p, shmi_pay_after_yield(p, 0));
            return 0;
        }
        if (shmi_now() < __atomic_load_n(&shmi_no_yield_until, __ATOMIC_RELAXED))
            return 0;
        shmi_note_yield(shmi_yield());
        ok = done(arg);
        shmi_learn(t, p, shmi_pay_after_yield(p, ok));
        return ok;
    }
    if (b != 0)
        limit = (int64_t)b - 1 < 1000000 ? (int64_t)b - 1 : 1000000;
    else
        limit = shmi_pay_budget(p);
    pause_ = shmi_pause_ns();
    while (spent < limit) {
        shmi_pause(chunk);
        spent += (int64_t)chunk * pause_ / 1024;
        if (done(arg)) {
            shmi_learn(t, p, shmi_pay_after(p, spent, 1));
            return 1;
        }
        if (spent > 1000)
            chunk = SHMI_spinChunk;
    }
    shmi_learn(t, p, shmi_pay_after(p, spent, 0));
    return 0;
}

/* The form in which an object stores a spin budget. */
SHMI_FN uint32_t shmi_spin_field(int64_t ns)
{
    if (ns == 0)
        return 0;
    if (ns < 0)
        return 1;
    return (uint32_t)(ns < 1000000 ? ns : 1000000) + 1;
}

