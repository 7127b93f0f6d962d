/* ---- What the reaper knows of the kinds of objects ---- */

static const shmi_kind_ops shmi_kinds[] = {
    {SHMI_KIND('V', 'A', 'L', 'U'), 1, NULL, NULL, NULL, NULL, NULL},
    {SHMI_KIND('B', 'L', 'O', 'K'), 1, NULL, NULL, NULL, NULL, NULL},
    {SHMI_MUTEX_KIND, SHMI_mutexVersion, shmi_mutex_kind_repair, shmi_mutex_kind_wake, shmi_mutex_kind_unfinished, NULL, NULL},
    {SHMI_FUTEX_KIND, SHMI_futexVersion, NULL, shmi_futex_kind_wake, NULL, NULL, NULL},
    {SHMI_KIND_SEQUENCER, SHMI_VERSION_SEQUENCER, NULL, shmi_wake_sequencer, NULL, NULL, NULL},
    {SHMI_KIND_EVENT, SHMI_VERSION_EVENT, NULL, shmi_wake_event, NULL, NULL, NULL},
    {SHMI_KIND_QUEUE, SHMI_VERSION_QUEUE, shmi_repair_queue, shmi_wake_queue, NULL, NULL, shmi_queue_in_call},
    {SHMI_KIND_WAIT_GROUP, SHMI_VERSION_WAIT_GROUP, shmi_repair_counter, shmi_wake_counter, NULL, NULL, NULL},
    {SHMI_KIND_LATCH, SHMI_VERSION_LATCH, shmi_repair_counter, shmi_wake_counter, NULL, NULL, NULL},
    {SHMI_KIND_ONCE, SHMI_VERSION_ONCE, shmi_repair_once, shmi_wake_once, NULL, NULL, NULL},
    {SHMI_KIND_BARRIER, SHMI_VERSION_BARRIER, shmi_repair_barrier, shmi_wake_barrier, NULL, NULL, NULL},
    {SHMI_KIND_FAIR_MUTEX, SHMI_VERSION_FAIR_MUTEX, shmi_repair_fairmutex, shmi_wake_first_of_fairmutex, NULL, shmi_complete_fairmutex, NULL},
#if SHMSYNC_LAYOUT_VERSION >= 3
    {SHMI_KIND_SEMAPHORE, SHMI_VERSION_SEMAPHORE, shmi_repair_semaphore, shmi_wake_first_of_semaphore, NULL, shmi_complete_semaphore, NULL},
#endif
    {SHMI_KIND_MULTI_LOCK, SHMI_VERSION_MULTI_LOCK, shmi_repair_multilock, shmi_wake_first_of_multilock, NULL, shmi_complete_multilock, NULL},
    {SHMI_KIND_RWMUTEX, SHMI_VERSION_RWMUTEX, shmi_repair_rwmutex, shmi_wake_rwmutex, shmi_rw_kind_unfinished, NULL, NULL},
    {SHMI_KIND_SPIN_LOCK, SHMI_VERSION_SPIN_LOCK, shmi_repair_spin, shmi_wake_spin, NULL, NULL, NULL},
    {SHMI_KIND_RWSPIN_LOCK, SHMI_VERSION_RWSPIN_LOCK, shmi_repair_spin, shmi_wake_spin, NULL, NULL, NULL},
    {SHMI_KIND_SIGNAL_WAKER, SHMI_VERSION_SIGNAL_WAKER, shmi_repair_signals, shmi_wake_signals, NULL, NULL, NULL},
    {SHMI_KIND_SYNCHRONIZED, SHMI_VERSION_SYNCHRONIZED, shmi_mutex_kind_repair, shmi_mutex_kind_wake, NULL, NULL, shmi_synchronized_in_call},
    {SHMI_KIND_FUTURE, SHMI_VERSION_FUTURE, shmi_repair_future, shmi_wake_future, NULL, NULL, NULL},
    {SHMI_KIND_COND, SHMI_VERSION_COND, shmi_repair_cond, shmi_wake_first_of_cond, NULL, shmi_complete_cond, NULL},
};

SHMI_FN const shmi_kind_ops *shmi_kind_of(const shmi_object *o)
{
    size_t i;
    for (i = 0; i < sizeof shmi_kinds / sizeof shmi_kinds[0]; i++)
        if (shmi_kinds[i].kind == o->kind && shmi_kinds[i].version == o->version)
            return &shmi_kinds[i];
    return NULL;
}

