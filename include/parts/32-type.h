/* ---- Descriptions of types ----
 *
 * docs/abi.md defines the text that describes a type. The text comes from a program, or from the header of an object,
 * which a peer may have written. So each function below accepts any bytes that end with 0. */

#define SHMI_TYPE_MOST 4095  /* bytes of a description */
#define SHMI_TYPE_PATH 256   /* bytes of the path of a field, with the 0 */
#define SHMI_TYPE_DEPTH 16   /* types nested in each other */

/* A part of a type that has a name of its own: a number, or an array. */
typedef struct shmi_type_leaf {
    char path[SHMI_TYPE_PATH]; /* such as slots[].owner; empty if the type has no fields */
    char kind[64];             /* as a Go programmer writes it */
    uint64_t off;              /* in an array of structs, the offset of this part of the first element */
} shmi_type_leaf;

/* A walk through the parts of a type. */
typedef struct shmi_type_walk {
    const char *p; /* the next token */
    shmi_type_leaf leaf;
    int (*see)(struct shmi_type_walk *); /* called for each part; a result other than 0 ends the walk */
    const void *arg;
    void *state;
    shmi_type_leaf *found;
} shmi_type_walk;

enum { SHMI_TYPE_WHOLE = 0, SHMI_TYPE_ENOUGH = 1, SHMI_TYPE_BAD = -1 };

/* The next token, without its space; NULL if there is none. */
SHMI_FN const char *shmi_type_token(const char **p, size_t *n)
{
    const char *s = *p, *end = strchr(s, ' ');
    if (end == NULL || end == s)
        return NULL;
    *n = (size_t)(end - s);
    *p = end + 1;
    return s;
}

/* The number in n bytes, below 2^48. */
SHMI_FN int shmi_type_number(const char *s, size_t n, uint64_t *out)
{
    size_t i;
    *out = 0;
    if (n == 0 || n > 15 || (s[0] == '0' && n > 1))
        return 0;
    for (i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return 0;
        *out = *out * 10 + (uint64_t)(s[i] - '0');
    }
    return *out >> 48 == 0;
}

/* The kind of the type at p, which may be cut to size. */
SHMI_FN void shmi_type_kind(const char *p, char *out, size_t size)
{
    const char *s, *name;
    size_t n, used = 0;
    int single = 0;
    out[0] = 0;
    while ((s = shmi_type_token(&p, &n)) != NULL && used + 1 < size) {
        if (*s == '[') {
            used += (size_t)snprintf(out + used, size - used, "%.*s", (int)n, s);
            single = 0;
        } else if (*s == '{' && *p == '@') { /* a struct whose only field has no name, such as atomic.Uint32 */
            if (!single)
                used += (size_t)snprintf(out + used, size - used, "atomic ");
            if (shmi_type_token(&p, &n) == NULL)
                return;
            single = 1;
            continue;
        } else if (*s == '{') {
            snprintf(out + used, size - used, "struct");
            return;
        } else {
            name = *s == 'i' ? "int" : *s == 'u' ? "uint" : *s == 'f' ? "float" : *s == 'c' ? "complex" : "bool";
            snprintf(out + used, size - used, *s == 'b' ? "%s" : "%s%d", name, n == 2 ? 8 * (s[1] - '0') : 128);
            return;
        }
    }
}

SHMI_FN int shmi_type_known_number(const char *s, size_t n)
{
    static const char known[] = " i1 i2 i4 i8 u1 u2 u4 u8 f4 f8 c8 c16 b1 ";
    const char *k;
    for (k = known; *k != 0; k++)
        if (k[0] == ' ' && strncmp(k + 1, s, n) == 0 && k[1 + n] == ' ')
            return 1;
    return 0;
}

/* Whether the n bytes, which are UTF-8, can be a name. In ASCII only letters, digits and _ are allowed, and no digit
 * comes first; control characters beyond ASCII are not allowed. */
SHMI_FN int shmi_type_is_name(const char *s, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        int letter = c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (i > 0 && c >= '0' && c <= '9');
        int control = c == 0xc2 && i + 1 < n && (unsigned char)s[i + 1] < 0xa0;
        if (!letter && (c < 0x80 || control))
            return 0;
    }
    return 1;
}

SHMI_FN int shmi_type_look(shmi_type_walk *w, const char *start, size_t path, uint64_t off, int depth, int within);

