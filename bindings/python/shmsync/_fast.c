/* The fast paths of Mutex and Semaphore as C functions of Python: a call costs a third of a call by ctypes. The
 * package works without this module. The module has no locks of its own: it calls the functions of libshmsync whose
 * addresses the package gives it, and leaves everything but an uncontended call to the methods in Python. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <structmember.h>
#include <stdint.h>

typedef int (*of_handle)(void *);
typedef int (*of_number)(void *, int64_t);

/* An instance is the part of a Mutex or of a Semaphore that these functions use. */
typedef struct {
    PyObject_HEAD
    unsigned long long handle;  /* the address of its handle, or 0 before it is open */
    unsigned long long acquire; /* the address of the function that never waits */
    unsigned long long release;
    unsigned char number;       /* not 0: the functions take a number of permits, too */
} calls;

/* The functions whose address is in acquire never wait, and neither does the unlock of a Mutex. So these calls keep
 * the global interpreter lock. */
static int try_acquire(const calls *self)
{
    void *handle = (void *)(uintptr_t)self->handle;
    if (self->number)
        return ((of_number)(uintptr_t)self->acquire)(handle, 1);
    return ((of_handle)(uintptr_t)self->acquire)(handle);
}

/* The release of a Semaphore may wait for the private lock, which another thread may have. */
static int give_back(const calls *self)
{
    void *handle = (void *)(uintptr_t)self->handle;
    of_number release = (of_number)(uintptr_t)self->release;
    PyThreadState *state;
    int code;
    if (!self->number)
        return ((of_handle)(uintptr_t)self->release)(handle);
    state = PyEval_SaveThread();
    code = release(handle, 1);
    PyEval_RestoreThread(state);
    return code;
}

static int opened(const calls *self)
{
    if (self->handle != 0 && self->acquire != 0 && self->release != 0)
        return 1;
    PyErr_SetString(PyExc_ValueError, "the object was not opened");
    return 0;
}

/* Calls the Python method of that name, which takes all arguments. */
static PyObject *given(PyObject *self, const char *method, PyObject *args, PyObject *keywords)
{
    PyObject *result, *f = PyObject_GetAttrString(self, method);
    if (f == NULL)
        return NULL;
    result = PyObject_Call(f, args, keywords);
    Py_DECREF(f);
    return result;
}

static int any(PyObject *args, PyObject *keywords)
{
    return PyTuple_Size(args) != 0 || (keywords != NULL && PyDict_Size(keywords) != 0);
}

static PyObject *enter(PyObject *self, PyObject *unused)
{
    int code;
    (void)unused;
    if (!opened((calls *)self))
        return NULL;
    code = try_acquire((calls *)self);
    if (code == 0)
        Py_RETURN_TRUE;
    return PyObject_CallMethod(self, "_acquire", "iOO", code, Py_True, Py_None);
}

static PyObject *acquire(PyObject *self, PyObject *args, PyObject *keywords)
{
    if (any(args, keywords))
        return given(self, "_acquire_given", args, keywords);
    return enter(self, NULL);
}

static PyObject *release(PyObject *self, PyObject *args, PyObject *keywords)
{
    int code;
    if (any(args, keywords))
        return given(self, "_release_given", args, keywords);
    if (!opened((calls *)self))
        return NULL;
    code = give_back((calls *)self);
    if (code == 0)
        Py_RETURN_NONE;
    return PyObject_CallMethod(self, "_release_failed", "iO", code, Py_None);
}

static PyObject *leave(PyObject *self, PyObject *args)
{
    int code;
    if (!opened((calls *)self))
        return NULL;
    code = give_back((calls *)self);
    if (code == 0)
        Py_RETURN_NONE;
    return PyObject_CallMethod(self, "_release_failed", "iO", code, PyTuple_Size(args) > 1 ? PyTuple_GetItem(args, 1) : Py_None);
}

static PyMethodDef methods[] = {
    {"acquire", (PyCFunction)(void (*)(void))acquire, METH_VARARGS | METH_KEYWORDS,
     "Acquire it, and return True; return False if that would wait and block is false, or if it takes longer than timeout seconds."},
    {"release", (PyCFunction)(void (*)(void))release, METH_VARARGS | METH_KEYWORDS,
     "Release it. NotHeld, with nothing released, if this process does not hold it."},
    {"__enter__", enter, METH_NOARGS, "Acquire it."},
    {"__exit__", leave, METH_VARARGS, "Release it."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"_address", T_ULONGLONG, offsetof(calls, handle), 0, NULL},
    {"_acquire_at", T_ULONGLONG, offsetof(calls, acquire), 0, NULL},
    {"_release_at", T_ULONGLONG, offsetof(calls, release), 0, NULL},
    {"_takes_number", T_BOOL, offsetof(calls, number), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, "What Mutex and Semaphore begin with."},
    {0, NULL},
};

static PyType_Spec spec = {"shmsync._fast.Calls", sizeof(calls), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "shmsync._fast", "Quick paths in C.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fast(void)
{
    PyObject *m = PyModule_Create(&module), *type;
    if (m == NULL)
        return NULL;
    type = PyType_FromSpec(&spec);
    if (type == NULL || PyModule_AddObject(m, "Calls", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
