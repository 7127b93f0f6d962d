/* The calls that take something, as C functions of Python: Python runs no signal handler inside of them.
 *
 * A signal handler in Python, such as that of Ctrl-C, runs between two instructions of Python, and may raise there. A
 * method in Python that takes a lock consists of many instructions, so an exception can come when the lock is taken and
 * nobody knows it yet. A function in C is one instruction. The functions below run the handlers themselves, and only
 * where the call has taken nothing or can give it back. threading.Lock does the same.
 *
 * The package works without this module, with the gaps that the README states. The module has no locks of its own: it
 * calls the functions of libshmsync whose addresses the package gives it. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <structmember.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define NO_END (-1)
#define RAISED (-1)

/* For a function that is rarely called: the compiler does not inline it into the fast paths that call it. */
#define SLOW __attribute__((noinline, cold))

enum { MOST_OPERATIONS = 4 };
enum { TRY, PLAIN, TIMED, UNDO, FUNCTIONS };

/* The addresses of the functions of one operation, or 0. The function TRY never waits; TIMED takes a time as its last
 * argument; UNDO gives back what one of the other three has taken. PLAIN is 0 only before _set. */
typedef struct {
    uintptr_t at[FUNCTIONS];
} operation;

/* What the functions take between the handle and the time. */
enum { NOTHING, NUMBER, POINTER, ITEM };

/* The with statements of one thread around the same mutex, after a wait on a Cond in that thread could not acquire the
 * mutex again. The outermost of them is the one around that wait. Bit i of held says that the mutex is held for the
 * statement i. */
typedef struct loss {
    struct loss *next;
    unsigned long thread;
    unsigned depth;
    uint64_t held;
} loss;

/* Each object of the package whose functions are in C begins with this struct. */
typedef struct {
    PyObject_HEAD
    uintptr_t handle; /* the address of its handle, or 0 before it is open */
    operation operations[MOST_OPERATIONS];
    long long limit; /* of a Semaphore: its permits, or 0 if they are not known */
    int keeps_gil;   /* bits 1 << TRY and 1 << UNDO: these functions never wait, so the call keeps the interpreter lock */
    char opened;
    unsigned long long closer; /* the address of the function that closes the handle */
    loss *lost;                /* of a Mutex: one element for each thread that has lost it in a with statement */
} calls;

/* One call. */
typedef struct {
    const operation *o;
    void *handle;
    int takes;
    int keeps_gil;
    int64_t number;
    void *pointer, *lease;
} request;

static PyObject *failure_of, *empty_queue, *address_of;
static void (*set_hook)(int (*)(void *), void *); /* shmsync_wait_hook */

/* The name of the attribute of a Cond with its mutex, so that the end of a with statement needs no memory. */
static PyObject *mutex_name;
static unsigned long main_thread;

/* How many waits the main thread is in. A handler that runs during a wait may wait, too. */
static int waits_in_main;

/* ---- Calls of the library ---- */

static int invoke(const request *r, int which, const struct timespec *until)
{
    uintptr_t f = r->o->at[which];
    switch (r->takes) {
    case NUMBER:
        return until != NULL ? ((int (*)(void *, int64_t, const struct timespec *))f)(r->handle, r->number, until)
                             : ((int (*)(void *, int64_t))f)(r->handle, r->number);
    case POINTER:
        return until != NULL ? ((int (*)(void *, void *, const struct timespec *))f)(r->handle, r->pointer, until)
                             : ((int (*)(void *, void *))f)(r->handle, r->pointer);
    case ITEM:
        return until != NULL ? ((int (*)(void *, void *, void *, const struct timespec *))f)(r->handle, r->pointer, r->lease, until)
                             : ((int (*)(void *, void *, void *))f)(r->handle, r->pointer, r->lease);
    default:
        return until != NULL ? ((int (*)(void *, const struct timespec *))f)(r->handle, until) : ((int (*)(void *))f)(r->handle);
    }
}

/* Makes a call without the global interpreter lock, since it may wait for another thread of this process. */
static int released(const request *r, int which, const struct timespec *until)
{
    PyThreadState *state = PyEval_SaveThread();
    int code = invoke(r, which, until);
    PyEval_RestoreThread(state);
    return code;
}