/* Visits the fields of the struct at start, up to its end. */
SHMI_FN int shmi_type_fields(shmi_type_walk *w, const char *start, size_t path, uint64_t off, int depth, int within)
{
    const char *s, *at;
    size_t n, name, below;
    uint64_t place;
    int count = 0, single = 0, got;
    for (;; count++) {
        int (*see)(struct shmi_type_walk *) = w->see;
        if ((s = shmi_type_token(&w->p, &n)) == NULL)
            return SHMI_TYPE_BAD;
        if (n == 1 && *s == '}')
            return single && count != 1 ? SHMI_TYPE_BAD : SHMI_TYPE_WHOLE;
        at = (const char *)memchr(s, '@', n);
        if (at == NULL)
            return SHMI_TYPE_BAD;
        name = (size_t)(at - s);
        if (!shmi_type_number(at + 1, n - name - 1, &place) || (name == 0 && place != 0) || !shmi_type_is_name(s, name))
            return SHMI_TYPE_BAD;
        below = path;
        if (name > 0) {
            if (path + 1 + name >= SHMI_TYPE_PATH)
                return SHMI_TYPE_BAD;
            if (path > 0)
                w->leaf.path[below++] = '.';
            memcpy(w->leaf.path + below, s, name);
            below += name;
        } else {
            single = 1;
        }
        w->leaf.path[below] = 0;
        if (name == 1 && *s == '_')
            w->see = NULL;
        got = shmi_type_look(w, name == 0 ? start : w->p, below, off + place, depth + 1, name == 0 && within);
        w->see = see;
        if (got != SHMI_TYPE_WHOLE)
            return got;
        w->leaf.path[path] = 0;
    }
}

/* Visits the type at w->p, whose path is in w->leaf, and calls w->see for each part. The parameter start is the
 * description of the type. If the type is the field of a struct whose only field has no name, start is the description
 * of this struct, or of the outermost of several such structs. The parameter within is 1 if the type is the element of
 * an array. */
SHMI_FN int shmi_type_look(shmi_type_walk *w, const char *start, size_t path, uint64_t off, int depth, int within)
{
    const char *s;
    size_t n;
    uint64_t size;
    if ((s = shmi_type_token(&w->p, &n)) == NULL || depth > SHMI_TYPE_DEPTH)
        return SHMI_TYPE_BAD;
    if (*s == '{')
        return shmi_type_number(s + 1, n - 1, &size) ? shmi_type_fields(w, start, path, off, depth, within) : SHMI_TYPE_BAD;
    if (!within && w->see != NULL) {
        w->leaf.off = off;
        shmi_type_kind(start, w->leaf.kind, sizeof w->leaf.kind);
        if (w->see(w))
            return SHMI_TYPE_ENOUGH;
    }
    if (*s != '[')
        return shmi_type_known_number(s, n) ? SHMI_TYPE_WHOLE : SHMI_TYPE_BAD;
    if (n < 3 || s[n - 1] != ']' || !shmi_type_number(s + 1, n - 2, &size) || path + 2 >= SHMI_TYPE_PATH)
        return SHMI_TYPE_BAD;
    memcpy(w->leaf.path + path, "[]", 3);
    return shmi_type_look(w, w->p, path + 2, off, depth + 1, 1);
}

SHMI_FN int shmi_type_each(shmi_type_walk *w, const char *text)
{
    int got;
    w->p = text;
    w->leaf.path[0] = 0;
    got = shmi_type_look(w, text, 0, 0, 0, 0);
    return got == SHMI_TYPE_WHOLE && *w->p != 0 ? SHMI_TYPE_BAD : got;
}

/* The hash of a description without its names. */
SHMI_FN uint64_t shmi_type_fingerprint(const char *text)
{
    uint64_t h = UINT64_C(14695981039346656037);
    while (*text != 0) {
        size_t n = strcspn(text, " "), name = 0;
        const char *at = (const char *)memchr(text, '@', n);
        if (at != NULL)
            name = (size_t)(at - text);
        n += text[n] == ' ';
        for (; name < n; name++)
            h = (h ^ (unsigned char)text[name]) * UINT64_C(1099511628211);
        text += n;
    }
    return h != 0 ? h : 1;
}

SHMI_FN int shmi_utf8(const char *s, size_t n);

SHMI_FN int shmi_type_valid(const char *text)
{
    shmi_type_walk w;
    memset(&w, 0, sizeof w);
    return strlen(text) <= SHMI_TYPE_MOST && shmi_utf8(text, strlen(text)) && shmi_type_each(&w, text) == SHMI_TYPE_WHOLE;
}

SHMI_FN int shmi_type_is_path(shmi_type_walk *w)
{
    if (strcmp(w->leaf.path, ((const shmi_type_leaf *)w->arg)->path) != 0)
        return 0;
    if (w->found != NULL)
        *w->found = w->leaf;
    return 1;
}
/* Whether the type has a part with the path of the part *like. If so, *found is that part. */
SHMI_FN int shmi_type_find(const char *text, const shmi_type_leaf *like, shmi_type_leaf *found)
{
    shmi_type_walk w;
    memset(&w, 0, sizeof w);
    w.see = shmi_type_is_path;
    w.arg = like;
    w.found = found;
    return shmi_type_each(&w, text) == SHMI_TYPE_ENOUGH;
}

/* A text that is put together from parts, and cut if it does not fit. */
typedef struct shmi_words {
    char *text;
    size_t size, used;
} shmi_words;

