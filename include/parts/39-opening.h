/* ---- Opening an object of a kind, and the handle of this process on it ---- */

/* Fills in the fields that are set in the same way for all kinds. The caller sets init, and further fields if the kind
 * needs them. */
SHMI_FN void shmi_spec_of_kind(shmi_spec *spec, uint32_t kind, uint16_t version, const char *name, uint64_t size)
{
    memset(spec, 0, sizeof *spec);
    spec->kind = kind;
    spec->version = version;
    spec->name = name;
    spec->size = size;
}

/* Opens the object that spec describes, and sets *impl to this process's handle on it. */
SHMI_FN int shmi_open_handle(shmsync_arena *a, const shmi_spec *spec, void *(*build)(shmsync_arena *, const shmi_object *, const void *), const void *arg, int *created, void **impl)
{
    shmi_object o;
    int err = shmi_enter(a, "arena.open_object");
    *impl = NULL;
    if (err != 0)
        return err;
    err = shmi_open_object(a, spec, &o, created);
    if (err == 0) {
        *impl = shmi_share(a, &o, build, arg);
        err = shmi_handed_out(a, &o, *created, *impl != NULL ? 0 : shmi_no_handle());
    }
    shmi_exit(a);
    return err;
}
/* Opens the object at an offset, which must be of that kind, and sets *impl to this process's handle on it. */
SHMI_FN int shmi_open_handle_at(shmsync_arena *a, shmi_off off, const char *op, uint32_t kind, uint16_t version, uint64_t size, void *(*build)(shmsync_arena *, const shmi_object *, const void *), const void *arg, void **impl)
{
    shmi_object o;
    int err = shmi_object_at(a, off, op, kind, version, size, &o);
    *impl = NULL;
    if (err != 0)
        return err;
    *impl = shmi_share(a, &o, build, arg);
    return shmi_exit_with(a, *impl != NULL ? 0 : shmi_no_handle());
}
