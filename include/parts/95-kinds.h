/* ---- What the reaper knows of the kinds of objects ---- */

static const shmi_kind_ops shmi_kinds[] = {
    {SHMI_KIND('V', 'A', 'L', 'U'), NULL, NULL, NULL},
    {SHMI_KIND('B', 'L', 'O', 'K'), NULL, NULL, NULL},
    {SHMI_MUTEX_KIND, shmi_mutex_kind_repair, shmi_mutex_kind_wake, shmi_mutex_kind_unfinished},
    {SHMI_FUTEX_KIND, NULL, shmi_futex_kind_wake, NULL},
    {SHMI_KIND_SEQUENCER, shmi_repair_sequencer, shmi_mon_wake_object, NULL},
    {SHMI_KIND_EVENT, shmi_repair_event, shmi_mon_wake_object, NULL},
    {SHMI_KIND_QUEUE, shmi_repair_queue, shmi_mon_wake_object, NULL},
    {SHMI_KIND_WAIT_GROUP, shmi_repair_counter, shmi_wake_counter, NULL},
    {SHMI_KIND_LATCH, shmi_repair_counter, shmi_wake_counter, NULL},
    {SHMI_KIND_ONCE, shmi_repair_once, shmi_wake_once, NULL},
    {SHMI_KIND_BARRIER, shmi_repair_barrier, shmi_mon_wake_object, NULL},
    {SHMI_KIND_FAIR_MUTEX, shmi_repair_fairmutex, shmi_mon_wake_object, NULL},
#if SHMSYNC_LAYOUT_VERSION >= 3
    {SHMI_KIND_SEMAPHORE, shmi_repair_semaphore, shmi_mon_wake_object, NULL},
#endif
    {SHMI_KIND_MULTI_LOCK, shmi_repair_multilock, shmi_wake_multilock, NULL},
    {SHMI_KIND_RWMUTEX, shmi_repair_rwmutex, shmi_wake_rwmutex, NULL},
    {SHMI_KIND_SPIN_LOCK, shmi_repair_spin, shmi_wake_spin, NULL},
    {SHMI_KIND_RWSPIN_LOCK, shmi_repair_spin, shmi_wake_spin, NULL},
    {SHMI_KIND_SIGNAL_WAKER, shmi_repair_signals, shmi_wake_signals, NULL},
    {SHMI_KIND_SYNCHRONIZED, shmi_mutex_kind_repair, shmi_mutex_kind_wake, NULL},
    {SHMI_KIND_FUTURE, shmi_repair_future, shmi_mon_wake_object, NULL},
    {SHMI_KIND_COND, shmi_repair_cond, shmi_mon_wake_object, NULL},
};

SHMI_FN const shmi_kind_ops *shmi_kind_of(uint32_t kind)
{
    size_t i;
    for (i = 0; i < sizeof shmi_kinds / sizeof shmi_kinds[0]; i++)
        if (shmi_kinds[i].kind == kind)
            return &shmi_kinds[i];
    return NULL;
}