__attribute__((format(printf, 2, 3), unused, cold)) static void shmi_say(shmi_words *w, const char *format, ...)
{
    va_list args;
    int n;
    if (w->used + 1 >= w->size)
        return;
    va_start(args, format);
    n = vsnprintf(w->text + w->used, w->size - w->used, format, args);
    va_end(args);
    if (n > 0)
        w->used += (size_t)n;
}

/* A comparison of the type of an object with that of the program. */
typedef struct shmi_type_pair {
    const char *own, *other;    /* the type of which leaf is a part, and the other type */
    const shmi_type_leaf *leaf; /* for shmi_type_is_renamed */
    int arena;                  /* 1: own is the type of the object; 0: that of the program */
    int moved;                  /* 1: compare only the fields that have moved; 0: only the other fields */
    int named, count;           /* number of fields that the text names; number of differences */
    int most;                   /* how many differences the text may name */
    shmi_words *text;
} shmi_type_pair;

SHMI_FN int shmi_type_is_renamed(shmi_type_walk *w)
{
    const shmi_type_pair *x = (const shmi_type_pair *)w->arg;
    return w->leaf.off == x->leaf->off && strcmp(w->leaf.kind, x->leaf->kind) == 0 && !shmi_type_find(x->own, &w->leaf, NULL);
}

/* Counts a difference, and returns whether the text names it. */
SHMI_FN int shmi_type_names(shmi_type_pair *x)
{
    if (x->count++ >= x->most)
        return 0;
    if (x->named++ > 0)
        shmi_say(x->text, ", and ");
    return 1;
}

SHMI_FN int shmi_type_compare(shmi_type_walk *w)
{
    shmi_type_pair *x = (shmi_type_pair *)w->state;
    const char *path = w->leaf.path[0] != 0 ? w->leaf.path : "the type", *field = w->leaf.path[0] != 0 ? "field " : "";
    shmi_type_leaf there;
    shmi_type_walk other;
    if (shmi_type_find(x->other, &w->leaf, &there)) {
        int same = strcmp(there.kind, w->leaf.kind) == 0;
        if (x->arena || (same && there.off == w->leaf.off) || same != x->moved)
            return 0;
        if (shmi_type_names(x))
            shmi_say(x->text, "%s%s is %s at %llu in the arena, and %s at %llu in this program", field, path, there.kind,
                     (unsigned long long)there.off, w->leaf.kind, (unsigned long long)w->leaf.off);
        return 0;
    }
    if (x->moved)
        return 0;
    memset(&other, 0, sizeof other);
    other.see = shmi_type_is_renamed;
    x->leaf = &w->leaf;
    other.arg = x;
    if (shmi_type_each(&other, x->other) != SHMI_TYPE_ENOUGH && shmi_type_names(x))
        shmi_say(x->text, "%s%s, %s at %llu, is in %s only", field, path, w->leaf.kind, (unsigned long long)w->leaf.off,
                 x->arena ? "the arena" : "this program");
    return 0;
}

/* Compares the fields of the program, and then those of the object. */
SHMI_FN void shmi_type_compare_all(shmi_type_pair *x, const char *arena, const char *program)
{
    shmi_type_walk w;
    memset(&w, 0, sizeof w);
    w.see = shmi_type_compare;
    w.state = x;
    x->own = program;
    x->other = arena;
    x->arena = 0;
    shmi_type_each(&w, program);
    x->own = arena;
    x->other = program;
    x->arena = 1;
    shmi_type_each(&w, arena);
}

SHMI_FN void shmi_say_count(shmi_words *w, int n, const char *one, const char *many)
{
    if (n > 0)
        shmi_say(w, ", and %d %s", n, n == 1 ? one : many);
}

/* Writes to text what differs between the type of an object and that of the program. The text names no more fields than
 * the parameter most says: see Difference in internal/typetext. Returns 0 if no field differs. */
SHMI_FN int shmi_type_difference(const char *arena, const char *program, int most, char *text, size_t size)
{
    shmi_words words;
    shmi_type_pair changed, moved;
    char there[64], here[64];
    text[0] = 0;
    if (strcmp(arena, program) == 0 || !shmi_type_valid(arena) || !shmi_type_valid(program))
        return 0;
    shmi_type_kind(arena, there, sizeof there);
    shmi_type_kind(program, here, sizeof here);
    if (strcmp(there, here) != 0 && (strcmp(there, "struct") == 0 || strcmp(here, "struct") == 0)) {
        snprintf(text, size, "the type is %s in the arena, and %s in this program", there, here);
        return 1;
    }
    words.text = text;
    words.size = size;
    words.used = 0;
    memset(&changed, 0, sizeof changed);
    changed.text = &words;
    changed.most = most;
    moved = changed;
    shmi_type_compare_all(&changed, arena, program);
    moved.moved = 1;
    moved.most = changed.count == 0;
    shmi_type_compare_all(&moved, arena, program);
    shmi_say_count(&words, changed.count - changed.named, "more field differs", "more fields differ");
    shmi_say_count(&words, moved.count - moved.named, "more field has moved", "more fields have moved");
    return changed.count + moved.count;
}