/* Gives back what the call has taken. A number is the only argument of such a function besides the handle. */
static int give_back(const request *r)
{
    request back = *r;
    if (r->o->at[UNDO] == 0)
        return 0;
    if (r->takes == ITEM)
        back.handle = r->lease;
    if (r->takes != NUMBER)
        back.takes = NOTHING;
    return (r->keeps_gil >> UNDO & 1) != 0 ? invoke(&back, UNDO, NULL) : released(&back, UNDO, NULL);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct timespec timespec_of(int64_t ns)
{
    struct timespec t;
    t.tv_sec = (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

/* Only the main thread runs handlers. */
static int in_main_thread(void) { return PyThread_get_thread_ident() == main_thread; }

/* Runs the handlers of the signals that have come. If one raises, it gives back what the call has taken. */
static int after_success(const request *r)
{
    if (PyErr_CheckSignals() == 0)
        return 0;
    give_back(r);
    return RAISED;
}

/* ---- The handlers of signals during a wait of the main thread ---- */

typedef struct {
    PyThreadState *state;
    int raised; /* a handler has raised. The exception of the last one that did is set */
} handlers;

/* The library calls this function about ten times a second. If a handler raises, the wait ends. If it is that of a Cond,
 * the wait for its mutex follows, and ends at the next call of this function. */
static int run_handlers(void *arg)
{
    handlers *h = (handlers *)arg;
    PyObject *kind, *value, *trace;
    PyEval_RestoreThread(h->state);
    PyErr_Fetch(&kind, &value, &trace);
    if (PyErr_CheckSignals() == 0) {
        PyErr_Restore(kind, value, trace);
    } else {
        h->raised = 1;
        Py_XDECREF(kind);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    }
    h->state = PyEval_SaveThread();
    return h->raised;
}

/* A wait of the library is between these two functions, without the interpreter lock. */
static void begin_wait(handlers *h)
{
    h->raised = 0;
    h->state = PyEval_SaveThread();
    if (in_main_thread()) {
        waits_in_main++;
        set_hook(run_handlers, h);
    }
}
static void end_wait(handlers *h)
{
    if (in_main_thread()) {
        set_hook(NULL, NULL);
        waits_in_main--;
    }
    PyEval_RestoreThread(h->state);
}

/* Returns the result of a wait that ended with code: 0, an errno, or RAISED if a handler raised. Then nothing is taken. */
static int after_wait(const request *r, const handlers *h, int code)
{
    if (h->raised != 0) {
        if (code == 0)
            give_back(r);
        return RAISED;
    }
    if (code == 0)
        return after_success(r);
    if (code == ETIMEDOUT && PyErr_CheckSignals() != 0) /* after another error it could change the text of that error */
        return RAISED;
    return code;
}

/* Waits for what the call takes, until the time ends, in nanoseconds of CLOCK_MONOTONIC. */
static int wait_for(const request *r, int64_t ends)
{
    handlers h;
    struct timespec until;
    int code;
    if (ends != NO_END)
        until = timespec_of(ends);
    begin_wait(&h);
    code = ends == NO_END ? invoke(r, PLAIN, NULL) : invoke(r, TIMED, &until);
    end_wait(&h);
    return after_wait(r, &h, code);
}

static int attempt(const request *r) { return (r->keeps_gil >> TRY & 1) != 0 ? invoke(r, TRY, NULL) : released(r, TRY, NULL); }

/* As wait_for, after a try that was not successful. Without block it does not wait, and the result is EBUSY. */
static int take(const request *r, int block, int64_t ends)
{
    int code = attempt(r);
    if (code == 0)
        return after_success(r);
    return code == EBUSY && block ? wait_for(r, ends) : code;
}

/* ---- Arguments and results ---- */

static PyObject *failed(int code)
{
    PyObject *e;
    if (code == RAISED)
        return NULL;
    e = PyObject_CallFunction(failure_of, "i", code);
    if (e != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(e), e);
        Py_DECREF(e);
    }
    return NULL;
}

/* Returns True for 0, and False for a call that did not succeed in time. For any other code it raises the error. */
static PyObject *whether(int code)
{
    if (code == 0)
        Py_RETURN_TRUE;
    if (code == EBUSY || code == ETIMEDOUT)
        Py_RETURN_FALSE;
    return failed(code);
}

static PyObject *unopened(void)
{
    PyErr_SetString(PyExc_ValueError, "the object was not opened");
    return NULL;
}

/* Sets r to the call of an operation. Returns 0, or RAISED if the object was not opened. */
static int prepare(request *r, PyObject *self, int which, int takes)
{
    const calls *c = (const calls *)self;
    if (c->operations[which].at[PLAIN] == 0) {
        unopened();
        return RAISED;
    }
    r->o = &c->operations[which];
    r->handle = (void *)c->handle;
    r->takes = takes;
    r->keeps_gil = c->keeps_gil;
    r->number = 1;
    r->pointer = r->lease = NULL;
    return 0;
}

/* When a timeout in seconds ends. NULL and None: never. */
static int end_of(PyObject *timeout, int64_t *ends)
{
    double seconds;
    *ends = NO_END;
    if (timeout == NULL || timeout == Py_None)
        return 0;
    seconds = PyFloat_AsDouble(timeout);
    if (seconds == -1 && PyErr_Occurred() != NULL)
        return RAISED;
    if (seconds != seconds) {
        PyErr_SetString(PyExc_ValueError, "the timeout is not a number");
        return RAISED;
    }
    if (seconds > 1e9) /* a longer one is treated like this one */
        seconds = 1e9;
    *ends = seconds <= 0 ? 1 : now() + (int64_t)(seconds * 1e9);
    return 0;
}

static int number_of(PyObject *given, int64_t *n)
{
    int overflow;
    PyObject *i;
    if (given == NULL)
        return 0;
    i = PyNumber_Index(given);
    if (i == NULL)
        return RAISED;
    *n = PyLong_AsLongLongAndOverflow(i, &overflow);
    Py_DECREF(i);
    if (overflow != 0) {
        PyErr_SetString(PyExc_ValueError, "the number of permits does not fit into 64 bits");
        return RAISED;
    }
    return 0;
}

/* The arguments block, timeout and n of a call. The names of the last ones are in keywords. Calls without arguments are
 * the fastest. */
static int arguments(PyObject *const *args, Py_ssize_t given, PyObject *keywords, int with_n, int *block, int64_t *ends, int64_t *n)
{
    static const char *const names[] = {"block", "timeout", "n"};
    PyObject *values[] = {NULL, NULL, NULL};
    Py_ssize_t most = with_n ? 3 : 2, i, k;
    *block = 1;
    *ends = NO_END;
    if (given == 0 && keywords == NULL)
        return 0;
    if (given > most) {
        PyErr_Format(PyExc_TypeError, "%zd arguments, of at most %zd", given, most);
        return RAISED;
    }
    for (i = 0; i < given; i++)
        values[i] = args[i];
    for (k = 0; keywords != NULL && k < PyTuple_Size(keywords); k++) {
        PyObject *name = PyTuple_GetItem(keywords, k);
        for (i = 0; i < most && PyUnicode_CompareWithASCIIString(name, names[i]) != 0; i++)
            ;
        if (i == most || values[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "the argument %U is not known, or is given twice", name);
            return RAISED;
        }
        values[i] = args[given + k];
    }
    if (values[0] != NULL && (*block = PyObject_IsTrue(values[0])) < 0)
        return RAISED;
    return end_of(values[1], ends) != 0 || number_of(values[2], n) != 0 ? RAISED : 0;
}

static int only_timeout(PyObject *args, PyObject *keywords, int64_t *ends)
{
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O", names, &timeout))
        return RAISED;
    return end_of(timeout, ends);
}

/* ---- What all objects have ---- */

/* _set(handle, keeps_gil, operations): each operation is a tuple of four addresses. */
static PyObject *set(PyObject *self, PyObject *args)
{
    calls *c = (calls *)self;
    unsigned long long handle;
    int keeps_gil;
    PyObject *all;
    Py_ssize_t i, f;
    if (!PyArg_ParseTuple(args, "KiO!", &handle, &keeps_gil, &PyTuple_Type, &all))
        return NULL;
    for (i = 0; i < PyTuple_Size(all) && i < MOST_OPERATIONS; i++)
        for (f = 0; f < FUNCTIONS; f++) {
            PyObject *one = PyTuple_GetItem(all, i), *at = one == NULL ? NULL : PyTuple_GetItem(one, f);
            unsigned long long address = at == NULL ? 0 : PyLong_AsUnsignedLongLong(at);
            if (PyErr_Occurred() != NULL)
                return NULL;
            c->operations[i].at[f] = (uintptr_t)address;
        }
    c->keeps_gil = keeps_gil;
    c->handle = (uintptr_t)handle;
    Py_RETURN_NONE;
}

/* Closes an object that nobody has any more. A method __del__ in Python could be ended by a handler. */
static void end_object(PyObject *self)
{
    calls *c = (calls *)self;
    PyObject *kind, *value, *trace;
    PyThreadState *state;
    while (c->lost != NULL) {
        loss *l = c->lost;
        c->lost = l->next;
        PyMem_Free(l);
    }
    if (!c->opened || c->handle == 0 || c->closer == 0)
        return;
    c->opened = 0;
    PyErr_Fetch(&kind, &value, &trace);
    state = PyEval_SaveThread();
    ((int (*)(void *))(uintptr_t)c->closer)((void *)c->handle);
    PyEval_RestoreThread(state);
    PyErr_Restore(kind, value, trace);
}

static PyMethodDef object_methods[] = {
    {"_set", set, METH_VARARGS, "Set the addresses of the functions."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef object_members[] = {
    {"_opened", T_BOOL, offsetof(calls, opened), 0, NULL},
    {"_close_at", T_ULONGLONG, offsetof(calls, closer), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* Python 3.9 has this convention with the same value, but not in the interface for several versions. */
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

#define FUNCTION(f) ((PyCFunction)(void (*)(void))(f))
#define KEYWORDS (METH_VARARGS | METH_KEYWORDS)
#define FAST_KEYWORDS (METH_FASTCALL | METH_KEYWORDS)

/* Calls the method for a release that returned code. It raises the error, unless value says more. */
SLOW static PyObject *release_failed(PyObject *self, int code, PyObject *value)
{
    if (((calls *)self)->operations[0].at[PLAIN] == 0)
        return unopened();
    return PyObject_CallMethod(self, "_release_failed", "iO", code, value);
}

/* The arguments of __exit__ are the type of an exception, the exception, and the traceback, or three times None. */
static PyObject *exception_of(PyObject *const *args, Py_ssize_t n) { return n > 1 ? args[1] : Py_None; }

/* ---- With statements whose mutex was lost ---- */

/* The body of a with statement may catch the exception of a wait on a Cond that could not acquire the mutex again. Then the
 * end of the statement must not release the mutex, which another thread of this process may hold by then. */

enum { MOST_DEPTH = 64 };

/* Returns the place of the pointer to the loss of the calling thread. The pointer is NULL if there is no loss. */
SLOW static loss **lost_here(calls *c)
{
    unsigned long thread = PyThread_get_thread_ident();
    loss **l = &c->lost;
    while (*l != NULL && (*l)->thread != thread)
        l = &(*l)->next;
    return l;
}
static uint64_t statement(unsigned depth) { return depth < MOST_DEPTH ? UINT64_C(1) << depth : 0; }

/* Notes that the mutex is held, or not held, for the innermost with statement. */
SLOW static void note_held(calls *c, int held)
{
    loss *l = *lost_here(c);
    if (l != NULL)
        l->held = held ? l->held | statement(l->depth - 1) : l->held & ~statement(l->depth - 1);
}
SLOW static void note_lost(calls *c)
{
    loss **l = lost_here(c);
    if (*l == NULL && (*l = (loss *)PyMem_Calloc(1, sizeof(loss))) != NULL) {
        (*l)->thread = PyThread_get_thread_ident();
        (*l)->depth = 1;
    }
    note_held(c, 0);
}
SLOW static void note_enter(calls *c)
{
    loss *l = *lost_here(c);
    if (l != NULL) {
        l->depth++;
        note_held(c, 1);
    }
}
/* Ends the innermost with statement, and returns whether the mutex is held for it. */
SLOW static int note_leave(calls *c)
{
    loss **at = lost_here(c), *l = *at;
    int held;
    if (l == NULL)
        return 1;
    l->depth--;
    held = l->depth >= MOST_DEPTH || (l->held & statement(l->depth)) != 0;
    if (l->depth == 0) {
        *at = l->next;
        PyMem_Free(l);
    }
    return held;
}

/* ---- Mutex and Semaphore ---- */

/* These two functions make a call that needs no wait directly: it is the one that programs make most often. */
static int mutex_try(PyObject *self)
{
    const calls *c = (const calls *)self;
    uintptr_t f = c->operations[0].at[TRY];
    return f != 0 ? ((int (*)(void *))f)((void *)c->handle) : EBUSY;
}

static int semaphore_try(PyObject *self)
{
    const calls *c = (const calls *)self;
    uintptr_t f = c->operations[0].at[TRY];
    return f != 0 ? ((int (*)(void *, int64_t))f)((void *)c->handle, 1) : EBUSY;
}

/* Enters a with statement after a try that returned code. A handler that runs after a success runs in that statement. */
SLOW static PyObject *enter_after(PyObject *self, int takes, int code)
{
    request r;
    if (code == EBUSY)
        code = prepare(&r, self, 0, takes) != 0 ? RAISED : wait_for(&r, NO_END);
    if (code != 0)
        return failed(code);
    if (((calls *)self)->lost != NULL)
        note_enter((calls *)self);
    Py_RETURN_TRUE;
}

static PyObject *mutex_enter(PyObject *self, PyObject *unused)
{
    int code = mutex_try(self);
    (void)unused;
    if (code == 0 && ((calls *)self)->lost == NULL)
        Py_RETURN_TRUE;
    return enter_after(self, NOTHING, code);
}

static PyObject *semaphore_enter(PyObject *self, PyObject *unused)
{
    int code = semaphore_try(self);
    (void)unused;
    if (code == 0)
        Py_RETURN_TRUE;
    return enter_after(self, NUMBER, code);
}

static PyObject *mutex_acquire(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *keywords)
{
    request r;
    int block;
    int64_t ends;
    int code;
    if (prepare(&r, self, 0, NOTHING) != 0 || arguments(args, given, keywords, 0, &block, &ends, NULL) != 0)
        return NULL;
    code = take(&r, block, ends);
    if (code == 0 && ((calls *)self)->lost != NULL)
        note_held((calls *)self, 1);
    return whether(code);
}

static PyObject *semaphore_acquire(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *keywords)
{
    request r;
    int block;
    int64_t ends;
    if (prepare(&r, self, 0, NUMBER) != 0 || arguments(args, given, keywords, 1, &block, &ends, &r.number) != 0)
        return NULL;
    if (((calls *)self)->limit != 0 && r.number > ((calls *)self)->limit)
        return PyObject_CallMethod(self, "_too_many", "L", (long long)r.number);
    return whether(take(&r, block, ends));
}

static int mutex_back(PyObject *self)
{
    const calls *c = (const calls *)self;
    uintptr_t f = c->operations[0].at[UNDO];
    return f != 0 ? ((int (*)(void *))f)((void *)c->handle) : EBADF;
}

static PyObject *mutex_release(PyObject *self, PyObject *unused)
{
    int code = mutex_back(self);
    (void)unused;
    if (code != 0)
        return release_failed(self, code, Py_None);
    if (((calls *)self)->lost != NULL)
        note_held((calls *)self, 0);
    Py_RETURN_NONE;
}

static PyObject *mutex_leave(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    int code;
    if (((calls *)self)->lost != NULL && !note_leave((calls *)self))
        Py_RETURN_NONE;
    code = mutex_back(self);
    if (code == 0)
        Py_RETURN_NONE;
    return release_failed(self, code, exception_of(args, n));
}

/* The release of a Semaphore may wait for the private lock, which another thread may have. */
static int semaphore_back(PyObject *self, int64_t n)
{
    const calls *c = (const calls *)self;
    uintptr_t f = c->operations[0].at[UNDO];
    PyThreadState *state;
    int code;
    if (f == 0)
        return EBADF;
    state = PyEval_SaveThread();
    code = ((int (*)(void *, int64_t))f)((void *)c->handle, n);
    PyEval_RestoreThread(state);
    return code;
}

static PyObject *semaphore_release(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"n", NULL};
    PyObject *given = NULL;
    int64_t n = 1;
    int code;
    if (PyTuple_Size(args) != 0 || keywords != NULL)
        if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O", names, &given) || number_of(given, &n) != 0)
            return NULL;
    code = semaphore_back(self, n);
    if (code == 0)
        Py_RETURN_NONE;
    return release_failed(self, code, Py_None);
}

static PyObject *semaphore_leave(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    int code = semaphore_back(self, 1);
    if (code == 0)
        Py_RETURN_NONE;
    return release_failed(self, code, exception_of(args, n));
}

static PyMethodDef mutex_methods[] = {
    {"acquire", FUNCTION(mutex_acquire), FAST_KEYWORDS,
     "acquire($self, /, block=True, timeout=None)\n--\n\n"
     "Acquire it, and return True; return False if that would wait and block is false, or takes longer than timeout seconds."},
    {"release", mutex_release, METH_NOARGS,
     "release($self, /)\n--\n\n"
     "Release it. NotHeld if this process does not hold it."},
    {"__enter__", mutex_enter, METH_NOARGS, "Acquire it."},
    {"__exit__", FUNCTION(mutex_leave), METH_FASTCALL, "Release it."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef semaphore_methods[] = {
    {"acquire", FUNCTION(semaphore_acquire), FAST_KEYWORDS,
     "acquire($self, /, block=True, timeout=None, n=1)\n--\n\n"
     "Acquire n permits, and return True; return False if that would wait and block is false, or takes longer than timeout seconds."},
    {"release", FUNCTION(semaphore_release), KEYWORDS,
     "release($self, /, n=1)\n--\n\n"
     "Release n permits. NotHeld, with nothing released, if this process does not have so many."},
    {"__enter__", semaphore_enter, METH_NOARGS, "Acquire a permit."},
    {"__exit__", FUNCTION(semaphore_leave), METH_FASTCALL, "Release a permit."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef semaphore_members[] = {
    {"_limit", T_LONGLONG, offsetof(calls, limit), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* ---- RWMutex ---- */

/* The order in which the package gives the operations of an RWMutex. */
enum { READ, WRITE, UPGRADABLE, UPGRADE };

/* One side of an RWMutex for a with statement. It keeps the RWMutex open. */
typedef struct {
    PyObject_HEAD
    PyObject *owner;
    int which;
} side;

static PyObject *side_type;

static PyObject *rwmutex_acquire(PyObject *self, int which, PyObject *const *args, Py_ssize_t given, PyObject *keywords)
{
    request r;
    int block;
    int64_t ends;
    if (prepare(&r, self, which, NOTHING) != 0 || arguments(args, given, keywords, 0, &block, &ends, NULL) != 0)
        return NULL;
    return whether(take(&r, block, ends));
}

static PyObject *rwmutex_release(PyObject *self, int which)
{
    request r;
    int code;
    if (prepare(&r, self, which, NOTHING) != 0)
        return NULL;
    code = give_back(&r);
    if (code == 0)
        Py_RETURN_NONE;
    return failed(code);
}

static PyObject *acquire_read(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *keywords)
{
    return rwmutex_acquire(self, READ, args, given, keywords);
}
static PyObject *acquire_write(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *keywords)
{
    return rwmutex_acquire(self, WRITE, args, given, keywords);
}
static PyObject *acquire_upgradable(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *keywords)
{
    return rwmutex_acquire(self, UPGRADABLE, args, given, keywords);
}
static PyObject *upgrade(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *keywords)
{
    return rwmutex_acquire(self, UPGRADE, args, given, keywords);
}

static PyObject *release_read(PyObject *self, PyObject *unused)
{
    (void)unused;
    return rwmutex_release(self, READ);
}
static PyObject *release_write(PyObject *self, PyObject *unused)
{
    (void)unused;
    return rwmutex_release(self, WRITE);
}
static PyObject *release_upgradable(PyObject *self, PyObject *unused)
{
    (void)unused;
    return rwmutex_release(self, UPGRADABLE);
}

static PyObject *side_of(PyObject *self, int which)
{
    side *s = (side *)PyType_GenericAlloc((PyTypeObject *)side_type, 0);
    if (s == NULL)
        return NULL;
    Py_INCREF(self);
    s->owner = self;
    s->which = which;
    return (PyObject *)s;
}

static PyObject *reading(PyObject *self, PyObject *unused)
{
    (void)unused;
    return side_of(self, READ);
}
static PyObject *writing(PyObject *self, PyObject *unused)
{
    (void)unused;
    return side_of(self, WRITE);
}
static PyObject *upgradable(PyObject *self, PyObject *unused)
{
    (void)unused;
    return side_of(self, UPGRADABLE);
}

static PyMethodDef rwmutex_methods[] = {
    {"acquire_read", FUNCTION(acquire_read), FAST_KEYWORDS,
     "acquire_read($self, /, block=True, timeout=None)\n--\n\n"
     "Acquire the lock for reading, and return True. Return False if that would wait, or takes longer."},
    {"acquire_write", FUNCTION(acquire_write), FAST_KEYWORDS,
     "acquire_write($self, /, block=True, timeout=None)\n--\n\n"
     "Acquire the lock for writing, and return True. Return False if that would wait, or takes longer."},
    {"acquire_upgradable", FUNCTION(acquire_upgradable), FAST_KEYWORDS,
     "acquire_upgradable($self, /, block=True, timeout=None)\n--\n\n"
     "Acquire the upgradable hold, and return True. Return False if that would wait, or takes longer."},
    {"upgrade", FUNCTION(upgrade), FAST_KEYWORDS,
     "upgrade($self, /, block=True, timeout=None)\n--\n\n"
     "Wait until the readers have left, and make the upgradable hold a write hold. False: it stays upgradable."},
    {"release_read", release_read, METH_NOARGS,
     "release_read($self, /)\n--\n\n"
     "Release a read hold. NotHeld if this process has none."},
    {"release_write", release_write, METH_NOARGS,
     "release_write($self, /)\n--\n\n"
     "Release the write hold. NotHeld if this process does not have it."},
    {"release_upgradable", release_upgradable, METH_NOARGS,
     "release_upgradable($self, /)\n--\n\n"
     "Release the upgradable hold. NotHeld if this process does not have it."},
    {"reading", reading, METH_NOARGS,
     "reading($self, /)\n--\n\n"
     "Return a context that holds the lock for reading."},
    {"writing", writing, METH_NOARGS,
     "writing($self, /)\n--\n\n"
     "Return a context that holds the lock for writing."},
    {"upgradable", upgradable, METH_NOARGS,
     "upgradable($self, /)\n--\n\n"
     "Return a context with the upgradable hold. If its body upgrades, it must downgrade again before its end."},
    {NULL, NULL, 0, NULL},
};

static PyObject *side_enter(PyObject *self, PyObject *unused)
{
    side *s = (side *)self;
    request r;
    int code;
    (void)unused;
    if (prepare(&r, s->owner, s->which, NOTHING) != 0)
        return NULL;
    code = attempt(&r);
    if (code == EBUSY)
        code = wait_for(&r, NO_END);
    if (code == 0)
        Py_RETURN_TRUE;
    return failed(code);
}

static PyObject *side_leave(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    side *s = (side *)self;
    (void)args;
    (void)n;
    return rwmutex_release(s->owner, s->which);
}

static int side_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((side *)self)->owner);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void side_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc f = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    Py_CLEAR(((side *)self)->owner);
    f(self);
    Py_DECREF(type);
}

static PyObject *side_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    (void)type;
    (void)args;
    (void)keywords;
    PyErr_SetString(PyExc_TypeError, "a side belongs to an RWMutex: call reading, writing or upgradable");
    return NULL;
}

static PyMethodDef side_methods[] = {
    {"__enter__", side_enter, METH_NOARGS, "Acquire the hold."},
    {"__exit__", FUNCTION(side_leave), METH_FASTCALL, "Release the hold."},
    {NULL, NULL, 0, NULL},
};

/* ---- Event ---- */

static PyObject *event_wait(PyObject *self, int which, PyObject *args, PyObject *keywords)
{
    request r;
    int64_t ends;
    if (prepare(&r, self, which, NOTHING) != 0 || only_timeout(args, keywords, &ends) != 0)
        return NULL;
    return whether(wait_for(&r, ends));
}

static PyObject *wait_set(PyObject *self, PyObject *args, PyObject *keywords) { return event_wait(self, 0, args, keywords); }
static PyObject *wait_clear(PyObject *self, PyObject *args, PyObject *keywords) { return event_wait(self, 1, args, keywords); }

static PyMethodDef event_methods[] = {
    {"wait", FUNCTION(wait_set), KEYWORDS,
     "wait($self, /, timeout=None)\n--\n\n"
     "Wait until the flag is set, and return True. Return False if that takes longer than timeout seconds."},
    {"wait_clear", FUNCTION(wait_clear), KEYWORDS,
     "wait_clear($self, /, timeout=None)\n--\n\n"
     "Wait until the flag is clear. Incompatible if the event is not bidirectional."},
    {NULL, NULL, 0, NULL},
};

/* ---- Cond ---- */

/* A wait on a Cond. The operations of a Cond are those of its mutex, with the function of the wait as TRY of the second
 * operation, and that of a signal as its UNDO. */
typedef struct {
    request mutex;
    handlers handlers;
    int held;
} waiting;

typedef int (*wait_with)(void *, int (*)(void *), int (*)(void *), void *, const struct timespec *);

/* These two functions run without the interpreter lock. */
static int unlock_for_wait(void *arg)
{
    waiting *w = (waiting *)arg;
    int code = invoke(&w->mutex, UNDO, NULL);
    w->held = code != 0;
    return code;
}

/* If a handler has raised, and another process keeps the mutex, the call ends without the mutex. */
static int lock_after_wait(void *arg)
{
    waiting *w = (waiting *)arg;
    int code = invoke(&w->mutex, PLAIN, NULL);
    w->held = code == 0;
    return code == ETIMEDOUT ? ECANCELED : code;
}

static PyObject *cond_wait(PyObject *self, PyObject *args, PyObject *keywords)
{
    request r;
    waiting w;
    struct timespec until;
    int64_t ends;
    int code;
    PyObject *mutex;
    if (prepare(&r, self, 0, NOTHING) != 0 || only_timeout(args, keywords, &ends) != 0)
        return NULL;
    mutex = PyObject_GetAttr(self, mutex_name);
    if (mutex == NULL)
        return NULL;
    if (prepare(&w.mutex, mutex, 0, NOTHING) != 0) {
        Py_DECREF(mutex);
        return NULL;
    }
    w.held = 1;
    if (ends != NO_END)
        until = timespec_of(ends);
    begin_wait(&w.handlers);
    code = ((wait_with)r.o->at[PLAIN])(r.handle, unlock_for_wait, lock_after_wait, &w, ends == NO_END ? NULL : &until);
    end_wait(&w.handlers);
    code = after_wait(&r, &w.handlers, code); /* if a handler has raised, a notification passes to another wait */
    if (code != 0 && code != ETIMEDOUT) {
        if (!w.held)
            note_lost((calls *)mutex);
        failed(code);
        Py_DECREF(mutex);
        return NULL;
    }
    Py_DECREF(mutex);
    return PyBool_FromLong(code == 0);
}

static PyObject *cond_acquire(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *keywords)
{
    PyObject *result, *mutex = PyObject_GetAttr(self, mutex_name);
    if (mutex == NULL)
        return NULL;
    result = mutex_acquire(mutex, args, given, keywords);
    Py_DECREF(mutex);
    return result;
}

static PyObject *cond_enter(PyObject *self, PyObject *unused)
{
    PyObject *result, *mutex = PyObject_GetAttr(self, mutex_name);
    if (mutex == NULL)
        return NULL;
    result = mutex_enter(mutex, unused);
    Py_DECREF(mutex);
    return result;
}

static PyObject *cond_leave(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    PyObject *result, *mutex = PyObject_GetAttr(self, mutex_name);
    if (mutex == NULL)
        return NULL;
    result = mutex_leave(mutex, args, n);
    Py_DECREF(mutex);
    return result;
}

static PyObject *cond_release(PyObject *self, PyObject *unused)
{
    PyObject *result, *mutex = PyObject_GetAttr(self, mutex_name);
    if (mutex == NULL)
        return NULL;
    result = mutex_release(mutex, unused);
    Py_DECREF(mutex);
    return result;
}

static PyMethodDef cond_methods[] = {
    {"acquire", FUNCTION(cond_acquire), FAST_KEYWORDS,
     "acquire($self, /, block=True, timeout=None)\n--\n\n"
     "Acquire the mutex, as Mutex.acquire does."},
    {"release", cond_release, METH_NOARGS,
     "release($self, /)\n--\n\n"
     "Release the mutex."},
    {"__enter__", cond_enter, METH_NOARGS, "Acquire the mutex."},
    {"__exit__", FUNCTION(cond_leave), METH_FASTCALL, "Release the mutex."},
    {"wait", FUNCTION(cond_wait), KEYWORDS,
     "wait($self, /, timeout=None)\n--\n\n"
     "Release the mutex, wait for a notification, and acquire the mutex again. Return False after timeout seconds without one."},
    {NULL, NULL, 0, NULL},
};

/* ---- Queues ---- */

/* shmsync_lease. */
typedef struct {
    void *impl;
    uint64_t serial, seq, state;
    uint32_t at, attempts;
} raw_lease;

/* The last operation of a queue is the ack of a lease. */
enum { LEASE, ACK };

static int acknowledge(const calls *c, raw_lease *raw)
{
    request r;
    memset(&r, 0, sizeof r);
    r.o = &c->operations[ACK];
    r.handle = raw;
    return released(&r, PLAIN, NULL);
}

/* Where the library puts an item: into a ctypes object, or, for the bytes of a Queue, into a buffer, which has the
 * length in 4 bytes, and then the bytes. */
typedef struct {
    PyObject *record;
    char *memory;
    size_t size; /* of the buffer, or 0 */
    char few[2048];
} space;

static int space_for(PyObject *self, space *s)
{
    PyObject *kind, *at;
    s->record = NULL;
    s->size = (size_t)((calls *)self)->limit;
    if (s->size != 0) {
        s->memory = s->size <= sizeof s->few ? s->few : (char *)PyMem_Malloc(s->size);
        if (s->memory != NULL)
            return 0;
        PyErr_NoMemory();
        return RAISED;
    }
    kind = PyObject_GetAttrString(self, "_bytes");
    if (kind == NULL)
        return RAISED;
    s->record = PyObject_CallObject(kind, NULL);
    Py_DECREF(kind);
    if (s->record == NULL)
        return RAISED;
    at = PyObject_CallFunctionObjArgs(address_of, s->record, NULL);
    s->memory = at == NULL ? NULL : (char *)(uintptr_t)PyLong_AsUnsignedLongLong(at);
    Py_XDECREF(at);
    if (PyErr_Occurred() == NULL)
        return 0;
    Py_CLEAR(s->record);
    return RAISED;
}

/* Returns what the caller gets: the ctypes object, or a copy of the bytes. */
static PyObject *item_in(space *s)
{
    const unsigned char *u = (const unsigned char *)s->memory;
    size_t n;
    if (s->size == 0) {
        Py_INCREF(s->record);
        return s->record;
    }
    n = u[0] | (size_t)u[1] << 8 | (size_t)u[2] << 16 | (size_t)u[3] << 24;
    return PyBytes_FromStringAndSize(s->memory + 4, (Py_ssize_t)(n < s->size - 4 ? n : s->size - 4));
}

static void space_free(space *s)
{
    Py_XDECREF(s->record);
    if (s->size != 0 && s->memory != s->few)
        PyMem_Free(s->memory);
}

/* Takes an item on lease. Returns NULL with an exception, after which nothing is leased. */
static PyObject *lease_item(PyObject *self, raw_lease *raw, int block, int64_t ends)
{
    request r;
    space s;
    PyObject *item = NULL;
    int code;
    if (prepare(&r, self, LEASE, ITEM) != 0 || space_for(self, &s) != 0)
        return NULL;
    r.pointer = s.memory;
    r.lease = raw;
    code = take(&r, block, ends);
    if (code == 0) {
        item = item_in(&s);
        if (item == NULL)
            give_back(&r);
    } else if (code == EBUSY || code == ETIMEDOUT) {
        PyErr_SetNone(empty_queue);
    } else {
        failed(code);
    }
    space_free(&s);
    return item;
}

/* The item is leased first, so that it goes back to the queue if a handler raises. */
static PyObject *queue_get(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *keywords)
{
    raw_lease raw;
    request r;
    int code, block;
    int64_t ends;
    PyObject *item;
    if (prepare(&r, self, LEASE, ITEM) != 0 || arguments(args, given, keywords, 0, &block, &ends, NULL) != 0)
        return NULL;
    item = lease_item(self, &raw, block, ends);
    if (item == NULL)
        return NULL;
    r.lease = &raw;
    code = after_success(&r);
    if (code == 0)
        code = acknowledge((calls *)self, &raw);
    if (code == 0)
        return item;
    Py_DECREF(item);
    return failed(code);
}

/* A lease in Python. Its handle is the address of a shmsync_lease, and its first operation has the functions ack, as
 * PLAIN, and nack, as UNDO. The number limit is not 0 while the lease lasts. */
static PyObject *queue_lease(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *keywords)
{
    int block;
    int64_t ends;
    raw_lease *raw;
    PyObject *item, *lease;
    if (arguments(args, given, keywords, 0, &block, &ends, NULL) != 0)
        return NULL;
    lease = PyObject_CallMethod(self, "_new_lease", NULL);
    if (lease == NULL)
        return NULL;
    raw = (raw_lease *)((calls *)lease)->handle;
    item = lease_item(self, raw, block, ends);
    if (item == NULL) {
        Py_DECREF(lease);
        return NULL;
    }
    ((calls *)lease)->limit = 1; /* from here on its end gives the item back */
    if (PyObject_SetAttrString(lease, "item", item) != 0) {
        Py_DECREF(item);
        Py_DECREF(lease);
        return NULL;
    }
    Py_DECREF(item);
    return lease;
}

static PyMethodDef queue_methods[] = {
    {"_get", FUNCTION(queue_get), FAST_KEYWORDS,
     "Take the first item out of the queue. queue.Empty if there is none, or none within timeout seconds."},
    {"lease", FUNCTION(queue_lease), FAST_KEYWORDS,
     "lease($self, /, block=True, timeout=None)\n--\n\n"
     "Take the first item as a lease, which the caller has to acknowledge. queue.Empty if there is none, "
     "or none within timeout seconds. Canceled if the queue is shut down and empty."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef queue_members[] = {
    {"_item_bytes", T_LONGLONG, offsetof(calls, limit), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* Ends a lease by ack or nack, if it lasts or always is set. */
static int end_lease(PyObject *self, int which, int always)
{
    calls *c = (calls *)self;
    request r;
    if (!always && c->limit == 0)
        return 0;
    if (prepare(&r, self, 0, NOTHING) != 0)
        return RAISED;
    c->limit = 0;
    return released(&r, which, NULL);
}

static PyObject *lease_ack(PyObject *self, PyObject *unused)
{
    int code = end_lease(self, PLAIN, 1);
    (void)unused;
    if (code == 0)
        Py_RETURN_NONE;
    return failed(code);
}

static PyObject *lease_nack(PyObject *self, PyObject *unused)
{
    int code = end_lease(self, UNDO, 1);
    (void)unused;
    if (code == 0)
        Py_RETURN_NONE;
    return failed(code);
}

/* A method in Python would stay in the traceback of a handler's exception, with the lease. */
static PyObject *lease_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyObject_GetAttrString(self, "item");
}

static PyObject *lease_leave(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    int raised = n > 0 && args[0] != Py_None, code = end_lease(self, raised ? UNDO : PLAIN, 0);
    if (code == 0 || (raised && code == EPERM)) /* the exception of the body says more */
        Py_RETURN_NONE;
    return failed(code);
}

/* A lease that nobody has any more cannot be acknowledged. */
static void lease_end(PyObject *self)
{
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    end_lease(self, UNDO, 0);
    PyErr_Restore(kind, value, trace);
}

static PyMethodDef lease_methods[] = {
    {"_set", set, METH_VARARGS, "Set the addresses of the functions."},
    {"ack", lease_ack, METH_NOARGS,
     "ack($self, /)\n--\n\n"
     "Remove the item from the queue. NotHeld if this process no longer has it."},
    {"nack", lease_nack, METH_NOARGS,
     "nack($self, /)\n--\n\n"
     "Give the item back to the front of the queue. NotHeld if this process no longer has it."},
    {"__enter__", lease_enter, METH_NOARGS, "Return the item."},
    {"__exit__", FUNCTION(lease_leave), METH_FASTCALL, "Acknowledge the item, or give it back if the body raised."},
    {NULL, NULL, 0, NULL},
};

/* ---- Synchronized ---- */

/* The second operation of a Synchronized is commit. The method _view makes the value from the address of the copy. */
static PyObject *synchronized_take(PyObject *self, int64_t ends)
{
    request r;
    void *copy = NULL;
    PyObject *view;
    int code;
    if (prepare(&r, self, 0, POINTER) != 0)
        return NULL;
    r.pointer = &copy;
    code = wait_for(&r, ends);
    if (code == ETIMEDOUT)
        Py_RETURN_NONE;
    if (code != 0)
        return failed(code);
    view = PyObject_CallMethod(self, "_view", "K", (unsigned long long)(uintptr_t)copy);
    if (view == NULL)
        give_back(&r);
    return view;
}

static PyObject *synchronized_begin(PyObject *self, PyObject *args, PyObject *keywords)
{
    int64_t ends;
    return only_timeout(args, keywords, &ends) != 0 ? NULL : synchronized_take(self, ends);
}

static PyObject *synchronized_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return synchronized_take(self, NO_END);
}

static PyObject *synchronized_end(PyObject *self, int which, int function)
{
    request r;
    int code;
    if (prepare(&r, self, which, NOTHING) != 0)
        return NULL;
    code = released(&r, function, NULL);
    if (code == 0)
        Py_RETURN_NONE;
    return failed(code);
}

static PyObject *synchronized_commit(PyObject *self, PyObject *unused)
{
    (void)unused;
    return synchronized_end(self, 1, PLAIN);
}

static PyObject *synchronized_abort(PyObject *self, PyObject *unused)
{
    (void)unused;
    return synchronized_end(self, 0, UNDO);
}

static PyObject *synchronized_leave(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    int raised = n > 0 && args[0] != Py_None;
    return raised ? synchronized_abort(self, NULL) : synchronized_commit(self, NULL);
}

static PyMethodDef synchronized_methods[] = {
    {"begin", FUNCTION(synchronized_begin), KEYWORDS,
     "begin($self, /, timeout=None)\n--\n\n"
     "Lock the value, and return a copy of it to change until commit or abort. Return None if that takes longer than timeout seconds."},
    {"commit", synchronized_commit, METH_NOARGS,
     "commit($self, /)\n--\n\n"
     "Make the copy the value, in one step, and unlock. NotHeld without a begin."},
    {"abort", synchronized_abort, METH_NOARGS,
     "abort($self, /)\n--\n\n"
     "Unlock, and leave the value as it was before begin. NotHeld without a begin."},
    {"__enter__", synchronized_enter, METH_NOARGS, "Lock the value, and return a copy of it to change."},
    {"__exit__", FUNCTION(synchronized_leave), METH_FASTCALL, "Make the copy the value, or leave the value as it was if the body raised."},
    {NULL, NULL, 0, NULL},
};

/* ---- Functions of the module ---- */

typedef struct {
    PyObject *f;
    PyThreadState *state;
} repairing;

/* Calls a function in Python. If that raises, the result is not 0, and the exception stays set. */
static int run_repair(void *arg)
{
    repairing *p = (repairing *)arg;
    PyObject *result;
    PyEval_RestoreThread(p->state);
    result = PyObject_CallObject(p->f, NULL);
    Py_XDECREF(result);
    p->state = PyEval_SaveThread();
    return result == NULL;
}

/* recover(function, handle, repair) calls a recover function of the library, and returns its result. */
static PyObject *recover(PyObject *module, PyObject *args)
{
    unsigned long long function, handle;
    repairing p;
    int code;
    (void)module;
    if (!PyArg_ParseTuple(args, "KKO", &function, &handle, &p.f))
        return NULL;
    p.state = PyEval_SaveThread();
    code = ((int (*)(void *, int (*)(void *), void *))(uintptr_t)function)((void *)(uintptr_t)handle, run_repair, &p);
    PyEval_RestoreThread(p.state);
    return PyErr_Occurred() != NULL ? NULL : PyLong_FromLong(code);
}

/* setup(failure_of, Empty, addressof, wait_hook) gives the module what it needs of the package. The last argument is the
 * address of shmsync_wait_hook. */
static PyObject *setup(PyObject *module, PyObject *args)
{
    unsigned long long hook;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOK", &failure_of, &empty_queue, &address_of, &hook))
        return NULL;
    set_hook = (void (*)(int (*)(void *), void *))(uintptr_t)hook;
    Py_INCREF(failure_of);
    Py_INCREF(empty_queue);
    Py_INCREF(address_of);
    Py_RETURN_NONE;
}

static PyObject *set_main_thread(PyObject *module, PyObject *ident)
{
    (void)module;
    main_thread = PyLong_AsUnsignedLong(ident);
    waits_in_main = 0; /* in a child of fork, the thread of such a wait may not exist */
    if (PyErr_Occurred() != NULL)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *waits(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromLong(waits_in_main);
}

static PyMethodDef functions[] = {
    {"setup", setup, METH_VARARGS, "Give the module what it needs of the package."},
    {"set_main_thread", set_main_thread, METH_O, "Say which thread runs signal handlers."},
    {"waits", waits, METH_NOARGS, "Return how many waits the main thread is in."},
    {"recover", recover, METH_VARARGS, "Call a recover function of the library, and return its result."},
    {NULL, NULL, 0, NULL},
};

#define TYPE(variable, name, methods, members, doc)                                                                     \
    static PyType_Slot variable##_slots[] = {{Py_tp_methods, methods}, {Py_tp_members, members},                        \
                                             {Py_tp_finalize, end_object}, {Py_tp_doc, doc}, {0, NULL}};                \
    static PyType_Spec variable = {"shmsync._fast." name, sizeof(calls), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, variable##_slots}

static PyMemberDef no_members[] = {{NULL, 0, 0, 0, NULL}};

TYPE(object, "Object", object_methods, object_members, "What all objects begin with.");
TYPE(mutex, "Mutex", mutex_methods, no_members, "What Mutex begins with.");
TYPE(semaphore, "Semaphore", semaphore_methods, semaphore_members, "What Semaphore begins with.");
TYPE(rwmutex, "RWMutex", rwmutex_methods, no_members, "What RWMutex begins with.");
TYPE(event, "Event", event_methods, no_members, "What Event begins with.");
TYPE(cond, "Cond", cond_methods, no_members, "What Cond begins with.");
TYPE(queue, "Items", queue_methods, queue_members, "What Queue and RecordQueue begin with.");
TYPE(synchronized, "Synchronized", synchronized_methods, no_members, "What Synchronized begins with.");

static PyType_Slot lease_slots[] = {{Py_tp_methods, lease_methods}, {Py_tp_finalize, lease_end},
                                    {Py_tp_doc, "What Lease begins with."}, {0, NULL}};
static PyType_Spec lease = {"shmsync._fast.Lease", sizeof(calls), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, lease_slots};

static PyType_Slot side_slots[] = {{Py_tp_methods, side_methods}, {Py_tp_traverse, side_traverse}, {Py_tp_dealloc, side_free},
                                   {Py_tp_new, side_new},
                                   {Py_tp_doc, "One side of an RWMutex for a with statement."}, {0, NULL}};
static PyType_Spec side_spec = {"shmsync._fast.Side", sizeof(side), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, side_slots};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "shmsync._fast", "Calls in C.", -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fast(void)
{
    static PyType_Spec *specs[] = {&mutex, &semaphore, &rwmutex, &event, &cond, &queue, &synchronized};
    PyObject *m = PyModule_Create(&module), *base, *bases;
    size_t i;
    if (m == NULL)
        return NULL;
    mutex_name = PyUnicode_InternFromString("_mutex");
    if (mutex_name == NULL) {
        Py_DECREF(m);
        return NULL;
    }
    base = PyType_FromSpec(&object);
    bases = base == NULL ? NULL : PyTuple_Pack(1, base);
    if (bases == NULL || PyModule_AddObject(m, "Object", base) < 0) {
        Py_XDECREF(bases);
        Py_XDECREF(base);
        Py_DECREF(m);
        return NULL;
    }
    for (i = 0; i <= sizeof specs / sizeof specs[0]; i++) {
        PyType_Spec *spec = i < sizeof specs / sizeof specs[0] ? specs[i] : &lease;
        PyObject *type = spec == &lease ? PyType_FromSpec(spec) : PyType_FromSpecWithBases(spec, bases);
        if (type == NULL || PyModule_AddObject(m, strrchr(spec->name, '.') + 1, type) < 0) {
            Py_XDECREF(type);
            Py_DECREF(bases);
            Py_DECREF(m);
            return NULL;
        }
    }
    Py_DECREF(bases);
    side_type = PyType_FromSpec(&side_spec);
    if (side_type == NULL) {
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
